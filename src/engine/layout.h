/*
 * layout.h - where things are in a rank's segment.
 *
 *   page              who this is, and its doorbell (hostlink.h)
 *   control blocks    one for each channel of the rank (control.h)
 *   byte rings        one for each rank of the host, which writes it; ours, by place in the list of
 *                     neighbours, is never used (transport.h)
 *   stage             what the channels share: see pool.h
 *
 * All follows from the number of ranks on the host, so that every rank knows every other's layout without
 * asking; the page says it once more, to be compared. A rank has at most 4 MiB, less where many share the
 * host. Rings have their pages from the beginning, control blocks when a channel takes them, stage with the
 * first operation that needs it, each made by the owner: so joining is quick, and a machine without memory is
 * an error and not a SIGBUS.
 */
#ifndef CH_LAYOUT_H
#define CH_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum {
    CH_SEGMENT_MOST = 4 * 1024 * 1024,
    CH_SLOTS = 256,       /* channels of a rank at once */
    CH_STAGE_UNIT = 2048, /* the least that a channel gets, and what all sizes are multiples of */
};

struct ch_layout {
    uint32_t nranks; /* of the host */
    size_t ring_room;
    size_t control_at, rings_at, stage_at, nbytes;
};

struct ch_layout ch_layout_of(uint32_t ranks_on_host);

/* No layout is larger: what to map before the number of ranks is known. */
#define CH_LAYOUT_MOST ((size_t)64 * 1024 * 1024)

size_t ch_layout_control(const struct ch_layout *layout, uint32_t slot);
size_t ch_layout_ring(const struct ch_layout *layout, uint32_t place);

#endif
