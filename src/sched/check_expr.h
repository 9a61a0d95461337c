/*
 * check_expr.h - what a cell of abstract memory holds: which contributions, put together how.
 *
 * Equal expressions are equal numbers: nothing is built twice. Two cells with the same expression hold
 * the same bits on any machine, because all that makes bits (which operands, in which order, where it is
 * rounded) is in it. Where in a block the cell lies is not: steps keep a piece in its place.
 */
#ifndef CH_CHECK_EXPR_H
#define CH_CHECK_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

typedef uint64_t ch_expr; /* 0: nothing */

struct ch_exprs;

choir_status ch_exprs_create(uint32_t nranks, struct ch_exprs **exprs_out);
void ch_exprs_destroy(struct ch_exprs *exprs); /* accepts NULL */

/* What rank `rank` gave for `block`. */
ch_expr ch_expr_leaf(uint32_t rank, uint32_t block);

/* All contributions to `block`, added in rank order, finished: what a REDUCE makes, and also what a FINISH
 * makes of a COMBINE in that order, bit by bit. */
ch_expr ch_expr_total(uint32_t block);

/* An accumulator of one contribution, and one rounded to elements without being finished. */
choir_status ch_expr_widen(struct ch_exprs *exprs, ch_expr e, ch_expr *out);
choir_status ch_expr_narrow(struct ch_exprs *exprs, ch_expr e, ch_expr *out);

/* Accumulators, added in this order. CHOIR_ERR_INVALID if a contribution is in more than one of them. */
choir_status ch_expr_combine(struct ch_exprs *exprs, const ch_expr *kids, uint32_t nkids,
                             ch_expr *out);

/* CHOIR_ERR_INVALID unless all contributions are there. */
choir_status ch_expr_finish(struct ch_exprs *exprs, ch_expr accumulator, ch_expr *out);

/* Whether it is a finished sum of all contributions to `block`. */
bool ch_expr_finished(const struct ch_exprs *exprs, ch_expr e, uint32_t block);

/* In words, cut to the buffer, which is returned. */
const char *ch_expr_text(const struct ch_exprs *exprs, ch_expr e, char *buf, size_t size);

#endif
