/*
 * flags.h - flags between the members of a channel: raised, looked at, and gone by. For runner.c and fused.c alone, into whose
 * loops they are compiled.
 */
#ifndef CH_FLAGS_H
#define CH_FLAGS_H

#include "base/arch.h"
#include "engine/describe.h"
#include "engine/rooted.h"
#include "engine/runner.h"

/* Raise our flag, and say what we are doing. */
static inline void ch_flag_raise(struct ch_channel *channel, const struct ch_run *run,
                                 uint32_t flag, uint64_t check)
{
    struct ch_unit *unit = &channel->control->units[run->round % 2];

    /* Relaxed: published by the flag. */
    atomic_store_explicit(&unit->check, check, memory_order_relaxed);
    /* Release, pairs with the acquire in ch_flag_look(): what is staged is seen. */
    atomic_store_explicit(&unit->flag, ch_flag_value(run->round, flag), CH_POST_ORDER);
}

/* Whether who gets through with a round has to ring us. */
static inline void ch_say_gated(struct ch_channel *channel, bool gated)
{
    if (CH_LIKELY(channel->gated == gated))
        return;
    channel->gated = gated;
    atomic_store_explicit(&channel->control->gated, gated, memory_order_relaxed);
    if (gated)
        ch_waiter_wants_more(ch_rank_waiter(channel->rank));
}

static inline void ch_note_through(struct ch_member *member, uint64_t flag)
{
    uint64_t through = ch_flag_through(flag);

    if (through > member->through)
        member->through = through;
}

/* A peer that is under way is a moment behind: to look again at once is much cheaper than to go back to whoever
 * waits (base/wait.h), who looks at the clock and at everything else too. Not where ranks outnumber processors:
 * there the peer may be waiting for this very processor. */
static inline uint64_t ch_flag_look(_Atomic uint64_t *flag, uint64_t value, uint32_t looks)
{
    uint64_t seen;

    /* Acquire, pairs with the release in ch_flag_raise(). */
    while ((seen = atomic_load_explicit(flag, memory_order_acquire)) < value && looks-- > 0)
        ch_arch_relax();
    return seen;
}

/* What `who` says of the operation is not all that we do: lengths may be in it, or it has gone on to another one. */
choir_status ch_flag_compare(struct ch_channel *channel, const struct ch_run *run, uint32_t who,
                             uint64_t check);

/* Whether `who` has raised its flag. What it says of the operation is compared with what we say: no byte of a
 * different one is taken. */
static inline choir_status ch_flag_await(struct ch_channel *channel, struct ch_run *run,
                                         uint32_t who, uint32_t flag)
{
    struct ch_member *member = &channel->members[who];
    struct ch_unit *unit = &member->control->units[run->round % 2];
    uint64_t value = ch_flag_look(&unit->flag, ch_flag_value(run->round, flag),
                                  run->lingers ? channel->looks : 0);
    uint64_t check;

    run->waits_for = (int)who;
    if (value < ch_flag_value(run->round, flag))
        return CHOIR_IN_PROGRESS;
    if (run->plan->line_goes_on)
        __builtin_prefetch((const char *)unit + CH_CACHE_LINE);
    ch_note_through(member, value);
    check = atomic_load_explicit(&unit->check, memory_order_relaxed);
    return CH_LIKELY(check == channel->check) ? CHOIR_OK
                                              : ch_flag_compare(channel, run, who, check);
}

/* Whether every member is through with `round`. What flags said before is remembered: where all ranks await
 * each other in every round nobody has to be asked. */
static inline bool ch_ask_all(struct ch_channel *channel, uint64_t round)
{
    for (uint32_t who = 0; who < channel->nranks; who++) {
        struct ch_member *member = &channel->members[who];

        if (who == channel->me || member->through >= round)
            continue;
        /* Acquire, pairs with the release in end_round(): its reads are over. */
        member->through = atomic_load_explicit(&member->control->through, memory_order_acquire);
        if (member->through < round)
            return false;
    }
    channel->all_through = round;
    return true;
}

static inline bool ch_all_are_through(struct ch_channel *channel, uint64_t round)
{
    bool all = channel->all_through >= round || ch_ask_all(channel, round);

    ch_say_gated(channel, !all);
    return all;
}

#endif
