/*
 * copy_over.h - copies into memory that another processor reads: the way that is faster where the two are now.
 *
 * Ordinary stores first make each cache line their own, and take it away from whoever read it last. Where two processors have a
 * cache in common that is quick, and the reader then finds the bytes in it. Where they have none, a line takes a quarter of a
 * microsecond to come over, and few can be on their way at once: a copy past the caches, which owns nothing and only
 * pushes, then takes a quarter of the time (docs/design/performance.md).
 *
 * Which of the two it is changes while a program runs, as virtual machines are moved between processors. So it is measured
 * all the time: one copy in eight is timed, and the other way is tried now and then, which is seldom as long as
 * there is no reason to. It is a matter of the writer alone: the bytes are the same.
 */
#ifndef CH_COPY_OVER_H
#define CH_COPY_OVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is shorter is copied with ordinary stores: its time is that of the flag which tells of it. */
enum { CH_COPY_OVER_FROM = 4096, CH_COPY_OVER_SIZES = 5 };

struct ch_copy_way {
    bool past;                /* the caches, now */
    uint8_t turn;             /* of the copies, of which one in a few is timed */
    uint16_t patience;        /* how many timed ones go by before the other way is tried */
    uint16_t left;            /* of these */
    uint32_t own_ps, past_ps; /* picoseconds a byte took of late, each way; 0: not known */
    uint32_t tried_ps;        /* what own_ps was when the other way was tried last */
};

/* Of one writer, for each power of two from CH_COPY_OVER_FROM on, the last for all that is longer. Zero is how it begins;
 * whoever copies has it for himself. */
struct ch_copy_ways {
    struct ch_copy_way by_size[CH_COPY_OVER_SIZES];
};

/* Copy to `dst`, which others read; the two do not overlap. The bytes are visible to them as soon as a flag is set. */
void ch_copy_over(struct ch_copy_ways *ways, void *dst, const void *src, size_t nbytes);

/* Whether `nbytes` should now go past the caches, by whoever writes them himself. */
bool ch_copy_goes_past(const struct ch_copy_ways *ways, size_t nbytes);

/* What is behind it. Which way the next copy goes, and whether to time it; and what one took. */
bool ch_copy_way_next(struct ch_copy_way *way, bool *timed_out);
void ch_copy_way_took(struct ch_copy_way *way, bool past, size_t nbytes, uint64_t ns);

#endif
