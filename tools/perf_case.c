/*
 * perf_case.c - one operation at one size: buffers, the call, what must come out, and the rounds.
 */
#include "perf.h"
#include "perf_values.h"

#include <limits.h>

struct testcase {
    choir_group *group;
    const struct perf_options *options;
    struct perf_shape shape;
    size_t size; /* of an element */
    bool in_place;
    unsigned char *memory[2], *in, *out;
    unsigned char *tile, *result; /* what inputs hold; what reductions of them are */
    choir_buf *ins, *outs;        /* one for each rank */
    choir_coll_opts opts;
    double *us;
    uint64_t wrong;
};

/* --- values ---------------------------------------------------------------------------------------- */

/* A whole number, from 1 to what is exact, as the bits of a small float. */
static uint32_t small_float(int value, int mantissa_bits, int bias)
{
    int exponent = 0;

    while (value >> exponent > 1)
        exponent++;
    return (uint32_t)(exponent + bias) << mantissa_bits | (uint32_t)(value - (1 << exponent))
                                                              << (mantissa_bits - exponent);
}

static void put_bits(unsigned char *at, uint64_t bits, size_t size)
{
    for (size_t i = 0; i < size; i++)
        at[i] = (unsigned char)(bits >> 8 * i); /* little-endian, as all that we run on */
}

/* Up to which all whole numbers are values of the type, or wrap around as its sums do. */
static int exact_most(choir_type type)
{
    switch (type) {
    case CHOIR_F16:
        return 1 << 11;
    case CHOIR_BF16:
        return 1 << 8;
    case CHOIR_F8E4M3:
        return 1 << 4;
    case CHOIR_F8E5M2:
        return 1 << 3;
    case CHOIR_F32:
    case CHOIR_COMPLEX64:
        return 1 << 24;
    case CHOIR_BOOL:
        return 0;
    case CHOIR_U8:
    case CHOIR_I8:
    case CHOIR_U16:
    case CHOIR_I16:
    case CHOIR_U32:
    case CHOIR_I32:
    case CHOIR_U64:
    case CHOIR_I64:
    case CHOIR_F64:
    case CHOIR_COMPLEX128:
        break;
    }
    return INT_MAX;
}

/* `other` is the imaginary part of those that have one. */
static void put_element(unsigned char *at, choir_type type, int value, int other)
{
    double wide[2] = { value, other };
    float narrow[2] = { (float)value, (float)other };

    switch (type) {
    case CHOIR_U8:
    case CHOIR_I8:
    case CHOIR_U16:
    case CHOIR_I16:
    case CHOIR_U32:
    case CHOIR_I32:
    case CHOIR_U64:
    case CHOIR_I64:
        put_bits(at, (uint64_t)value, choir_type_size(type));
        break;
    case CHOIR_F16:
        put_bits(at, small_float(value, 10, 15), 2);
        break;
    case CHOIR_BF16:
        put_bits(at, small_float(value, 7, 127), 2);
        break;
    case CHOIR_F8E4M3:
        put_bits(at, small_float(value, 3, 7), 1);
        break;
    case CHOIR_F8E5M2:
        put_bits(at, small_float(value, 2, 15), 1);
        break;
    case CHOIR_BOOL:
        put_bits(at, (uint64_t)value & 1, 1);
        break;
    case CHOIR_F32:
    case CHOIR_COMPLEX64:
        memcpy(at, narrow, choir_type_size(type));
        break;
    case CHOIR_F64:
    case CHOIR_COMPLEX128:
        memcpy(at, wide, choir_type_size(type));
        break;
    }
}

/* Factors of premul-sum. */
static double factor_of(int rank)
{
    return rank % 2 == 0 ? 0.5 : 1;
}

/* A whole number is what it is, whoever adds. */
static void add_tiles(struct testcase *c)
{
    for (size_t i = 0; i < PERF_TILE; i++) {
        int sum = 0;

        for (int rank = 0; rank < c->shape.nranks; rank++)
            sum += perf_value(i + perf_shift(rank, 0));
        put_element(c->result + i * c->size, c->options->type, sum, 8 * c->shape.nranks - sum);
    }
}

/* The reduction of the ranks' values, over one period, as the library does it locally. */
static choir_status reduce_tiles(struct testcase *c)
{
    const struct perf_options *o = c->options;
    size_t n = (size_t)c->shape.nranks;
    const void **from = calloc(n, sizeof(*from));
    double *factors = calloc(n, sizeof(*factors));
    choir_status rc = from != NULL && factors != NULL ? CHOIR_OK : CHOIR_ERR_NOMEM;

    for (size_t r = 0; rc == CHOIR_OK && r < n; r++) {
        from[r] = c->tile + perf_shift((int)r, 0) * c->size;
        factors[r] = factor_of((int)r);
    }
    if (rc == CHOIR_OK)
        rc = choir_reduce_local(c->result, from, n, PERF_PERIOD, o->type,
                                CHOIR_OPTS(reduce_local, .op = o->redop, .factors = factors));
    if (rc == CHOIR_OK)
        memcpy(c->result + PERF_PERIOD * c->size, c->result, PERF_PERIOD * c->size);
    free(from);
    free(factors);
    return rc;
}

static choir_status make_tiles(struct testcase *c)
{
    const struct perf_options *o = c->options;

    for (size_t i = 0; i < PERF_TILE; i++) {
        int value = perf_value(i);

        /* Powers of two: their products are exact, too. */
        if (o->redop == CHOIR_PRODUCT)
            value = 1 + value % 2;
        put_element(c->tile + i * c->size, o->type, value, 8 - value);
    }
    if (!perf_op_reduces(o->op))
        return CHOIR_OK;
    if (o->redop != CHOIR_SUM || exact_most(o->type) < 7 * c->shape.nranks)
        return reduce_tiles(c);
    add_tiles(c);
    return CHOIR_OK;
}

static void write_input(struct testcase *c, int round)
{
    perf_fill(c->in, perf_in_count(&c->shape), perf_shift(c->shape.rank, round), c->size, c->tile);
}

/* So that nothing right is left from before. */
static void spoil_output(struct testcase *c)
{
    memset(c->out, 0xa5, perf_out_count(&c->shape) * c->size);
}

static void verify(struct testcase *c, int round)
{
    const unsigned char *at = c->out;

    for (int i = 0; i < perf_npieces(&c->shape); i++) {
        struct perf_piece piece = perf_piece_of(&c->shape, i);

        c->wrong += perf_differ(at, piece.count,
                                piece.pos + perf_shift(piece.reduced ? 0 : piece.rank, round),
                                c->size, piece.reduced ? c->result : c->tile);
        at += piece.count * c->size;
    }
}

/* --- the call -------------------------------------------------------------------------------------- */

static choir_buf buffer(const struct testcase *c, unsigned char *data, size_t count)
{
    return CHOIR_BUF(data, count, c->options->type);
}

static choir_status exchange(struct testcase *c)
{
    const struct perf_shape *s = &c->shape;

    return choir_sendrecv(c->group, buffer(c, c->in, s->count), (s->rank + 1) % s->nranks,
                          buffer(c, c->out, s->count), (s->rank + s->nranks - 1) % s->nranks, 0,
                          NULL, NULL);
}

static choir_status call(struct testcase *c)
{
    const struct perf_shape *s = &c->shape;
    choir_buf in = buffer(c, c->in, perf_in_count(s)), out = buffer(c, c->out, perf_out_count(s));
    bool is_root = s->rank == s->root;

    switch (s->op) {
    case PERF_ALLREDUCE:
        return choir_allreduce(c->group, out, &c->opts, NULL);
    case PERF_BROADCAST:
        return choir_broadcast(c->group, out, &c->opts, NULL);
    case PERF_REDUCE:
        return choir_reduce(c->group, buffer(c, c->out, s->count), &c->opts, NULL);
    case PERF_ALLGATHER:
        return choir_allgather_into(c->group, in, out, &c->opts, NULL);
    case PERF_REDUCESCATTER:
        return choir_reduce_scatter_from(c->group, in, out, &c->opts, NULL);
    case PERF_ALLTOALL:
        return choir_alltoall_base(c->group, in, NULL, out, NULL, &c->opts, NULL);
    case PERF_GATHER:
        return choir_gather(c->group, in, is_root ? c->outs : NULL, &c->opts, NULL);
    case PERF_SCATTER:
        return choir_scatter(c->group, is_root ? c->ins : NULL, out, &c->opts, NULL);
    case PERF_BARRIER:
        return choir_barrier(c->group, &c->opts, NULL);
    case PERF_SENDRECV:
        return exchange(c);
    case PERF_NOPS:
        break;
    }
    return CHOIR_ERR_INVALID;
}

/* --- buffers --------------------------------------------------------------------------------------- */

static void place_buffers(struct testcase *c)
{
    const struct perf_shape *s = &c->shape;
    size_t place = perf_place(s) * c->size;

    c->in = c->memory[0];
    c->out = c->memory[1];
    if (c->in_place && perf_in_count(s) >= perf_out_count(s))
        c->out = c->in + place;
    else if (c->in_place)
        c->in = c->out + place;
    for (int i = 0; i < s->nranks; i++) {
        c->ins[i] = buffer(c, c->in + (size_t)i * s->block * c->size, s->block);
        c->outs[i] = buffer(c, c->out + (size_t)i * s->block * c->size, s->block);
    }
}

static void fini(struct testcase *c)
{
    free(c->memory[0]);
    free(c->memory[1]);
    free(c->tile);
    free(c->result);
    free(c->ins);
    free(c->outs);
    free(c->us);
}

static choir_status init(struct testcase *c, int rounds)
{
    const struct perf_shape *s = &c->shape;

    for (int i = 0; i < 2; i++)
        c->memory[i] = perf_memory(s->count * c->size);
    c->tile = malloc(PERF_TILE * c->size);
    c->result = malloc(PERF_TILE * c->size);
    c->ins = calloc((size_t)s->nranks, sizeof(*c->ins));
    c->outs = calloc((size_t)s->nranks, sizeof(*c->outs));
    c->us = calloc((size_t)rounds, sizeof(*c->us));
    if (c->memory[0] == NULL || c->memory[1] == NULL || c->tile == NULL || c->result == NULL ||
        c->ins == NULL || c->outs == NULL || c->us == NULL)
        return CHOIR_ERR_NOMEM;
    place_buffers(c);
    c->opts = (choir_coll_opts){ .size = sizeof(c->opts),
                                 .op = c->options->redop,
                                 .factor = factor_of(s->rank),
                                 .root = s->root,
                                 .algo = c->options->algo };
    if (!c->in_place && (s->op == PERF_ALLREDUCE || s->op == PERF_REDUCE))
        c->opts.input = c->in;
    return make_tiles(c);
}

/* --- rounds ---------------------------------------------------------------------------------------- */

static choir_status play_round(struct testcase *c, double *us_out)
{
    choir_status rc = choir_barrier(c->group, NULL, NULL);
    double began = perf_now_us();

    if (rc == CHOIR_OK)
        rc = call(c);
    *us_out = perf_now_us() - began;
    return rc;
}

/* Not timed: inputs of its own, no trace of earlier results, all of it verified. */
static choir_status play_proof(struct testcase *c, int round)
{
    double us;
    choir_status rc;

    spoil_output(c);
    write_input(c, round);
    rc = play_round(c, &us);
    if (rc == CHOIR_OK)
        verify(c, round);
    return rc;
}

static choir_status play_timed(struct testcase *c, int rounds)
{
    bool writes = c->options->fresh || c->options->check;
    choir_status rc = CHOIR_OK;
    double us;

    for (int k = -perf_warm_rounds(rounds); k < rounds && rc == CHOIR_OK; k++) {
        if (c->options->check)
            spoil_output(c);
        if (writes)
            write_input(c, k);
        rc = play_round(c, k >= 0 ? &c->us[k] : &us);
        if (c->options->check && rc == CHOIR_OK)
            verify(c, k);
    }
    /* In place the inputs are gone where they are not rewritten: the proof that follows must do. */
    if (rc == CHOIR_OK && !c->in_place)
        verify(c, writes ? rounds - 1 : 0);
    return rc;
}

static choir_status play(struct testcase *c, int rounds)
{
    choir_status rc = play_proof(c, rounds);

    write_input(c, 0);
    if (rc == CHOIR_OK)
        rc = play_timed(c, rounds);
    if (rc == CHOIR_OK)
        rc = play_proof(c, rounds + 1);
    /* A round took as long as its slowest rank. */
    if (rc == CHOIR_OK)
        rc = choir_allreduce(c->group, CHOIR_BUF(c->us, (size_t)rounds, CHOIR_F64),
                             CHOIR_OPTS(allreduce, .op = CHOIR_MAX), NULL);
    if (rc == CHOIR_OK)
        rc = choir_allreduce(c->group, CHOIR_BUF(&c->wrong, 1, CHOIR_U64), NULL, NULL);
    return rc;
}

choir_status choir_perf_case(choir_group *group, const struct perf_options *o, size_t nbytes,
                             struct perf_row *row)
{
    int nranks = choir_group_size(group);
    int rounds = o->iters > 0 ? o->iters : perf_default_rounds(nbytes);
    struct testcase c = { .group = group, .options = o, .size = choir_type_size(o->type) };
    choir_status rc;
    double gb;

    c.shape = perf_shape_of(o->op, choir_group_rank(group), nranks, o->root, nbytes, c.size);
    /* A broadcast has one buffer, whatever was asked for. */
    c.in_place = o->in_place || o->op == PERF_BROADCAST;
    rc = init(&c, rounds);
    if (rc == CHOIR_OK)
        rc = play(&c, rounds);
    if (rc == CHOIR_OK) {
        row->nbytes = o->op == PERF_BARRIER ? 0 : nbytes;
        row->count = c.shape.count;
        row->rounds = rounds;
        row->us = perf_times_of(c.us, rounds);
        row->wrong = c.wrong;
        gb = (double)(c.shape.count * c.size) * 1e-9;
        row->algbw = row->us.p50 > 0 ? gb / (row->us.p50 * 1e-6) : 0;
        row->busbw = row->algbw * perf_bus_factor(o->op, nranks);
    }
    fini(&c);
    return rc;
}

const char *choir_perf_why(choir_status rc)
{
    return choir_last_error_record()->code == rc ? choir_last_error()
                                                 : "no memory for buffers of this size";
}
