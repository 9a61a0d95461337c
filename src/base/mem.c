/*
 * mem.c - counted allocation. Each block carries a header that says whose it is and how large.
 */
#include "base/mem.h"

#include <errno.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/fault.h"

enum { HEADER_MAGIC = 0x4348 };

/* Sits right in front of what the caller gets. `offset` leads back to what malloc gave. */
struct header {
    alignas(max_align_t) size_t nbytes;
    uint32_t offset;
    uint16_t sub;
    uint16_t magic;
};

static struct {
    _Atomic uint64_t live_blocks, live_bytes, total_blocks;
} counts[CH_NSUBSYSTEMS];

/* Relaxed throughout: these are statistics, nothing is published through them. */
static void count_block(enum ch_subsystem sub, size_t nbytes)
{
    atomic_fetch_add_explicit(&counts[sub].live_blocks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[sub].live_bytes, nbytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[sub].total_blocks, 1, memory_order_relaxed);
}

static void uncount_block(enum ch_subsystem sub, size_t nbytes)
{
    atomic_fetch_sub_explicit(&counts[sub].live_blocks, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&counts[sub].live_bytes, nbytes, memory_order_relaxed);
}

static struct header *header_of(void *p)
{
    struct header *h = (struct header *)p - 1;

    ch_assert(h->magic == HEADER_MAGIC);
    return h;
}

static void *dress(void *raw, size_t offset, enum ch_subsystem sub, size_t nbytes)
{
    char *user = (char *)raw + offset;
    struct header *h = (struct header *)(void *)user - 1;

    *h = (struct header){
        .nbytes = nbytes, .offset = (uint32_t)offset, .sub = (uint16_t)sub, .magic = HEADER_MAGIC
    };
    count_block(sub, nbytes);
    return user;
}

/* True, with errno set, if count * size + extra does not fit or a test wants a failure. */
static bool refused(size_t count, size_t size, size_t extra, size_t *nbytes_out)
{
    size_t total;

    if (ch_fault_hit(CH_FAULT_alloc, ENOMEM))
        return true;
    if (__builtin_mul_overflow(count, size, nbytes_out) ||
        __builtin_add_overflow(*nbytes_out, extra, &total) || total > PTRDIFF_MAX) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

void *ch_mem_alloc(enum ch_subsystem sub, size_t count, size_t size)
{
    size_t nbytes;
    void *raw;

    if (refused(count, size, sizeof(struct header), &nbytes))
        return NULL;
    raw = malloc(sizeof(struct header) + nbytes);
    return raw == NULL ? NULL : dress(raw, sizeof(struct header), sub, nbytes);
}

void *ch_mem_zalloc(enum ch_subsystem sub, size_t count, size_t size)
{
    size_t nbytes;
    void *raw;

    if (refused(count, size, sizeof(struct header), &nbytes))
        return NULL;
    raw = calloc(1, sizeof(struct header) + nbytes);
    return raw == NULL ? NULL : dress(raw, sizeof(struct header), sub, nbytes);
}

void *ch_mem_zalloc_aligned(enum ch_subsystem sub, size_t align, size_t nbytes)
{
    size_t ahead = sizeof(struct header) + align; /* at most this far to the first aligned byte */
    uintptr_t user;
    char *raw;

    ch_assert(align != 0 && (align & (align - 1)) == 0 && align <= 4096);
    if (refused(1, nbytes, ahead, &nbytes))
        return NULL;
    /* Not aligned_alloc and memset: of a large block calloc's pages come from the kernel zeroed, when they
     * are first used. */
    raw = calloc(1, ahead + nbytes);
    if (raw == NULL)
        return NULL;
    user = ((uintptr_t)raw + sizeof(struct header) + align - 1) & ~(uintptr_t)(align - 1);
    return dress(raw, user - (uintptr_t)raw, sub, nbytes);
}

void *ch_mem_regrow(enum ch_subsystem sub, void *p, size_t count, size_t size)
{
    struct header *h, *moved;
    size_t nbytes, before;

    if (p == NULL)
        return ch_mem_alloc(sub, count, size);
    h = header_of(p);
    ch_assert(h->offset == sizeof(struct header)); /* aligned blocks do not grow */
    if (refused(count, size, sizeof(struct header), &nbytes))
        return NULL;
    before = h->nbytes;
    moved = realloc(h, sizeof(struct header) + nbytes);
    if (moved == NULL)
        return NULL;
    uncount_block((enum ch_subsystem)moved->sub, before);
    return dress(moved, sizeof(struct header), (enum ch_subsystem)moved->sub, nbytes);
}

char *ch_mem_strdup(enum ch_subsystem sub, const char *s)
{
    size_t nbytes = strlen(s) + 1;
    char *copy = ch_mem_alloc(sub, 1, nbytes);

    return copy == NULL ? NULL : memcpy(copy, s, nbytes);
}

void ch_free(void *p)
{
    int keep = errno;
    struct header *h;

    if (p == NULL)
        return;
    h = header_of(p);
    uncount_block((enum ch_subsystem)h->sub, h->nbytes);
    h->magic = 0; /* a second free of the same block meets the assertion */
    free((char *)p - h->offset);
    errno = keep;
}

struct ch_mem_count ch_mem_count(enum ch_subsystem sub)
{
    return (struct ch_mem_count){
        .live_blocks = atomic_load_explicit(&counts[sub].live_blocks, memory_order_relaxed),
        .live_bytes = atomic_load_explicit(&counts[sub].live_bytes, memory_order_relaxed),
        .total_blocks = atomic_load_explicit(&counts[sub].total_blocks, memory_order_relaxed),
    };
}
