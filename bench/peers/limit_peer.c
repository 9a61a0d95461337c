/*
 * limit_peer.c - what memory allows, as a contender: limit_peer DIR bound|free RANKS
 *
 * Ranks are threads of one process that read and write each other's buffers directly, with nothing in between: no
 * library does better without doing something else. Buffers are memfd memory, as what processes share is. A call ends
 * with a barrier, since a rank's output is written by others. Ordinary stores and, where the machine has
 * them, non-temporal ones are both tried, and the better counts.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#include "contender.h"

enum { RANKS_MAX = 64, LINE = 16 /* floats */, SPINS = 2000 };

static struct {
    int nranks;
    bool crowded; /* ranks outnumber processors: waiting yields */
    const char *folder, *how;
    _Alignas(128) atomic_long arrived;
    _Alignas(128) float *in[RANKS_MAX], *out[RANKS_MAX];
    double *values[RANKS_MAX];
} all;

struct thread {
    pthread_t id;
    int rank, code;
    long meetings;
    bool streaming;
};

/* --- meeting ------------------------------------------------------------------------------------------ */

static void pause_a_moment(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Acquire and release: what others wrote before they came is seen by all who leave. */
static void meet(void *self)
{
    struct thread *t = self;
    long all_here = ++t->meetings * all.nranks;

    atomic_fetch_add_explicit(&all.arrived, 1, memory_order_acq_rel);
    for (int spins = 0; atomic_load_explicit(&all.arrived, memory_order_acquire) < all_here;
         spins++) {
        pause_a_moment();
        if (all.crowded || spins > SPINS)
            sched_yield();
    }
}

static void largest(void *self, double *values, int count)
{
    struct thread *t = self;

    all.values[t->rank] = values;
    meet(t);
    if (t->rank == 0) {
        for (int r = 1; r < all.nranks; r++) {
            for (int i = 0; i < count; i++) {
                if (all.values[r][i] > values[i])
                    values[i] = all.values[r][i];
            }
        }
    }
    meet(t);
}

/* --- moving ------------------------------------------------------------------------------------------- */

#define INLINE static inline __attribute__((always_inline))

/* to[k][i] = sum over j of from[j][i]: the one loop that everything below is made of. `nfrom` and `nto` are known to the
 * compiler where it matters. */
INLINE void move_plain(float *const *to, int nto, float *const *from, int nfrom, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = from[0][i];

        for (int j = 1; j < nfrom; j++)
            sum += from[j][i];
        for (int k = 0; k < nto; k++)
            to[k][i] = sum;
    }
}

#ifdef __AVX__
INLINE size_t move_vectors(float *const *to, int nto, float *const *from, int nfrom, size_t n,
                           bool streaming)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256 sum = _mm256_loadu_ps(from[0] + i);

        for (int j = 1; j < nfrom; j++)
            sum = _mm256_add_ps(sum, _mm256_loadu_ps(from[j] + i));
        for (int k = 0; k < nto; k++) {
            if (streaming)
                _mm256_stream_ps(to[k] + i, sum);
            else
                _mm256_storeu_ps(to[k] + i, sum);
        }
    }
    return i;
}

static bool are_aligned(float *const *to, int nto)
{
    for (int k = 0; k < nto; k++) {
        if ((uintptr_t)to[k] % 32 != 0)
            return false;
    }
    return true;
}

INLINE void move_known(float *const *to, int nto, float *const *from, int nfrom, size_t n,
                       bool streaming)
{
    float *rest_to[RANKS_MAX], *rest_from[RANKS_MAX];
    size_t done = streaming ? move_vectors(to, nto, from, nfrom, n, true)
                            : move_vectors(to, nto, from, nfrom, n, false);

    if (streaming)
        _mm_sfence();
    if (done == n)
        return;
    for (int k = 0; k < nto; k++)
        rest_to[k] = to[k] + done;
    for (int j = 0; j < nfrom; j++)
        rest_from[j] = from[j] + done;
    move_plain(rest_to, nto, rest_from, nfrom, n - done);
}
#else
INLINE void move_known(float *const *to, int nto, float *const *from, int nfrom, size_t n,
                       bool streaming)
{
    (void)streaming;
    move_plain(to, nto, from, nfrom, n);
}

static bool are_aligned(float *const *to, int nto)
{
    (void)to;
    (void)nto;
    return false;
}
#endif

static void move(const struct thread *t, float *const *to, int nto, float *const *from, int nfrom,
                 size_t n)
{
    bool streaming = t->streaming && are_aligned(to, nto);

    /* The compiler unrolls what it knows. */
    if (nto == 1 && nfrom == 1)
        move_known(to, 1, from, 1, n, streaming);
    else if (nto == 2 && nfrom == 2)
        move_known(to, 2, from, 2, n, streaming);
    else if (nto == 4 && nfrom == 4)
        move_known(to, 4, from, 4, n, streaming);
    else if (nto == 8 && nfrom == 8)
        move_known(to, 8, from, 8, n, streaming);
    else if (nto == 1 && nfrom == 2)
        move_known(to, 1, from, 2, n, streaming);
    else if (nto == 1 && nfrom == 4)
        move_known(to, 1, from, 4, n, streaming);
    else
        move_known(to, nto, from, nfrom, n, streaming);
}

static void copy(const struct thread *t, float *to, float *from, size_t n)
{
    move(t, &to, 1, &from, 1, n);
}

/* --- the operations ----------------------------------------------------------------------------------- */

/* The part of `count` that is this rank's to handle: whole cache lines, the rest is the last rank's. */
static size_t share_of(const struct perf_shape *s, size_t *n_out)
{
    size_t share = s->count / (size_t)s->nranks / LINE * LINE, first = share * (size_t)s->rank;

    *n_out = s->rank == s->nranks - 1 ? s->count - first : share;
    return first;
}

static void shifted(float *const *buffers, size_t by, float **out)
{
    for (int r = 0; r < all.nranks; r++)
        out[r] = buffers[r] + by;
}

/* Our share of everybody's input, summed up into somebody's output or into all. */
static void reduce_share(const struct thread *t, const struct perf_shape *s, bool into_all)
{
    float *from[RANKS_MAX], *to[RANKS_MAX];
    size_t n, first = share_of(s, &n);

    shifted(all.in, first, from);
    shifted(all.out, first, to);
    move(t, into_all ? to : &to[s->root], into_all ? s->nranks : 1, from, s->nranks, n);
}

static void spread_share(const struct thread *t, const struct perf_shape *s)
{
    size_t n, first = share_of(s, &n);

    for (int r = 0; r < s->nranks; r++) {
        if (r != s->root)
            copy(t, all.out[r] + first, all.out[s->root] + first, n);
    }
}

static void reduce_block(const struct thread *t, const struct perf_shape *s)
{
    float *from[RANKS_MAX];

    shifted(all.in, (size_t)s->rank * s->block, from);
    move(t, &all.out[s->rank], 1, from, s->nranks, s->block);
}

static void carry_out(const struct thread *t, const struct perf_shape *s)
{
    size_t mine = (size_t)s->rank * s->block;
    int me = s->rank, n = s->nranks;

    switch (s->op) {
    case PERF_ALLREDUCE:
    case PERF_REDUCE:
        reduce_share(t, s, s->op == PERF_ALLREDUCE);
        break;
    case PERF_BROADCAST:
        spread_share(t, s);
        break;
    case PERF_ALLGATHER:
        for (int r = 0; r < n; r++)
            copy(t, all.out[r] + mine, all.in[me], s->block);
        break;
    case PERF_REDUCESCATTER:
        reduce_block(t, s);
        break;
    case PERF_ALLTOALL:
        for (int r = 0; r < n; r++)
            copy(t, all.out[me] + (size_t)r * s->block, all.in[r] + mine, s->block);
        break;
    case PERF_GATHER:
        copy(t, all.out[s->root] + mine, all.in[me], s->block);
        break;
    case PERF_SCATTER:
        copy(t, all.out[me], all.in[s->root] + mine, s->block);
        break;
    case PERF_SENDRECV:
        copy(t, all.out[me], all.in[(me + n - 1) % n], s->count);
        break;
    case PERF_BARRIER:
    case PERF_NOPS:
        break;
    }
}

static void call(void *self, const struct perf_shape *s, float *in, float *out)
{
    (void)in;
    (void)out;
    carry_out(self, s);
    meet(self);
}

/* --- memory and ranks --------------------------------------------------------------------------------- */

/* Everybody has met before anybody looks at these. */
static void *memory(void *self, int which, size_t nbytes)
{
    struct thread *t = self;
    int fd = memfd_create("limit", MFD_CLOEXEC);
    void *at = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, (off_t)nbytes) == 0)
        at = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED)
        return NULL;
    memset(at, 0, nbytes);
    (which == 0 ? all.in : all.out)[t->rank] = at;
    return at;
}

static void release(void *self, void *at, size_t nbytes)
{
    (void)self;
    munmap(at, nbytes);
}

static void set_variant(void *self, int variant)
{
    struct thread *t = self;

    t->streaming = variant == 1;
}

static void *be_rank(void *arg)
{
    struct thread *t = arg;
    struct contender c = { .name = "limit",
                           .self = t,
                           .rank = t->rank,
                           .nranks = all.nranks,
#ifdef __AVX__
                           .nvariants = 2,
#else
                           .nvariants = 1,
#endif
                           .set_variant = set_variant,
                           .memory = memory,
                           .release = release,
                           .barrier = meet,
                           .call = call,
                           .largest = largest };

    contender_bind(all.how, t->rank);
    t->code = contender_serve(&c, all.folder);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct thread threads[RANKS_MAX];
    cpu_set_t allowed;

    all.nranks = argc > 3 ? atoi(argv[3]) : 0;
    if (all.nranks < 1 || all.nranks > RANKS_MAX) {
        fprintf(stderr, "usage: limit_peer DIR bound|free RANKS (1 to %d)\n", RANKS_MAX);
        return 2;
    }
    all.folder = argv[1];
    all.how = argv[2];
    all.crowded = sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
                  CPU_COUNT(&allowed) < all.nranks;
    for (int r = 0; r < all.nranks; r++) {
        threads[r].rank = r;
        if (pthread_create(&threads[r].id, NULL, be_rank, &threads[r]) != 0) {
            perror("limit: cannot start a thread");
            return 1;
        }
    }
    for (int r = 0; r < all.nranks; r++)
        pthread_join(threads[r].id, NULL);
    return threads[0].code;
}
