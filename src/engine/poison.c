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
    uint32_t word = atomic_load_explicit(channel->poison, memory_order_acquire);
    choir_error record;

    if (word == 0)
        return CHOIR_OK;
    if (word > channel->nranks)
        return ch_fail(CHOIR_ERR_REMOTE, "group %s: poisoned by %u, but it has %u ranks",
                       channel->name, word - 1, channel->nranks);
    /* Another process wrote it: it may say anything, but must end. */
    record = channel->members[word - 1].control->record;
    record.operation[sizeof(record.operation) - 1] = '\0';
    record.text[sizeof(record.text) - 1] = '\0';
    if (record.code >= 0)
        record.code = CHOIR_ERR_REMOTE;
    return ch_error_load(&record);
}

void ch_poison(struct ch_channel *channel, const choir_error *record)
{
    uint32_t none = 0;

    /* Relaxed: it only picks one of this rank's threads. */
    if (atomic_exchange_explicit(&channel->recording, 1, memory_order_relaxed) != 0)
        return;
    channel->members[channel->me].control->record = *record;
    /* Release: who sees the word sees the record. Relaxed if somebody was first: that is theirs. */
    if (atomic_compare_exchange_strong_explicit(channel->poison, &none, channel->me + 1,
                                                memory_order_release, memory_order_relaxed))
        ch_log_info("rank %u: group %s has failed: %s", channel->me, channel->name, record->text);
    ch_channel_ring(channel);
    ch_bell_after_store(&channel->rank->link.waiter.bell);
}

choir_status ch_poison_last_error(struct ch_channel *channel)
{
    choir_error record;
    choir_status rc;

    ch_error_save(&record);
    ch_poison(channel, &record);
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

void ch_poison_by_death(struct ch_rank *rank, struct ch_neighbour *neighbour)
{
    choir_error record;

    ch_fail_rank(CHOIR_ERR_DEAD, neighbour->rank, "",
                 "rank %d has died (process %" PRIu64 " on host %s)", neighbour->rank,
                 neighbour->page->pid, rank->host);
    ch_error_save(&record);
    ch_lock(&rank->lock);
    neighbour->dead = true;
    CH_LIST_EACH (link, &rank->channels) {
        struct ch_channel *channel = CH_CONTAINER(link, struct ch_channel, link);

        for (uint32_t who = 0; who < channel->nranks; who++) {
            choir_error of_group;

            if (channel->members[who].neighbour != neighbour ||
                ch_member_has_left(&channel->members[who]))
                continue;
            record_death(channel, who, &of_group);
            ch_poison(channel, &of_group);
        }
    }
    ch_unlock(&rank->lock);
    ch_p2p_fail_peer(rank->p2p, (uint32_t)neighbour->rank, &record);
}

/* --- refusal ------------------------------------------------------------------------------------ */

bool ch_poison_by_refusal(struct ch_rank *rank, uint64_t context, const choir_error *record)
{
    bool found = false;

    ch_lock(&rank->lock);
    CH_LIST_EACH (link, &rank->channels) {
        struct ch_channel *channel = CH_CONTAINER(link, struct ch_channel, link);

        if (ch_channel_context(channel, false) == context) {
            ch_poison(channel, record);
            found = true;
        }
    }
    ch_unlock(&rank->lock);
    return found;
}
