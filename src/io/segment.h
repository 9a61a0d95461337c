/*
 * segment.h - memory shared between processes, without a name anybody could find or forget.
 *
 * A segment is a memfd. Its creator gives it all its pages at once (a full machine is an error here,
 * not a SIGBUS at the first touch), seals its size, and passes the descriptor to its peers
 * (fdpass.h). When the last process is gone, however it went, so is the memory.
 *
 * A process maps a segment once: whoever attaches it again, or attaches its own, shares that mapping
 * and a reference count. Ranks that are threads thus see one address, and so does ThreadSanitizer.
 * A forked child does not have the mapping.
 */
#ifndef CH_SEGMENT_H
#define CH_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>

#include <choir/status.h>

struct ch_seg;

/* A new segment of `nbytes` zero bytes. *seg_out is the caller's, to end with ch_seg_detach(). `name`
 * is for people who read /proc/PID/maps.
 * Threads: any, as all calls here.
 * Errors:  CHOIR_ERR_INVALID for no or absurdly many bytes, CHOIR_ERR_NOMEM for more than there are. */
choir_status ch_seg_create(const char *name, size_t nbytes, struct ch_seg **seg_out);

/* The same for a segment whose size is not known yet: it has `nbytes` now, and an address at which it can
 * grow to `most`. It is sealed, and may be passed on, when it has grown. */
choir_status ch_seg_create_growing(const char *name, size_t nbytes, size_t most,
                                   struct ch_seg **seg_out);

/* Give it its size, once: at least what it has and at most what was said. It has no further pages by that:
 * nobody may touch what its creator has not had allocated with ch_seg_fill(). Pages that are not needed
 * need not be made, which takes its time (a millisecond for 4 MiB). */
choir_status ch_seg_grow(struct ch_seg *seg, size_t nbytes);
choir_status ch_seg_fill(struct ch_seg *seg, size_t from, size_t nbytes);

/* Map the segment whose descriptor a peer passed us and promised to have `nbytes`.
 * Ownership: `fd` is taken over, also on failure; *seg_out ends with ch_seg_detach().
 * Errors:    CHOIR_ERR_PROTO if it is not a sealed memfd of at least that size. */
choir_status ch_seg_attach(int fd, size_t nbytes, struct ch_seg **seg_out);

/* Give one reference back; the last one unmaps. Accepts NULL. */
void ch_seg_detach(struct ch_seg *seg);

void *ch_seg_base(const struct ch_seg *seg);

/* Of the whole segment, at least what was promised. */
size_t ch_seg_nbytes(const struct ch_seg *seg);

/* Whether it was made in this process: then so lives whoever made it. */
bool ch_seg_is_ours(const struct ch_seg *seg);

/* To pass on; stays the segment's. */
int ch_seg_fd(const struct ch_seg *seg);

#endif
