/*
 * backend_fake.c - nobody carries anything out: every operation is done at once.
 *
 * For tracing a large job in one process, and for checking arguments. All-gathers copy this rank's input into
 * every block of the output, so that what is read later at least is something; all else leaves buffers as
 * they are.
 */
#include "backend/backend_fake.h"

#include "backend/backend.h"
#include "base/error.h"
#include "kernel/kernel.h"

static void fill_all_blocks(const struct ch_op *op)
{
    size_t size = ch_type_bytes[op->dtype];
    const struct ch_piece in = op->in.pieces != NULL
                                   ? op->in.pieces[0]
                                   : (struct ch_piece){ op->in.base, op->in.count };

    for (uint32_t i = 0; i < op->out.nblocks; i++) {
        struct ch_piece out = { op->out.base, op->out.count };

        if (op->out.pieces != NULL)
            out = op->out.pieces[i];
        else if (out.data != NULL)
            out.data = op->out.base + i * op->out.count * size;
        /* Uneven: what others' blocks have more than ours is left alone. */
        if (out.data != in.data && in.count > 0 && out.count > 0)
            ch_copy(out.data, in.data, (in.count < out.count ? in.count : out.count) * size);
    }
}

static bool is_collective(const struct ch_op *op)
{
    return op->type != CHOIR_OP_SEND && op->type != CHOIR_OP_RECV && op->type != CHOIR_OP_RECV_ANY;
}

static choir_status begin(void *self, struct ch_op *op, void *run)
{
    const struct ch_fake *fake = self;

    (void)run;
    if (is_collective(op) && fake->error_on_collective)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "this group was made with error_on_collective: every collective fails");
    if (is_collective(op) && op->coll == CH_ALLGATHER)
        fill_all_blocks(op);
    if (op->type == CHOIR_OP_RECV_ANY)
        op->peer = fake->rank;
    return CHOIR_OK;
}

static choir_status step(void *self, struct ch_op *op, void *run)
{
    (void)self, (void)op, (void)run;
    return CHOIR_OK;
}

static void end(void *self, struct ch_op *op, void *run)
{
    (void)self, (void)op, (void)run;
}

static void destroy(void *self)
{
    (void)self; /* it is the group's */
}

const struct ch_backend_ops ch_backend_fake = {
    .name = "fake", .at_once = true, .begin = begin, .step = step, .end = end, .destroy = destroy
};
