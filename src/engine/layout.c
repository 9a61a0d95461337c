/*
 * layout.c - see layout.h.
 */
#include "engine/layout.h"

#include "engine/control.h"
#include "engine/hostlink.h"

enum {
    K = 1024,
    ALL_RANKS = 128 * 1024 *
                K,        /* what the segments of one host have together, if each has its least */
    ALL_RINGS = 1024 * K, /* of one rank, as far as that goes */
    RING_MOST = 128 * K,
    RING_LEAST = 1 * K,
    RING_HEAD = 256, /* the counters in front of a ring's bytes */
    STAGE_LEAST = 256 * K,
    ALIGNED = 4096,
};

static size_t align(size_t nbytes)
{
    return (nbytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static size_t ring_room(uint32_t nranks)
{
    size_t room = RING_MOST;

    while (room > RING_LEAST && room * nranks > ALL_RINGS)
        room /= 2;
    return room;
}

struct ch_layout ch_layout_of(uint32_t ranks_on_host)
{
    struct ch_layout l = { .nranks = ranks_on_host, .control_at = sizeof(struct ch_rank_page) };
    size_t fair = align(ALL_RANKS / ranks_on_host), needed;

    if (fair > CH_SEGMENT_MOST)
        fair = CH_SEGMENT_MOST;
    l.ring_room = ring_room(ranks_on_host);
    l.rings_at = align(l.control_at + CH_SLOTS * sizeof(struct ch_control));
    l.stage_at = align(l.rings_at + ranks_on_host * (l.ring_room + RING_HEAD));
    needed = l.stage_at + STAGE_LEAST;
    l.nbytes = fair > needed ? fair : needed;
    return l;
}

size_t ch_layout_control(const struct ch_layout *layout, uint32_t slot)
{
    return layout->control_at + slot * sizeof(struct ch_control);
}

size_t ch_layout_ring(const struct ch_layout *layout, uint32_t place)
{
    return layout->rings_at + place * (layout->ring_room + RING_HEAD);
}
