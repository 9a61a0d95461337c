/*
 * backend_host.c - operations by schedules over shared memory, sends and receives by messages.
 */
#include "backend/backend_host.h"

#include "base/error.h"
#include "engine/poison.h"
#include "engine/runner.h"
#include "engine/suspect.h"
#include "kernel/kernel.h"

/* Before a step takes to watching, which reads the clock: most messages come within a few. Not where ranks outnumber
 * processors: who is looked for then needs this one. */
enum { LOOKS = 8, LOOKS_CROWDED = 1, LOOKS_SHORT = 400 };

/* A send or a receive under way. */
struct transfer_run {
    struct ch_transfer transfer;
    struct iovec iov;
    struct ch_vigil vigil;
    bool begun;
};

union host_run {
    struct ch_run coll;
    struct transfer_run transfer;
};
_Static_assert(sizeof(union host_run) <= CH_BACKEND_RUN_MAX, "the group has room for it");
_Static_assert(sizeof(struct transfer_run) <= CH_BACKEND_TRANSFER_MAX, "the same");

static bool is_transfer(const struct ch_op *op)
{
    return op->type == CHOIR_OP_SEND || op->type == CHOIR_OP_RECV || op->type == CHOIR_OP_RECV_ANY;
}

/* --- sends and receives ------------------------------------------------------------------------------ */

static struct iovec bytes_of(const struct ch_blocks *blocks, choir_type type)
{
    struct ch_piece piece = blocks->pieces != NULL
                                ? blocks->pieces[0]
                                : (struct ch_piece){ blocks->base, blocks->count };

    return (struct iovec){ .iov_base = piece.data, .iov_len = piece.count * ch_type_bytes[type] };
}

/* Both sides must mean the same type; lengths are compared by themselves. */
static uint64_t check_of(choir_type type)
{
    return (uint64_t)type + 1;
}

/* Messages know ranks by their number in the first group. */
static int peer_of(const struct ch_channel *channel, const struct ch_op *op)
{
    return op->peer < 0 ? CH_P2P_ANY : channel->members[op->peer].neighbour->rank;
}

static choir_status begin_transfer(struct ch_channel *channel, const struct ch_op *op,
                                   struct transfer_run *run)
{
    struct ch_p2p *p2p = channel->rank->p2p;
    uint64_t context = ch_channel_context(channel, true), tag = (uint64_t)op->tag;
    choir_status rc = ch_poisoned(channel);

    run->vigil = (struct ch_vigil){ .begun = false };
    run->begun = false;
    if (rc != CHOIR_OK)
        return rc;
    run->transfer.on_done = NULL;
    run->begun = true;
    if (op->type == CHOIR_OP_SEND) {
        run->iov = bytes_of(&op->in, op->dtype);
        ch_p2p_send(p2p, &run->transfer, (uint32_t)peer_of(channel, op), context, tag,
                    check_of(op->dtype), &run->iov, 1);
    } else {
        run->iov = bytes_of(&op->out, op->dtype);
        ch_p2p_recv(p2p, &run->transfer, peer_of(channel, op), context, tag, check_of(op->dtype),
                    &run->iov, 1);
    }
    return CHOIR_OK;
}

static size_t run_short(void *self, struct ch_plain *parts, size_t count,
                        const struct ch_meanwhile *meanwhile)
{
    struct ch_channel *channel = self;
    uint64_t context = ch_channel_context(channel, true);
    struct ch_short shorts[CH_PLAIN_MAX];
    size_t done = 0;

    for (size_t i = 0; i < count; i++) {
        struct ch_short *s = &shorts[i]; /* not cleared */

        s->envelope.context = context;
        s->envelope.tag = (uint64_t)parts[i].tag;
        s->envelope.check = check_of(parts[i].dtype);
        s->envelope.nbytes = parts[i].count * ch_type_bytes[parts[i].dtype];
        s->data = parts[i].data;
        s->peer = (uint32_t)channel->members[parts[i].peer].neighbour->rank;
        s->is_send = parts[i].type == CHOIR_OP_SEND;
        s->done = parts[i].done;
        s->late = false;
        done += s->done;
    }
    done += ch_p2p_short(channel->rank->p2p, shorts, count,
                         channel->looks > 0 ? LOOKS_SHORT : LOOKS_CROWDED, meanwhile);
    if (CH_LIKELY(done == count))
        return count;
    for (size_t i = 0; i < count; i++) {
        parts[i].done = shorts[i].done;
        parts[i].late = shorts[i].late;
    }
    return done;
}

static void pass_short(void *self)
{
    struct ch_channel *channel = self;

    ch_p2p_pass(channel->rank->p2p);
}

/* The other side's elements are of another type: p2p knows the words that differ, we what they mean. */
static choir_status wrong_type(const struct ch_channel *channel, const struct ch_op *op,
                               const struct ch_transfer *transfer)
{
    bool sends = op->type == CHOIR_OP_SEND;
    int peer = sends ? op->peer : ch_channel_member(channel, transfer->source);
    const char *name = choir_type_name((choir_type)(transfer->other_check - 1));

    return ch_fail_rank(CHOIR_ERR_INVALID, peer, sends ? "send" : "recv",
                        "group %s: %s rank %d, tag %d: invalid tensor type (here %s, there %s)",
                        channel->name, sends ? "send to" : "receive from", peer, op->tag,
                        choir_type_name(op->dtype), name != NULL ? name : "unknown");
}

/* A failure with a member that is no more is the group's, whose record says more. */
static choir_status end_of_transfer(struct ch_channel *channel, struct ch_op *op,
                                    const struct transfer_run *run)
{
    choir_status rc;

    if (run->transfer.status == CHOIR_OK) {
        if (op->type != CHOIR_OP_SEND)
            op->peer = ch_channel_member(channel, run->transfer.source);
        return CHOIR_OK;
    }
    rc = ch_poisoned(channel);
    if (rc == CHOIR_OK && run->transfer.other_check != 0)
        rc = wrong_type(channel, op, &run->transfer);
    return rc != CHOIR_OK ? rc : ch_channel_transfer_error(channel, &run->transfer.error);
}

static bool is_done(struct ch_transfer *transfer)
{
    /* Acquire, pairs with the release with which p2p sets it: all else is readable. */
    return atomic_load_explicit(&transfer->done, memory_order_acquire) != 0;
}

static choir_status step_transfer(struct ch_channel *channel, struct ch_op *op,
                                  struct transfer_run *run)
{
    int looks = channel->looks > 0 ? LOOKS : LOOKS_CROWDED;
    choir_status rc;

    for (int i = 0; i < looks && !is_done(&run->transfer); i++)
        op->moves += ch_p2p_progress(channel->rank->p2p);
    if (is_done(&run->transfer))
        return end_of_transfer(channel, op, run);
    rc = ch_vigil_keep(&run->vigil, channel, op, op->peer < 0 ? CH_FOR_ANY : op->peer, false);
    if (rc == CHOIR_IN_PROGRESS)
        return rc;
    /* What a peer sent before it left may have come just now. */
    ch_p2p_progress(channel->rank->p2p);
    return is_done(&run->transfer) ? end_of_transfer(channel, op, run) : rc;
}

static void stop_transfer(struct ch_channel *channel, struct transfer_run *run)
{
    ch_vigil_end(&run->vigil, channel);
    if (!run->begun)
        return;
    if (!is_done(&run->transfer))
        ch_p2p_cancel(channel->rank->p2p, &run->transfer, CHOIR_ERR_INTERRUPTED);
    if (CH_UNLIKELY(run->transfer.status != CHOIR_OK))
        ch_rank_settle(channel->rank); /* the other side waits for a word about it */
}

/* --- the backend ------------------------------------------------------------------------------------- */

static choir_status begin(void *self, struct ch_op *op, void *memory)
{
    union host_run *run = memory;

    return is_transfer(op) ? begin_transfer(self, op, &run->transfer)
                           : ch_run_begin(self, op, &run->coll);
}

static choir_status step(void *self, struct ch_op *op, void *memory)
{
    union host_run *run = memory;

    return is_transfer(op) ? step_transfer(self, op, &run->transfer)
                           : ch_run_step(self, op, &run->coll);
}

static void end(void *self, struct ch_op *op, void *memory)
{
    union host_run *run = memory;

    if (is_transfer(op))
        stop_transfer(self, &run->transfer);
    else
        ch_run_end(self, &run->coll);
}

static choir_status error(void *self, choir_error *out)
{
    choir_status rc = ch_poisoned(self);

    if (rc != CHOIR_OK && out != NULL)
        ch_error_save(out);
    return rc;
}

static void fail(void *self, const choir_error *why)
{
    (void)ch_poison(self, why);
}

static void destroy(void *self)
{
    ch_channel_close(self);
}

const struct ch_backend_ops ch_backend_host = {
    .name = "host",
    .begin = begin,
    .step = step,
    .end = end,
    .run_short = run_short,
    .pass_short = pass_short,
    .error = error,
    .fail = fail,
    .destroy = destroy,
};
