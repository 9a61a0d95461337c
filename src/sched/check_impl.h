/*
 * check_impl.h - what the parts of the checker share: the state of one check.
 *
 *   check.c          the entries, and what a refusal says
 *   check_run.c      executes the steps
 *   check_memory.c   cells, who may touch them
 *   check_promise.c  what the operation promised
 *   check_clock.c    order
 *   check_expr.c     values
 */
#ifndef CH_CHECK_IMPL_H
#define CH_CHECK_IMPL_H

#include "base/compiler.h"
#include "sched/check.h"
#include "sched/check_clock.h"
#include "sched/check_expr.h"
#include "sched/sched.h"

/* A step of a rank in a round. */
struct ch_site {
    uint32_t rank, round, step;
};

/* How finely blocks are divided in a round: into the least number of cells of which every share that a
 * step names is a whole number. */
struct ch_grain {
    uint32_t nblocks;
    uint32_t *cells; /* of each block, at least 1 */
};

struct ch_spaces;

/* Where a rank is. */
struct ch_runner {
    uint32_t round, step;
    uint32_t nposts;
    bool gated;
    bool begun;          /* the step at `step` is a message of which the halves are: */
    bool sent, received; /* done */
};

struct ch_checker {
    struct ch_sched *const *const *rounds;
    uint32_t nrounds, nranks;
    uint32_t gate_back;      /* which earlier round a gate waits for: 2, there are two halves */
    struct ch_grain *grains; /* one for each round */
    struct ch_runner *runners;
    bool moved; /* somebody did, since this was last looked at; if only by half an exchange */
    struct ch_exprs *exprs;
    struct ch_clocks *clocks;
    struct ch_spaces *spaces;
    ch_expr **agreed; /* for each round: what each cell of block 0 is on all ranks (allreduce) */
    ch_expr *cells;   /* of the step under way */
    size_t cells_room;
    struct ch_check_facts facts;
    char *trace;
    size_t trace_used;
};

static inline const struct ch_sched *ch_checker_sched(const struct ch_checker *c, uint32_t round,
                                                      uint32_t rank)
{
    return c->rounds[round][rank];
}

/* Refuse: the reason is the error text; in the trace it is followed by the steps that are to blame. `b`
 * may be NULL. Always CHOIR_ERR_INVALID. */
choir_status ch_refuse(struct ch_checker *c, const struct ch_site *a, const struct ch_site *b,
                       const char *fmt, ...) CH_PRINTF(4, 5);

/* The same for what an expression's operation said, which is this thread's last error. */
choir_status ch_refuse_last(struct ch_checker *c, const struct ch_site *a, choir_status rc);

/* One more line of the trace. */
void ch_trace_line(struct ch_checker *c, const char *fmt, ...) CH_PRINTF(2, 3);

/* --- memory ----------------------------------------------------------------------------------------- */

choir_status ch_spaces_create(struct ch_checker *c);
void ch_spaces_destroy(struct ch_checker *c);

/* A rank enters a round: its private memory is as new. */
choir_status ch_space_enter(struct ch_checker *c, uint32_t rank, uint32_t round);

uint32_t ch_range_ncells(const struct ch_checker *c, uint32_t round, const struct ch_range *r);

/* Read or write all cells of a range, which is of the schedule of who->rank. */
choir_status ch_space_read(struct ch_checker *c, const struct ch_site *who,
                           const struct ch_range *r, ch_expr *cells);
choir_status ch_space_write(struct ch_checker *c, const struct ch_site *who,
                            const struct ch_range *r, const ch_expr *cells);

/* What OUT holds, without a step that reads it. */
ch_expr ch_space_out(const struct ch_checker *c, uint32_t rank, uint32_t round, uint32_t block,
                     uint32_t cell);

/* Whether two ranges of one schedule share memory, whatever the lengths of blocks are. */
bool ch_ranges_overlap(const struct ch_checker *c, const struct ch_site *who,
                       const struct ch_range *a, const struct ch_range *b);

/* --- the end of a round, for one rank ----------------------------------------------------------------- */

choir_status ch_check_promise(struct ch_checker *c, uint32_t rank, uint32_t round);

/* The whole check, with gates that wait for another round than the second before. With a later one than
 * that there is no need for memory to be compared between rounds, so this is how tests see that it is. */
choir_status ch_check_gates(struct ch_sched *const *const *rounds, uint32_t nrounds,
                            uint32_t nranks, uint32_t gate_back, struct ch_check_facts *facts,
                            char *trace);

/* --- running ------------------------------------------------------------------------------------------ */

choir_status ch_check_run(struct ch_checker *c);

#endif
