/*
 * types_bench.c - all-reduces of 16-bit floats beside those of f32, of as many bytes.
 *
 *   choir run -n N build/bin/bench/types [SIZE...]        1M 4M 16M, in bytes
 *
 * The types take turns in blocks, each time another one first, inputs rewritten before every round; a round starts with a barrier
 * and takes as long as its slowest rank. Reported: f32's time and, block by block, bytes per second of the other type over
 * those of f32, the median and the band of the middle 80 %.
 */
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "perf_manner.h"
#include "perf_values.h"
#include "stats.h"

enum { BLOCKS = 31, ROUNDS_MOST = 101, NKINDS = 3 };

static const choir_type kinds[NKINDS] = { CHOIR_F32, CHOIR_BF16, CHOIR_F16 };

struct buffers {
    void *in, *out;
    unsigned char tile[PERF_TILE * sizeof(float)]; /* of the type at hand */
};

static void check(choir_status rc, const char *what)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "types: %s: %s\n", what, choir_last_error());
    exit(1);
}

/* Ones and twos, whose sums are exact in any type. */
static void make_tile(struct buffers *b, choir_type type)
{
    static const float f32[2] = { 1, 2 };
    static const uint16_t bf16[2] = { 0x3f80, 0x4000 }, f16[2] = { 0x3c00, 0x4000 };
    size_t size = choir_type_size(type);
    const unsigned char *from = (const unsigned char *)(type == CHOIR_F32    ? (const void *)f32
                                                        : type == CHOIR_BF16 ? (const void *)bf16
                                                                             : (const void *)f16);

    for (size_t i = 0; i < PERF_TILE; i++)
        memcpy(b->tile + i * size, from + (size_t)(perf_value(i) % 2) * size, size);
}

/* Median of a block's rounds, in us. */
static double play_block(choir_group *group, struct buffers *b, choir_type type, size_t nbytes,
                         int rounds)
{
    double us[ROUNDS_MOST];
    size_t size = choir_type_size(type), count = nbytes / size;

    make_tile(b, type);
    for (int k = -1 - rounds / 10; k < rounds; k++) {
        double began;

        perf_fill(b->in, count, perf_shift(choir_group_rank(group), k), size, b->tile);
        check(choir_barrier(group, NULL, NULL), "barrier");
        began = perf_now_us();
        check(choir_allreduce(group, CHOIR_BUF(b->out, count, type),
                              CHOIR_OPTS(allreduce, .input = b->in), NULL),
              "allreduce");
        if (k >= 0)
            us[k] = perf_now_us() - began;
    }
    check(choir_allreduce(group, CHOIR_BUF(us, (size_t)rounds, CHOIR_F64),
                          CHOIR_OPTS(allreduce, .op = CHOIR_MAX), NULL),
          "times");
    return perf_times_of(us, rounds).p50;
}

static void compare(choir_group *group, size_t nbytes)
{
    static struct buffers b;
    double us[NKINDS][BLOCKS], ratio[BLOCKS];
    int rounds = nbytes <= 1 << 18 ? 101 : nbytes <= 4 << 20 ? 15 : 5;

    b.in = perf_memory(nbytes);
    b.out = perf_memory(nbytes);
    if (b.in == NULL || b.out == NULL) {
        fprintf(stderr, "types: no memory for %zu bytes\n", nbytes);
        exit(1);
    }
    for (int block = 0; block < BLOCKS; block++) {
        for (int i = 0; i < NKINDS; i++) {
            int kind = (block + i) % NKINDS;

            us[kind][block] = play_block(group, &b, kinds[kind], nbytes, rounds);
        }
    }
    for (int kind = 1; kind < NKINDS; kind++) {
        struct spread spread;

        for (int block = 0; block < BLOCKS; block++)
            ratio[block] = us[0][block] / us[kind][block];
        spread = spread_of(ratio, BLOCKS);
        if (choir_group_rank(group) == 0 && kind == 1)
            printf("allreduce of %9zu bytes, %d ranks:", nbytes, choir_group_size(group));
        if (choir_group_rank(group) == 0)
            printf(" %s %.2f of f32's rate [%.2f-%.2f],", choir_type_name(kinds[kind]), spread.p50,
                   spread.p10, spread.p90);
    }
    if (choir_group_rank(group) == 0)
        printf(" f32 %.1f us\n", spread_of(us[0], BLOCKS).p50);
    fflush(stdout);
    free(b.in);
    free(b.out);
}

int main(int argc, char **argv)
{
    static const size_t usual[] = { 1 << 20, 4 << 20, 16 << 20 };
    choir_group *group;

    check(choir_init(&group, NULL), "init");
    perf_bind(choir_group_local_rank(group));
    for (int i = 1; i < argc; i++) {
        size_t nbytes = strtoul(argv[i], NULL, 10);

        if (nbytes < sizeof(float)) {
            fprintf(stderr, "usage: choir run -n N types [BYTES...]\n");
            return 2;
        }
        compare(group, nbytes);
    }
    for (size_t i = 0; argc < 2 && i < sizeof(usual) / sizeof(usual[0]); i++)
        compare(group, usual[i]);
    choir_group_destroy(group);
    return 0;
}
