/*
 * algo.h - algorithms: a shape in, a schedule out. One file each, listed in algo.def.
 *
 * An algorithm knows sched/ and nothing else: not the engine, not a transport, no address, no byte. Its
 * file says in its head what it costs and when to choose it; the choice itself is select.h's.
 *
 * Costs are per rank and round, n being the bytes of the operation's block (of all blocks, where
 * there are N) and N the ranks: "moves" counts bytes read and written by the rank's own hands, "sends"
 * messages and their bytes, "waits" how often in a row it must wait for others, "room" the slots.
 */
#ifndef CH_ALGO_H
#define CH_ALGO_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/sched.h"

/* What a schedule is asked for. */
struct ch_shape {
    enum ch_coll coll;
    uint32_t rank, nranks;
    uint32_t root; /* of broadcast, reduce, gather, scatter; else 0 */
    bool in_place; /* IN and OUT are one buffer (of this rank; ranks may differ) */
};

/* Of a call as programs can make it: the root of a broadcast has one buffer, whatever is asked for. */
static inline struct ch_shape ch_shape_of(enum ch_coll coll, uint32_t rank, uint32_t nranks,
                                          uint32_t root, bool in_place)
{
    return (struct ch_shape){ .coll = coll,
                              .rank = rank,
                              .nranks = nranks,
                              .root = root,
                              .in_place = in_place || (coll == CH_BROADCAST && rank == root) };
}

/* The blocks of an all-to-all are N * N, and slots are counted in 16 bits, of which ranks that share memory take one or two
 * for each other. */
enum { CH_ALGO_RANKS_MAX = 65536, CH_ALGO_SHARING_MAX = 32767 };

/* Whether all ranks do the same, each as seen from itself: the same steps with as many bytes in the same order, and only
 * the peers differ. The simulator then plays one rank for all. */
enum ch_alike { CH_DIFFERENT, CH_ALIKE_POW2 /* if their number is a power of two */, CH_ALIKE };

/* What an algorithm needs beside its steps; the same on all ranks (sched.h, struct ch_sched). */
struct ch_needs {
    uint32_t flags, stage_slots, line_slots;
};

struct ch_algo {
    enum ch_coll coll;
    const char *name; /* unique among those of its operation: "two-shot" */
    const char *help; /* one line */

    bool uses_memory; /* steps name other ranks' STAGE or LINE: all ranks must share memory */
    bool in_line;     /* payload in LINE: one round, tiny, blocks of equal lengths */
    bool
        any_order; /* not the sum from the first rank to the last: other order, or other brackets */
    bool partial;  /* partial results (COMBINE), not all contributions at once */
    bool even_only; /* blocks must have equal lengths */
    enum ch_alike alike;

    /* Whether it can do this number of ranks at all; NULL: any. */
    bool (*fits)(uint32_t nranks);

    /* Pure arithmetic: writes the rank's steps, moves no byte. There are at least two ranks. */
    struct ch_needs (*emit)(const struct ch_shape *shape, struct ch_builder *b);
};

extern const struct ch_algo *const ch_algos[]; /* all of algo.def, ended by NULL */

/* NULL if there is none of that name. */
const struct ch_algo *ch_algo_find(enum ch_coll coll, const char *name);

bool ch_algo_fits(const struct ch_algo *algo, uint32_t nranks);

/* The schedule of `shape`'s rank. CHOIR_ERR_INVALID if the shape makes no sense or does not fit. One rank
 * alone has nothing to agree on: then all algorithms of an operation give the same schedule. */
choir_status ch_algo_build(const struct ch_algo *algo, const struct ch_shape *shape,
                           struct ch_sched **sched_out);

/* The same as a tally (sched/builder.h), of two ranks or more; steps in place are not asked for. */
struct ch_tally;
choir_status ch_algo_tally(const struct ch_algo *algo, const struct ch_shape *shape,
                           uint32_t widening, struct ch_tally *tally_out);

#endif
