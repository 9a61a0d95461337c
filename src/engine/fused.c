/*
 * fused.c - see fused.h.
 */
#include "engine/fused.h"

#include <string.h>

#include "engine/flags.h"
#include "engine/place.h"
#include "kernel/kernel.h"

/* The ranges of allreduce_inline.c, in the order of its steps; the last are the sources, one for each rank. */
enum { LINE, INPUT, RESULT, SOURCES };

static void show_input(struct ch_channel *channel, const struct ch_run *run)
{
    const struct ch_spot *spots = run->plan->spots;

    ch_copy(ch_spot_start(channel, run, &spots[LINE]), ch_spot_start(channel, run, &spots[INPUT]),
            spots[LINE].nbytes);
    ch_flag_raise(channel, run, 1, channel->check);
    ch_channel_ring(channel);
}

static void reduce_lines(struct ch_channel *channel, const struct ch_run *run)
{
    const struct ch_spot *spots = run->plan->spots;
    struct ch_reduction r = { .type = run->op->dtype,
                              .op = run->op->redop,
                              .divisor = channel->nranks };
    void *result = ch_spot_start(channel, run, &spots[RESULT]);

    for (uint32_t who = 0; who < channel->nranks; who++)
        channel->places[who] = ch_spot_start(channel, run, &spots[SOURCES + who]);
    ch_reduce(&r, &result, 1, (const void *const *)channel->places, channel->nranks,
              spots[RESULT].count);
}

/* run->step: 0 before our flag is raised, then how many flags are seen, ours included. */
static choir_status allreduce_inline(struct ch_channel *channel, struct ch_run *run)
{
    if (run->step == 0) {
        run->waits_for = CH_FOR_ALL;
        if (!ch_all_are_through(channel, run->round - 2))
            return CHOIR_IN_PROGRESS;
        show_input(channel, run);
        run->step = 1;
    }
    for (; run->step < channel->nranks; run->step++) {
        uint32_t who = channel->me + run->step;
        choir_status rc = ch_flag_await(channel, run,
                                        who < channel->nranks ? who : who - channel->nranks, 1);

        if (rc != CHOIR_OK)
            return rc;
    }
    reduce_lines(channel, run);
    return CHOIR_OK;
}

ch_fused_fn ch_fused_for(const struct ch_plan *plan, uint32_t nranks)
{
    bool is_inline = plan->key.coll == CH_ALLREDUCE && strcmp(plan->sched->algo, "inline") == 0;

    if (!is_inline || plan->spots == NULL || nranks < 2 || plan->key.longest == 0 ||
        plan->key.redop == CHOIR_PREMUL_SUM)
        return NULL;
    return allreduce_inline;
}
