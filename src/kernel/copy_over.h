/*
 * copy_over.h - copies into memory that another processor reads: the way that is fastest where the two are now.
 *
 * Ordinary stores first make each cache line their own, and take it away from whoever read it last, with what is in it. How long
 * that takes depends on where the reader is. Where the two processors have a cache in common it is quick; where they have none, a
 * line takes a quarter of a microsecond to come over, and few can be on their way at once. There are two other ways. The CPU's own
 * instruction for copying owns lines without fetching what is in them, on CPUs where it is made well: in half the time near and in
 * a seventh far. Stores past the caches own nothing, and a reader gets the bytes out of memory (docs/design/performance.md).
 *
 * Where the two are changes while a program runs, as virtual machines are moved between processors. So it is measured
 * all the time: one copy in eight is timed, and other ways are tried now and then, which is seldom as long as
 * there is no reason to. It is a matter of the writer alone: the bytes are the same.
 */
#ifndef CH_COPY_OVER_H
#define CH_COPY_OVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/kernel.h"

/* What is shorter is copied with ordinary stores: its time is that of the flag which tells of it. */
enum { CH_COPY_OVER_FROM = 4096, CH_COPY_OVER_SIZES = 5 };

struct ch_copy_way {
    uint8_t how;               /* enum ch_copy_how: now */
    uint8_t other;             /* what was tried last */
    uint8_t turn;              /* of the copies, of which one in a few is timed */
    uint8_t left;              /* how many timed ones go by before another way is tried */
    uint8_t patience;          /* what that begins with */
    uint32_t ps[CH_COPY_HOWS]; /* picoseconds a byte took of late, each way; 0: not known */
    uint32_t tried_ps;         /* what it was, our way, when another was tried last */
};

/* Of one writer and reader, for each power of two from CH_COPY_OVER_FROM on, the last for all that is longer. Zero is how it
 * begins; whoever copies has it for himself. */
struct ch_copy_ways {
    struct ch_copy_way by_size[CH_COPY_OVER_SIZES];
};

/* Copy to `dst`, which others read; the two do not overlap. The bytes are visible to them as soon as a flag is set. */
void ch_copy_over(struct ch_copy_ways *ways, void *dst, const void *src, size_t nbytes);

/* How `nbytes` should now be written, by whoever writes them himself. */
enum ch_copy_how ch_copy_over_how(const struct ch_copy_ways *ways, size_t nbytes);

/* What is behind it. How the next copy is made, of the ways that are `there` (ch_copy_there()), and whether to time it; and
 * what one took. */
enum ch_copy_how ch_copy_way_next(struct ch_copy_way *way, unsigned there, bool *timed_out);
void ch_copy_way_took(struct ch_copy_way *way, enum ch_copy_how how, size_t nbytes, uint64_t ns);

#endif
