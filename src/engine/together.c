/*
 * together.c - see together.h.
 */
#include "engine/together.h"

#include <stddef.h>

#include "base/processors.h"
#include "engine/hostlink.h"

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static const struct ch_processor_set *mask_of(const struct ch_hostlink *link, size_t place)
{
    return &link->neighbours[place].page->mask;
}

static uint32_t ranks_within(const struct ch_hostlink *link, const struct ch_processor_set *set)
{
    uint32_t count = 0;

    for (size_t i = 0; i < link->count; i++)
        count += ch_processor_set_within(mask_of(link, i), set);
    return count;
}

/* By Hall's theorem this is fewer than ranks exactly if they cannot have a processor each, provided that any two
 * masks are apart or one is within the other, as launchers make them. An empty mask is one that is not known. */
static uint32_t count_by_masks(const struct ch_hostlink *link)
{
    struct ch_processor_set any = { { 0 } };
    uint32_t nranks = (uint32_t)link->count, most;

    for (size_t i = 0; i < link->count; i++)
        ch_processor_set_add(&any, mask_of(link, i));
    most = ch_processor_set_count(&any);
    for (size_t i = 0; i < link->count; i++) {
        uint32_t own = ch_processor_set_count(mask_of(link, i)), confined;

        if (own >= most || own >= nranks)
            continue; /* nothing can come of counting */
        confined = ranks_within(link, mask_of(link, i));
        if (confined > own)
            most = smaller(most, own + nranks - confined);
    }
    return most;
}

uint32_t ch_processors_together(const struct ch_hostlink *link)
{
    uint32_t most = count_by_masks(link), told = UINT32_MAX;
    size_t tellers = 0;

    for (size_t i = 0; i < link->count; i++) {
        const struct ch_rank_page *page = link->neighbours[i].page;

        if (page->quota != 0)
            most = smaller(most, page->quota);
        if (page->processors == 0)
            continue;
        told = smaller(told, page->processors);
        tellers++;
    }
    if (tellers == link->count)
        return told;
    most = smaller(most, told);
    return most > 0 ? most : 1;
}
