/*
 * args.h - what the public calls ask of their arguments, in one place and in one wording.
 *
 * Texts name the argument first; who reads them is also PyTorch's tests, hence "tensor" here and there.
 */
#ifndef CH_ARGS_H
#define CH_ARGS_H

#include "group/call.h"
#include "group/memory.h"

/* Type, address, shape of one buffer. */
choir_status ch_check_buf(const char *name, const choir_buf *buf);

/* A list of `count` of them, all of `type`; it may be NULL only if there are none. */
choir_status ch_check_list(const char *name, const choir_buf *bufs, size_t count, choir_type type);

/* opts->root, opts->op on `type` (also written into call->op). */
choir_status ch_check_root(struct ch_call *call);
choir_status ch_check_reduction(struct ch_call *call, choir_type type);

/* Two types that must be the same. */
choir_status ch_check_same_type(const char *name, const choir_buf *buf, choir_type type);

/* A hash over what the ranks must agree on. */
static inline uint64_t ch_hash_add(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ (hash >> 32);
}
#define CH_HASH_START UINT64_C(0x9e3779b97f4a7c15)

/* An operation of one kind and length, with all else to be filled in. Field by field: zeroing all of it first would
 * take longer than the rest of a small operation's preparations. */
static inline void ch_op_init(struct ch_op *op, choir_optype type, enum ch_coll coll,
                              choir_type dtype, size_t count)
{
    op->type = type;
    op->coll = coll;
    op->dtype = dtype;
    op->redop = CHOIR_SUM;
    op->factor = 0;
    op->root = 0;
    op->reduces = op->in_place = op->uneven = op->differ = op->attended = false;
    ch_blocks_even(&op->in, 0, 1, 0, NULL, 0);
    ch_blocks_even(&op->out, 0, 1, 0, NULL, 0);
    op->longest = count;
    op->counts = 0;
    op->algo = NULL;
    op->peer = -1;
    op->tag = 0;
    op->moves = 0;
}

/* What all collectives of one length have in common: op.dtype, longest, counts. */
void ch_op_length(struct ch_call *call, choir_type type, size_t count);

#endif
