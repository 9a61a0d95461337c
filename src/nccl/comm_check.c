/*
 * comm_check.c - the rules of a call's arguments, in the order in which PyTorch's module looks at them.
 *
 * What differs from there on purpose: lengths and roots are the communicator's, not those of the list. With one
 * input in each of N processes an all-gather has an output N times as long.
 */
#include "nccl/comm_call.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "kernel/kernel.h"

static choir_status refuse(struct ch_comm_call *call, choir_comm_rule rule, bool is_output,
                           size_t index, const char *fmt, ...) CH_PRINTF(5, 6);

static choir_status refuse(struct ch_comm_call *call, choir_comm_rule rule, bool is_output,
                           size_t index, const char *fmt, ...)
{
    char text[CHOIR_ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    call->fault = (choir_comm_fault){ rule, is_output, index == SIZE_MAX ? -1 : (int)index };
    return ch_fail(rule == CHOIR_RULE_TYPE || rule == CHOIR_RULE_OP_TYPE ? CHOIR_ERR_TYPE
                                                                         : CHOIR_ERR_INVALID,
                   "%s: %s", call->name, text);
}

/* The words are those of the thread's last error. */
static choir_status refuse_as(struct ch_comm_call *call, choir_comm_rule rule, choir_status rc)
{
    call->fault = (choir_comm_fault){ .rule = rule, .index = -1 };
    ch_error_prefix("%s: ", call->name);
    return rc;
}

/* --- how many -------------------------------------------------------------------------------------- */

static choir_status check_sizes(struct ch_comm_call *call)
{
    const choir_comm_call *args = &call->args;

    call->nranks = args->nins;
    if (args->comms == NULL)
        return CHOIR_OK;
    if (args->ncomms == 0)
        return refuse(call, CHOIR_RULE_NCOMMS, false, SIZE_MAX,
                      "no communicators for %zu inputs, expected as many", args->nins);
    call->nranks = (size_t)args->comms[0]->nranks;
    for (size_t i = 1; i < args->ncomms; i++) {
        if (args->comms[i]->nranks != args->comms[0]->nranks)
            return refuse(call, CHOIR_RULE_COMM_SIZES, false, i,
                          "comms[%zu] has %d ranks, comms[0] has %d; expected the same", i,
                          args->comms[i]->nranks, args->comms[0]->nranks);
    }
    return CHOIR_OK;
}

static choir_status check_root(struct ch_comm_call *call)
{
    int root = call->args.root;

    if (call->op != CH_COMM_BROADCAST && call->op != CH_COMM_REDUCE)
        return CHOIR_OK;
    if (root < 0 || (size_t)root >= call->nranks)
        return refuse(call, CHOIR_RULE_ROOT, false, SIZE_MAX,
                      "root is %d, expected a rank from 0 to %zu", root, call->nranks - 1);
    return CHOIR_OK;
}

static choir_status check_lists(struct ch_comm_call *call)
{
    const choir_comm_call *args = &call->args;
    bool many = call->op != CH_COMM_REDUCE && call->op != CH_COMM_BROADCAST;
    bool fits = many ? args->nouts == args->nins
                     : args->nouts <= (call->op == CH_COMM_REDUCE ? 1u : 0u);

    if ((args->streams != NULL || args->nstreams > 0) && args->nstreams != args->nins)
        return refuse(call, CHOIR_RULE_NSTREAMS, false, SIZE_MAX,
                      "%zu streams for %zu inputs, expected as many", args->nstreams, args->nins);
    if (args->comms != NULL && args->ncomms != args->nins)
        return refuse(call, CHOIR_RULE_NCOMMS, false, SIZE_MAX,
                      "%zu communicators for %zu inputs, expected as many", args->ncomms,
                      args->nins);
    if (!fits)
        return refuse(call, CHOIR_RULE_NOUTPUTS, true, SIZE_MAX,
                      "%zu outputs for %zu inputs, expected %s", args->nouts, args->nins,
                      many                         ? "as many"
                      : call->op == CH_COMM_REDUCE ? "one, or none to reduce in place"
                                                   : "none: it is in place");
    return CHOIR_OK;
}

/* --- each buffer ------------------------------------------------------------------------------------ */

static bool is_contiguous(const choir_buf *buf)
{
    int64_t expected = 1;

    for (int d = buf->ndim - 1; d >= 0 && buf->count > 0; d--) {
        if (buf->sizes[d] != 1 && buf->strides[d] != expected)
            return false;
        expected *= buf->sizes[d];
    }
    return true;
}

static choir_status check_buf(struct ch_comm_call *call, bool is_output, size_t i)
{
    const choir_buf *buf = is_output ? &call->args.outs[i] : &call->args.ins[i];
    const char *list = is_output ? "outputs" : "inputs";

    if (choir_type_size(buf->type) == 0)
        return refuse(call, CHOIR_RULE_TYPE, is_output, i, "%s[%zu]: its type, %d, is none", list,
                      i, (int)buf->type);
    if (buf->type != call->args.ins[0].type)
        return refuse(call, CHOIR_RULE_TYPE, is_output, i,
                      "%s[%zu]: its type is %s, expected %s, that of inputs[0]", list, i,
                      choir_type_name(buf->type), choir_type_name(call->args.ins[0].type));
    if (!is_contiguous(buf))
        return refuse(call, CHOIR_RULE_CONTIGUOUS, is_output, i,
                      "%s[%zu]: it is not contiguous, expected elements without gaps", list, i);
    if (buf->count > 0 && buf->data == NULL)
        return refuse(call, CHOIR_RULE_COUNT, is_output, i, "%s[%zu]: is NULL", list, i);
    return CHOIR_OK;
}

static choir_status check_bufs(struct ch_comm_call *call)
{
    const choir_comm_call *args = &call->args;
    choir_status rc = CHOIR_OK;

    for (size_t i = 0; i < args->nins && rc == CHOIR_OK; i++) {
        rc = check_buf(call, false, i);
        if (rc == CHOIR_OK && args->ins[i].count != args->ins[0].count)
            rc = refuse(call, CHOIR_RULE_COUNT, false, i,
                        "inputs[%zu]: %zu elements, expected %zu, as many as inputs[0]", i,
                        args->ins[i].count, args->ins[0].count);
    }
    for (size_t i = 0; i < args->nouts && rc == CHOIR_OK; i++)
        rc = check_buf(call, true, i);
    call->type = args->ins[0].type;
    call->count = args->ins[0].count;
    return rc;
}

/* --- the one against the other ----------------------------------------------------------------------- */

static choir_status check_relation(struct ch_comm_call *call, size_t i)
{
    size_t in = call->count, out = call->args.outs[i].count, n = call->nranks, product;
    const char *words = "as many as its input";
    bool fits = out == in;

    if (call->op == CH_COMM_ALLGATHER) {
        fits = !__builtin_mul_overflow(in, n, &product) && out == product;
        words = "as many as its input times the ranks";
    } else if (call->op == CH_COMM_REDUCE_SCATTER) {
        fits = !__builtin_mul_overflow(out, n, &product) && in == product;
        words = "times the ranks as many as its input";
    }
    if (fits)
        return CHOIR_OK;
    return refuse(call, CHOIR_RULE_OUTPUT_COUNT, true, i,
                  "outputs[%zu]: %zu elements, expected %s: the input has %zu, there are %zu ranks",
                  i, out, words, in, n);
}

static choir_status check_relations(struct ch_comm_call *call)
{
    choir_status rc = CHOIR_OK;

    /* Whoever is not the root has no output: what is given for one is not looked at. */
    if (call->op == CH_COMM_REDUCE && call->root == call->args.nins)
        return CHOIR_OK;
    for (size_t i = 0; i < call->args.nouts && rc == CHOIR_OK; i++)
        rc = check_relation(call, i);
    return rc;
}

static bool overlap(const choir_buf *a, const choir_buf *b)
{
    size_t size = ch_type_bytes[a->type];
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;

    return a->count > 0 && b->count > 0 && x < y + b->count * size && y < x + a->count * size;
}

static bool is_root(const struct ch_comm_call *call, size_t i)
{
    return call->op == CH_COMM_REDUCE && ch_comm_rank_of(call, i) == (size_t)call->args.root;
}

static choir_status check_unique(struct ch_comm_call *call, size_t i, size_t j)
{
    const choir_comm_call *args = &call->args;
    const choir_buf *a = ch_comm_result(call, i), *b = ch_comm_result(call, j);
    const char *list = args->nouts > 0 ? "outputs" : "inputs";

    if (args->comms != NULL && args->comms[i] == args->comms[j])
        return refuse(call, CHOIR_RULE_UNIQUE, false, j,
                      "comms[%zu] is comms[%zu]; expected each once, with an input of its own", j,
                      i);
    /* Communicators of one size may have any ids: but there is one output, for one of them. */
    if (is_root(call, i) && is_root(call, j))
        return refuse(call, CHOIR_RULE_UNIQUE, false, j,
                      "comms[%zu] and comms[%zu] are both rank %d, the root; expected one of them",
                      i, j, call->args.root);
    if (a != NULL && b != NULL && overlap(a, b))
        return refuse(call, CHOIR_RULE_UNIQUE, args->nouts > 0, j,
                      "%s[%zu] and %s[%zu] are in the same memory; expected each in its own", list,
                      i, list, j);
    return CHOIR_OK;
}

/* In place: where the result of a rank is or holds just the elements that it gave. */
static bool is_in_place(const struct ch_comm_call *call, size_t i, const choir_buf *out)
{
    const char *in = call->args.ins[i].data;
    size_t size = ch_type_bytes[call->type], rank = ch_comm_rank_of(call, i);

    if (call->op == CH_COMM_ALLGATHER)
        return in == (const char *)out->data + rank * call->count * size;
    if (call->op == CH_COMM_REDUCE_SCATTER)
        return out->data == in + rank * out->count * size;
    return out->data == in;
}

static choir_status check_apart(struct ch_comm_call *call, size_t i, size_t j)
{
    const choir_buf *out = ch_comm_result(call, i);

    if (out == NULL || !overlap(out, &call->args.ins[j]) || (i == j && is_in_place(call, i, out)))
        return CHOIR_OK;
    return refuse(
        call, CHOIR_RULE_OVERLAP, true, i, "%s[%zu] overlaps inputs[%zu]; expected apart from it%s",
        call->args.nouts > 0 ? "outputs" : "inputs", call->op == CH_COMM_REDUCE ? (size_t)0 : i, j,
        i == j ? ", or exactly in place" : "");
}

static choir_status check_memory(struct ch_comm_call *call)
{
    choir_status rc = CHOIR_OK;
    size_t n = call->args.nins;

    for (size_t j = 1; j < n && rc == CHOIR_OK; j++) {
        for (size_t i = 0; i < j && rc == CHOIR_OK; i++)
            rc = check_unique(call, i, j);
    }
    for (size_t i = 0; i < n && rc == CHOIR_OK && call->op != CH_COMM_BROADCAST; i++) {
        for (size_t j = 0; j < n && rc == CHOIR_OK; j++)
            rc = check_apart(call, i, j);
    }
    return rc;
}

/* --- all of it -------------------------------------------------------------------------------------- */

const choir_buf *ch_comm_result(const struct ch_comm_call *call, size_t i)
{
    const choir_comm_call *args = &call->args;

    if (call->op == CH_COMM_BROADCAST)
        return &args->ins[i];
    if (call->op == CH_COMM_REDUCE)
        return i != call->root ? NULL : args->nouts > 0 ? &args->outs[0] : &args->ins[i];
    return &args->outs[i];
}

static void find_root(struct ch_comm_call *call)
{
    call->root = call->args.nins;
    for (size_t i = 0; i < call->args.nins; i++) {
        if (ch_comm_rank_of(call, i) == (size_t)call->args.root)
            call->root = i;
    }
}

static choir_status check_reduction(struct ch_comm_call *call)
{
    choir_comm *comm = call->args.comms != NULL ? call->args.comms[0] : NULL;
    choir_status rc;

    call->redop = CHOIR_SUM;
    if (!ch_comm_reduces(call))
        return CHOIR_OK;
    rc = ch_comm_redop(comm, call->args.op, call->type, &call->redop, &call->factor);
    if (rc != CHOIR_OK)
        return refuse_as(call, CHOIR_RULE_OP, rc);
    /* It belongs to one communicator: with others in the call it would mean nothing to them. */
    if (call->redop == CHOIR_PREMUL_SUM && call->args.nins > 1)
        return refuse(
            call, CHOIR_RULE_OP, false, SIZE_MAX,
            "op: %d is one communicator's, and the call has %zu; expected one call for each",
            call->args.op, call->args.nins);
    rc = choir_redop_check(call->redop, call->type);
    return rc != CHOIR_OK ? refuse_as(call, CHOIR_RULE_OP_TYPE, rc) : CHOIR_OK;
}

choir_status ch_comm_check(struct ch_comm_call *call)
{
    choir_status rc = check_sizes(call);

    if (rc == CHOIR_OK)
        rc = check_root(call);
    if (rc == CHOIR_OK)
        rc = check_lists(call);
    if (rc == CHOIR_OK)
        rc = check_bufs(call);
    if (rc != CHOIR_OK)
        return rc;
    find_root(call);
    rc = check_relations(call);
    if (rc == CHOIR_OK)
        rc = check_memory(call);
    if (rc == CHOIR_OK)
        rc = check_reduction(call);
    return rc;
}
