/*
 * flightlog.c - see flightlog.h.
 */
#include "group/flightlog.h"

#include "base/clock.h"
#include "group/group.h"
#include "sched/blocks.h"
#include "trace/flight.h"

enum { BUFS_MAX = 4 }; /* the record has room for the shapes of a few */

/* The buffers of one side; pieces as they are, what lies behind each other as one. */
static size_t bufs_of(const struct ch_blocks *blocks, choir_type type, choir_buf *bufs)
{
    size_t count = blocks->nblocks < BUFS_MAX ? blocks->nblocks : BUFS_MAX;

    if (blocks->nblocks == 0)
        return 0;
    if (blocks->pieces == NULL) {
        bufs[0] = (choir_buf){ .data = blocks->base,
                               .count = blocks->count * blocks->nblocks,
                               .type = type };
        return 1;
    }
    for (size_t i = 0; i < count; i++)
        bufs[i] = (choir_buf){ .data = blocks->pieces[i].data,
                               .count = blocks->pieces[i].count,
                               .type = type };
    return count;
}

static uint64_t issued(choir_group *group, const struct ch_op *op, bool collective, uint64_t now)
{
    choir_buf ins[BUFS_MAX], outs[BUFS_MAX];
    struct ch_flight_info info = { .op = op->type,
                                   .is_p2p = !collective,
                                   .timeout_ms = op->timeout_ms,
                                   .reduces = op->reduces,
                                   .redop = op->redop,
                                   .has_root = collective && ch_coll_rooted(op->coll),
                                   .root = (int)op->root,
                                   .peer = op->peer,
                                   .tag = op->tag,
                                   .ins = ins,
                                   .outs = outs };

    /* Its number is as in errors and choir_work_sequence(): how many of its kind were issued before. */
    info.collective_seq = collective
                              ? op->seq
                              : atomic_load_explicit(&group->ncollectives, memory_order_relaxed);
    info.p2p_seq = collective ? atomic_load_explicit(&group->ntransfers, memory_order_relaxed)
                              : op->seq;
    info.op_id = info.collective_seq + info.p2p_seq;
    info.nins = bufs_of(&op->in, op->dtype, ins);
    info.nouts = bufs_of(&op->out, op->dtype, outs);
    return ch_flight_issue(group->flight, &info, now);
}

void ch_flightlog_issued(struct ch_call *call)
{
    if (call->group->flight != NULL && !call->inner)
        call->flight = issued(call->group, &call->op, call->collective, call->issued);
}

void ch_flightlog_started(struct ch_call *call)
{
    ch_flight_started(call->group->flight, call->flight, call->began);
}

void ch_flightlog_done(struct ch_call *call)
{
    bool any = call->op.type == CHOIR_OP_RECV_ANY && call->status == CHOIR_OK;

    ch_flight_done(call->group->flight, call->flight, call->ended, call->status,
                   any ? call->op.peer : -1);
}

/* A collective with a list of buffers. */
static CH_NOINLINE uint64_t listed(choir_group *group, const struct ch_op *op, uint64_t now)
{
    uint64_t flight = issued(group, op, true, now);

    ch_flight_started(group->flight, flight, now);
    return flight;
}

uint64_t ch_flightlog_direct(choir_group *group, const struct ch_op *op, uint64_t now)
{
    struct ch_flight_plain plain = { .op = op->type,
                                     .type = op->dtype,
                                     .in_count = op->in.count * op->in.nblocks,
                                     .out_count = op->out.count * op->out.nblocks,
                                     .collective_seq = op->seq,
                                     .p2p_seq = atomic_load_explicit(&group->ntransfers,
                                                                     memory_order_relaxed),
                                     .timeout_ms = op->timeout_ms,
                                     .redop = op->redop,
                                     .root = (int)op->root,
                                     .reduces = op->reduces,
                                     .has_root = ch_coll_rooted(op->coll) };

    if (group->flight == NULL)
        return 0;
    if (CH_UNLIKELY(op->in.pieces != NULL || op->out.pieces != NULL))
        return listed(group, op, now);
    return ch_flight_start_plain(group->flight, &plain, now);
}

void ch_flightlog_direct_done(choir_group *group, uint64_t flight, uint64_t now,
                              choir_status status)
{
    ch_flight_done(group->flight, flight, now, status, -1);
}

uint64_t ch_flightlog_plain(choir_group *group, const struct ch_plain *parts, size_t count,
                            bool all_sent, uint64_t seq, uint64_t issued)
{
    struct ch_flight_message said[CH_PLAIN_MAX]; /* not cleared */
    int64_t usual = atomic_load_explicit(&group->timeout_ms, memory_order_relaxed);

    if (group->flight == NULL)
        return 0;
    for (size_t i = 0; i < count; i++) {
        said[i].op = parts[i].type;
        said[i].type = parts[i].dtype;
        said[i].count = parts[i].count;
        said[i].timeout_ms = parts[i].timeout_ms != 0 ? parts[i].timeout_ms : usual;
        said[i].peer = parts[i].peer;
        said[i].tag = parts[i].tag;
        said[i].over = all_sent && parts[i].type == CHOIR_OP_SEND;
    }
    return ch_flight_start_messages(
        group->flight, said, count,
        &(struct ch_flight_moment){
            .collective_seq = atomic_load_explicit(&group->ncollectives, memory_order_relaxed),
            .p2p_seq = seq,
            .issued = issued });
}

void ch_flightlog_plain_done(choir_group *group, uint64_t first, size_t count)
{
    if (first != 0)
        ch_flight_messages_done(group->flight, first, count, ch_now_rough());
}
