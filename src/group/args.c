/*
 * args.c - arguments of the public calls. See args.h.
 */
#include "group/args.h"

#include "base/error.h"
#include "group/group.h"
#include "group/memory.h"
#include "kernel/kernel.h"

choir_status ch_check_buf(const char *name, const choir_buf *buf)
{
    size_t size = choir_type_size(buf->type);
    choir_status rc = CHOIR_OK;

    if (size == 0)
        return ch_fail(CHOIR_ERR_TYPE, "%s: invalid scalar type %d, expected 0 to %d", name,
                       (int)buf->type, CHOIR_NTYPES - 1);
    if (buf->count > SIZE_MAX / 2 / size)
        return ch_fail(CHOIR_ERR_INVALID,
                       "%s: %zu elements of %zu bytes are more than there is "
                       "memory",
                       name, buf->count, size);
    if (buf->count > 0 && buf->data == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: its data is NULL, but it has %zu elements", name,
                       buf->count);
    if (buf->ndim != 0)
        rc = ch_shape_check(buf);
    if (rc != CHOIR_OK)
        ch_error_prefix("%s: ", name);
    return rc;
}

choir_status ch_check_same_type(const char *name, const choir_buf *buf, choir_type type)
{
    if (buf->type == type)
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_TYPE, "%s: invalid tensor type (expected %s, got %s)", name,
                   choir_type_name(type), choir_type_name(buf->type));
}

choir_status ch_check_list(const char *name, const choir_buf *bufs, size_t count, choir_type type)
{
    if (count == 0)
        return ch_fail(CHOIR_ERR_INVALID, "%s: requires non-empty tensor list", name);
    if (bufs == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: is NULL, expected %zu buffers", name, count);
    for (size_t i = 0; i < count; i++) {
        choir_status rc = ch_check_buf(name, &bufs[i]);

        if (rc != CHOIR_OK) {
            ch_error_prefix("at index %zu of ", i);
            return rc;
        }
        if (bufs[i].type != type)
            return ch_fail(CHOIR_ERR_TYPE,
                           "%s: invalid tensor type at index %zu (expected %s, got %s)", name, i,
                           choir_type_name(type), choir_type_name(bufs[i].type));
    }
    return CHOIR_OK;
}

choir_status ch_check_root(struct ch_call *call)
{
    int root = call->opts.root;

    if (root < 0 || root >= call->group->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "opts->root: invalid root rank: %d (expected 0 to %d)",
                       root, call->group->nranks - 1);
    call->op.root = (uint32_t)root;
    return CHOIR_OK;
}

choir_status ch_check_reduction(struct ch_call *call, choir_type type)
{
    choir_status rc = choir_redop_check(call->opts.op, type);

    if (rc != CHOIR_OK) {
        ch_error_prefix("opts->op: ");
        return rc;
    }
    call->op.reduces = true;
    call->op.redop = call->opts.op;
    call->op.factor = call->opts.op == CHOIR_PREMUL_SUM ? call->opts.factor : 1.0;
    return CHOIR_OK;
}

void ch_op_length(struct ch_call *call, choir_type type, size_t count)
{
    call->op.dtype = type;
    call->op.longest = count;
    call->op.counts = 0;
}
