/*
 * agree.c - see agree.h.
 */
#include "engine/agree.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/mem.h"
#include "engine/describe.h"
#include "engine/poison.h"

#define NO_BLOCK UINT64_MAX /* there is none between the two ranks */

/* What one rank tells another. */
struct ch_lengths {
    uint64_t between; /* elements of the block that goes from the teller to the other, or would */
    uint64_t longest, shortest;
};
enum { WORDS = sizeof(struct ch_lengths) / sizeof(uint64_t) };

struct ch_agreement {
    struct ch_op op;
    struct ch_lengths *told, *heard; /* one for each member */
};

bool ch_agree_is_needed(const struct ch_channel *channel, const struct ch_op *op)
{
    return op->uneven && channel->nranks > 1 &&
           (op->coll == CH_GATHER || op->coll == CH_SCATTER || op->coll == CH_ALLTOALL);
}

static size_t length_of(const struct ch_blocks *blocks, uint32_t index)
{
    return blocks->pieces != NULL ? blocks->pieces[index].count : blocks->count;
}

/* Of the block that goes to `who` (from IN), or comes from it (to OUT). */
static uint64_t between(const struct ch_channel *channel, const struct ch_op *op,
                        const struct ch_blocks *blocks, uint32_t who)
{
    bool towards = blocks == &op->in;
    uint32_t root = op->root, me = channel->me;

    switch (op->coll) {
    case CH_ALLTOALL:
        return length_of(blocks, who);
    case CH_GATHER:
        if (towards)
            return who == root ? length_of(blocks, 0) : NO_BLOCK;
        return me == root ? length_of(blocks, who) : NO_BLOCK;
    case CH_SCATTER:
        if (towards)
            return me == root ? length_of(blocks, who) : NO_BLOCK;
        return who == root ? length_of(blocks, 0) : NO_BLOCK;
    case CH_ALLREDUCE:
    case CH_BROADCAST:
    case CH_REDUCE:
    case CH_ALLGATHER:
    case CH_REDUCE_SCATTER:
    case CH_BARRIER:
    case CH_NCOLLS:
        break;
    }
    return NO_BLOCK;
}

static void extremes(const struct ch_blocks *blocks, uint64_t *longest_io, uint64_t *shortest_io)
{
    for (uint32_t i = 0; i < blocks->nblocks; i++) {
        uint64_t length = length_of(blocks, i);

        if (length > *longest_io)
            *longest_io = length;
        if (length < *shortest_io)
            *shortest_io = length;
    }
}

static choir_status make(struct ch_channel *channel)
{
    size_t n = channel->nranks;
    struct ch_agreement *a;

    if (channel->agreement != NULL)
        return CHOIR_OK;
    a = ch_zalloc(sizeof(*a) + 2 * n * sizeof(struct ch_lengths));
    if (a == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "group %s: no memory to agree on lengths", channel->name);
    a->told = (struct ch_lengths *)(void *)(a + 1);
    a->heard = a->told + n;
    channel->agreement = a;
    return CHOIR_OK;
}

choir_status ch_agree_prepare(struct ch_channel *channel, const struct ch_op *op,
                              const struct ch_op **first_out)
{
    uint64_t longest = 0, shortest = UINT64_MAX;
    uint32_t n = channel->nranks, me = channel->me;
    choir_status rc = make(channel);
    struct ch_agreement *a = channel->agreement;

    if (rc != CHOIR_OK)
        return rc;
    extremes(&op->in, &longest, &shortest);
    extremes(&op->out, &longest, &shortest);
    for (uint32_t who = 0; who < n; who++)
        a->told[who] = (struct ch_lengths){ between(channel, op, &op->in, who), longest, shortest };
    a->op = (struct ch_op){
        .type = op->type,
        .coll = CH_ALLTOALL,
        .dtype = CHOIR_U64,
        .longest = WORDS,
        .seq = op->seq,
        .until = op->until,
        .timeout_ms = op->timeout_ms,
        .in = { .first = me * n, .step = 1, .nblocks = n, .base = (char *)a->told, .count = WORDS },
        .out = { .first = me, .step = n, .nblocks = n, .base = (char *)a->heard, .count = WORDS },
    };
    *first_out = &a->op;
    return CHOIR_OK;
}

choir_status ch_agree_refuse(struct ch_channel *channel, const struct ch_op *op, uint32_t from,
                             uint64_t sent, uint64_t expected)
{
    char what[CH_CALL_TEXT_MAX];

    ch_op_text(op, what, sizeof(what));
    ch_fail_rank(CHOIR_ERR_MISMATCH, (int)from, what,
                 "group %s: %s: rank %u has %" PRIu64
                 " elements for rank %u, which expects %" PRIu64,
                 channel->name, what, from, sent, channel->me, expected);
    return ch_poison_last_error(channel);
}

choir_status ch_agree_conclude(struct ch_channel *channel, const struct ch_op *op,
                               size_t *longest_out, bool *uneven_out)
{
    const struct ch_agreement *a = channel->agreement;
    uint64_t longest = 0, shortest = UINT64_MAX;

    for (uint32_t who = 0; who < channel->nranks; who++) {
        const struct ch_lengths *l = &a->heard[who];
        uint64_t expected = between(channel, op, &op->out, who);

        if (l->between != expected && expected != NO_BLOCK)
            return ch_agree_refuse(channel, op, who, l->between, expected);
        if (l->longest > longest)
            longest = l->longest;
        if (l->shortest < shortest)
            shortest = l->shortest;
    }
    *longest_out = longest;
    *uneven_out = longest != shortest;
    return CHOIR_OK;
}
