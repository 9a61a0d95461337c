/*
 * op.h - an operation, as the layers below the public calls see it: checked, and the same for all forms.
 */
#ifndef CH_OP_H
#define CH_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>
#include <choir/types.h>
#include <choir/work.h>

#include "base/clock.h"
#include "sched/sched.h"

/* The caller's memory of one region, as blocks (sched.h). Even: block first + i * step is at base + i * count
 * elements. Uneven: pieces[i] says where it is and how long. */
struct ch_piece {
    void *data;
    size_t count; /* elements */
};

struct ch_blocks {
    uint32_t first, step, nblocks; /* which blocks are here; step is 1 but for OUT of alltoall */
    char *base;                    /* even */
    size_t count;                  /* even: elements of each */
    const struct ch_piece *pieces; /* NULL: even */
};

struct ch_op {
    choir_optype type; /* what was called */
    enum ch_coll coll; /* what it is for schedules; unused by sends and receives */
    choir_type dtype;
    choir_redop redop;
    double factor; /* premul-sum: this rank's */
    uint32_t root;
    bool reduces; /* redop, factor count */

    struct ch_blocks in, out;
    bool in_place;
    size_t longest; /* elements of the longest block, on any rank that this rank knows of */
    /* The form of the call lets blocks differ in length; the same on all ranks. Of an alltoall no rank knows all
     * lengths: then the engine has the ranks compare and agree first (agree.h). Of gather and scatter the root does
     * (rooted.h). */
    bool uneven;
    bool differ; /* gather, scatter: this is the root, and they do */
    /* A hash of what else the ranks must agree on about lengths; 0: `longest` says it all. */
    uint64_t counts;
    const char *algo; /* asked for by name; NULL: chosen */

    int peer, tag;  /* sends and receives; peer -1: any */
    uint64_t moves; /* grows whenever it got on: who waits then begins to wait anew */
    bool attended;  /* whoever runs it looks again in a moment: no watch is kept meanwhile */

    uint64_t seq; /* of the group's collectives, or of its sends and receives */
    ch_deadline until;
    int64_t timeout_ms; /* as asked for, for texts */
};

/* "allreduce"; NULL if it is not one of the list. */
const char *ch_optype_name(choir_optype type);

#endif
