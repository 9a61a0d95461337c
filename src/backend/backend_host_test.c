/* backend_host_test.c - collectives, sends and receives through the backend's own door. */
#include "engine/team.h"

#include <sched.h>

#include "backend/backend_host.h"
#include "base/mem.h"
#include "transport/p2p_state.h"

/* --- one operation, waited for ---------------------------------------------------------------------- */

struct issued {
    struct mate *mate;
    struct ch_op op;
    choir_status status;
    _Alignas(64) char run[CH_BACKEND_RUN_MAX];
};

static void issue(struct mate *mate, struct issued *i, const struct ch_op *op)
{
    memset(i->run, 0, sizeof(i->run));
    i->mate = mate;
    i->op = *op;
    i->status = ch_backend_host.begin(mate->channel, &i->op, i->run);
    if (i->status == CHOIR_OK)
        i->status = CHOIR_IN_PROGRESS;
}

static bool ready(void *arg)
{
    struct issued *i = arg;

    if (i->status == CHOIR_IN_PROGRESS)
        i->status = ch_backend_host.step(i->mate->channel, &i->op, i->run);
    return i->status != CHOIR_IN_PROGRESS;
}

static choir_status finish(struct issued *i)
{
    struct ch_wait wait = { .waiter = ch_rank_waiter(i->mate->rank),
                            .ready = ready,
                            .arg = i,
                            .until = i->op.until,
                            .what = "an operation" };
    choir_status rc = ch_wait(&wait);

    ch_backend_host.end(i->mate->channel, &i->op, i->run);
    return rc == CHOIR_OK ? i->status : rc;
}

static choir_status perform(struct mate *mate, const struct ch_op *op)
{
    static _Thread_local struct issued i;

    issue(mate, &i, op);
    return finish(&i);
}

/* --- sends and receives ------------------------------------------------------------------------------ */

static struct ch_op message(choir_optype type, void *data, size_t nbytes, int peer, int tag)
{
    struct ch_op op = { .type = type,
                        .dtype = CHOIR_U8,
                        .peer = peer,
                        .tag = tag,
                        .seq = 1,
                        .until = team_patience() };
    struct ch_blocks blocks = { .step = 1, .nblocks = 1, .base = data, .count = nbytes };

    if (type == CHOIR_OP_SEND)
        op.in = blocks;
    else
        op.out = blocks;
    return op;
}

enum { LARGE = 300 * 1000 };
static const size_t lengths[] = { 0, 1, 1000, LARGE };

/* Round the ring, both directions at once, to oneself if alone. */
static choir_status pass_on(struct mate *mate)
{
    static _Thread_local struct issued in;
    uint32_t n = mate->team->n;
    int next = (int)((mate->me + 1) % n), before = (int)((mate->me + n - 1) % n);
    char *sent = ch_alloc(LARGE), *got = ch_alloc(LARGE);

    for (size_t k = 0; k < CH_ARRAY_LEN(lengths); k++) {
        size_t nbytes = lengths[k];
        struct ch_op recv = message(CHOIR_OP_RECV, got, nbytes, before, (int)k);
        struct ch_op send = message(CHOIR_OP_SEND, sent, nbytes, next, (int)k);

        memset(sent, (int)(mate->me * 16 + k), nbytes);
        issue(mate, &in, &recv);
        CHOIR_CHECK_OK(perform(mate, &send));
        CHOIR_CHECK_OK(finish(&in));
        CHOIR_CHECK_EQ(in.op.peer, before);
        for (size_t i = 0; i < nbytes; i++)
            CHOIR_CHECK_EQ((unsigned char)got[i], (unsigned char)(before * 16 + (int)k));
    }
    ch_free(sent);
    ch_free(got);
    return CHOIR_OK;
}

CHOIR_TEST_TIMED(messages_of_all_sizes, 60)
{
    for (uint32_t n = 1; n <= 3; n++) {
        struct team team;

        team_start(&team, n);
        team_channel(&team, 0);
        team_run(&team, pass_on);
        team_check_ok(&team);
        team_end(&team);
    }
}

/* In a group whose ranks are not numbered as those of the first. */
static choir_status open_turned_round(struct mate *mate)
{
    const struct ch_channel_offer *offers = mate->team->offers;
    struct ch_channel_offer turned[3] = { offers[2], offers[1], offers[0] };

    return ch_channel_open(mate->rank, turned, 3, 2 - mate->me, "turned", &mate->channel);
}

static choir_status send_too_much(struct mate *mate)
{
    char data[8] = "";
    struct ch_op op = mate->me == 2 ? message(CHOIR_OP_SEND, data, 8, 2, 1)
                                    : message(CHOIR_OP_RECV, data, 4, 0, 1);

    return mate->me == 1 ? CHOIR_OK : perform(mate, &op);
}

CHOIR_TEST(the_culprit_is_numbered_as_in_the_group)
{
    struct team team;

    team_start(&team, 3);
    team_run(&team, team_offer);
    team_run(&team, open_turned_round);
    team_check_ok(&team);
    team_run(&team, send_too_much);
    CHOIR_CHECK_OK(team.mates[2].status); /* it was done before that was known */
    CHOIR_CHECK_EQ((int)team.mates[0].status, (int)CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ(team.mates[0].error.culprit, 0);
    CHOIR_CHECK_HAS(team.mates[0].error.text, "group turned");
    CHOIR_CHECK_HAS(team.mates[0].error.text, "rank 0 (2 of all)");
    CHOIR_CHECK_HAS(team.mates[0].error.text, "4 bytes are expected here, the message has 8");
    team_end(&team);
}

static choir_status all_to_rank_0(struct mate *mate)
{
    uint32_t n = mate->team->n, value = mate->me, seen = 0;
    struct ch_op op = message(CHOIR_OP_SEND, &value, sizeof(value), 0, 5);

    if (mate->me != 0)
        return perform(mate, &op);
    for (uint32_t i = 1; i < n; i++) {
        static _Thread_local struct issued any;

        op = message(CHOIR_OP_RECV_ANY, &value, sizeof(value), -1, 5);
        issue(mate, &any, &op);
        CHOIR_CHECK_OK(finish(&any));
        CHOIR_CHECK_EQ(any.op.peer, (int)value);
        seen |= 1u << value;
    }
    CHOIR_CHECK_EQ(seen, (1u << n) - 2);
    return CHOIR_OK;
}

CHOIR_TEST(from_whoever_comes_first)
{
    struct team team;

    team_start(&team, 4);
    team_channel(&team, 0);
    team_run(&team, all_to_rank_0);
    team_check_ok(&team);
    team_end(&team);
}

static choir_status wait_in_vain(struct mate *mate)
{
    char byte;
    struct ch_op op = message(CHOIR_OP_RECV, &byte, 1, 1, 0);

    op.until = ch_deadline_ms(30);
    op.timeout_ms = 30;
    return mate->me == 0 ? perform(mate, &op) : CHOIR_OK;
}

/* The group can go on: only that receive is lost. */
CHOIR_TEST(a_receive_in_vain_times_out)
{
    struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    team_run(&team, wait_in_vain);
    CHOIR_CHECK_EQ((int)team.mates[0].status, (int)CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_EQ(team.mates[0].error.culprit, 1);
    CHOIR_CHECK_HAS(team.mates[0].error.text, "recv, number 1");
    team_run(&team, pass_on);
    team_check_ok(&team);
    team_end(&team);
}

static choir_status receive_from_who_left(struct mate *mate)
{
    char byte;
    struct ch_op op = message(CHOIR_OP_RECV, &byte, 1, 1, 0);

    if (mate->me == 0)
        return perform(mate, &op);
    ch_backend_host.destroy(mate->channel);
    mate->channel = NULL;
    return CHOIR_OK;
}

CHOIR_TEST(a_receive_from_a_rank_that_left)
{
    struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    team_run(&team, receive_from_who_left);
    CHOIR_CHECK_EQ((int)team.mates[0].status, (int)CHOIR_ERR_REMOTE);
    CHOIR_CHECK_HAS(team.mates[0].error.text, "rank 1 has left the group");
    team_end(&team);
}

/* --- what is left when a call has failed ------------------------------------------------------------- */

/* Ranks that take turns without the library: it must not get on by their looking. */
static _Atomic int whose_turn;

static void await_turn(int turn)
{
    while (atomic_load(&whose_turn) < turn)
        sched_yield();
}

static void fill_ring(struct mate *mate, int peer)
{
    struct ch_stream *stream = mate->rank->p2p->peers[peer].stream;
    char byte = 0;
    struct ch_op send = message(CHOIR_OP_SEND, &byte, 1, peer, 1);

    while (stream->ops->reserve(stream, 2 * sizeof(struct ch_frame)) != NULL)
        CHOIR_CHECK_OK(perform(mate, &send));
    CHOIR_CHECK(stream->ops->reserve(stream, 1) == NULL);
}

/* Rank 1 receives what is shorter than rank 0's message, or gives up, with no room to say so, and goes away. */
static choir_status fail_and_go(struct mate *mate, bool gives_up)
{
    static _Thread_local struct issued i;
    char *data = ch_alloc(LARGE);
    struct ch_op op = mate->me == 0
                          ? message(CHOIR_OP_SEND, data, LARGE, 1, 9)
                          : message(CHOIR_OP_RECV, data, gives_up ? LARGE : LARGE - 1, 0, 9);
    choir_status rc;

    memset(data, 1, LARGE);
    if (mate->me == 0) {
        await_turn(1);
        issue(mate, &i, &op);
        atomic_store(&whose_turn, 2);
        await_turn(3);
        /* It ends. What was sent for before it was taken back may have gone, all of it, when the word comes. */
        rc = finish(&i);
        CHOIR_CHECK(rc < 0 || gives_up);
        if (rc < 0)
            CHOIR_CHECK_HAS(choir_last_error(), gives_up ? "taken back there" : "bytes");
        atomic_store(&whose_turn, 4);
    } else {
        fill_ring(mate, 0);
        atomic_store(&whose_turn, 1);
        await_turn(2);
        issue(mate, &i, &op);
        for (int looks = 0; looks < 10; looks++)
            (void)ready(&i); /* it knows of the message now */
        if (gives_up)
            ch_backend_host.end(mate->channel, &i.op, i.run);
        else
            CHOIR_CHECK_STATUS(finish(&i), CHOIR_ERR_INVALID);
        atomic_store(&whose_turn, 3);
        await_turn(4);
    }
    ch_free(data);
    return CHOIR_OK;
}

static choir_status refuse_and_go(struct mate *mate)
{
    return fail_and_go(mate, false);
}

static choir_status give_up_and_go(struct mate *mate)
{
    return fail_and_go(mate, true);
}

CHOIR_TEST(what_a_failed_call_could_not_say_is_said_later)
{
    for (int gives_up = 0; gives_up < 2; gives_up++) {
        struct team team;

        CHOIR_ROW("%s", gives_up ? "a receive is taken back" : "a message of another length");
        atomic_store(&whose_turn, 0);
        team_start(&team, 2);
        team_channel(&team, 0);
        team_run(&team, gives_up ? give_up_and_go : refuse_and_go);
        team_check_ok(&team);
        team_end(&team);
    }
}

/* --- failing ------------------------------------------------------------------------------------------- */

static choir_status fail_while_others_wait(struct mate *mate)
{
    choir_error why = { .code = CHOIR_ERR_INTERRUPTED, .culprit = 2, .text = "enough" }, said;
    char byte;
    struct ch_op op = message(CHOIR_OP_RECV, &byte, 1, 2, 0);
    choir_status rc;

    if (mate->me == 2)
        ch_backend_host.fail(mate->channel, &why);
    else
        CHOIR_CHECK_STATUS(perform(mate, &op), CHOIR_ERR_INTERRUPTED);
    rc = ch_backend_host.error(mate->channel, &said);
    CHOIR_CHECK_STR(said.text, "enough");
    return rc;
}

CHOIR_TEST(a_group_made_to_fail_ends_everybodys_operations)
{
    struct team team;

    team_start(&team, 3);
    team_channel(&team, 0);
    team_run(&team, fail_while_others_wait);
    for (uint32_t r = 0; r < 3; r++)
        CHOIR_CHECK_EQ((int)team.mates[r].status, (int)CHOIR_ERR_INTERRUPTED);
    team_end(&team);
}

/* --- beside each other ----------------------------------------------------------------------------------- */

static struct ch_op allreduce(float *memory, size_t count)
{
    struct ch_op op = { .type = CHOIR_OP_ALLREDUCE,
                        .coll = CH_ALLREDUCE,
                        .dtype = CHOIR_F32,
                        .redop = CHOIR_SUM,
                        .reduces = true,
                        .in_place = true,
                        .longest = count,
                        .counts = count,
                        .seq = 1,
                        .until = team_patience() };

    op.in = op.out = (struct ch_blocks){
        .step = 1, .nblocks = 1, .base = (char *)memory, .count = count
    };
    return op;
}

/* Rank 1 enters the collective only when it has a message that rank 0 sends from within it. */
static choir_status message_past_a_collective(struct mate *mate)
{
    static _Thread_local struct issued coll;
    float memory[4] = { 1, 2, 3, 4 };
    char byte = 7;
    struct ch_op sum = allreduce(memory, 4), send = message(CHOIR_OP_SEND, &byte, 1, 1, 0),
                 recv = message(CHOIR_OP_RECV, &byte, 1, 0, 0);

    if (mate->me == 1)
        CHOIR_CHECK_OK(perform(mate, &recv));
    issue(mate, &coll, &sum);
    if (mate->me == 0) {
        CHOIR_CHECK(!ready(&coll));
        CHOIR_CHECK_OK(perform(mate, &send));
    }
    CHOIR_CHECK_OK(finish(&coll));
    CHOIR_CHECK_EQ(memory[3], 8.0F);
    return CHOIR_OK;
}

CHOIR_TEST(a_collective_holds_no_message_up)
{
    struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    team_run(&team, message_past_a_collective);
    team_check_ok(&team);
    team_end(&team);
}

static choir_status do_many(struct mate *mate)
{
    static const size_t counts[] = { 1, 20, 5000, 100 * 1000 };
    float *memory = calloc(100 * 1000, sizeof(*memory));

    for (int i = 0; i < 40; i++) {
        struct ch_op op = allreduce(memory, counts[i % 4]);

        if (i % 8 >= 4)
            op.algo = "ring";
        CHOIR_CHECK_OK(perform(mate, &op));
    }
    free(memory);
    return CHOIR_OK;
}

CHOIR_TEST(a_warm_path_allocates_nothing)
{
    static const enum ch_subsystem subsystems[] = { CH_SUB_ENGINE, CH_SUB_SCHED, CH_SUB_ALGO };
    uint64_t before[CH_ARRAY_LEN(subsystems)];
    struct team team;

    team_start(&team, 2);
    team_channel(&team, 0);
    team_run(&team, do_many);
    for (size_t i = 0; i < CH_ARRAY_LEN(subsystems); i++)
        before[i] = ch_mem_count(subsystems[i]).total_blocks;
    team_run(&team, do_many);
    for (size_t i = 0; i < CH_ARRAY_LEN(subsystems); i++)
        CHOIR_CHECK_EQ(ch_mem_count(subsystems[i]).total_blocks, before[i]);
    team_check_ok(&team);
    team_end(&team);
}
