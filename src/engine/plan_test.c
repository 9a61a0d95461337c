/* plan_test.c - what is remembered of operations is theirs, and never more than there is room for. */
#include "engine/team.h"

#include "base/mem.h"
#include "engine/place.h"
#include "engine/plan.h"

static struct ch_op allreduce(size_t count, bool in_place)
{
    return (struct ch_op){ .type = CHOIR_OP_ALLREDUCE,
                           .coll = CH_ALLREDUCE,
                           .dtype = CHOIR_F32,
                           .reduces = true,
                           .in_place = in_place,
                           .in = { .step = 1, .nblocks = 1, .count = count },
                           .out = { .step = 1, .nblocks = 1, .count = count },
                           .longest = count };
}

/* As if it were entered. */
static choir_status find(struct ch_channel *channel, const struct ch_op *op, const char *algo,
                         const struct ch_plan **plan_out)
{
    channel->ncalls++;
    return ch_plan_find(channel, op, algo, op->longest, false, plan_out);
}

static const struct ch_plan *plan_of(struct ch_channel *channel, size_t count, const char *algo,
                                     bool in_place)
{
    struct ch_op op = allreduce(count, in_place);
    const struct ch_plan *plan;

    CHOIR_CHECK_OK(find(channel, &op, algo, &plan));
    CHOIR_CHECK_EQ(plan->key.longest, count);
    CHOIR_CHECK_EQ(plan->key.in_place, in_place);
    CHOIR_CHECK(plan->key.algo == algo && plan->cached != NULL);
    CHOIR_CHECK(plan->nrounds * plan->window >= count);
    return plan;
}

static uint64_t live_bytes(void)
{
    return ch_mem_count(CH_SUB_ENGINE).live_bytes + ch_mem_count(CH_SUB_SCHED).live_bytes;
}

/* --- remembered ----------------------------------------------------------------------------------------- */

static choir_status remembered(struct mate *mate)
{
    static const char ring[] = "ring";
    const struct ch_plan *chosen = plan_of(mate->channel, 1000, NULL, false);
    const struct ch_plan *named = plan_of(mate->channel, 1000, ring, false);
    const struct ch_plan *in_place = plan_of(mate->channel, 1000, NULL, true);

    CHOIR_CHECK(chosen != named && chosen != in_place && named != in_place);
    for (int i = 0; i < 3; i++) {
        CHOIR_CHECK(plan_of(mate->channel, 1000, NULL, false) == chosen);
        CHOIR_CHECK(plan_of(mate->channel, 1000, ring, false) == named);
        CHOIR_CHECK(plan_of(mate->channel, 1000, NULL, true) == in_place);
    }
    return CHOIR_OK;
}

CHOIR_TEST(each_kind_has_its_own)
{
    static struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    team_run(&team, remembered);
    team_check_ok(&team);
    team_end(&team);
}

/* --- in turns --------------------------------------------------------------------------------------------- */

/* What is of middle length takes another piece of its slot each time and never leaves it; the rest stays where it is. */
static choir_status in_turns(struct mate *mate)
{
    static const struct {
        size_t count;
        bool turns;
    } rows[] = {
        { 512, false },    /* short: it stays in the first-level cache */
        { 1024, true },    /* as short as those that take turns */
        { 12289, true },   /* no power of two */
        { 16384, true },   /* 64 KiB */
        { 131072, false }, /* a half of the stage has no room for two */
        { 1000003, false } /* several rounds, each of a whole slot */
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        const struct ch_plan *plan = plan_of(mate->channel, rows[i].count, "two-shot", false);
        size_t used = plan->window * plan->size;

        if (mate->channel->me == 0) /* for all: there is one text of a test */
            CHOIR_ROW("%zu elements", rows[i].count);
        CHOIR_CHECK_EQ(plan->turn_mask != 0, rows[i].turns);
        for (uint64_t round = 0; round < 4 * (plan->turn_mask + 1); round++) {
            size_t at = ch_place_turn(plan, round), next = ch_place_turn(plan, round + 2);

            CHOIR_CHECK(at + used <= plan->stage_slot);
            CHOIR_CHECK_EQ(at % CH_CACHE_UNIT, 0u);
            CHOIR_CHECK(!rows[i].turns || at + used <= next || next + used <= at);
        }
    }
    return CHOIR_OK;
}

CHOIR_TEST(turns_stay_in_their_slots)
{
    static struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    team_run(&team, in_turns);
    team_check_ok(&team);
    team_end(&team);
}

/* --- forgotten ------------------------------------------------------------------------------------------ */

/* Many more than are kept, in any order, and again: what is kept does not grow with them. */
CHOIR_TEST(no_more_are_kept_than_there_is_room_for)
{
    static struct team team;
    uint64_t after_some = 0;

    team_start(&team, 2);
    team_channel(&team, 0);
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < 20 * CH_PLANS_KEPT; i++)
            (void)plan_of(team.mates[0].channel, i * 7919 % 5000 + 1, NULL, i % 2 != 0);
        if (turn == 0)
            after_some = live_bytes();
        CHOIR_CHECK_LE(live_bytes(), after_some);
    }
    team_end(&team);
}

/* --- refused -------------------------------------------------------------------------------------------- */

/* What cannot be done is asked for between what can: it takes nobody's place for long, and is not remembered. */
CHOIR_TEST(what_is_refused_is_not_remembered)
{
    static struct team team;
    struct ch_channel *channel;
    const struct ch_plan *plan;

    team_start(&team, 2);
    team_channel(&team, 0);
    channel = team.mates[0].channel;
    for (size_t i = 0; i < 4 * CH_PLANS_KEPT; i++) {
        struct ch_op op = allreduce(100000 + i, false);

        CHOIR_CHECK_STATUS(find(channel, &op, "telepathy", &plan), CHOIR_ERR_INVALID);
        CHOIR_CHECK_STATUS(find(channel, &op, "inline", &plan), CHOIR_ERR_UNSUPPORTED);
        (void)plan_of(channel, 100000 + i, NULL, false);
        (void)plan_of(channel, 1, NULL, false);
    }
    team_end(&team);
}

/* --- no memory ------------------------------------------------------------------------------------------ */

static choir_status open_and_plan(void *arg)
{
    struct team *team = arg;
    struct ch_op op = allreduce(1000, false);
    struct ch_channel_offer offer;
    struct ch_channel *channel;
    const struct ch_plan *plan;
    choir_status rc = ch_channel_offer(team->mates[0].rank, 1, &offer);

    if (rc == CHOIR_OK)
        rc = ch_channel_open(team->mates[0].rank, &offer, 1, 0, "alone", &channel);
    if (rc != CHOIR_OK)
        return rc;
    rc = find(channel, &op, "ring", &plan);
    ch_channel_close(channel);
    return rc;
}

CHOIR_TEST(every_allocation_may_fail)
{
    static struct team team;

    team_start(&team, 1);
    choir_test_all_faults(open_and_plan, &team);
    team_end(&team);
}
