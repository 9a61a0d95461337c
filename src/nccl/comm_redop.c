/*
 * comm_redop.c - reductions by number: NCCL's, and those that a communicator was given.
 */
#include "nccl/comm.h"

#include <string.h>

#include "base/error.h"
#include "kernel/kernel.h"

static const choir_redop fixed[] = {
    [CHOIR_COMM_SUM] = CHOIR_SUM, [CHOIR_COMM_PROD] = CHOIR_PRODUCT, [CHOIR_COMM_MAX] = CHOIR_MAX,
    [CHOIR_COMM_MIN] = CHOIR_MIN, [CHOIR_COMM_AVG] = CHOIR_AVG,
};

enum { NFIXED = sizeof(fixed) / sizeof(fixed[0]) };

static int number_of(const choir_comm *comm, int place)
{
    return (int)(comm->number << 16) | (place + 1) << 8 | comm->redops[place].turn;
}

/* Its place, or -1. */
static int place_of_locked(const choir_comm *comm, int op)
{
    int place = (op >> 8 & 0xff) - 1;

    ch_lock_assert_held(&comm->lock);
    return op > 0 && place >= 0 && place < CH_COMM_REDOPS && comm->redops[place].used &&
                   number_of(comm, place) == op
               ? place
               : -1;
}

/* --- factors --------------------------------------------------------------------------------------- */

static double read_factor(choir_type type, const void *from)
{
    float narrow;
    double wide;

    if (type == CHOIR_F64) {
        memcpy(&wide, from, sizeof(wide));
        return wide;
    }
    if (type == CHOIR_F32)
        memcpy(&narrow, from, sizeof(narrow));
    else
        ch_widen(type, &narrow, from, 1);
    return narrow;
}

static choir_status check_factor(const void *factor, choir_type type, const int *op_out)
{
    choir_status rc;

    if (factor == NULL || op_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: is NULL", factor == NULL ? "factor" : "op_out");
    rc = choir_redop_check(CHOIR_PREMUL_SUM, type);
    if (rc == CHOIR_OK && (type == CHOIR_COMPLEX64 || type == CHOIR_COMPLEX128))
        rc = ch_fail(CHOIR_ERR_TYPE, "type: %s, expected a real floating one",
                     choir_type_name(type));
    return rc;
}

/* While the reduction is there: who destroys it has the memory back. */
static double factor_locked(const choir_comm *comm, const struct ch_comm_redop *redop)
{
    ch_lock_assert_held(&comm->lock);
    return redop->lent != NULL ? read_factor(redop->type, redop->lent) : redop->factor;
}

/* --- calls ----------------------------------------------------------------------------------------- */

static choir_status take_place(choir_comm *comm, const struct ch_comm_redop *redop, int *op_out)
{
    choir_status rc = CHOIR_ERR_STATE;

    ch_lock(&comm->lock);
    for (int i = 0; i < CH_COMM_REDOPS && rc != CHOIR_OK; i++) {
        uint8_t turn = comm->redops[i].turn;

        if (comm->redops[i].used)
            continue;
        comm->redops[i] = *redop;
        comm->redops[i].turn = (uint8_t)(turn + 1);
        *op_out = number_of(comm, i);
        rc = CHOIR_OK;
    }
    ch_unlock(&comm->lock);
    if (rc != CHOIR_OK)
        return ch_fail(rc, "the communicator has %d reductions already, and room for no more",
                       CH_COMM_REDOPS);
    return CHOIR_OK;
}

choir_status choir_comm_premul_sum(choir_comm *comm, const void *factor, choir_type type,
                                   bool copied, int *op_out)
{
    struct ch_comm_redop redop = { .used = true, .type = type };
    choir_status rc = comm != NULL ? check_factor(factor, type, op_out)
                                   : ch_fail(CHOIR_ERR_INVALID, "comm: is NULL");

    if (rc == CHOIR_OK) {
        if (copied)
            redop.factor = read_factor(type, factor);
        else
            redop.lent = factor;
        rc = take_place(comm, &redop, op_out);
    }
    if (rc != CHOIR_OK)
        ch_error_prefix("choir_comm_premul_sum: ");
    return rc;
}

choir_status choir_comm_redop_destroy(choir_comm *comm, int op)
{
    int place;

    if (comm == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "choir_comm_redop_destroy: comm: is NULL");
    ch_lock(&comm->lock);
    place = place_of_locked(comm, op);
    if (place >= 0)
        comm->redops[place].used = false;
    ch_unlock(&comm->lock);
    if (place < 0)
        return ch_fail(
            CHOIR_ERR_INVALID,
            "choir_comm_redop_destroy: op: %d is no reduction that this communicator was "
            "given, or was destroyed before",
            op);
    return CHOIR_OK;
}

/* Why a number means nothing: for the words alone. */
static choir_status unknown(const choir_comm *comm, int op)
{
    if (comm == NULL || op < NFIXED)
        return ch_fail(CHOIR_ERR_INVALID,
                       "op: %d, expected 0 (sum), 1 (product), 2 (max), 3 (min) or 4 (avg)", op);
    if ((uint32_t)op >> 16 != comm->number)
        return ch_fail(CHOIR_ERR_INVALID, "op: %d is no reduction, or another communicator's", op);
    return ch_fail(CHOIR_ERR_INVALID, "op: %d is a reduction that was destroyed", op);
}

choir_status ch_comm_redop(choir_comm *comm, int op, choir_type type, choir_redop *redop_out,
                           double *factor_out)
{
    struct ch_comm_redop redop = { .used = false };
    int place;

    *factor_out = 0;
    if (op >= 0 && op < NFIXED) {
        *redop_out = fixed[op];
        return CHOIR_OK;
    }
    if (comm != NULL) {
        ch_lock(&comm->lock);
        place = place_of_locked(comm, op);
        if (place >= 0) {
            redop = comm->redops[place];
            redop.factor = factor_locked(comm, &redop);
        }
        ch_unlock(&comm->lock);
    }
    if (!redop.used)
        return unknown(comm, op);
    if (redop.type != type)
        return ch_fail(CHOIR_ERR_INVALID, "op: %d was made for %s, the buffers are %s", op,
                       choir_type_name(redop.type), choir_type_name(type));
    *redop_out = CHOIR_PREMUL_SUM;
    *factor_out = redop.factor;
    return CHOIR_OK;
}
