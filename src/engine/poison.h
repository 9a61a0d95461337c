/*
 * poison.h - how a channel fails: the first cause wins, and all members tell the same.
 *
 * Whoever knows a cause writes a record into its own control block and then sets the poison word, in the first
 * member's, to its own place by compare-and-swap: who sees the word reads a whole record. Only one thread
 * of a rank gets to write the record; later causes are dropped. Everybody who sleeps is rung.
 */
#ifndef CH_POISON_H
#define CH_POISON_H

#include <choir/status.h>

#include "engine/channel.h"

/* CHOIR_OK, or what the channel failed with, as this thread's error. */
choir_status ch_poisoned_slow(const struct ch_channel *channel);

static inline choir_status ch_poisoned(const struct ch_channel *channel)
{
    /* Acquire, pairs with the compare-and-swap in ch_poison(): the record is whole. */
    if (CH_LIKELY(atomic_load_explicit(channel->poison, memory_order_acquire) ==
                  channel->unpoisoned))
        return CHOIR_OK;
    return ch_poisoned_slow(channel);
}

/* Make it fail, unless it has already. True if this is the cause that stays.
 * Threads: any, with whatever lock: it says nothing. */
bool ch_poison(struct ch_channel *channel, const choir_error *record);

/* The same with this thread's last error. Returns what the channel has failed with, which becomes this thread's
 * last error; if another thread of this rank is just about to say, the error as it was. */
choir_status ch_poison_last_error(struct ch_channel *channel);

/* A neighbour's process has ended: every channel fails that it had not left. Service thread. */
void ch_poison_by_death(struct ch_rank *rank, struct ch_neighbour *neighbour);

/* The same for a channel that is new: members may have died before it was among those that fail by a death. */
void ch_poison_by_the_dead_locked(struct ch_channel *channel);

#endif
