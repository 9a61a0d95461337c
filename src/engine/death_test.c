/* death_test.c - ranks that are processes: killed, stopped, continued. */
#include "engine/team.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include <choir/log.h>

#include "base/sys.h"
#include "engine/poison.h"

enum { RANKS = 4, COUNT = 1000 };

/* Shared by the test and its ranks, each a child of it. */
struct stage {
    struct {
        uint8_t id[CH_RANK_ID_NBYTES];
        char socket[128];
        _Atomic int step;           /* how far this rank has come: see below */
        _Atomic uint64_t rounds;    /* operations done */
        _Atomic uint64_t failed_at; /* monotonic */
        choir_error error;
        _Atomic int heard_frozen, heard_on; /* how often */
    } ranks[RANKS];
    _Atomic uint64_t killed_at;
    _Atomic int go_on; /* what ranks wait for */
    int idle;          /* they do nothing but look */
    int nranks;
};

enum { ANNOUNCED = 1, CONNECTED, OPEN, OVER };

static struct stage *stage;

static struct stage *make_stage(int nranks)
{
    struct stage *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);

    CHOIR_CHECK(s != MAP_FAILED);
    s->nranks = nranks;
    return s;
}

static void await_step(int who, int step)
{
    ch_deadline until = team_patience();

    while (atomic_load(&stage->ranks[who].step) < step) {
        CHOIR_CHECK(!ch_deadline_passed(until)); /* it failed, and said so */
        sched_yield();
    }
}

static void await_all(int step)
{
    for (int r = 0; r < stage->nranks; r++)
        await_step(r, step);
}

static void hear(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    int me = *(int *)arg;

    (void)level, (void)subsystem;
    if (strstr(line, "is frozen") != NULL)
        atomic_fetch_add(&stage->ranks[me].heard_frozen, 1);
    if (strstr(line, "goes on") != NULL)
        atomic_fetch_add(&stage->ranks[me].heard_on, 1);
}

/* The context, connected with the others, and no channel yet. */
static void meet_others(struct team *team, int me)
{
    struct mate *mate = &team->mates[me];

    memset(team, 0, sizeof(*team));
    team->n = (uint32_t)stage->nranks;
    *mate = (struct mate){ .team = team, .me = (uint32_t)me };
    CHOIR_CHECK_OK(ch_rank_create(me, &mate->rank));
    memcpy(stage->ranks[me].id, mate->rank->link.id, CH_RANK_ID_NBYTES);
    snprintf(stage->ranks[me].socket, sizeof(stage->ranks[me].socket), "%s",
             mate->rank->link.listener.name);
    atomic_store(&stage->ranks[me].step, ANNOUNCED);
    await_all(ANNOUNCED);
    for (int r = 0; r < stage->nranks; r++)
        team->members[r] = (struct ch_hostlink_member){ r, stage->ranks[r].id,
                                                        stage->ranks[r].socket };
    CHOIR_CHECK_OK(team_connect(mate));
}

static void join_others(struct team *team, int me)
{
    struct mate *mate = &team->mates[me];

    meet_others(team, me);
    CHOIR_CHECK_OK(ch_channel_open_first(mate->rank, "test", &mate->channel));
    atomic_store(&stage->ranks[me].step, OPEN);
    await_all(OPEN);
}

static choir_status allreduce_once(struct mate *mate, float *memory, uint64_t seq)
{
    struct ch_op op = { .type = CHOIR_OP_ALLREDUCE,
                        .coll = CH_ALLREDUCE,
                        .dtype = CHOIR_F32,
                        .redop = CHOIR_SUM,
                        .reduces = true,
                        .in_place = true,
                        .longest = COUNT,
                        .counts = COUNT,
                        .seq = seq,
                        .until = team_patience() };

    op.in = op.out = (struct ch_blocks){
        .step = 1, .nblocks = 1, .base = (char *)memory, .count = COUNT
    };
    return team_do(mate, &op);
}

static choir_status work_until_it_fails(struct mate *mate)
{
    static float memory[COUNT];
    choir_status rc = CHOIR_OK;

    for (uint64_t seq = 1; rc == CHOIR_OK; seq++) {
        rc = stage->idle ? ch_poisoned(mate->channel) : allreduce_once(mate, memory, seq);
        atomic_store(&stage->ranks[mate->me].rounds, seq);
    }
    return rc;
}

/* What a sink may do: no lock of ours is held while a line is told. */
static void hear_unlocked(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    struct ch_rank *rank = atomic_load((struct ch_rank * _Atomic *)arg);

    (void)level, (void)subsystem, (void)line;
    if (rank != NULL) {
        ch_lock(&rank->lock);
        ch_unlock(&rank->lock);
    }
}

/* Work (or idle) until somebody dies. */
static void survive(void *arg)
{
    static struct ch_rank *_Atomic rank;
    static struct team team;
    int me = *(int *)arg;
    struct mate *mate = &team.mates[me];
    choir_status rc;

    setenv("CHOIR_LOG", "info", 1);
    choir_log_set_sink(hear_unlocked, &rank);
    join_others(&team, me);
    atomic_store(&rank, mate->rank);
    rc = work_until_it_fails(mate);
    atomic_store(&stage->ranks[me].failed_at, ch_sys_clock_ns());
    ch_error_save(&stage->ranks[me].error);
    CHOIR_CHECK_EQ((int)rc, (int)CHOIR_ERR_DEAD);
    /* And at once, ever after. */
    CHOIR_CHECK_EQ((int)work_until_it_fails(mate), (int)CHOIR_ERR_DEAD);
    atomic_store(&rank, NULL);
    ch_channel_close(mate->channel);
    ch_rank_unref(mate->rank);
}

static void start_ranks(void (*fn)(void *arg), int *pids)
{
    static int numbers[RANKS] = { 0, 1, 2, 3 };

    for (int r = 0; r < stage->nranks; r++)
        pids[r] = choir_test_fork(fn, &numbers[r]);
}

static void kill_and_check(bool idle, int victim)
{
    int pids[RANKS];

    stage = make_stage(RANKS);
    stage->idle = idle;
    start_ranks(survive, pids);
    for (int r = 0; r < RANKS; r++)
        while (atomic_load(&stage->ranks[r].rounds) < 50)
            sched_yield();
    atomic_store(&stage->killed_at, ch_sys_clock_ns());
    kill(pids[victim], SIGKILL);
    for (int r = 0; r < RANKS; r++) {
        uint64_t took;
        char who[64];

        if (r == victim)
            continue;
        choir_test_join(pids[r]);
        took = atomic_load(&stage->ranks[r].failed_at) - atomic_load(&stage->killed_at);
        CHOIR_CHECK_LT(took / CH_MS, (uint64_t)(choir_test_slowness() > 1 ? 1000 : 100));
        CHOIR_CHECK_EQ(stage->ranks[r].error.culprit, victim);
        snprintf(who, sizeof(who), "rank %d has died (process %d on host here)", victim,
                 pids[victim]);
        CHOIR_CHECK_HAS(stage->ranks[r].error.text, who);
    }
    munmap(stage, sizeof(*stage));
}

/* Under valgrind there are none. */
static void need_pidfd(void)
{
    int fd = ch_sys_pidfd_open(getpid());

    if (fd < 0)
        CHOIR_SKIP("no pidfd here: a death is not seen");
    ch_sys_close(fd);
}

CHOIR_TEST_TIMED(death_in_an_operation_is_seen_within_100_ms_alone, 60)
{
    need_pidfd();
    for (int i = 0; i < 8; i++)
        kill_and_check(false, i % RANKS);
}

CHOIR_TEST_TIMED(death_is_seen_when_nobody_is_in_an_operation_alone, 60)
{
    need_pidfd();
    for (int i = 0; i < 2; i++)
        kill_and_check(true, 1 + i);
}

/* --- before all have come --------------------------------------------------------------------------------- */

static bool is_seen_dead(struct ch_rank *rank, int who)
{
    bool dead;

    ch_lock(&rank->lock);
    dead = rank->link.neighbours[who].dead;
    ch_unlock(&rank->lock);
    return dead;
}

/* Rank 2 dies as soon as it is connected, and was seen to have when the others open their channel. */
static void open_with_the_dead(void *arg)
{
    static struct team team;
    static float memory[COUNT];
    int me = *(int *)arg;
    struct mate *mate = &team.mates[me];
    choir_error error;

    meet_others(&team, me);
    atomic_store(&stage->ranks[me].step, CONNECTED);
    await_all(CONNECTED);
    if (me == 2)
        _exit(0);
    while (!is_seen_dead(mate->rank, 2))
        sched_yield();
    CHOIR_CHECK_OK(ch_channel_open_first(mate->rank, "test", &mate->channel));
    CHOIR_CHECK_EQ((int)allreduce_once(mate, memory, 1), (int)CHOIR_ERR_DEAD);
    ch_error_save(&error);
    CHOIR_CHECK_EQ(error.culprit, 2);
    CHOIR_CHECK_HAS(error.text, "rank 2 has died");
    ch_channel_close(mate->channel);
    ch_rank_unref(mate->rank);
}

CHOIR_TEST_TIMED(a_channel_opened_with_the_dead_fails_at_once, 60)
{
    int pids[RANKS];

    need_pidfd();
    stage = make_stage(RANKS);
    start_ranks(open_with_the_dead, pids);
    for (int r = 0; r < RANKS; r++)
        choir_test_join(pids[r]);
    munmap(stage, sizeof(*stage));
}

/* What the others say of the first channel before the first member has come is not lost. */
static void poison_before_it_is_there(void *arg)
{
    static struct team team;
    int me = *(int *)arg;
    struct mate *mate = &team.mates[me];

    meet_others(&team, me);
    if (me == 0)
        await_step(1, OVER);
    CHOIR_CHECK_OK(ch_channel_open_first(mate->rank, "test", &mate->channel));
    if (me == 1) {
        ch_fail_rank(CHOIR_ERR_REMOTE, 1, "test", "rank 1 gives up");
        ch_poison_last_error(mate->channel);
        atomic_store(&stage->ranks[me].step, OVER);
        await_step(0, OVER);
    }
    CHOIR_CHECK_STATUS(ch_poisoned(mate->channel), CHOIR_ERR_REMOTE);
    CHOIR_CHECK_HAS(choir_last_error(), "rank 1 gives up");
    atomic_store(&stage->ranks[me].step, OVER);
    ch_channel_close(mate->channel);
    ch_rank_unref(mate->rank);
}

CHOIR_TEST(a_failure_before_the_first_member_has_come_stays)
{
    int pids[RANKS];

    stage = make_stage(2);
    start_ranks(poison_before_it_is_there, pids);
    for (int r = 0; r < 2; r++)
        choir_test_join(pids[r]);
    munmap(stage, sizeof(*stage));
}

/* --- stopped ------------------------------------------------------------------------------------------ */

static void work_for_a_while(void *arg)
{
    static struct team team;
    static float memory[COUNT];
    int me = *(int *)arg;

    choir_log_set_sink(hear, arg);
    join_others(&team, me);
    for (uint64_t seq = 1;; seq++) {
        /* All must stop at the same number: told by the sum. */
        memory[0] = me == 0 && atomic_load(&stage->go_on) == 1;
        memset(memory + 1, 0, sizeof(memory) - sizeof(memory[0]));
        CHOIR_CHECK_OK(allreduce_once(&team.mates[me], memory, seq));
        atomic_store(&stage->ranks[me].rounds, seq);
        if (memory[0] > 0)
            break;
    }
    ch_channel_close(team.mates[me].channel);
    ch_rank_unref(team.mates[me].rank);
}

CHOIR_TEST_TIMED(a_stopped_rank_is_reported_and_goes_on_alone, 60)
{
    int pids[RANKS];

    need_pidfd();
    stage = make_stage(2);
    start_ranks(work_for_a_while, pids);
    for (int turn = 1; turn <= 2; turn++) {
        uint64_t rounds = atomic_load(&stage->ranks[1].rounds), stopped_at, took;

        while (atomic_load(&stage->ranks[1].rounds) < rounds + 50)
            sched_yield();
        stopped_at = ch_sys_clock_ns();
        kill(pids[1], SIGSTOP);
        while (atomic_load(&stage->ranks[0].heard_frozen) < turn)
            sched_yield();
        took = ch_sys_clock_ns() - stopped_at;
        CHOIR_CHECK_LT(took / CH_MS, (uint64_t)1500 * choir_test_slowness());
        kill(pids[1], SIGCONT);
        while (atomic_load(&stage->ranks[0].heard_on) < turn)
            sched_yield();
    }
    atomic_store(&stage->go_on, 1);
    choir_test_join(pids[0]);
    choir_test_join(pids[1]);
    munmap(stage, sizeof(*stage));
}
