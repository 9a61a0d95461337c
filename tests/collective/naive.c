/* naive.c - the reference: shapes and pieces first, then arithmetic, one element at a time. */
#include "naive.h"

#include <math.h>
#include <string.h>

const char *const form_names[NFORMS] = {
    [ALLREDUCE] = "allreduce",
    [ALLREDUCE_COALESCED] = "allreduce_coalesced",
    [ALLREDUCE_SPARSE] = "allreduce_sparse",
    [BROADCAST] = "broadcast",
    [REDUCE] = "reduce",
    [ALLGATHER] = "allgather",
    [ALLGATHER_INTO] = "allgather_into",
    [ALLGATHER_COALESCED] = "allgather_coalesced",
    [ALLGATHER_INTO_COALESCED] = "allgather_into_coalesced",
    [GATHER] = "gather",
    [SCATTER] = "scatter",
    [REDUCE_SCATTER] = "reduce_scatter",
    [REDUCE_SCATTER_FROM] = "reduce_scatter_from",
    [REDUCE_SCATTER_COALESCED] = "reduce_scatter_coalesced",
    [ALLTOALL] = "alltoall",
    [ALLTOALL_BASE] = "alltoall_base",
    [BARRIER] = "barrier",
    [MONITORED_BARRIER] = "monitored_barrier",
    [SEND_RECV] = "send_recv",
    [RECV_ANY] = "recv_any",
};

/* --- shapes ----------------------------------------------------------------------------------------- */

int naive_nins(const struct call *c, int rank)
{
    switch (c->form) {
    case ALLREDUCE:
    case BROADCAST:
    case REDUCE:
    case ALLGATHER:
    case ALLGATHER_INTO:
    case GATHER:
    case REDUCE_SCATTER_FROM:
    case ALLTOALL_BASE:
    case SEND_RECV:
    case RECV_ANY:
        return 1;
    case ALLREDUCE_COALESCED:
    case ALLGATHER_COALESCED:
    case ALLGATHER_INTO_COALESCED:
    case REDUCE_SCATTER_COALESCED:
        return c->k;
    case REDUCE_SCATTER:
    case ALLTOALL:
        return c->nranks;
    case SCATTER:
        return rank == c->root ? c->nranks : 0;
    case ALLREDUCE_SPARSE:
    case BARRIER:
    case MONITORED_BARRIER:
    case NFORMS:
        break;
    }
    return 0;
}

int naive_nouts(const struct call *c, int rank)
{
    switch (c->form) {
    case ALLREDUCE:
    case BROADCAST:
    case REDUCE:
    case ALLGATHER_INTO:
    case SCATTER:
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_FROM:
    case ALLTOALL_BASE:
    case SEND_RECV:
        return 1;
    case ALLREDUCE_COALESCED:
    case ALLGATHER_INTO_COALESCED:
    case REDUCE_SCATTER_COALESCED:
        return c->k;
    case ALLGATHER:
    case ALLTOALL:
        return c->nranks;
    case ALLGATHER_COALESCED:
        return c->nranks * c->k;
    case GATHER:
    case RECV_ANY:
        return rank == c->root ? c->nranks : 0;
    case ALLREDUCE_SPARSE:
    case BARRIER:
    case MONITORED_BARRIER:
    case NFORMS:
        break;
    }
    return 0;
}

static size_t sent_by(const struct call *c, int rank)
{
    size_t sum = 0;

    for (int j = 0; j < c->nranks; j++)
        sum += c->lens[rank][j];
    return sum;
}

size_t naive_in_count(const struct call *c, int rank, int in)
{
    switch (c->form) {
    case SCATTER:
    case REDUCE_SCATTER:
        return c->lens[in][0];
    case REDUCE_SCATTER_FROM:
    case REDUCE_SCATTER_COALESCED:
        return (size_t)c->nranks * c->lens[rank][in];
    case ALLTOALL_BASE:
        return sent_by(c, rank);
    default:
        return c->lens[rank][in];
    }
}

/* As long as what goes into it. */
size_t naive_out_count(const struct call *c, int rank, int out)
{
    struct source list[RANKS_MAX];
    size_t sum = 0;

    if (c->form == REDUCE || c->form == RECV_ANY)
        return c->lens[rank][0];
    for (int i = 0, n = naive_sources(c, rank, out, list); i < n; i++)
        sum += list[i].count;
    return sum;
}

/* --- what goes where -------------------------------------------------------------------------------- */

static size_t sent_before(const struct call *c, int from, int to)
{
    size_t sum = 0;

    for (int j = 0; j < to; j++)
        sum += c->lens[from][j];
    return sum;
}

static struct source all_of(const struct call *c, int rank, int in)
{
    return (struct source){ false, rank, in, 0, naive_in_count(c, rank, in) };
}

int naive_sources(const struct call *c, int rank, int out, struct source list[RANKS_MAX])
{
    size_t len;

    switch (c->form) {
    case ALLREDUCE:
    case ALLREDUCE_COALESCED:
        list[0] = all_of(c, rank, out);
        list[0].reduced = true;
        return 1;
    case REDUCE:
        list[0] = all_of(c, rank, 0);
        list[0].reduced = true;
        return rank == c->root ? 1 : 0;
    case BROADCAST:
        list[0] = all_of(c, c->root, 0);
        return 1;
    case ALLGATHER:
    case GATHER:
        list[0] = all_of(c, out, 0);
        return 1;
    case ALLGATHER_COALESCED:
        list[0] = all_of(c, out / c->k, out % c->k);
        return 1;
    case ALLGATHER_INTO:
    case ALLGATHER_INTO_COALESCED:
        for (int i = 0; i < c->nranks; i++)
            list[i] = all_of(c, i, out);
        return c->nranks;
    case SCATTER:
        list[0] = all_of(c, c->root, rank);
        return 1;
    case REDUCE_SCATTER:
        list[0] = all_of(c, rank, rank);
        list[0].reduced = true;
        return 1;
    case REDUCE_SCATTER_FROM:
    case REDUCE_SCATTER_COALESCED:
        len = c->lens[rank][out];
        list[0] = (struct source){ true, rank, out, (size_t)rank * len, len };
        return 1;
    case ALLTOALL:
        list[0] = all_of(c, out, rank);
        return 1;
    case ALLTOALL_BASE:
        for (int i = 0; i < c->nranks; i++)
            list[i] = (struct source){ false, i, 0, sent_before(c, i, rank), c->lens[i][rank] };
        return c->nranks;
    case SEND_RECV:
        list[0] = all_of(c, (rank + c->nranks - c->shift) % c->nranks, 0);
        return 1;
    case RECV_ANY: /* whose comes in which is found out when it is there */
    case ALLREDUCE_SPARSE:
    case BARRIER:
    case MONITORED_BARRIER:
    case NFORMS:
        break;
    }
    return 0;
}

bool naive_reduces(const struct call *c)
{
    return c->form == ALLREDUCE || c->form == ALLREDUCE_COALESCED || c->form == REDUCE ||
           c->form == REDUCE_SCATTER || c->form == REDUCE_SCATTER_FROM ||
           c->form == REDUCE_SCATTER_COALESCED;
}

/* --- numbers ------------------------------------------------------------------------------------------ */

enum kind { UINT, INT, FLOAT, BOOL, COMPLEX };

static enum kind kind_of(choir_type type)
{
    static const enum kind kinds[] = {
#define CHOIR_TYPE(NAME, value, name, nbytes, kind) kind,
#include <choir/types.def>
#undef CHOIR_TYPE
    };
    return kinds[type];
}

/* Floats of 8 and 16 bits: sign, exponent, mantissa. */
struct small {
    int exponent_bits, mantissa_bits;
    bool infinity;
};

static bool small_of(choir_type type, struct small *out)
{
    switch (type) {
    case CHOIR_F16:
        *out = (struct small){ 5, 10, true };
        return true;
    case CHOIR_BF16:
        *out = (struct small){ 8, 7, true };
        return true;
    case CHOIR_F8E4M3:
        *out = (struct small){ 4, 3, false };
        return true;
    case CHOIR_F8E5M2:
        *out = (struct small){ 5, 2, true };
        return true;
    default:
        return false;
    }
}

static int lowest_exponent(const struct small *s)
{
    return 2 - (1 << (s->exponent_bits - 1));
}

static double decode(const struct small *s, unsigned code)
{
    unsigned mantissa = code & ((1U << s->mantissa_bits) - 1);
    unsigned exponent = code >> s->mantissa_bits & ((1U << s->exponent_bits) - 1);
    bool negative = code >> (s->mantissa_bits + s->exponent_bits);
    double value = exponent == 0 ? ldexp(mantissa, lowest_exponent(s) - s->mantissa_bits)
                                 : ldexp((1U << s->mantissa_bits) + mantissa,
                                         lowest_exponent(s) + (int)exponent - 1 - s->mantissa_bits);

    return negative ? -value : value;
}

/* To the nearest, ties to even; `value` is finite. */
static unsigned encode(const struct small *s, double value)
{
    unsigned sign = signbit(value) ? 1U << (s->mantissa_bits + s->exponent_bits) : 0;
    unsigned highest = (1U << (s->mantissa_bits + s->exponent_bits)) - 1, code;
    int exponent;
    double steps;

    if (value == 0)
        return sign;
    frexp(value, &exponent); /* |value| is in [2^(exponent-1), 2^exponent) */
    exponent = exponent - 1 > lowest_exponent(s) ? exponent - 1 : lowest_exponent(s);
    /* How many of the smallest steps of that exponent; whole numbers in doubles round to even. */
    steps = rint(ldexp(fabs(value), s->mantissa_bits - exponent));
    code = (unsigned)(exponent - lowest_exponent(s)) * (1U << s->mantissa_bits) + (unsigned)steps;
    if (s->infinity && code >= highest - (1U << s->mantissa_bits) + 1)
        code = highest - (1U << s->mantissa_bits) + 1; /* infinity */
    if (!s->infinity && code >= highest)
        code = highest; /* the one NaN */
    return sign | code;
}

static double load(choir_type type, const void *element, int part)
{
    struct small s;
    unsigned code = 0;
    double d;
    float f;

    if (small_of(type, &s)) {
        memcpy(&code, element, choir_type_size(type));
        return decode(&s, code);
    }
    if (type == CHOIR_F32 || type == CHOIR_COMPLEX64) {
        memcpy(&f, (const char *)element + (size_t)part * sizeof(f), sizeof(f));
        return f;
    }
    memcpy(&d, (const char *)element + (size_t)part * sizeof(d), sizeof(d));
    return d;
}

static void store(choir_type type, void *element, int part, double value)
{
    struct small s;
    unsigned code;
    float f = (float)value;

    if (small_of(type, &s)) {
        code = encode(&s, value);
        memcpy(element, &code, choir_type_size(type));
    } else if (type == CHOIR_F32 || type == CHOIR_COMPLEX64) {
        memcpy((char *)element + (size_t)part * sizeof(f), &f, sizeof(f));
    } else {
        memcpy((char *)element + (size_t)part * sizeof(value), &value, sizeof(value));
    }
}

static uint64_t load_int(choir_type type, const void *element)
{
    size_t size = choir_type_size(type);
    uint64_t value = 0;

    memcpy(&value, element, size);
    if (kind_of(type) == INT && size < 8 && (value >> (8 * size - 1) & 1) != 0)
        value |= UINT64_MAX << (8 * size);
    return value;
}

/* --- elements ----------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* At most four ranks have something else than 0 (1 for products): exact in all types, in any order. */
static double exact_value(const struct call *c, int rank, size_t pos, uint64_t random)
{
    double sign = (random & 1) != 0 ? -1 : 1;

    if ((pos + (size_t)rank) % (size_t)c->nranks >= 4)
        return c->op == CHOIR_PRODUCT ? sign : 0;
    if (c->op == CHOIR_PRODUCT)
        return sign * ((random & 2) != 0 ? 2 : 0.5);
    return sign;
}

/* In [1, 2) times a power of two near 1: sums depend on the order, and nothing overflows. */
static double rough_value(const struct call *c, uint64_t random)
{
    double value = 1 + (double)(random >> 12) / (double)(UINT64_C(1) << 52);
    int exponent = c->op == CHOIR_PRODUCT ? -(int)(random >> 1 & 1) : (int)(random >> 1 & 7) - 4;

    value = ldexp(value, exponent);
    return (random & 1) != 0 ? -value : value;
}

void naive_element(const struct call *c, int rank, int in, size_t pos, void *element)
{
    uint64_t random = mix(c->seed + mix(((uint64_t)rank << 56) ^ ((uint64_t)in << 48) ^ pos));
    uint64_t more = mix(random);
    enum kind kind = kind_of(c->type);

    if (naive_reduces(c) && (kind == FLOAT || kind == COMPLEX)) {
        for (int part = 0; part < (kind == COMPLEX ? 2 : 1); part++)
            store(c->type, element, part,
                  c->exact ? exact_value(c, rank, pos, random >> part)
                           : rough_value(c, mix(random + (uint64_t)part)));
        return;
    }
    if (kind == BOOL && naive_reduces(c)) /* false half of the time, whatever the byte */
        random = (random & 1) != 0 ? random >> 8 | 2 : 0;
    memcpy(element, &random, choir_type_size(c->type) < 8 ? choir_type_size(c->type) : 8);
    if (choir_type_size(c->type) == 16)
        memcpy((char *)element + 8, &more, 8);
}

/* --- reductions ------------------------------------------------------------------------------------- */

static void reduce_int(const struct call *c, const void *const *elements, void *result)
{
    uint64_t acc = load_int(c->type, elements[0]), x;
    bool is_signed = kind_of(c->type) == INT;

    for (int i = 1; i < c->nranks; i++) {
        x = load_int(c->type, elements[i]);
        switch (c->op) {
        case CHOIR_SUM:
        case CHOIR_AVG:
            acc += x;
            break;
        case CHOIR_PRODUCT:
            acc *= x;
            break;
        case CHOIR_MIN:
            acc = (is_signed ? (int64_t)x < (int64_t)acc : x < acc) ? x : acc;
            break;
        case CHOIR_MAX:
            acc = (is_signed ? (int64_t)x > (int64_t)acc : x > acc) ? x : acc;
            break;
        case CHOIR_BAND:
            acc &= x;
            break;
        case CHOIR_BOR:
            acc |= x;
            break;
        case CHOIR_BXOR:
            acc ^= x;
            break;
        case CHOIR_PREMUL_SUM:
            break;
        }
    }
    if (c->op == CHOIR_AVG) { /* of the sum as it wrapped */
        memcpy(result, &acc, choir_type_size(c->type));
        acc = load_int(c->type, result);
        acc = is_signed ? (uint64_t)((int64_t)acc / c->nranks) : acc / (uint64_t)c->nranks;
    }
    memcpy(result, &acc, choir_type_size(c->type));
}

static void reduce_bool(const struct call *c, const void *const *elements, void *result)
{
    int ntrue = 0, out;

    for (int i = 0; i < c->nranks; i++)
        ntrue += *(const unsigned char *)elements[i] != 0;
    if (c->op == CHOIR_BXOR)
        out = ntrue % 2;
    else if (c->op == CHOIR_PRODUCT || c->op == CHOIR_MIN || c->op == CHOIR_BAND)
        out = ntrue == c->nranks;
    else
        out = ntrue > 0;
    *(unsigned char *)result = (unsigned char)out;
}

/* -0 is below +0. */
static bool below(double a, double b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double combine(choir_redop op, double a, double b)
{
    if (op == CHOIR_PRODUCT)
        return a * b;
    if (op == CHOIR_MIN)
        return below(b, a) ? b : a;
    if (op == CHOIR_MAX)
        return below(a, b) ? b : a;
    return a + b;
}

/* In double, or in float for everything narrower: a float operation is the double one, rounded. */
static void reduce_float(const struct call *c, const void *const *elements, int part, void *result)
{
    bool wide = c->type == CHOIR_F64 || c->type == CHOIR_COMPLEX128;
    double acc = 0;

    for (int i = 0; i < c->nranks; i++) {
        double x = load(c->type, elements[i], part);

        if (c->op == CHOIR_PREMUL_SUM)
            x = wide ? x * c->factors[i] : (float)x * (float)c->factors[i];
        acc = i == 0 ? x : combine(c->op, acc, x);
        acc = wide ? acc : (float)acc;
    }
    if (c->op == CHOIR_AVG)
        acc = wide ? acc / c->nranks : (float)acc / (float)c->nranks;
    store(c->type, result, part, acc);
}

void naive_reduce(const struct call *c, const void *const *elements, void *result)
{
    switch (kind_of(c->type)) {
    case UINT:
    case INT:
        reduce_int(c, elements, result);
        break;
    case BOOL:
        reduce_bool(c, elements, result);
        break;
    case COMPLEX:
        reduce_float(c, elements, 1, result);
        /* fall through */
    case FLOAT:
        reduce_float(c, elements, 0, result);
        break;
    }
}
