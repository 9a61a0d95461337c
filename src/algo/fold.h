/*
 * fold.h - how algorithms made for a power of two do any number of ranks.
 *
 * With p the largest power of two that is at most N, the first 2(N-p) ranks make pairs: the odd one hands
 * its input to the even one before it and gets the result from it in the end. What remains are p ranks,
 * numbered anew in the same order.
 *
 * Accumulators: slot 0 of SCRATCH is the rank's partial sum, slot 1 what came in last.
 */
#ifndef CH_FOLD_H
#define CH_FOLD_H

#include "algo/messages.h"

struct ch_fold {
    uint32_t size;   /* the power of two */
    uint32_t npairs; /* N - size */
    bool away;       /* this rank has handed its input over */
    uint32_t index;  /* this rank's number among `size`; of no meaning if away */
};

static inline struct ch_fold ch_fold_of(const struct ch_shape *shape)
{
    struct ch_fold f = { .size = ch_floor_pow2(shape->nranks) };

    f.npairs = shape->nranks - f.size;
    if (shape->rank < 2 * f.npairs) {
        f.away = shape->rank % 2 == 1;
        f.index = shape->rank / 2;
    } else {
        f.index = shape->rank - f.npairs;
    }
    return f;
}

static inline uint32_t ch_fold_rank(const struct ch_fold *f, uint32_t index)
{
    return index < f->npairs ? 2 * index : index + f->npairs;
}

/* Our input becomes slot 0; pairs become one. */
static inline void ch_fold_in(const struct ch_fold *f, const struct ch_shape *shape,
                              struct ch_builder *b)
{
    const uint32_t me = shape->rank;
    const struct ch_range sum = ch_scratch(me, 0, 0, 0, 1), came = ch_scratch(me, 1, 0, 0, 1);

    ch_build_copy(b, sum, ch_in(me, 0, 0, 1));
    if (f->away) {
        ch_send_one(b, me - 1, sum);
    } else if (me < 2 * f->npairs) {
        ch_recv_one(b, me + 1, came);
        ch_combine_two(b, sum, sum, came);
    }
}

/* Who was away gets the finished result. */
static inline void ch_fold_out(const struct ch_fold *f, const struct ch_shape *shape,
                               struct ch_builder *b)
{
    const uint32_t me = shape->rank;

    if (f->away)
        ch_recv_one(b, me - 1, ch_out(me, 0, 0, 1));
    else if (me < 2 * f->npairs)
        ch_send_one(b, me + 1, ch_out(me, 0, 0, 1));
}

#endif
