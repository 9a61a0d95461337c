/*
 * channel.c - see channel.h.
 */
#include "engine/channel.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/poison.h"
#include "engine/rooted.h"

enum {
    SCHEDULES_KEPT = 64,
    LOOKS = 100,    /* one to five microseconds */
    WITHDRAWN = -1, /* as a token: this use of the block is over, whoever still looks */
};

static struct ch_control *control_at(const struct ch_rank *rank,
                                     const struct ch_neighbour *neighbour, uint32_t slot)
{
    char *base = ch_seg_base(neighbour->seg);

    return (struct ch_control *)(void *)(base + ch_layout_control(&rank->link.layout, slot));
}

/* --- blocks that are still looked at --------------------------------------------------------------- */

bool ch_member_has_left(const struct ch_member *member)
{
    /* Acquire, pairs with the releases in ch_channel_close() and make_block(): what it raised before it
     * left is seen. No token at all: it has not come yet. */
    uint64_t token = atomic_load_explicit(&member->control->token, memory_order_acquire);

    return token != 0 && (token != member->token ||
                          atomic_load_explicit(&member->control->closed, memory_order_acquire));
}

/* Nobody reads our block or our stage any more. */
static bool all_have_left_locked(const struct ch_channel *channel)
{
    ch_lock_assert_held(&channel->rank->lock);
    for (uint32_t i = 0; i < channel->nranks; i++) {
        const struct ch_member *member = &channel->members[i];

        if (i != channel->me && !ch_member_has_left(member) && !member->neighbour->dead)
            return false;
    }
    return true;
}

static void destroy(struct ch_channel *channel)
{
    ch_plans_drop(channel);
    ch_sched_cache_destroy(channel->schedules);
    ch_free(channel->agreement);
    ch_free(channel->rooted);
    ch_free(channel->scratch);
    ch_free(channel->iov);
    ch_free(channel->places);
    ch_free(channel->factors);
    ch_free(channel->to_stage);
    ch_free(channel->members);
    ch_free(channel);
}

/* Take back what channels left that all their members have left since. */
static void reap_locked(struct ch_rank *rank)
{
    ch_lock_assert_held(&rank->lock);
    CH_LIST_EACH (link, &rank->leaving) {
        struct ch_channel *channel = CH_CONTAINER(link, struct ch_channel, link);

        if (!all_have_left_locked(channel))
            continue;
        ch_list_remove(link);
        ch_pool_give(&rank->pool, &channel->lot);
        destroy(channel);
    }
}

void ch_channels_forget(struct ch_rank *rank)
{
    struct ch_list *link;

    ch_assert(ch_list_empty(&rank->channels));
    while ((link = ch_list_pop_front(&rank->leaving)) != NULL)
        destroy(CH_CONTAINER(link, struct ch_channel, link));
}

/* --- offers --------------------------------------------------------------------------------------- */

static struct ch_channel_offer offer_of(uint32_t who, uint64_t token, const struct ch_lot *lot)
{
    return (struct ch_channel_offer){ .token = token,
                                      .stage_at = lot->stage_at,
                                      .stage_nbytes = lot->stage_nbytes,
                                      .rank = who,
                                      .slot = lot->slot };
}

static struct ch_lot lot_of(const struct ch_channel_offer *offer)
{
    return (struct ch_lot){ offer->slot, offer->stage_at, offer->stage_nbytes };
}

/* Whatever a channel before it left there is forgotten. The poison word is written by others as well: never
 * zero between two uses, when a late poisoner might take it for the first channel's. */
static void make_block(struct ch_rank *rank, const struct ch_channel_offer *offer)
{
    struct ch_control *control = control_at(rank, &rank->link.self, offer->slot);

    if (offer->token != 1) { /* the first block is new, and the others know where it is already */
        memset((void *)control, 0, offsetof(struct ch_control, token));
        atomic_store_explicit(&control->closed, 0, memory_order_relaxed);
        atomic_store_explicit(&control->gated, 0, memory_order_relaxed);
        /* Relaxed: published with the token, and by the exchange of offers. */
        atomic_store_explicit(&control->poison, ch_poison_value(offer->token, 0),
                              memory_order_relaxed);
        memset((void *)&control->record, 0, sizeof(control->record));
    }
    /* Release, pairs with the acquire in ch_member_has_left(). */
    atomic_store_explicit(&control->token, offer->token, memory_order_release);
}

static void give_back(struct ch_rank *rank, const struct ch_lot *lot)
{
    ch_lock(&rank->lock);
    ch_pool_give(&rank->pool, lot);
    ch_unlock(&rank->lock);
}

choir_status ch_channel_offer(struct ch_rank *rank, uint32_t nranks,
                              struct ch_channel_offer *offer_out)
{
    struct ch_lot lot;
    choir_status rc;

    ch_lock(&rank->lock);
    reap_locked(rank);
    rc = ch_pool_take(&rank->pool, nranks > 1, &lot);
    if (rc == CHOIR_OK)
        *offer_out = offer_of((uint32_t)rank->rank, ++rank->noffers, &lot);
    ch_unlock(&rank->lock);
    if (rc == CHOIR_OK) {
        rc = ch_seg_fill(rank->link.self.seg, ch_layout_control(&rank->link.layout, lot.slot),
                         sizeof(struct ch_control));
        if (rc != CHOIR_OK)
            give_back(rank, &lot);
    }
    if (rc == CHOIR_OK)
        make_block(rank, offer_out);
    else
        ch_error_prefix("rank %d: ", rank->rank);
    return rc;
}

void ch_channel_withdraw(struct ch_rank *rank, const struct ch_channel_offer *offer)
{
    struct ch_control *control = control_at(rank, &rank->link.self, offer->slot);
    struct ch_lot lot = lot_of(offer);

    atomic_store_explicit(&control->token, (uint64_t)WITHDRAWN, memory_order_release);
    give_back(rank, &lot);
}

struct ch_channel_offer ch_channel_first_offer(const struct ch_rank *rank, uint32_t who)
{
    struct ch_pool fresh;
    struct ch_lot lot = { 0, 0, 0 };

    /* The same arithmetic on the same numbers as theirs. */
    ch_pool_init(&fresh, &rank->link.layout);
    (void)ch_pool_take(&fresh, rank->nranks > 1, &lot);
    return offer_of(who, 1, &lot);
}

/* --- opening ------------------------------------------------------------------------------------ */

static bool offer_makes_sense(const struct ch_rank *rank, const struct ch_channel_offer *offer)
{
    const struct ch_layout *layout = &rank->link.layout;

    return offer->slot < CH_SLOTS && offer->token != 0 && offer->stage_at >= layout->stage_at &&
           offer->stage_at <= layout->nbytes && offer->stage_at % CH_CACHE_UNIT == 0 &&
           offer->stage_nbytes <= layout->nbytes - offer->stage_at;
}

static choir_status find_member(const struct ch_rank *rank, uint32_t place,
                                const struct ch_channel_offer *offer, struct ch_member *out)
{
    struct ch_neighbour *neighbour = ch_hostlink_find(&rank->link, (int)offer->rank);

    if (neighbour == NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "its rank %u (%u of all) is on another host: groups across hosts cannot "
                       "communicate yet",
                       place, offer->rank);
    if (!offer_makes_sense(rank, offer))
        return ch_fail(CHOIR_ERR_PROTO, "its rank %u offers what its segment has not", place);
    *out = (struct ch_member){ .neighbour = neighbour,
                               .control = control_at(rank, neighbour, offer->slot),
                               .stage = (char *)ch_seg_base(neighbour->seg) + offer->stage_at,
                               .token = offer->token,
                               .through = CH_FIRST_ROUND - 1 };
    return CHOIR_OK;
}

static choir_status fill_in(struct ch_channel *channel, const struct ch_channel_offer *offers)
{
    size_t least = SIZE_MAX;

    channel->members = ch_zalloc_array(channel->nranks, sizeof(*channel->members));
    channel->factors = ch_zalloc_array(channel->nranks, sizeof(*channel->factors));
    channel->to_stage = ch_zalloc_array(channel->nranks + 1, sizeof(*channel->to_stage));
    if (channel->members == NULL || channel->factors == NULL || channel->to_stage == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %u members", channel->nranks);
    for (uint32_t i = 0; i < channel->nranks; i++) {
        choir_status rc = find_member(channel->rank, i, &offers[i], &channel->members[i]);

        if (rc != CHOIR_OK)
            return rc;
        if (offers[i].stage_nbytes < least)
            least = offers[i].stage_nbytes;
    }
    channel->stage_half = least / 2 / CH_CACHE_UNIT * CH_CACHE_UNIT;
    channel->poison = &channel->members[0].control->poison;
    channel->unpoisoned = ch_poison_value(offers[0].token, 0);
    /* The first member never offers the same twice, so no other channel of any member has this. */
    channel->id = offers[0].token << 20 | offers[0].rank;
    channel->check = channel->id;
    channel->control = channel->members[channel->me].control;
    return ch_sched_cache_create(SCHEDULES_KEPT, &channel->schedules);
}

choir_status ch_channel_open(struct ch_rank *rank, const struct ch_channel_offer *offers,
                             uint32_t nranks, uint32_t me, const char *name,
                             struct ch_channel **channel_out)
{
    struct ch_channel *channel = ch_zalloc(sizeof(*channel));
    choir_status rc;

    if (channel == NULL) {
        ch_channel_withdraw(rank, &offers[me]);
        return ch_fail(CHOIR_ERR_NOMEM, "group %s: no memory for its channel", name);
    }
    channel->rank = rank;
    channel->nranks = nranks;
    channel->me = me;
    channel->lot = lot_of(&offers[me]);
    channel->looks = rank->link.count > rank->processors ? 0 : LOOKS;
    channel->round = CH_FIRST_ROUND;
    channel->all_through = channel->half_ended = CH_FIRST_ROUND - 1;
    snprintf(channel->name, sizeof(channel->name), "%s", name);
    rc = fill_in(channel, offers);
    if (rc != CHOIR_OK) {
        ch_error_prefix("group %s: ", name);
        ch_channel_withdraw(rank, &offers[me]);
        destroy(channel);
        return rc;
    }
    ch_rooted_init(channel);
    ch_lock(&rank->lock);
    ch_list_push_back(&rank->channels, &channel->link);
    ch_poison_by_the_dead_locked(channel);
    ch_unlock(&rank->lock);
    *channel_out = channel;
    return CHOIR_OK;
}

choir_status ch_channel_open_first(struct ch_rank *rank, const char *name,
                                   struct ch_channel **channel_out)
{
    struct ch_channel_offer *offers = ch_alloc_array(rank->nranks, sizeof(*offers)), mine;
    choir_status rc;

    if (offers == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "group %s: no memory for %u ranks", name, rank->nranks);
    rc = ch_channel_offer(rank, rank->nranks, &mine);
    for (uint32_t who = 0; who < rank->nranks; who++)
        offers[who] = ch_channel_first_offer(rank, who);
    if (rc == CHOIR_OK) {
        ch_assert(memcmp(&mine, &offers[rank->rank], sizeof(mine)) == 0);
        rc = ch_channel_open(rank, offers, rank->nranks, (uint32_t)rank->rank, name, channel_out);
    }
    ch_free(offers);
    return rc;
}

/* --- numbers ------------------------------------------------------------------------------------- */

int ch_channel_member(const struct ch_channel *channel, int rank)
{
    for (uint32_t i = 0; i < channel->nranks; i++) {
        if (channel->members[i].neighbour->rank == rank)
            return (int)i;
    }
    return CHOIR_NO_RANK;
}

choir_status ch_channel_transfer_error(const struct ch_channel *channel, const choir_error *error)
{
    choir_error e = *error;

    e.culprit = ch_channel_member(channel, error->culprit);
    ch_error_load(&e);
    if (e.culprit != error->culprit)
        ch_error_prefix("with rank %d (%d of all): ", e.culprit, error->culprit);
    ch_error_prefix("group %s: ", channel->name);
    return e.code;
}

/* --- leaving ------------------------------------------------------------------------------------ */

void ch_channel_close(struct ch_channel *channel)
{
    struct ch_rank *rank;

    /* In a forked child the segments are not mapped, and the lock may be held by a thread that is not here. */
    if (channel == NULL || ch_is_forked())
        return;
    rank = channel->rank;
    ch_p2p_end_context(rank->p2p, ch_channel_context(channel, false), NULL);
    ch_p2p_end_context(rank->p2p, ch_channel_context(channel, true), NULL);
    /* Release, pairs with the acquire in ch_member_has_left(). */
    atomic_store_explicit(&channel->control->closed, 1, memory_order_release);
    ch_channel_ring(channel);
    ch_lock(&rank->lock);
    ch_list_remove(&channel->link);
    ch_list_push_back(&rank->leaving, &channel->link);
    reap_locked(rank);
    ch_unlock(&rank->lock);
}

void ch_channel_ring(const struct ch_channel *channel)
{
    for (uint32_t i = 0; i < channel->nranks; i++) {
        if (i != channel->me)
            ch_bell_after_store(&channel->members[i].neighbour->bell);
    }
}
