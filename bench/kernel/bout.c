/*
 * bout.c - run contenders in alternating blocks, on one core or against another that writes.
 */
#include "bout.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arch.h"
#include "base/clock.h"
#include "base/compiler.h"

enum {
    PAGE = 4096,
    /* A block lasts as long as it takes to be measured well, and no longer. */
    BLOCK_NS = 200 * 1000,
    BLOCK_NS_TWO_CORES = 100 * 1000,
    MAX_REPEATS = 100000,
    /* Between cores, so much is written and then taken at a time: a clock reading is small beside it,
     * and it fits a core's own cache. */
    BATCH_BYTES = 64 * 1024,
};

/* --- buffers ------------------------------------------------------------------------------------ */

/* `batch` times (destination, source, source). The strides avoid that all three meet in the same
 * cache sets, which would measure nothing but that. */
struct arena {
    unsigned char *memory;
    size_t stride, batch;
};

static unsigned char *buffer_of(const struct arena *a, size_t slot, size_t which)
{
    return a->memory + (3 * slot + which) * a->stride;
}

static bool arena_init(struct arena *a, size_t nbytes, size_t batch)
{
    size_t total;

    a->stride = (nbytes + PAGE - 1) / PAGE * PAGE + 5 * CH_CACHE_UNIT;
    a->batch = batch;
    total = (3 * batch * a->stride + PAGE - 1) / PAGE * PAGE;
    a->memory = aligned_alloc(PAGE, total);
    if (a->memory == NULL)
        return false;
    /* Small numbers in every type, and every page present. */
    memset(a->memory, 0x11, total);
    return true;
}

/* --- one call ------------------------------------------------------------------------------------ */

/* Volatile: a compiler that knows memcpy would leave out a copy nobody reads. */
static void *(*volatile libc_copy)(void *dst, const void *src, size_t nbytes) = memcpy;

static void run_once(const struct bout *b, const struct contender *c, const struct arena *a,
                     size_t slot)
{
    void *dst = buffer_of(a, slot, 0);
    const void *srcs[] = { buffer_of(a, slot, 1), buffer_of(a, slot, 2) };
    const double factors[] = { 0.5, 0.25 };
    const struct ch_reduction r = { c->type, c->op, 2, factors };

    if (b->work == BOUT_COPY) {
        if (c->is_libc)
            libc_copy(dst, srcs[1], b->nbytes);
        else
            (c->past_cache ? c->kernels->copy_nt : c->kernels->copy)(dst, srcs[1], b->nbytes);
    } else {
        size_t count = b->nbytes / choir_type_size(c->type);

        if (c->plain != NULL)
            c->plain(dst, srcs[0], srcs[1], count);
        else
            c->kernels->reduce[c->type][c->op](&r, &dst, 1, srcs, 2, count);
    }
}

static double rate_of(const struct bout *b, uint64_t calls, uint64_t ns)
{
    double buffers = b->work == BOUT_COPY ? 2 : 3;

    return buffers * (double)b->nbytes * (double)calls / (double)(ns > 0 ? ns : 1);
}

/* --- alone ---------------------------------------------------------------------------------------- */

static uint64_t time_calls(const struct bout *b, const struct contender *c, const struct arena *a,
                           uint64_t calls)
{
    uint64_t began = ch_now();

    for (uint64_t i = 0; i < calls; i++)
        run_once(b, c, a, 0);
    return ch_now() - began;
}

/* How many calls make a block; also warms up. */
static uint64_t calls_for(const struct bout *b, const struct contender *c, const struct arena *a)
{
    uint64_t calls = 1, ns;

    while ((ns = time_calls(b, c, a, calls)) < BLOCK_NS / 4 && calls < MAX_REPEATS)
        calls *= 2;
    return calls * BLOCK_NS / (ns + 1) + 1;
}

static bool run_alone(struct bout *b)
{
    uint64_t calls[BOUT_MAX_CONTENDERS];
    struct arena a;

    if (!arena_init(&a, b->nbytes, 1))
        return false;
    for (size_t who = 0; who < b->ncontenders; who++)
        calls[who] = calls_for(b, &b->contenders[who], &a);
    for (int block = 0; block < b->nblocks; block++) {
        for (size_t i = 0; i < b->ncontenders; i++) {
            size_t who = (i + (size_t)block) % b->ncontenders;
            uint64_t ns = time_calls(b, &b->contenders[who], &a, calls[who]);

            b->rates[who][block] = rate_of(b, calls[who], ns);
        }
    }
    free(a.memory);
    return true;
}

/* --- between two cores ----------------------------------------------------------------------------- */

/* Who may touch the buffers. The main thread writes TO_WRITER and STOP, the writer TO_TAKER. */
enum turn { TO_TAKER, TO_WRITER, STOP };

struct pair {
    const struct bout *bout;
    struct arena arena;
    int cpu;
    _Alignas(CH_CACHE_UNIT) _Atomic int turn;
};

static void pin(int cpu)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

static void await_turn(struct pair *p, enum turn mine)
{
    /* Acquire, pairs with the release in give_turn(): the other's buffers are written. */
    while (atomic_load_explicit(&p->turn, memory_order_acquire) != (int)mine)
        ch_arch_relax();
}

static void give_turn(struct pair *p, enum turn whose)
{
    atomic_store_explicit(&p->turn, (int)whose, memory_order_release);
}

static void *write_sources(void *arg)
{
    struct pair *p = arg;
    int turn;

    pin(p->cpu);
    while ((turn = atomic_load_explicit(&p->turn, memory_order_acquire)) != STOP) {
        if (turn == TO_WRITER) {
            for (size_t slot = 0; slot < p->arena.batch; slot++)
                memset(buffer_of(&p->arena, slot, 2), 0x11, p->bout->nbytes);
            give_turn(p, TO_TAKER);
        }
        ch_arch_relax();
    }
    return NULL;
}

static uint64_t time_rounds(struct pair *p, const struct contender *c, uint64_t rounds)
{
    uint64_t ns = 0;

    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t began;

        give_turn(p, TO_WRITER);
        await_turn(p, TO_TAKER);
        began = ch_now();
        for (size_t slot = 0; slot < p->arena.batch; slot++)
            run_once(p->bout, c, &p->arena, slot);
        ns += ch_now() - began;
    }
    return ns;
}

static void run_pair(struct pair *p, struct bout *b)
{
    uint64_t rounds[BOUT_MAX_CONTENDERS];

    for (size_t who = 0; who < b->ncontenders; who++)
        rounds[who] = BLOCK_NS_TWO_CORES * 4 / (time_rounds(p, &b->contenders[who], 4) + 1) + 1;
    for (int block = 0; block < b->nblocks; block++) {
        for (size_t i = 0; i < b->ncontenders; i++) {
            size_t who = (i + (size_t)block) % b->ncontenders;
            uint64_t ns = time_rounds(p, &b->contenders[who], rounds[who]);

            b->rates[who][block] = rate_of(b, rounds[who] * p->arena.batch, ns);
        }
    }
}

/* The first two processors this process may use. */
static bool two_cpus(const cpu_set_t *allowed, int cpu[2])
{
    int found = 0;

    for (int i = 0; i < CPU_SETSIZE && found < 2; i++) {
        if (CPU_ISSET(i, allowed))
            cpu[found++] = i;
    }
    return found == 2;
}

static bool run_two_cores(struct bout *b)
{
    struct pair p = { .bout = b, .turn = TO_TAKER };
    cpu_set_t allowed;
    pthread_t writer;
    int cpu[2];

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || !two_cpus(&allowed, cpu))
        return false;
    if (!arena_init(&p.arena, b->nbytes, b->nbytes < BATCH_BYTES ? BATCH_BYTES / b->nbytes : 1))
        return false;
    p.cpu = cpu[1];
    if (pthread_create(&writer, NULL, write_sources, &p) != 0) {
        free(p.arena.memory);
        return false;
    }
    pin(cpu[0]);
    run_pair(&p, b);
    give_turn(&p, STOP);
    pthread_join(writer, NULL);
    sched_setaffinity(0, sizeof(allowed), &allowed);
    free(p.arena.memory);
    return true;
}

/* --- results ---------------------------------------------------------------------------------------- */

bool bout_run(struct bout *b)
{
    return b->two_cores ? run_two_cores(b) : run_alone(b);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct spread spread_of(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return (struct spread){ values[count / 10], values[count / 2], values[count - 1 - count / 10] };
}

struct spread bout_rate(const struct bout *b, size_t who)
{
    double values[BOUT_MAX_BLOCKS];

    memcpy(values, b->rates[who], sizeof(values));
    return spread_of(values, b->nblocks);
}

struct spread bout_ratio(const struct bout *b, size_t who, size_t to_whom)
{
    double values[BOUT_MAX_BLOCKS];

    for (int i = 0; i < b->nblocks; i++)
        values[i] = b->rates[who][i] / b->rates[to_whom][i];
    return spread_of(values, b->nblocks);
}
