/*
 * bout.c - run contenders in alternating blocks, on one core or against another that writes.
 */
#include "bout.h"

#include <pthread.h>
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
    BLOCK_NS = 500 * 1000,
    BLOCK_NS_TWO_CORES = 200 * 1000,
    MAX_REPEATS = 100000,
    /* Between cores, so much is written and then taken at a time: a clock reading is small beside it,
     * and it fits a core's own cache. */
    BATCH_BYTES = 64 * 1024,
    MAX_BATCH = 64,
};

/* --- buffers ------------------------------------------------------------------------------------ */

/* `batch` times (destination, source, source), each beginning somewhere in pages of its own. */
struct arena {
    unsigned char *memory;
    size_t stride, batch;
    size_t offset[3]; /* where in its first page each of the three begins */
};

static unsigned char *buffer_of(const struct arena *a, size_t slot, size_t which)
{
    return a->memory + (3 * slot + which) * a->stride + a->offset[which];
}

static bool arena_init(struct arena *a, const struct bout *b, size_t batch)
{
    size_t total;

    a->stride = (b->nbytes + 2 * PAGE - 1) / PAGE * PAGE;
    a->batch = batch;
    a->offset[0] = b->dst_offset;
    /* The sources of a sum are kept apart in the cache, where three buffers that all begin with a page
     * would meet in the same places. */
    a->offset[1] = b->work == BOUT_REDUCE ? 5 * CH_CACHE_UNIT : 0;
    a->offset[2] = 2 * a->offset[1];
    total = 3 * batch * a->stride;
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

static const double factors[] = { 0.5, 0.25 };

/* Arguments are put together beforehand, as the engine does for its steps. */
struct call {
    const struct contender *contender;
    size_t nbytes, count;
    void *dst;
    const void *srcs[2];
    struct ch_reduction reduction;
};

static void call_init(struct call *call, const struct bout *b, const struct contender *c,
                      const struct arena *a, size_t slot)
{
    *call = (struct call){ .contender = c,
                           .nbytes = b->nbytes,
                           .dst = buffer_of(a, slot, 0),
                           .srcs = { buffer_of(a, slot, 1), buffer_of(a, slot, 2) },
                           .reduction = { c->type, c->op, 2, factors } };
    if (b->work == BOUT_REDUCE)
        call->count = b->nbytes / choir_type_size(c->type);
}

static void run_copies(const struct call *call, uint64_t times)
{
    const struct contender *c = call->contender;

    for (uint64_t i = 0; i < times; i++) {
        if (c->is_libc)
            libc_copy(call->dst, call->srcs[1], call->nbytes);
        else if (c->past_cache)
            c->kernels->copy_nt(call->dst, call->srcs[1], call->nbytes);
        else
            c->kernels->copy(call->dst, call->srcs[1], call->nbytes);
    }
}

static void run_reductions(const struct call *call, uint64_t times)
{
    const struct contender *c = call->contender;
    ch_reduce_fn reduce = c->plain == NULL ? c->kernels->reduce[c->type][c->op] : NULL;

    for (uint64_t i = 0; i < times; i++) {
        if (c->plain != NULL)
            c->plain(call->dst, call->srcs[0], call->srcs[1], call->count);
        else
            reduce(&call->reduction, &call->dst, 1, call->srcs, 2, call->count);
    }
}

static void run_calls(const struct bout *b, const struct call *call, uint64_t times)
{
    if (b->work == BOUT_COPY)
        run_copies(call, times);
    else
        run_reductions(call, times);
}

static double rate_of(const struct bout *b, uint64_t calls, uint64_t ns)
{
    double buffers = b->work == BOUT_COPY ? 2 : 3;

    return buffers * (double)b->nbytes * (double)calls / (double)(ns > 0 ? ns : 1);
}

/* --- alone ---------------------------------------------------------------------------------------- */

static uint64_t time_calls(const struct bout *b, const struct contender *c, const struct arena *a,
                           uint64_t times)
{
    struct call call;
    uint64_t began;

    call_init(&call, b, c, a, 0);
    began = ch_now();
    run_calls(b, &call, times);
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

    if (!arena_init(&a, b, 1))
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
    _Alignas(CH_CACHE_UNIT) _Atomic int turn;
};

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

    pin(1);
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
    struct call calls[MAX_BATCH];
    uint64_t ns = 0;

    for (size_t slot = 0; slot < p->arena.batch; slot++)
        call_init(&calls[slot], p->bout, c, &p->arena, slot);
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t began;

        give_turn(p, TO_WRITER);
        await_turn(p, TO_TAKER);
        began = ch_now();
        for (size_t slot = 0; slot < p->arena.batch; slot++)
            run_calls(p->bout, &calls[slot], 1);
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

static bool run_two_cores(struct bout *b)
{
    struct pair p = { .bout = b, .turn = TO_TAKER };
    size_t batch = b->nbytes < BATCH_BYTES ? BATCH_BYTES / b->nbytes : 1;
    pthread_t writer;

    if (!arena_init(&p.arena, b, batch < MAX_BATCH ? batch : MAX_BATCH))
        return false;
    if (pthread_create(&writer, NULL, write_sources, &p) != 0) {
        free(p.arena.memory);
        return false;
    }
    run_pair(&p, b);
    give_turn(&p, STOP);
    pthread_join(writer, NULL);
    free(p.arena.memory);
    return true;
}

/* --- results ---------------------------------------------------------------------------------------- */

bool bout_run(struct bout *b)
{
    return b->two_cores ? run_two_cores(b) : run_alone(b);
}

struct spread bout_rate(const struct bout *b, size_t who)
{
    double values[BOUT_MAX_BLOCKS];

    memcpy(values, b->rates[who], sizeof(values));
    return spread_of(values, (size_t)b->nblocks);
}

struct spread bout_ratio(const struct bout *b, size_t who, size_t to_whom)
{
    double values[BOUT_MAX_BLOCKS];

    for (int i = 0; i < b->nblocks; i++)
        values[i] = b->rates[who][i] / b->rates[to_whom][i];
    return spread_of(values, (size_t)b->nblocks);
}
