/*
 * huge_collective.c - more than 2^31 bytes in one call: nothing may count in 32 bits.
 *
 *   choir run -n 2 huge_collective
 *
 * An all-reduce of bytes, an all-gather whose output, and a message that is that long.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>
#include <choir/coll.h>

static const size_t huge = (UINT64_C(1) << 31) + 4099;

static uint8_t value(int rank, size_t pos)
{
    return (uint8_t)((size_t)rank * 31 + pos * 7 + (pos >> 20));
}

static void fill(uint8_t *data, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        data[i] = value(rank, i);
}

static void check(choir_status rc, const char *what)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "FAILED: %s: %s\n", what, choir_last_error());
    exit(1);
}

static void check_byte(const char *what, size_t pos, uint8_t got, uint8_t want)
{
    if (got == want)
        return;
    fprintf(stderr, "FAILED: %s: byte %zu is %u, not %u\n", what, pos, got, want);
    exit(1);
}

int main(void)
{
    choir_group *group;
    uint8_t *data = malloc(huge), *part;
    size_t half = huge / 2;
    int rank;

    if (data == NULL) {
        fprintf(stderr, "no memory\n");
        return 77;
    }
    check(choir_init(&group, NULL), "choir_init");
    rank = choir_group_rank(group);
    if (choir_group_size(group) != 2)
        return 2;

    fill(data, huge, rank);
    check(choir_allreduce(group, CHOIR_BUF(data, huge, CHOIR_U8), NULL, NULL), "allreduce");
    for (size_t i = 0; i < huge; i++)
        check_byte("allreduce", i, data[i], (uint8_t)(value(0, i) + value(1, i)));

    part = data + (size_t)rank * half;
    fill(part, half, rank);
    check(choir_allgather_into(group, CHOIR_BUF(part, half, CHOIR_U8),
                               CHOIR_BUF(data, 2 * half, CHOIR_U8), NULL, NULL),
          "allgather_into");
    for (size_t i = 0; i < 2 * half; i++)
        check_byte("allgather_into", i, data[i], value(i >= half, i % half));

    fill(data, huge, rank);
    if (rank == 0)
        check(choir_send(group, CHOIR_BUF(data, huge, CHOIR_U8), 1, 0, NULL, NULL), "send");
    else
        check(choir_recv(group, CHOIR_BUF(data, huge, CHOIR_U8), 0, 0, NULL, NULL), "recv");
    for (size_t i = 0; i < huge; i++)
        check_byte("message", i, data[i], value(0, i));
    choir_group_destroy(group);
    free(data);
    return 0;
}
