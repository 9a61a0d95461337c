/* trouble_test.c - ranks that call different things, leave, are late, or fail at once: who is told what. */
#include "engine/team.h"

#include <sched.h>
#include <unistd.h>

#include <choir/log.h>

#include "engine/poison.h"

enum { COUNT = 8 };

/* An allreduce of a few floats; each rank has memory of its own. */
static struct ch_op allreduce(float *memory)
{
    struct ch_op op = { .type = CHOIR_OP_ALLREDUCE,
                        .coll = CH_ALLREDUCE,
                        .dtype = CHOIR_F32,
                        .redop = CHOIR_SUM,
                        .reduces = true,
                        .in_place = true,
                        .longest = COUNT,
                        .counts = COUNT,
                        .seq = 1,
                        .until = team_patience() };

    op.in = op.out = (struct ch_blocks){
        .step = 1, .nblocks = 1, .base = (char *)memory, .count = COUNT
    };
    return op;
}

static struct ch_op broadcast(float *memory, uint32_t me, uint32_t root)
{
    struct ch_op op = allreduce(memory);

    op.type = CHOIR_OP_BROADCAST;
    op.coll = CH_BROADCAST;
    op.reduces = false;
    op.root = root;
    op.in_place = me == root;
    if (me != root)
        op.in.nblocks = 0;
    return op;
}

static struct ch_op gather(float *memory, uint32_t me, uint32_t n)
{
    struct ch_op op = allreduce(memory);

    op.type = CHOIR_OP_GATHER;
    op.coll = CH_GATHER;
    op.reduces = op.in_place = false;
    op.in.first = me;
    op.out = (struct ch_blocks){
        .step = 1, .nblocks = me == 0 ? n : 0, .base = (char *)(memory + COUNT), .count = COUNT
    };
    return op;
}

/* --- mismatch ------------------------------------------------------------------------------------- */

/* What the odd rank calls instead of an allreduce of f32, sum, by whatever algorithm. */
struct difference {
    const char *what;
    uint32_t odd;
    bool waits_for_each_other; /* nobody posts anything */
    const char *says;
};

static const struct difference differences[] = {
    { "operation", 1, false, "rank 1: broadcast of 8 f32 root 0" },
    { "dtype", 2, false, "rank 2: allreduce of 8 i32 sum" },
    { "count", 0, false, "rank 0: allreduce of 7 f32 sum" },
    { "redop", 1, false, "rank 1: allreduce of 8 f32 max" },
    { "algo", 2, false, "rank 2: allreduce of 8 f32 sum" },
    { "root", 1, true, "rank 1: broadcast of 8 f32 root 0" },
    { "uneven", 1, false, "rank 1: allreduce of up to 8 f32" },
    { "barrier", 2, false, "rank 2: barrier" },
    /* with the same plan as what the others call: */
    { "type", 1, false, "rank 1: allreduce_coalesced of 8 f32 sum" },
    { "lengths", 2, false, "rank 2: allreduce of 8 f32 sum" },
};

static struct ch_op op_of(const struct difference *d, struct mate *mate, float *memory)
{
    struct ch_op op = allreduce(memory);

    if (strcmp(d->what, "root") == 0)
        return broadcast(memory, mate->me, mate->me == d->odd ? 0 : 1);
    if (mate->me != d->odd)
        return op;
    if (strcmp(d->what, "operation") == 0)
        return broadcast(memory, mate->me, 0);
    if (strcmp(d->what, "barrier") == 0)
        op = (struct ch_op){
            .type = CHOIR_OP_BARRIER, .coll = CH_BARRIER, .seq = 1, .until = op.until
        };
    if (strcmp(d->what, "dtype") == 0)
        op.dtype = CHOIR_I32;
    if (strcmp(d->what, "count") == 0)
        op.longest = op.counts = op.in.count = op.out.count = COUNT - 1;
    if (strcmp(d->what, "redop") == 0)
        op.redop = CHOIR_MAX;
    if (strcmp(d->what, "algo") == 0)
        op.algo = "one-shot";
    if (strcmp(d->what, "uneven") == 0)
        op.uneven = true;
    if (strcmp(d->what, "type") == 0)
        op.type = CHOIR_OP_ALLREDUCE_COALESCED;
    if (strcmp(d->what, "lengths") == 0)
        op.counts++;
    return op;
}

struct trial {
    struct difference difference;
    uint32_t before; /* equal calls */
};

static choir_status differ(struct mate *mate)
{
    const struct trial *trial = mate->arg;
    float memory[COUNT] = { 1 };
    struct ch_op op = allreduce(memory);
    choir_status rc = CHOIR_OK;

    for (uint32_t i = 0; i < trial->before && rc == CHOIR_OK; i++)
        rc = team_do(mate, &op);
    if (rc != CHOIR_OK)
        return rc;
    op = op_of(&trial->difference, mate, memory);
    rc = team_do(mate, &op);
    /* Who had all data may be through, and is told by its next call. */
    if (rc == CHOIR_OK) {
        op = allreduce(memory);
        op.seq = 2;
        rc = team_do(mate, &op);
    }
    return rc;
}

CHOIR_TEST_TIMED(every_difference_is_told_to_all, 60)
{
    for (size_t i = 0; i < 2 * CH_ARRAY_LEN(differences); i++) {
        struct difference d = differences[i / 2];
        /* None, or so many that every slot has said the same more than once. */
        struct trial trial = { d, i % 2 == 0 ? 0 : 3 * CH_CALLS_KEPT };
        struct team team;
        uint64_t began;

        CHOIR_ROW("%s after %u equal calls", d.what, trial.before);
        team_start(&team, 3);
        team_channel(&team, 0);
        for (uint32_t r = 0; r < 3; r++)
            team.mates[r].arg = &trial;
        began = ch_now();
        team_run(&team, differ);
        CHOIR_CHECK_LT((ch_now() - began) / CH_MS, (uint64_t)1000 * choir_test_slowness());
        for (uint32_t r = 0; r < 3; r++) {
            CHOIR_CHECK_EQ((int)team.mates[r].status, (int)CHOIR_ERR_MISMATCH);
            CHOIR_CHECK_STR(team.mates[r].error.text, team.mates[0].error.text);
            CHOIR_CHECK_HAS(team.mates[r].error.text, "different operations");
            if (strstr(team.mates[r].error.text, "not there yet") != NULL)
                continue; /* a loaded machine: two of them waited for the third in vain */
            CHOIR_CHECK_EQ(team.mates[r].error.culprit, (int)d.odd);
            CHOIR_CHECK_HAS(team.mates[r].error.text, d.says);
        }
        team_end(&team);
    }
}

/* What is said of a call is kept for the next one with the same plan; not so a factor. */
static choir_status change_factors(struct mate *mate)
{
    for (uint32_t i = 0; i < 3 * CH_CALLS_KEPT; i++) {
        float memory[COUNT] = { 1 };
        struct ch_op op = allreduce(memory);
        choir_status rc;

        op.redop = CHOIR_PREMUL_SUM;
        op.factor = mate->me + 10.0 * i;
        rc = team_do(mate, &op);
        if (rc != CHOIR_OK)
            return rc;
        if (memory[0] != 1.0f + 20.0f * (float)i)
            return ch_fail(CHOIR_ERR_STATE, "call %u: %g", i, (double)memory[0]);
    }
    return CHOIR_OK;
}

CHOIR_TEST(factors_are_those_of_the_call)
{
    struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    team_run(&team, change_factors);
    for (uint32_t r = 0; r < 2; r++)
        CHOIR_CHECK_STR(team.mates[r].status == CHOIR_OK ? "" : team.mates[r].error.text, "");
    team_end(&team);
}

/* Messages are refused one by one, but what is told is who called what. */
static choir_status differ_in_messages(struct mate *mate)
{
    float memory[COUNT] = { 1 };
    struct ch_op op = allreduce(memory);

    op.algo = "ring";
    if (mate->me == 2)
        op.dtype = CHOIR_I32;
    return team_do(mate, &op);
}

CHOIR_TEST_TIMED(messages_of_different_operations_are_told_as_such, 60)
{
    for (int turn = 0; turn < 10; turn++) {
        struct team team;

        team_start(&team, 3);
        team_channel(&team, 0);
        team_run(&team, differ_in_messages);
        for (uint32_t r = 0; r < 3; r++) {
            CHOIR_CHECK_HAS(team.mates[r].error.text, "different operations");
            CHOIR_CHECK_EQ((int)team.mates[r].status, (int)CHOIR_ERR_MISMATCH);
            if (strstr(team.mates[r].error.text, "not there yet") != NULL)
                continue; /* a loaded machine: two of them waited for the third in vain */
            CHOIR_CHECK_EQ(team.mates[r].error.culprit, 2);
            CHOIR_CHECK_HAS(team.mates[r].error.text, "rank 2: allreduce of 8 i32 sum");
        }
        team_end(&team);
    }
}

/* Nobody looks at a rank that only sends: whoever sends to a different operation is found by the root, and by
 * the running hash where even the root does not look. */
static choir_status differ_one_way(struct mate *mate)
{
    float memory[4 * COUNT] = { 1 };
    struct ch_op op = gather(memory, mate->me, 3);
    choir_status rc;

    if (mate->me == 2)
        op.dtype = CHOIR_I32;
    rc = team_do(mate, &op);
    for (int i = 0; i < 4 && rc == CHOIR_OK; i++) {
        op = allreduce(memory);
        op.seq = 2 + (uint64_t)i;
        rc = team_do(mate, &op);
    }
    return rc;
}

CHOIR_TEST(one_way_operations_are_compared_at_the_next_meeting)
{
    struct team team;

    team_start(&team, 3);
    team_channel(&team, 0);
    team_run(&team, differ_one_way);
    for (uint32_t r = 0; r < 3; r++) {
        CHOIR_CHECK_EQ((int)team.mates[r].status, (int)CHOIR_ERR_MISMATCH);
        CHOIR_CHECK_EQ(team.mates[r].error.culprit, 2);
        CHOIR_CHECK_HAS(team.mates[r].error.text, "rank 2: gather of 8 i32 root 0");
        CHOIR_CHECK_HAS(team.mates[r].error.text, "operation 1");
    }
    team_end(&team);
}

/* --- late, left ----------------------------------------------------------------------------------- */

static choir_status rank_1_stays_away(struct mate *mate)
{
    float memory[COUNT] = { 1 };
    struct ch_op op = allreduce(memory);
    choir_status rc = team_do(mate, &op);

    if (rc != CHOIR_OK || mate->me == 1)
        return rc;
    op.seq = 2;
    op.until = ch_deadline_ms(50);
    op.timeout_ms = 50;
    return team_do(mate, &op);
}

CHOIR_TEST(a_deadline_names_who_is_missing_and_ends_the_group)
{
    struct team team;
    choir_status rc;

    team_start(&team, 3);
    team_channel(&team, 0);
    team_run(&team, rank_1_stays_away);
    CHOIR_CHECK_OK(team.mates[1].status);
    for (uint32_t r = 0; r < 3; r += 2) {
        CHOIR_CHECK_EQ((int)team.mates[r].status, (int)CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_EQ(team.mates[r].error.culprit, 1);
        CHOIR_CHECK_HAS(team.mates[r].error.text, "allreduce, number 2");
        CHOIR_CHECK_HAS(team.mates[r].error.text, "timeout 50 ms");
        CHOIR_CHECK_HAS(team.mates[r].error.text,
                        "rank 1 has not entered it (rank 1's last operation: allreduce, number 1)");
    }
    rc = ch_poisoned(team.mates[1].channel); /* who was away is told the same */
    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_STR(choir_last_error(), team.mates[0].error.text);
    team_end(&team);
}

static choir_status rank_2_leaves(struct mate *mate)
{
    float memory[COUNT] = { 1 };
    struct ch_op op = allreduce(memory);
    choir_status rc = team_do(mate, &op);

    if (rc != CHOIR_OK)
        return rc;
    if (mate->me == 2) {
        ch_channel_close(mate->channel);
        mate->channel = NULL;
        return CHOIR_OK;
    }
    op.seq = 2;
    return team_do(mate, &op);
}

CHOIR_TEST(who_left_will_not_come)
{
    struct team team;

    team_start(&team, 3);
    team_channel(&team, 0);
    team_run(&team, rank_2_leaves);
    for (uint32_t r = 0; r < 2; r++) {
        CHOIR_CHECK_EQ((int)team.mates[r].status, (int)CHOIR_ERR_REMOTE);
        CHOIR_CHECK_EQ(team.mates[r].error.culprit, 2);
        CHOIR_CHECK_HAS(team.mates[r].error.text, "rank 2 has left the group");
    }
    team_end(&team);
}

/* --- several causes ------------------------------------------------------------------------------- */

static choir_status fail_with_own_words(struct mate *mate)
{
    choir_status rc;

    ch_fail_rank(CHOIR_ERR_REMOTE, (int)mate->me, "test", "rank %u says so", mate->me);
    rc = ch_poison_last_error(mate->channel);
    CHOIR_CHECK_NE((int)rc, (int)CHOIR_OK);
    return ch_poisoned(mate->channel);
}

CHOIR_TEST(of_several_causes_one_wins)
{
    for (int turn = 0; turn < 20; turn++) {
        struct team team;

        team_start(&team, 4);
        team_channel(&team, 0);
        team_run(&team, fail_with_own_words);
        for (uint32_t r = 0; r < 4; r++) {
            CHOIR_CHECK_EQ((int)team.mates[r].status, (int)CHOIR_ERR_REMOTE);
            CHOIR_CHECK_STR(team.mates[r].error.text, team.mates[0].error.text);
            CHOIR_CHECK_EQ(team.mates[r].error.culprit, team.mates[0].error.culprit);
        }
        team_end(&team);
    }
}

/* --- lengths that no rank knows all of ---------------------------------------------------------------- */

static choir_status alltoall_wrong_length(struct mate *mate)
{
    float in[3 * COUNT] = { 1 }, out[3 * COUNT];
    struct ch_piece to[3], from[3];
    struct ch_op op = allreduce(in);

    for (uint32_t i = 0; i < 3; i++) {
        to[i] = (struct ch_piece){ in + i * COUNT, 1 + i };
        from[i] = (struct ch_piece){ out + i * COUNT, 1 + mate->me };
    }
    if (mate->me == 1)
        to[2].count = 7;
    op.type = CHOIR_OP_ALLTOALL;
    op.coll = CH_ALLTOALL;
    op.reduces = op.in_place = false;
    op.uneven = true;
    op.in = (struct ch_blocks){ .first = mate->me * 3, .step = 1, .nblocks = 3, .pieces = to };
    op.out = (struct ch_blocks){ .first = mate->me, .step = 3, .nblocks = 3, .pieces = from };
    return team_do(mate, &op);
}

CHOIR_TEST(two_ranks_that_see_a_block_differently)
{
    struct team team;
    int told = 0;

    team_start(&team, 3);
    team_channel(&team, 0);
    team_run(&team, alltoall_wrong_length);
    for (uint32_t r = 0; r < 3; r++) {
        if (team.mates[r].status == CHOIR_OK)
            continue; /* it had all its data; its next call fails */
        told++;
        CHOIR_CHECK_EQ((int)team.mates[r].status, (int)CHOIR_ERR_MISMATCH);
        CHOIR_CHECK_HAS(team.mates[r].error.text,
                        "rank 1 has 7 elements for rank 2, which expects 3");
    }
    CHOIR_CHECK_LE(1, told);
    CHOIR_CHECK_STATUS(ch_poisoned(team.mates[0].channel), CHOIR_ERR_MISMATCH);
    team_end(&team);
}

/* --- reports ---------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    char text[4096];
} heard = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void hear(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg, (void)level, (void)subsystem;
    pthread_mutex_lock(&heard.lock);
    strncat(heard.text, line, sizeof(heard.text) - strlen(heard.text) - 2);
    strcat(heard.text, "\n");
    pthread_mutex_unlock(&heard.lock);
}

static bool was_heard(const char *what)
{
    bool found;

    pthread_mutex_lock(&heard.lock);
    found = strstr(heard.text, what) != NULL;
    pthread_mutex_unlock(&heard.lock);
    return found;
}

static choir_status wait_until_reported(struct mate *mate)
{
    float memory[COUNT] = { 1 };
    struct ch_op op = allreduce(memory);

    while (mate->me == 1 && !was_heard("has not entered it"))
        sched_yield();
    return team_do(mate, &op);
}

CHOIR_TEST(a_rank_that_is_behind_is_named)
{
    struct team team;

    setenv("CHOIR_BEHIND_S", "1", 1);
    choir_log_set_sink(hear, NULL);
    team_start(&team, 2);
    team_channel(&team, 0);
    team_run(&team, wait_until_reported);
    team_check_ok(&team);
    CHOIR_CHECK_HAS(heard.text, "rank 0 has waited 1 s in allreduce, number 1: rank 1 has not "
                                "entered it (rank 1's last operation: none)");
    team_end(&team);
}

/* --- who is woken ---------------------------------------------------------------------------------------- */

static uint64_t rings_heard(struct mate *mate)
{
    uint64_t count = 0; /* nobody takes them out but us */

    return read(ch_rank_waiter(mate->rank)->bell.fd, &count, sizeof(count)) > 0 ? count : 0;
}

/* Rank 0 counts as asleep, and waits for nothing: a broadcast of rank 1 rings it once, for the payload. */
CHOIR_TEST(the_end_of_a_round_wakes_nobody_who_does_not_wait_for_it)
{
    float memory[COUNT] = { 1 };
    struct ch_op op = broadcast(memory, 1, 1);
    struct team team;
    int seat;

    team_start(&team, 2);
    team_channel(&team, 0);
    CHOIR_CHECK_OK(ch_waiter_sit(ch_rank_waiter(team.mates[0].rank), &seat));
    (void)rings_heard(&team.mates[0]);
    CHOIR_CHECK_OK(team_do(&team.mates[1], &op));
    CHOIR_CHECK_EQ(rings_heard(&team.mates[0]), (uint64_t)1);
    ch_waiter_stand(ch_rank_waiter(team.mates[0].rank), seat);
    team_end(&team);
}

enum { AHEAD = 120 };

/* The root runs ahead until it must wait for the other to be through; then it sleeps, and is woken. */
static choir_status run_ahead(struct mate *mate)
{
    _Atomic uint32_t *asleep = &mate->team->mates[1].rank->link.self.page->bell.nasleep;
    ch_deadline until = team_patience();
    float memory[COUNT] = { 1 };
    struct ch_op op = broadcast(memory, mate->me, 1);
    choir_status rc = CHOIR_OK;

    for (op.seq = 1; op.seq <= AHEAD && rc == CHOIR_OK; op.seq++) {
        /* Asleep for a while, not about to be. */
        for (int seen = 0; mate->me == 0 && op.seq <= AHEAD - 2 && seen < 1000;) {
            seen = atomic_load(asleep) != 0 ? seen + 1 : 0;
            CHOIR_CHECK(!ch_deadline_passed(until));
            sched_yield();
        }
        rc = team_do(mate, &op);
    }
    return rc;
}

CHOIR_TEST_TIMED(who_waits_for_the_end_of_a_round_is_woken_by_it, 60)
{
    struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    for (int i = 0; i < 2; i++) /* as if it ran already: no tick wakes who was not rung */
        atomic_store(&team.mates[i].rank->ticking, 1);
    team_run(&team, run_ahead);
    team_check_ok(&team);
    for (int i = 0; i < 2; i++)
        atomic_store(&team.mates[i].rank->ticking, 0);
    team_end(&team);
}

/* --- channels come and go ---------------------------------------------------------------------------- */

static choir_status use_once(struct mate *mate)
{
    float memory[COUNT] = { 1 };
    struct ch_op op = allreduce(memory);

    return team_do(mate, &op);
}

CHOIR_TEST_TIMED(channels_are_given_back, 60)
{
    struct team team;

    team_start(&team, 2);
    for (int i = 0; i < 2 * CH_SLOTS + 10; i++) {
        team_channel(&team, 0);
        team_run(&team, use_once);
        team_check_ok(&team);
        team_close_channel(&team);
    }
    team_end(&team);
}

/* What one member has closed is kept as long as another may read it. */
CHOIR_TEST(a_block_is_kept_until_all_have_left)
{
    struct team team;
    struct ch_channel *slow;
    uint32_t slot;

    team_start(&team, 2);
    team_channel(&team, 0);
    slow = team.mates[1].channel;
    slot = team.offers[0].slot;
    ch_channel_close(team.mates[0].channel);
    team_channel(&team, 0);
    CHOIR_CHECK_NE(team.offers[0].slot, slot);
    CHOIR_CHECK(ch_member_has_left(&slow->members[0]));
    ch_channel_close(slow);
    team_close_channel(&team);
    team_channel(&team, 0);
    CHOIR_CHECK_EQ(team.offers[0].slot, slot);
    team_end(&team);
}

/* A member whose open failed has withdrawn, and its block is another channel's: what is left of the first one
 * fails, and the other one does not. */
CHOIR_TEST(a_channel_that_lost_a_member_poisons_no_other)
{
    struct team team;
    struct ch_channel *orphan;

    team_start(&team, 3);
    team_run(&team, team_offer); /* not the first, which has rules of its own */
    for (uint32_t r = 0; r < 3; r++)
        ch_channel_withdraw(team.mates[r].rank, &team.offers[r]);
    team_run(&team, team_offer);
    CHOIR_CHECK_OK(ch_channel_open(team.mates[1].rank, team.offers, 3, 1, "orphan", &orphan));
    ch_channel_withdraw(team.mates[0].rank, &team.offers[0]);
    ch_channel_withdraw(team.mates[2].rank, &team.offers[2]);
    team_channel(&team, 0);
    CHOIR_CHECK(team.mates[0].channel->members[0].control == orphan->members[0].control);

    ch_fail_rank(CHOIR_ERR_REMOTE, 1, "test", "the orphan gives up");
    CHOIR_CHECK_NE((int)ch_poison_last_error(orphan), (int)CHOIR_OK);
    team_run(&team, use_once);
    team_check_ok(&team);
    CHOIR_CHECK_NE((int)ch_poisoned(orphan), (int)CHOIR_OK);

    /* And the other way round: each has its own record. */
    ch_fail_rank(CHOIR_ERR_DEAD, 2, "test", "the channel gives up");
    ch_poison_last_error(team.mates[1].channel);
    CHOIR_CHECK_STATUS(ch_poisoned(team.mates[0].channel), CHOIR_ERR_DEAD);
    CHOIR_CHECK_STATUS(ch_poisoned(orphan), CHOIR_ERR_REMOTE);
    ch_channel_close(orphan);
    team_end(&team);
}

CHOIR_TEST(the_first_offer_is_known_beforehand)
{
    struct team team;

    team_start(&team, 3);
    for (uint32_t r = 0; r < 3; r++) {
        struct ch_channel_offer mine, known = ch_channel_first_offer(team.mates[0].rank, r);

        CHOIR_CHECK_OK(ch_channel_offer(team.mates[r].rank, 3, &mine));
        CHOIR_CHECK_EQ(memcmp(&mine, &known, sizeof(mine)), 0);
        CHOIR_CHECK_LE((size_t)256 * 1024, mine.stage_nbytes);
        ch_channel_withdraw(team.mates[r].rank, &mine);
    }
    team_end(&team);
}

CHOIR_TEST(as_many_channels_as_there_are_slots)
{
    struct team team;
    struct ch_channel *channels[2][CH_SLOTS];
    struct ch_channel_offer offer;

    team_start(&team, 2);
    for (int i = 0; i < CH_SLOTS; i++) {
        team_channel(&team, 0);
        for (int r = 0; r < 2; r++)
            channels[r][i] = team.mates[r].channel;
    }
    team_run(&team, use_once); /* the last one, with the least stage */
    team_check_ok(&team);
    CHOIR_CHECK_STATUS(ch_channel_offer(team.mates[0].rank, 2, &offer), CHOIR_ERR_NOMEM);
    CHOIR_CHECK_HAS(choir_last_error(), "no room for another group");
    for (int i = 0; i < CH_SLOTS - 1; i++) {
        ch_channel_close(channels[0][i]);
        ch_channel_close(channels[1][i]);
    }
    team_end(&team);
}

/* --- failing calls ----------------------------------------------------------------------------------- */

static choir_status alone(void *arg)
{
    struct team *team = arg;
    struct mate *mate = &team->mates[0];
    struct ch_channel_offer offer;
    choir_status rc;

    memset(team, 0, sizeof(*team));
    *mate = (struct mate){ .team = team };
    team->n = 1;
    rc = ch_rank_create(0, &mate->rank);
    if (rc != CHOIR_OK)
        return rc;
    team->members[0] = (struct ch_hostlink_member){ 0, mate->rank->link.id,
                                                    mate->rank->link.listener.name };
    rc = team_connect(mate);
    if (rc == CHOIR_OK)
        rc = ch_channel_offer(mate->rank, 1, &offer);
    if (rc == CHOIR_OK)
        rc = ch_channel_open(mate->rank, &offer, 1, 0, "alone", &mate->channel);
    if (rc == CHOIR_OK)
        rc = use_once(mate);
    ch_channel_close(mate->channel);
    ch_rank_unref(mate->rank);
    return rc;
}

/* What all ranks refuse alike leaves the group as it was. */
static choir_status ask_for_what_is_not_there(struct mate *mate)
{
    float memory[COUNT] = { 1 };
    struct ch_op op = allreduce(memory);

    for (int i = 0; i < 20; i++) {
        op.seq++;
        op.algo = i % 2 == 0 ? "telepathy" : "inline";
        op.longest = op.counts = op.in.count = op.out.count = 100000;
        CHOIR_CHECK_STATUS(team_do(mate, &op),
                           i % 2 == 0 ? CHOIR_ERR_INVALID : CHOIR_ERR_UNSUPPORTED);
    }
    op = allreduce(memory);
    return team_do(mate, &op);
}

CHOIR_TEST(an_algorithm_that_cannot_is_refused_by_all)
{
    struct team team;

    team_start(&team, 3);
    team_channel(&team, 0);
    team_run(&team, ask_for_what_is_not_there);
    team_check_ok(&team);
    team_end(&team);
}

CHOIR_TEST_TIMED(every_failing_call_is_an_error, 120)
{
    static struct team team;

    choir_test_all_faults(alone, &team);
}
