/*
 * bits_test.c - sums whose value depends on the order: every algorithm gives the same bits on all ranks and
 * in every run, and 16-bit elements are rounded once.
 *
 * The random cases compare with a reference, and for algorithms that add up in an order of their own have to keep
 * to elements whose sum is exact. Here are the others, wildly different in size and sign. What an algorithm in rank
 * order gives is the reference's, to the bit; any other is within what float sums may differ by, rounded once.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>
#include <choir/coll.h>

#include "algo/algo.h"
#include "choir_test.h"
#include "naive.h"

enum { COUNT = 3001, RUNS = 2 };

struct sums {
    struct call call;
    const struct ch_algo *algo;
    unsigned char *inputs[RANKS_MAX], *outputs[RUNS][RANKS_MAX];
};

/* In [-2, 2) times 2^-8 to 2^7: a sum forgets the small ones, and which depends on the order. */
static double wild(struct choir_test_random *random)
{
    uint64_t bits = choir_test_random(random);
    double value = ldexp((double)(bits >> 12), -51) - 1;

    return ldexp(value, (int)(bits & 15) - 8);
}

static void put(choir_type type, void *at, double value)
{
    float f = (float)value;
    uint32_t word;

    memcpy(&word, &f, sizeof(word));
    if (type == CHOIR_F64) {
        memcpy(at, &value, sizeof(value));
    } else if (type == CHOIR_F32) {
        memcpy(at, &f, sizeof(f));
    } else { /* the upper half of a float is a bf16; cut, not rounded: any value will do */
        uint16_t half = (uint16_t)(word >> 16);

        memcpy(at, &half, sizeof(half));
    }
}

static double get(choir_type type, const void *at)
{
    double d;
    float f;
    uint32_t word = 0;

    if (type == CHOIR_F64) {
        memcpy(&d, at, sizeof(d));
        return d;
    }
    memcpy(type == CHOIR_F32 ? &word : (void *)((char *)&word + 2), at, type == CHOIR_F32 ? 4 : 2);
    memcpy(&f, &word, sizeof(f));
    return f;
}

static choir_status add_up(choir_group *group, void *arg)
{
    struct sums *s = arg;
    int rank = choir_group_rank(group);
    size_t nbytes = COUNT * choir_type_size(s->call.type);

    for (int run = 0; run < RUNS; run++) {
        memcpy(s->outputs[run][rank], s->inputs[rank], nbytes);
        CHOIR_CHECK_OK(choir_allreduce(group, CHOIR_BUF(s->outputs[run][rank], COUNT, s->call.type),
                                       CHOIR_OPTS(allreduce, .algo = s->algo->name), NULL));
    }
    return CHOIR_OK;
}

/* Between what the least and the largest float sum there may be round to. */
static void check_near(const struct sums *s, size_t i, const void *got)
{
    size_t size = choir_type_size(s->call.type);
    double sum = 0, all = 0, slack, least, most;
    int mantissa = s->call.type == CHOIR_F64 ? 52 : 23;

    for (int r = 0; r < s->call.nranks; r++) {
        double x = get(s->call.type, s->inputs[r] + i * size);

        sum += x;
        all += fabs(x);
    }
    slack = ldexp(all * s->call.nranks, -mantissa);
    least = sum - slack;
    most = sum + slack;
    if (s->call.type == CHOIR_BF16) { /* and then once, by half a step of its 8 bits */
        least -= ldexp(fabs(least), -8);
        most += ldexp(fabs(most), -8);
    }
    if (get(s->call.type, got) < least || get(s->call.type, got) > most)
        CHOIR_FAIL("element %zu is %.9g, not between %.9g and %.9g", i, get(s->call.type, got),
                   least, most);
}

static void check_bits(const struct sums *s)
{
    size_t size = choir_type_size(s->call.type);
    const void *elements[RANKS_MAX];
    unsigned char want[16];

    for (int run = 0; run < RUNS; run++) {
        for (int r = 0; r < s->call.nranks; r++) {
            if (memcmp(s->outputs[run][r], s->outputs[0][0], COUNT * size) != 0)
                CHOIR_FAIL("run %d, rank %d has other bits than rank 0 in the first run", run, r);
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (int r = 0; r < s->call.nranks; r++)
            elements[r] = s->inputs[r] + i * size;
        naive_reduce(&s->call, elements, want);
        if (s->algo->any_order)
            check_near(s, i, s->outputs[0][0] + i * size);
        else if (memcmp(want, s->outputs[0][0] + i * size, size) != 0)
            CHOIR_FAIL("element %zu is not the sum from the first rank to the last", i);
    }
}

static void try_sums(const struct ch_algo *algo, int nranks, choir_type type)
{
    struct sums s = {
        .call = { .form = ALLREDUCE, .op = CHOIR_SUM, .type = type, .nranks = nranks }, .algo = algo
    };
    struct choir_test_random random = { 77 + (uint64_t)nranks };
    size_t size = choir_type_size(type);

    CHOIR_ROW("%s, %d ranks, %s", algo->name, nranks, choir_type_name(type));
    for (int r = 0; r < nranks; r++) {
        s.inputs[r] = malloc(COUNT * size);
        for (int run = 0; run < RUNS; run++)
            s.outputs[run][r] = malloc(COUNT * size);
        for (size_t i = 0; i < COUNT; i++)
            put(type, s.inputs[r] + i * size, wild(&random));
    }
    CHOIR_CHECK_OK(choir_run_threads(nranks, add_up, &s));
    check_bits(&s);
    for (int r = 0; r < nranks; r++) {
        free(s.inputs[r]);
        for (int run = 0; run < RUNS; run++)
            free(s.outputs[run][r]);
    }
}

CHOIR_TEST_TIMED(sums_have_the_same_bits_everywhere, 120)
{
    static const choir_type types[] = { CHOIR_F32, CHOIR_BF16, CHOIR_F64 };
    static const int sizes[] = { 2, 3, 5, 8, 13 };
    int tried = 0;

    for (size_t a = 0; ch_algos[a] != NULL; a++) {
        if (ch_algos[a]->coll != CH_ALLREDUCE || ch_algos[a]->in_line)
            continue; /* inline is for a few elements; it has one REDUCE, like one-shot */
        /* The sanitizers have seen it all with three ranks. */
        for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
            if (choir_test_slowness() > 1 && sizes[i] != 3)
                continue;
            for (size_t t = 0; t < CH_ARRAY_LEN(types); t++)
                try_sums(ch_algos[a], sizes[i], types[t]);
        }
        tried++;
    }
    CHOIR_CHECK_LE(5, tried);
}
