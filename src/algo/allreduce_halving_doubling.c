/*
 * allreduce_halving_doubling.c - exchange half of what is left with a partner, down to one share; then back.
 *
 * Down: in each step a pair divides the piece it works on in two, each sends the half that the other keeps
 * and adds what it gets to its own, lower rank first. In the end each rank has one share, of all, and
 * finishes it. Up: the same partners in reverse exchange what they have finished. Not a power of two: fold.h.
 *
 * Cost:   sends 2 log2(p) messages, 2n(p-1)/p bytes (the first half as accumulators), p the power of two
 *         below N; the folded ranks and their partners one message of n more. 2 log2(p) waits (+ 2).
 *         Room: 2 accumulators.
 * Choose: middle and long payloads over messages: as few bytes as the ring, waits grow with log N only.
 */
#include "algo/fold.h"

/* The piece with which rank `index` works after `level` halvings, of 2^level: its highest bits. */
static uint32_t piece_at(const struct ch_fold *f, uint32_t index, uint32_t pieces)
{
    return index / (f->size / pieces);
}

static void halve(const struct ch_fold *f, uint32_t me, struct ch_builder *b)
{
    for (uint32_t pieces = 2; pieces <= f->size; pieces *= 2) {
        uint32_t other = f->index ^ (f->size / pieces), partner = ch_fold_rank(f, other);
        uint32_t mine = piece_at(f, f->index, pieces), theirs = piece_at(f, other, pieces);
        struct ch_range sum = ch_scratch(me, 0, 0, mine, pieces);
        struct ch_range came = ch_scratch(me, 1, 0, mine, pieces);

        ch_swap(b, partner, ch_scratch(me, 0, 0, theirs, pieces), partner, came);
        if (me < partner)
            ch_combine_two(b, sum, sum, came);
        else
            ch_combine_two(b, sum, came, sum);
    }
}

static void double_up(const struct ch_fold *f, uint32_t me, struct ch_builder *b)
{
    for (uint32_t pieces = f->size; pieces > 1; pieces /= 2) {
        uint32_t other = f->index ^ (f->size / pieces), partner = ch_fold_rank(f, other);

        ch_swap(b, partner, ch_out(me, 0, piece_at(f, f->index, pieces), pieces), partner,
                ch_out(me, 0, piece_at(f, other, pieces), pieces));
    }
}

static struct ch_needs emit(const struct ch_shape *shape, struct ch_builder *b)
{
    const struct ch_fold f = ch_fold_of(shape);
    const uint32_t me = shape->rank;

    ch_fold_in(&f, shape, b);
    if (!f.away) {
        halve(&f, me, b);
        ch_build_finish(b, ch_out(me, 0, f.index, f.size), ch_scratch(me, 0, 0, f.index, f.size));
        double_up(&f, me, b);
    }
    ch_fold_out(&f, shape, b);
    return (struct ch_needs){ 0 };
}

const struct ch_algo ch_algo_allreduce_halving_doubling = {
    .coll = CH_ALLREDUCE,
    .name = "halving-doubling",
    .help = "exchange halves down to one share each, then the finished shares back up",
    .any_order = true,
    .partial = true,
    .alike = CH_ALIKE_POW2,
    .emit = emit,
};
