/*
 * mem.h - the only door to the heap.
 *
 * Sizes are overflow-checked, live blocks and bytes are counted per subsystem, and a test can make
 * the k-th allocation fail (fault.h). All calls return NULL on failure and leave errno ENOMEM;
 * saying so in words is the caller's part.
 */
#ifndef CH_MEM_H
#define CH_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/subsystem.h"

#define ch_alloc(nbytes)             ch_mem_alloc(CH_SUBSYS, 1, nbytes)
#define ch_zalloc(nbytes)            ch_mem_zalloc(CH_SUBSYS, 1, nbytes)
#define ch_alloc_array(count, size)  ch_mem_alloc(CH_SUBSYS, count, size)
#define ch_zalloc_array(count, size) ch_mem_zalloc(CH_SUBSYS, count, size)
#define ch_zalloc_aligned(align, n)  ch_mem_zalloc_aligned(CH_SUBSYS, align, n)
#define ch_regrow(p, count, size)    ch_mem_regrow(CH_SUBSYS, p, count, size)
#define ch_strdup(s)                 ch_mem_strdup(CH_SUBSYS, s)

void *ch_mem_alloc(enum ch_subsystem sub, size_t count, size_t size) CH_WARN_UNUSED;
void *ch_mem_zalloc(enum ch_subsystem sub, size_t count, size_t size) CH_WARN_UNUSED;

/* `align` is a power of two, at most a page. Zeroed. */
void *ch_mem_zalloc_aligned(enum ch_subsystem sub, size_t align, size_t nbytes) CH_WARN_UNUSED;

/* Make the array at `p` (NULL for a new one) hold `count` elements. On failure `p` is as before. */
void *ch_mem_regrow(enum ch_subsystem sub, void *p, size_t count, size_t size) CH_WARN_UNUSED;

char *ch_mem_strdup(enum ch_subsystem sub, const char *s) CH_WARN_UNUSED;

/* Accepts NULL. Keeps errno. */
void ch_free(void *p);

struct ch_mem_count {
    uint64_t live_blocks, live_bytes; /* now */
    uint64_t total_blocks;            /* ever */
};

struct ch_mem_count ch_mem_count(enum ch_subsystem sub);

#endif
