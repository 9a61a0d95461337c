/*
 * fdmarks.c - which descriptors are ours. 128 KiB of zero pages, touched only where used.
 */
#include "base/fdmarks.h"

#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

enum { BITS = 64, WORDS = CH_FD_MAX / BITS };

static struct {
    _Atomic uint64_t bits[WORDS];
    _Atomic int count;
    _Atomic int highest; /* no mark above it: spares the child a walk over 128 KiB */
} marks;

/* seq_cst throughout: opening and closing descriptors is never hot, and the fork handler reads what
 * any thread wrote. */
bool ch_fdmark_set(int fd)
{
    int highest = atomic_load(&marks.highest);
    uint64_t bit;

    if (fd < 0 || fd >= CH_FD_MAX)
        return false;
    bit = UINT64_C(1) << (fd % BITS);
    if ((atomic_fetch_or(&marks.bits[fd / BITS], bit) & bit) == 0)
        atomic_fetch_add(&marks.count, 1);
    while (fd > highest && !atomic_compare_exchange_weak(&marks.highest, &highest, fd))
        ;
    return true;
}

bool ch_fdmark_clear(int fd)
{
    uint64_t bit;

    if (fd < 0 || fd >= CH_FD_MAX)
        return false;
    bit = UINT64_C(1) << (fd % BITS);
    if ((atomic_fetch_and(&marks.bits[fd / BITS], ~bit) & bit) == 0)
        return false;
    atomic_fetch_sub(&marks.count, 1);
    return true;
}

int ch_fdmark_count(void)
{
    return atomic_load(&marks.count);
}

void ch_fdmark_close_all(void)
{
    int last_word = atomic_load(&marks.highest) / BITS;

    for (int w = 0; w <= last_word; w++) {
        uint64_t bits = atomic_exchange(&marks.bits[w], 0);

        for (; bits != 0; bits &= bits - 1)
            close(w * BITS + __builtin_ctzll(bits));
    }
    atomic_store(&marks.count, 0);
}
