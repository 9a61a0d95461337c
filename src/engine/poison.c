/*
 * poison.c - see poison.h.
 */
#include "engine/poison.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/describe.h"

choir_status ch_poisoned_slow(const struct ch_channel *channel)
{
    uint64_t word = atomic_load_explicit(channel->poison, memory_order_acquire);
    uint64_t who = word - channel->unpoisoned; /* wraps if it is of another use of the block */
    choir_error record;

    if (who == 0)
        return CHOIR_OK;
    if (who > channel->nranks)
        return ch_fail_rank(CHOIR_ERR_REMOTE, 0, "",
                            "group %s: rank 0 has left the group: its block is another group's",
                            channel->name);
    /* Another process wrote it: it may say anything, but must end. */
    record = channel->members[who - 1].control->record;
    record.operation[sizeof(record.operation) - 1] = '\0';
    record.text[sizeof(record.text) - 1] = '\0';
    if (record.code >= 0)
        record.code = CHOIR_ERR_REMOTE;
    return ch_error_load(&record);
}

bool ch_poison(struct ch_channel *channel, const choir_error *record)
{
    uint64_t none = channel->unpoisoned;
    bool first;

    /* Relaxed: it only picks one of this rank's threads. */
    if (atomic_exchange_explicit(&channel->recording, 1, memory_order_relaxed) != 0)
        return false;
    channel->control->record = *record;
    /* Release: who sees the word sees the record. Relaxed if somebody was first: that is theirs. */
    first = atomic_compare_exchange_strong_explicit(channel->poison, &none, none + channel->me + 1,
                                                    memory_order_release, memory_order_relaxed);
    ch_channel_ring(channel);
    ch_bell_after_store(&channel->rank->link.waiter.bell);
    return first;
}

choir_status ch_poison_last_error(struct ch_channel *channel)
{
    choir_error record;
    choir_status rc;

    ch_error_save(&record);
    if (ch_poison(channel, &record))
        ch_log_info("rank %u: group %s has failed: %s", channel->me, channel->name, record.text);
    rc = ch_poisoned(channel);
    return rc == CHOIR_OK ? ch_error_load(&record) : rc;
}

/* --- death -------------------------------------------------------------------------------------- */

static void record_death(const struct ch_channel *channel, uint32_t who, choir_error *out)
{
    const struct ch_member *member = &channel->members[who];
    char last[CH_CALL_TEXT_MAX];

    ch_call_text_last(channel, who, last, sizeof(last));
    ch_fail_rank(CHOIR_ERR_DEAD, (int)who, last,
                 "group %s: rank %u has died (process %" PRIu64
                 " on host %s) without leaving the group; its last operation: %s",
                 channel->name, who, member->neighbour->page->pid, channel->rank->host, last);
    ch_error_save(out);
}

void ch_poison_by_the_dead_locked(struct ch_channel *channel)
{
    ch_lock_assert_held(&channel->rank->lock);
    for (uint32_t who = 0; who < channel->nranks; who++) {
        const struct ch_member *member = &channel->members[who];
        choir_error record;

        if (!member->neighbour->dead || ch_member_has_left(member))
            continue;
        record_death(channel, who, &record);
        (void)ch_poison(channel, &record);
    }
}

void ch_poison_by_death(struct ch_rank *rank, struct ch_neighbour *neighbour)
{
    choir_error record;

    ch_fail_rank(CHOIR_ERR_DEAD, neighbour->rank, "",
                 "rank %d has died (process %" PRIu64 " on host %s)", neighbour->rank,
                 neighbour->page->pid, rank->host);
    ch_error_save(&record);
    ch_lock(&rank->lock);
    neighbour->dead = true;
    CH_LIST_EACH (link, &rank->channels)
        ch_poison_by_the_dead_locked(CH_CONTAINER(link, struct ch_channel, link));
    ch_unlock(&rank->lock);
    ch_log_info("rank %d: %s", rank->rank, record.text);
    ch_p2p_fail_peer(rank->p2p, (uint32_t)neighbour->rank, &record);
}
