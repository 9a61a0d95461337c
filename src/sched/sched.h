/*
 * sched.h - a schedule: what one rank does in one round of one operation, as plain data.
 *
 * An algorithm (algo/) writes it, the engine runs it, the checker (sched/check.h) proves it for all
 * ranks together, the simulator plays it, `choir explain` prints it. Nothing in it is an address or a
 * number of bytes: memory is named as (rank, region, slot, block, share), so that one schedule serves
 * every size and is cached.
 *
 * Rounds. An operation on long buffers is several rounds of the same schedule, each on the next window
 * of every block, as long as fits the stage. Rounds of all operations of a group are counted together;
 * the stage has two halves, and round g works in half g % 2. That is all the pipelining there is:
 * a rank that is through with its part of round g starts round g + 1 while others still read its half
 * of round g. What keeps it from running further ahead is GATE.
 *
 * Blocks. What an operation moves is made of blocks, numbered the same on all ranks:
 *
 *   operation            blocks          IN of rank r holds        OUT of rank r holds
 *   allreduce, reduce    0               0                         0 (reduce: the root's only)
 *   broadcast            0               0 (the root's only)       0
 *   allgather            0 .. N-1        r                         all
 *   gather               0 .. N-1        r                         all (the root's only)
 *   scatter              0 .. N-1        all (the root's only)     r
 *   reduce_scatter       0 .. N-1        all                       r
 *   alltoall             0 .. N*N-1      r*N .. r*N+N-1            r, N+r, 2N+r, ... (i*N + r: from i)
 *   barrier              none
 *
 * Blocks may differ in length (uneven forms); a window of a block that has ended is empty.
 *
 * Shares. A range is share i of k of the round's window of a block. Equal fractions are equal places:
 * share 1 of 2 starts where share 2 of 4 does.
 *
 * Regions. IN and OUT are the caller's buffers, private to the rank. In place they are the same memory;
 * an algorithm is told (shape.in_place). SCRATCH is private and holds accumulators: elements of the type
 * in which sums are kept (float for 16- and 8-bit floats); in operations that do not reduce, where it is for
 * blocks in transit, elements as they are. STAGE and LINE are in the rank's segment: all
 * ranks of the host may read them, only their owner writes them. A slot has
 * room for a window of one block, in the order of the block's bytes. LINE is small and lies in the cache
 * lines of the rank's own flag, so that payload and flag travel together; it is for tiny operations of
 * one round, whose blocks are all of one length.
 */
#ifndef CH_SCHED_H
#define CH_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

/* What a schedule can be for. The order is that of enum and of names; see sched_names.c. */
enum ch_coll {
    CH_ALLREDUCE,
    CH_BROADCAST,
    CH_REDUCE,
    CH_ALLGATHER,
    CH_REDUCE_SCATTER,
    CH_GATHER,
    CH_SCATTER,
    CH_ALLTOALL,
    CH_BARRIER,
    CH_NCOLLS
};

const char *ch_coll_name(enum ch_coll coll); /* "allreduce" */
bool ch_coll_find(const char *name, enum ch_coll *coll_out);

enum ch_region { CH_IN, CH_OUT, CH_SCRATCH, CH_STAGE, CH_LINE, CH_NREGIONS };

/* A place in memory. */
struct ch_range {
    uint8_t region; /* enum ch_region */
    uint16_t slot;  /* STAGE, SCRATCH, LINE */
    uint32_t rank;  /* whose; for IN, OUT and SCRATCH always the schedule's own */
    uint32_t block;
    uint32_t share, nshares;
};

/*
 * Steps, done one after the other. What each does to its ranges (struct ch_sched, `ranges`):
 *
 *   COPY     dst, src          bytes. SCRATCH on one side only: widened to, or narrowed from, an accumulator; from
 *                              IN, in a reduction, it is this rank's contribution (premul-sum: scaled)
 *   REDUCE   dst, src...       all contributions, in rank order, to the finished result: divided (avg),
 *                              scaled by each rank's factor (premul-sum), rounded once. src i is rank i's
 *   COMBINE  dst, src...       accumulators only (SCRATCH): partial results, in the order given; not finished
 *   FINISH   dst, src          src is SCRATCH with all contributions in it: divided if avg, narrowed
 *   POST     -                 raise our own flag to `flag`; all ranks may be waiting for it
 *   AWAIT    -                 until `peer` has raised its flag to `flag`
 *   GATE     -                 until every rank is through with the round before the last, whose half of
 *                              the stage this round is about to overwrite. Before the first write to STAGE
 *                              or LINE. (Being through needs no step: the engine raises the flag at the end.)
 *   SEND     src...            one message to `peer`, the ranges behind each other
 *   RECV     dst...            the next message from `peer`, which has exactly that many bytes
 *
 * SEND is done when the ranges may be changed again, not when they have arrived. A SEND may block until
 * the peer is in its RECV.
 */
enum ch_step_kind {
    CH_COPY,
    CH_REDUCE_ALL,
    CH_COMBINE,
    CH_FINISH,
    CH_POST,
    CH_AWAIT,
    CH_GATE,
    CH_SEND,
    CH_RECV,
    CH_SENDRECV, /* a SEND to `peer` and a RECV from `flag` at once: ranges[0 .. nsrcs) go, the rest come */
    CH_NSTEPS
};

struct ch_step {
    uint8_t kind;         /* enum ch_step_kind */
    uint32_t peer;        /* AWAIT, SEND, RECV, SENDRECV (to) */
    uint32_t flag;        /* POST, AWAIT: 1 .. nflags; SENDRECV: from which rank */
    uint32_t first_range; /* of struct ch_sched.ranges */
    uint32_t nranges;
    uint32_t nsrcs; /* SENDRECV: how many of them are sent */
};

struct ch_sched {
    enum ch_coll coll;
    const char *algo; /* the algorithm's name; lives as long as the schedule */
    uint32_t rank, nranks, root;
    bool in_place;
    uint32_t nflags;        /* the largest flag of any rank; the same on all */
    uint32_t stage_slots;   /* per half, the same on all ranks; 0: STAGE is not used */
    uint32_t line_slots;    /* the same for LINE */
    uint32_t scratch_slots; /* this rank's */
    uint32_t nsteps, nranges;
    struct ch_step *steps;
    struct ch_range *ranges;
};

/* --- building ---------------------------------------------------------------------------------- */

/*
 * Steps are appended to a builder; a failed append (no memory, nonsense) is remembered and told by
 * ch_builder_end(), so that an algorithm reads without error checks.
 *
 *   ch_build_gate(b);
 *   ch_build_copy(b, ch_stage(me, 0, block, 0, 1), ch_in(me, block, 0, 1));
 *   ch_build_post(b, 1);
 */
struct ch_builder;

choir_status ch_builder_begin(enum ch_coll coll, const char *algo, uint32_t rank, uint32_t nranks,
                              uint32_t root, bool in_place, struct ch_builder **builder_out);

/* *sched_out ends with ch_sched_destroy(). Ends the builder, also on failure. The three numbers
 * must be the same on all ranks: they are the algorithm's word, checked against its steps. */
choir_status ch_builder_end(struct ch_builder *builder, uint32_t nflags, uint32_t stage_slots,
                            uint32_t line_slots, struct ch_sched **sched_out);

void ch_sched_destroy(struct ch_sched *sched);

/* Names of places. `me` is the rank for which the schedule is. */
static inline struct ch_range ch_range(enum ch_region region, uint32_t rank, uint32_t slot,
                                       uint32_t block, uint32_t share, uint32_t nshares)
{
    return (struct ch_range){ .region = (uint8_t)region,
                              /* No region has so many slots: too large stays too large. */
                              .slot = slot < UINT16_MAX ? (uint16_t)slot : UINT16_MAX,
                              .rank = rank,
                              .block = block,
                              .share = share,
                              .nshares = nshares };
}

static inline struct ch_range ch_in(uint32_t me, uint32_t block, uint32_t share, uint32_t nshares)
{
    return ch_range(CH_IN, me, 0, block, share, nshares);
}

static inline struct ch_range ch_out(uint32_t me, uint32_t block, uint32_t share, uint32_t nshares)
{
    return ch_range(CH_OUT, me, 0, block, share, nshares);
}

static inline struct ch_range ch_scratch(uint32_t me, uint32_t slot, uint32_t block, uint32_t share,
                                         uint32_t nshares)
{
    return ch_range(CH_SCRATCH, me, slot, block, share, nshares);
}

static inline struct ch_range ch_stage(uint32_t rank, uint32_t slot, uint32_t block, uint32_t share,
                                       uint32_t nshares)
{
    return ch_range(CH_STAGE, rank, slot, block, share, nshares);
}

static inline struct ch_range ch_line(uint32_t rank, uint32_t slot, uint32_t block)
{
    return ch_range(CH_LINE, rank, slot, block, 0, 1);
}

void ch_build_copy(struct ch_builder *b, struct ch_range dst, struct ch_range src);
void ch_build_finish(struct ch_builder *b, struct ch_range dst, struct ch_range src);
void ch_build_post(struct ch_builder *b, uint32_t flag);
void ch_build_await(struct ch_builder *b, uint32_t peer, uint32_t flag);
void ch_build_await_all(struct ch_builder *b, uint32_t flag); /* every rank but our own */
void ch_build_gate(struct ch_builder *b);

/* Steps with any number of ranges: begin, add ranges in order, and the next step ends it. */
void ch_build_reduce(struct ch_builder *b, struct ch_range dst); /* then N sources, in rank order */
void ch_build_combine(struct ch_builder *b, struct ch_range dst);         /* then sources */
void ch_build_send(struct ch_builder *b, uint32_t peer);                  /* then what to send */
void ch_build_recv(struct ch_builder *b, uint32_t peer);                  /* then where to */
void ch_build_sendrecv(struct ch_builder *b, uint32_t to, uint32_t from); /* then what to send */
void ch_build_sendrecv_to(struct ch_builder *b); /* from here on: where to receive to */
void ch_build_range(struct ch_builder *b, struct ch_range range);

/* --- text --------------------------------------------------------------------------------------- */

/*
 * One line a step, for people and for tests; what follows a # and empty lines are skipped:
 *
 *   schedule allreduce two-shot rank 1 of 4 root 0 flags 2 stage 1 line 0 scratch 0
 *   gate
 *   copy stage[1].0 b0 0/1 <- in b0 0/1
 *   post 1
 *   await 0 1
 *   reduce stage[1].0 b0 1/4 <- stage[0].0 b0 1/4, stage[1].0 b0 1/4, ...
 *   send 2: out b0 0/1
 *   sendrecv 2: out b0 0/1; 0: out b1 0/1
 *
 * Slots are written stage[rank].slot, line[rank].slot, scratch.slot. The first line ends in "in-place" if
 * the schedule is. Parsing gives the same schedule back; CHOIR_ERR_INVALID names line and column. What
 * the first line does not say is 0; scratch is as much as is used. *text_out ends with ch_free().
 */
choir_status ch_sched_print(const struct ch_sched *sched, char **text_out);
choir_status ch_sched_parse(const char *text, struct ch_sched **sched_out);

/* One step, into `buf`, which is returned; cut if it does not fit. */
const char *ch_step_text(const struct ch_sched *sched, uint32_t step, char *buf, size_t size);

#endif
