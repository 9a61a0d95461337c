/*
 * flight_test.c - what is recorded comes out again: whole, in order, while others write.
 */
#include "trace/flight.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/trace.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/mem.h"
#include "base/sys.h"
#include "choir_test.h"
#include "trace/flight_dump.h"
#include "trace/flight_file.h"
#include "trace/flight_names.h"
#include "trace/flight_signal.h"

static const choir_error timed_out = { .code = CHOIR_ERR_TIMEOUT, .text = "rank 1 did not come" };

static const choir_buf floats = { .count = 1024, .type = CHOIR_F32 };

static struct ch_flight_info allreduce(uint64_t seq)
{
    return (struct ch_flight_info){
        .op = CHOIR_OP_ALLREDUCE,
        .collective_seq = seq,
        .op_id = seq,
        .timeout_ms = 1800000,
        .reduces = true,
        .ins = &floats,
        .nins = 1,
    };
}

static uint64_t issue(struct ch_flight_group *group, uint64_t seq)
{
    struct ch_flight_info info = allreduce(seq);

    return ch_flight_issue(group, &info, ch_now());
}

static void complete(struct ch_flight_group *group, uint64_t seq)
{
    uint64_t record = issue(group, seq);

    ch_flight_started(group, record, ch_now());
    ch_flight_done(group, record, ch_now(), CHOIR_OK, -1);
}

static struct ch_flight_group *open_group(struct ch_flight *flight, const char *name)
{
    struct ch_flight_group *group = NULL;

    CHOIR_CHECK_OK(ch_flight_group_open(flight, name, NULL, NULL, 4, 1, &group));
    return group;
}

/* A dump as text; the caller frees it. */
static char *json(void)
{
    choir_blob blob = { NULL, 0 };

    CHOIR_CHECK_OK(choir_trace_dump(CHOIR_TRACE_JSON, &blob));
    CHOIR_CHECK_EQ(strlen(blob.data), blob.nbytes);
    return blob.data;
}

static size_t count_of(const char *text, const char *word)
{
    size_t n = 0;

    for (const char *p = text; (p = strstr(p, word)) != NULL; p += strlen(word))
        n++;
    return n;
}

CHOIR_TEST(an_operation_has_three_states)
{
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group;
    uint64_t record;
    char *text;

    CHOIR_CHECK_OK(ch_flight_create(3, &flight));
    group = open_group(flight, "world");
    complete(group, 1);
    record = issue(group, 2);
    ch_flight_started(group, record, ch_now());
    issue(group, 3);
    text = json();
    CHOIR_CHECK_EQ(count_of(text, "\"state\": \"completed\""), 1u);
    CHOIR_CHECK_EQ(count_of(text, "\"state\": \"started\""), 1u);
    CHOIR_CHECK_EQ(count_of(text, "\"state\": \"scheduled\""), 1u);
    CHOIR_CHECK_HAS(text, "\"last_enqueued_collective\": \"3\"");
    CHOIR_CHECK_HAS(text, "\"last_started_collective\": \"2\"");
    CHOIR_CHECK_HAS(text, "\"last_completed_collective\": \"1\"");
    CHOIR_CHECK_HAS(text, "\"profiling_name\": \"choir:all_reduce\"");
    CHOIR_CHECK_HAS(text, "\"input_sizes\": [[1024]], \"input_dtypes\": [\"Float\"], "
                          "\"output_sizes\": [[1024]]");
    CHOIR_CHECK_HAS(text, "\"process_group\": [\"world\", \"undefined\"]");
    CHOIR_CHECK_HAS(text, "\"ranks\": \"[0, 1, 2, 3]\"");
    ch_free(text);

    ch_flight_done(group, record, ch_now(), CHOIR_ERR_TIMEOUT, -1);
    text = json();
    CHOIR_CHECK_EQ(count_of(text, "\"state\": \"started\""), 1u);
    CHOIR_CHECK_HAS(text, "\"retired\": true, \"error\": \"CHOIR_ERR_TIMEOUT\"");
    ch_free(text);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

static const struct {
    struct ch_flight_info info;
    const char *has, *why;
} rows[] = {
    { { .op = CHOIR_OP_SEND, .is_p2p = true, .peer = 2, .tag = 9, .ins = &floats, .nins = 1 },
      "choir:send 1->2\", \"input_sizes\": [[1024]], \"input_dtypes\": [\"Float\"], "
      "\"output_sizes\": [[]]",
      "a send goes from us" },
    { { .op = CHOIR_OP_RECV, .is_p2p = true, .peer = 0, .outs = &floats, .nouts = 1 },
      "choir:recv 1<-0\", \"input_sizes\": [[]], \"input_dtypes\": [], \"output_sizes\": [[1024]]",
      "a receive comes to us" },
    { { .op = CHOIR_OP_RECV_ANY, .is_p2p = true, .peer = -1, .outs = &floats, .nouts = 1 },
      "choir:recvAnySource 1<-?",
      "nobody knows yet from whom" },
    { { .op = CHOIR_OP_BROADCAST, .has_root = true, .root = 3, .ins = &floats, .nins = 1 },
      "\"root\": 3",
      "a root" },
    { { .op = CHOIR_OP_REDUCE,
        .reduces = true,
        .redop = CHOIR_MAX,
        .has_root = true,
        .ins = &floats,
        .nins = 1 },
      "\"reduction\": \"max\", \"root\": 0",
      "a reduction" },
    { { .op = CHOIR_OP_BARRIER }, "choir:barrier\", \"input_sizes\": [[]]", "no buffers at all" },
    { { .op = CHOIR_OP_UNKNOWN }, "choir:unknown", "nobody knows what" },
};

CHOIR_TEST(every_kind_is_told_in_its_own_way)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        struct ch_flight *flight = NULL;
        struct ch_flight_group *group;
        char *text;

        CHOIR_ROW("%s", rows[i].why);
        CHOIR_CHECK_OK(ch_flight_create(1, &flight));
        group = open_group(flight, "g");
        CHOIR_CHECK_EQ(ch_flight_issue(group, &rows[i].info, ch_now()), 1u);
        text = json();
        CHOIR_CHECK_HAS(text, rows[i].has);
        ch_free(text);
        ch_flight_group_close(group);
        ch_flight_destroy(flight);
    }
}

CHOIR_TEST(a_receive_from_any_learns_its_source)
{
    struct ch_flight_info any = {
        .op = CHOIR_OP_RECV_ANY, .is_p2p = true, .peer = -1, .tag = 77, .outs = &floats, .nouts = 1
    };
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group;
    uint64_t record;
    char *text;

    CHOIR_CHECK_OK(ch_flight_create(1, &flight));
    group = open_group(flight, "g");
    record = ch_flight_issue(group, &any, ch_now());
    ch_flight_done(group, record, ch_now(), CHOIR_OK, 3);
    text = json();
    CHOIR_CHECK_HAS(text, "choir:recvAnySource 1<-3");
    CHOIR_CHECK_HAS(text, "\"peer\": 3, \"tag\": 77");
    ch_free(text);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

CHOIR_TEST(messages_are_recorded_together)
{
    const struct ch_flight_message messages[] = {
        { CHOIR_OP_SEND, CHOIR_F32, 5, 1000, 3, 77, false },
        { CHOIR_OP_RECV, CHOIR_I64, 6, 2000, 2, 78, false },
    };
    const struct ch_flight_moment when = { 4, 11, ch_now() };
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group;
    const char *second;
    uint64_t first;
    char *text;

    CHOIR_CHECK_OK(ch_flight_create(1, &flight));
    group = open_group(flight, "g");
    first = ch_flight_start_messages(group, messages, 2, &when);
    text = json();
    CHOIR_CHECK_HAS(text, "\"state\": \"started\"");
    CHOIR_CHECK(strstr(text, "\"state\": \"completed\"") == NULL);
    ch_free(text);
    ch_flight_messages_done(group, first, 2, ch_now());
    text = json();
    CHOIR_CHECK(strstr(text, "\"state\": \"started\"") == NULL);
    CHOIR_CHECK_HAS(text, "choir:send 1->3");
    CHOIR_CHECK_HAS(text, "\"peer\": 3, \"tag\": 77");
    CHOIR_CHECK_HAS(text, "\"state\": \"completed\"");
    CHOIR_CHECK_HAS(text, "\"input_sizes\": [[5]]");
    CHOIR_CHECK_HAS(text, "\"p2p_seq_id\": 11,");
    CHOIR_CHECK_HAS(text, "\"p2p_seq_id\": 12,");
    CHOIR_CHECK_HAS(text, "\"timeout_ms\": 1000");
    second = strstr(text, "choir:recv 1<-2");
    CHOIR_CHECK(second != NULL);
    CHOIR_CHECK_HAS(second, "\"peer\": 2, \"tag\": 78");
    CHOIR_CHECK_HAS(second, "\"state\": \"completed\"");
    CHOIR_CHECK_HAS(second, "\"output_sizes\": [[6]]");
    CHOIR_CHECK_HAS(second, "\"timeout_ms\": 2000");
    ch_free(text);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

/* A send that had gone before it was recorded is completed at once, and the end of the others is not its own. */
CHOIR_TEST(a_message_may_be_over_when_it_is_recorded)
{
    const struct ch_flight_message messages[] = {
        { CHOIR_OP_SEND, CHOIR_F32, 5, 1000, 3, 77, true },
        { CHOIR_OP_RECV, CHOIR_F32, 6, 1000, 2, 78, false },
    };
    const struct ch_flight_moment when = { 4, 11, ch_now() };
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group;
    const char *second;
    uint64_t first;
    char *text;

    CHOIR_CHECK_OK(ch_flight_create(1, &flight));
    group = open_group(flight, "g");
    first = ch_flight_start_messages(group, messages, 2, &when);
    text = json();
    second = strstr(text, "choir:recv 1<-2");
    CHOIR_CHECK(second != NULL);
    CHOIR_CHECK_HAS(text, "\"state\": \"completed\"");
    CHOIR_CHECK(strstr(text, "\"state\": \"completed\"") < second);
    CHOIR_CHECK_HAS(second, "\"state\": \"started\"");
    ch_free(text);
    ch_flight_messages_done(group, first, 2, ch_now());
    text = json();
    CHOIR_CHECK(strstr(text, "\"state\": \"started\"") == NULL);
    CHOIR_CHECK_HAS(strstr(text, "choir:recv 1<-2"), "\"state\": \"completed\"");
    ch_free(text);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

/* More at once than there are slots left before the end of the ring. */
CHOIR_TEST(messages_go_round_the_ring)
{
    const struct ch_flight_message messages[] = {
        { CHOIR_OP_SEND, CHOIR_F32, 5, 1000, 3, 77, false },
        { CHOIR_OP_RECV, CHOIR_F32, 6, 1000, 3, 78, false },
        { CHOIR_OP_RECV, CHOIR_F32, 7, 1000, 3, 79, false },
    };
    struct ch_flight_moment when = { .p2p_seq = 0 };
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group;
    char *text;

    setenv("CHOIR_TRACE_OPERATIONS", "10", 1);
    CHOIR_CHECK_OK(ch_flight_create(1, &flight));
    group = open_group(flight, "g");
    when.issued = ch_now();
    for (int i = 0; i < 5; i++, when.p2p_seq += 3) {
        uint64_t first = ch_flight_start_messages(group, messages, 3, &when);

        ch_flight_messages_done(group, first, 3, ch_now());
    }
    ch_flight_messages_done(group, 1, 3, ch_now()); /* of others by now: nothing is written */
    text = json();
    CHOIR_CHECK(strstr(text, "\"state\": \"started\"") == NULL);
    CHOIR_CHECK(strstr(text, "\"p2p_seq_id\": 4,") == NULL);
    CHOIR_CHECK_HAS(text, "\"p2p_seq_id\": 5,");
    CHOIR_CHECK_HAS(text, "\"p2p_seq_id\": 9,");
    CHOIR_CHECK_HAS(text, "\"p2p_seq_id\": 10,");
    CHOIR_CHECK_HAS(text, "\"p2p_seq_id\": 14,");
    ch_free(text);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

CHOIR_TEST(lists_of_equal_buffers_are_rows)
{
    const int64_t sizes[] = { 2, 3, 5 };
    const choir_buf even[] = { { .count = 7 }, { .count = 7 }, { .count = 7 }, { .count = 7 } };
    const choir_buf uneven[] = { { .count = 7 }, { .count = 1, .type = CHOIR_BF16 } };
    const choir_buf shaped = { .count = 30, .ndim = 3, .sizes = sizes, .type = CHOIR_I64 };
    struct ch_flight_info info = {
        .op = CHOIR_OP_ALLGATHER, .ins = &even[0], .nins = 1, .outs = even, .nouts = 4
    };
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group;
    choir_buf many[40];
    char *text;

    CHOIR_CHECK_OK(ch_flight_create(1, &flight));
    group = open_group(flight, "g");
    ch_flight_issue(group, &info, ch_now());
    info.outs = uneven;
    info.nouts = 2;
    ch_flight_issue(group, &info, ch_now());
    info.ins = info.outs = &shaped;
    info.nouts = 1;
    ch_flight_issue(group, &info, ch_now());
    for (size_t i = 0; i < CH_ARRAY_LEN(many); i++)
        many[i] = floats;
    info = (struct ch_flight_info){ .op = CHOIR_OP_ALLREDUCE_COALESCED,
                                    .ins = many,
                                    .nins = CH_ARRAY_LEN(many) };
    ch_flight_issue(group, &info, ch_now());
    text = json();
    CHOIR_CHECK_HAS(text, "\"output_sizes\": [[4, 7]], \"output_dtypes\": [\"Byte\"]");
    CHOIR_CHECK_HAS(text,
                    "\"output_sizes\": [[7], [1]], \"output_dtypes\": [\"Byte\", \"BFloat16\"]");
    CHOIR_CHECK_HAS(text, "\"input_sizes\": [[2, 3, 5]], \"input_dtypes\": [\"Long\"]");
    CHOIR_CHECK_HAS(text, "\"inputs\": 40");
    ch_free(text);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

CHOIR_TEST(the_ring_keeps_the_last)
{
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group;
    uint64_t old;
    char *text;

    setenv("CHOIR_TRACE_OPERATIONS", "10", 1);
    CHOIR_CHECK_OK(ch_flight_create(0, &flight));
    group = open_group(flight, "g");
    old = issue(group, 1);
    for (uint64_t seq = 2; seq <= 35; seq++)
        complete(group, seq);
    ch_flight_done(group, old, ch_now(), CHOIR_OK, -1); /* long gone: spoils nothing */
    text = json();
    CHOIR_CHECK_EQ(count_of(text, "\"record_id\""), 10u);
    CHOIR_CHECK_HAS(text, "\"entries\": [{\"record_id\": 25,");
    CHOIR_CHECK_HAS(text, "\"record_id\": 34,");
    CHOIR_CHECK_EQ(count_of(text, "\"completed\""), 10u);
    ch_free(text);
    choir_trace_reset();
    complete(group, 36);
    text = json();
    CHOIR_CHECK_EQ(count_of(text, "\"record_id\""), 1u);
    ch_free(text);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

CHOIR_TEST(others_variables_are_accepted)
{
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group = NULL;
    struct ch_flight_info info = allreduce(1);

    setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
    CHOIR_CHECK_OK(ch_flight_create(0, &flight));
    CHOIR_CHECK(flight == NULL);
    CHOIR_CHECK_OK(ch_flight_group_open(flight, "g", NULL, NULL, 1, 0, &group));
    CHOIR_CHECK(group == NULL);
    CHOIR_CHECK_EQ(ch_flight_issue(group, &info, 1), 0u);
    ch_flight_started(group, 0, 1);
    ch_flight_done(group, 0, 1, CHOIR_OK, -1);
    ch_flight_failed(group, &timed_out);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
    setenv("TORCH_FR_BUFFER_SIZE", "2", 1);
    CHOIR_CHECK_OK(ch_flight_create(0, &flight));
    CHOIR_CHECK(flight != NULL);
    ch_flight_destroy(flight);
}

/* Closed groups stay while something in the ring is theirs, and no longer. */
CHOIR_TEST(groups_come_and_go_without_growth)
{
    struct ch_flight *flight = NULL;
    uint64_t before;
    char *text;

    setenv("CHOIR_TRACE_OPERATIONS", "16", 1);
    CHOIR_CHECK_OK(ch_flight_create(0, &flight));
    before = ch_mem_count(CH_SUB_TRACE).live_blocks;
    for (int i = 0; i < 1000; i++) {
        struct ch_flight_group *group = open_group(flight, i % 2 == 0 ? "even" : "odd");

        complete(group, 1);
        ch_flight_group_close(group);
        CHOIR_CHECK_LE(ch_mem_count(CH_SUB_TRACE).live_blocks, before + 20 * 4);
    }
    text = json();
    CHOIR_CHECK_EQ(count_of(text, "\"record_id\""), 16u);
    CHOIR_CHECK_EQ(count_of(text, "\"name\": \"even\", \"desc\": \"undefined\", \"ranks\": \"["),
                   1u);
    ch_free(text);
    for (int i = 0; i < 1000; i++)
        ch_flight_group_close(open_group(flight, "idle"));
    CHOIR_CHECK_LE(ch_mem_count(CH_SUB_TRACE).live_blocks, before + 20 * 4);
    ch_flight_destroy(flight);
}

/* --- several threads --------------------------------------------------------------------------------- */

enum { WRITERS = 3, ROUNDS = 3000 };

static _Atomic int writing;

struct writer {
    pthread_t thread;
    struct ch_flight_group *group;
    uint64_t rounds;
};

static void *write_on(void *arg)
{
    struct writer *writer = arg;

    for (uint64_t seq = 1; seq <= writer->rounds; seq++) {
        choir_buf buf = { .count = seq, .type = CHOIR_F32 };
        struct ch_flight_info info = allreduce(seq);
        uint64_t record;

        info.ins = &buf;
        record = ch_flight_issue(writer->group, &info, ch_now());
        ch_flight_started(writer->group, record, ch_now());
        ch_flight_done(writer->group, record, ch_now(), CHOIR_OK, -1);
    }
    atomic_fetch_sub(&writing, 1);
    return NULL;
}

/* In every record the size is the sequence number: none is half of another. */
static void check_whole(const char *text)
{
    for (const char *p = text; (p = strstr(p, "\"collective_seq_id\": ")) != NULL; p++) {
        unsigned long seq = strtoul(p + strlen("\"collective_seq_id\": "), NULL, 10);
        const char *size = strstr(p, "\"input_sizes\": [[");

        CHOIR_CHECK(size != NULL);
        CHOIR_CHECK_EQ(strtoul(size + strlen("\"input_sizes\": [["), NULL, 10), seq);
    }
}

CHOIR_TEST(readers_see_whole_records_while_others_write)
{
    struct writer writers[WRITERS];
    struct ch_flight *flight = NULL;

    setenv("CHOIR_TRACE_OPERATIONS", "8", 1); /* so that they tread on each other's heels */
    CHOIR_CHECK_OK(ch_flight_create(0, &flight));
    writing = WRITERS;
    for (int i = 0; i < WRITERS; i++) {
        writers[i].group = open_group(flight, "g");
        writers[i].rounds = ROUNDS;
        CHOIR_CHECK_EQ(pthread_create(&writers[i].thread, NULL, write_on, &writers[i]), 0);
    }
    while (atomic_load(&writing) > 0) {
        char *text = json();

        check_whole(text);
        ch_free(text);
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        ch_flight_group_close(writers[i].group);
    }
    ch_flight_destroy(flight);
}

CHOIR_TEST(ranks_of_one_process_are_told_apart)
{
    struct ch_flight *flights[2] = { NULL, NULL };
    struct ch_flight_group *groups[2];
    char *text;

    for (int i = 0; i < 2; i++) {
        CHOIR_CHECK_OK(ch_flight_create(i, &flights[i]));
        groups[i] = open_group(flights[i], "world");
    }
    for (uint64_t seq = 1; seq <= 3; seq++) {
        complete(groups[1], seq);
        complete(groups[0], seq);
    }
    text = json();
    CHOIR_CHECK_HAS(text, "\"ranks\": [0, 1]");
    CHOIR_CHECK_EQ(count_of(text, "\"rank\": 0, \"reduction\": \"sum\""), 3u);
    CHOIR_CHECK_EQ(count_of(text, "\"rank\": 1, \"reduction\": \"sum\""), 3u);
    CHOIR_CHECK_EQ(count_of(text, "\"world\": {"), 1u);
    ch_free(text);
    for (int i = 0; i < 2; i++) {
        ch_flight_group_close(groups[i]);
        ch_flight_destroy(flights[i]);
    }
}

/* --- the signal --------------------------------------------------------------------------------------- */

static bool is_readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

static void sent_to_another(int number)
{
    (void)number;
}

CHOIR_TEST(a_signal_makes_each_ranks_descriptor_readable)
{
    struct sigaction before = { .sa_handler = sent_to_another }, after;
    struct ch_flight *flight = NULL;
    int fds[2];

    setenv("CHOIR_FR_SIGNAL", "1", 1);
    CHOIR_CHECK_EQ(sigaction(SIGUSR2, &before, NULL), 0);
    CHOIR_CHECK_OK(ch_flight_create(0, &flight));
    for (int i = 0; i < 2; i++)
        CHOIR_CHECK_OK(ch_flight_signal_open(&fds[i]));
    CHOIR_CHECK(!is_readable(fds[0]) && !is_readable(fds[1]));
    CHOIR_CHECK_EQ(raise(SIGUSR2), 0);
    CHOIR_CHECK(is_readable(fds[0]) && is_readable(fds[1]));
    ch_flight_signal_take(fds[0], flight);
    CHOIR_CHECK(!is_readable(fds[0]));
    ch_flight_signal_close(fds[0]);
    CHOIR_CHECK_EQ(raise(SIGUSR2), 0); /* still ours */
    ch_flight_signal_close(fds[1]);
    CHOIR_CHECK_EQ(sigaction(SIGUSR2, NULL, &after), 0);
    CHOIR_CHECK(after.sa_handler == sent_to_another);
    ch_flight_destroy(flight);
}

CHOIR_TEST(nobody_asks_for_the_signal)
{
    int fd = 7;

    CHOIR_CHECK_OK(ch_flight_signal_open(&fd));
    CHOIR_CHECK_EQ(fd, -1);
    ch_flight_signal_close(fd);
}

static choir_status open_and_close(void *arg)
{
    int fd;
    choir_status rc = ch_flight_signal_open(&fd);

    (void)arg;
    if (rc == CHOIR_OK)
        ch_flight_signal_close(fd);
    return rc;
}

CHOIR_TEST(the_signal_fails_cleanly)
{
    setenv("CHOIR_FR_SIGNAL", "1", 1);
    choir_test_all_faults(open_and_close, NULL);
}

/* Descriptors come and go while signals arrive. */
static void *raise_on(void *arg)
{
    pthread_t *target = arg;

    while (atomic_load(&writing) > 0)
        pthread_kill(*target, SIGUSR2);
    return NULL;
}

CHOIR_TEST(signals_meet_closing_descriptors)
{
    pthread_t self = pthread_self(), raiser;
    int last;

    setenv("CHOIR_FR_SIGNAL", "1", 1);
    CHOIR_CHECK_OK(ch_flight_signal_open(&last)); /* ours stays the handler */
    writing = 1;
    CHOIR_CHECK_EQ(pthread_create(&raiser, NULL, raise_on, &self), 0);
    for (int i = 0; i < 300; i++) {
        int fd;

        CHOIR_CHECK_OK(ch_flight_signal_open(&fd));
        ch_flight_signal_close(fd);
    }
    atomic_store(&writing, 0);
    pthread_join(raiser, NULL);
    ch_flight_signal_close(last);
}

/* --- files -------------------------------------------------------------------------------------------- */

static void in_folder(char *path, size_t room, const char *name)
{
    const char *folder = getenv("TMPDIR");

    snprintf(path, room, "%s/%s", folder != NULL ? folder : "/tmp", name);
}

static bool starts_with(const char *path, const char *bytes)
{
    FILE *file = fopen(path, "rb");
    char head[16] = "";
    bool does;

    CHOIR_CHECK(file != NULL);
    does = fread(head, 1, strlen(bytes), file) == strlen(bytes) &&
           memcmp(head, bytes, strlen(bytes)) == 0;
    fclose(file);
    return does;
}

CHOIR_TEST(a_group_that_fails_leaves_its_record_once)
{
    char folder[256], json_path[300], prefix[300], pickle_path[320];
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group;

    in_folder(folder, sizeof(folder), "flight_test_XXXXXX");
    CHOIR_CHECK(mkdtemp(folder) != NULL);
    snprintf(json_path, sizeof(json_path), "%s/rank_5.json", folder);
    snprintf(prefix, sizeof(prefix), "%s/comm_", folder);
    snprintf(pickle_path, sizeof(pickle_path), "%s5", prefix);
    setenv("CHOIR_TRACE_DIR", folder, 1);
    setenv("TORCH_FR_DUMP_TEMP_FILE", prefix, 1);

    CHOIR_CHECK_OK(ch_flight_create(5, &flight));
    group = open_group(flight, "world");
    complete(group, 1);
    CHOIR_CHECK(access(json_path, F_OK) != 0);
    ch_flight_failed(group, &timed_out);
    CHOIR_CHECK(starts_with(json_path, "{\"version"));
    CHOIR_CHECK(starts_with(pickle_path, "\x80\x02}("));
    CHOIR_CHECK_EQ(unlink(json_path), 0);
    ch_flight_failed(group, &timed_out);
    CHOIR_CHECK(access(json_path, F_OK) != 0);
    CHOIR_CHECK_OK(ch_flight_leave_all("a test"));
    CHOIR_CHECK_EQ(unlink(json_path), 0);
    CHOIR_CHECK_EQ(unlink(pickle_path), 0);
    CHOIR_CHECK_EQ(rmdir(folder), 0); /* nothing half written is left beside */
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

static choir_status scenario(void *arg)
{
    const char *path = arg;
    struct ch_flight *flight = NULL;
    struct ch_flight_group *group = NULL;
    choir_blob blob = { NULL, 0 };
    choir_status rc = ch_flight_create(0, &flight);

    if (rc == CHOIR_OK)
        rc = ch_flight_group_open(flight, "g", "a group", NULL, 3, 0, &group);
    if (rc == CHOIR_OK) {
        complete(group, 1);
        rc = choir_trace_dump(CHOIR_TRACE_PICKLE, &blob);
    }
    if (rc == CHOIR_OK)
        rc = choir_trace_dump_file(CHOIR_TRACE_JSON, path);
    ch_free(blob.data);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
    return rc;
}

CHOIR_TEST(every_failure_is_told_and_nothing_stays)
{
    char path[256];

    in_folder(path, sizeof(path), "flight_test_faults.json");
    choir_test_all_faults(scenario, path);
    unlink(path);
}

CHOIR_TEST(bad_arguments_are_named)
{
    choir_blob blob;

    CHOIR_CHECK_STATUS(choir_trace_dump((choir_trace_format)7, &blob), CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "format is 7");
    CHOIR_CHECK_STATUS(choir_trace_dump(CHOIR_TRACE_JSON, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_trace_dump_file(CHOIR_TRACE_JSON, NULL), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_trace_dump_file(CHOIR_TRACE_JSON, "/no/such/folder/x"),
                       CHOIR_ERR_SYSTEM);
    CHOIR_CHECK_HAS(choir_last_error(), "/no/such/folder/x");
}

static const struct {
    const char *in, *out, *why;
} texts[] = {
    { "plain", "plain", "nothing to do" },
    { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", "two bytes each" },
    { "\xe2\x82\xac\xf0\x9f\x8e\xb5", "\xe2\x82\xac\xf0\x9f\x8e\xb5", "three and four" },
    { "a\xff"
      "b",
      "a?b", "no lead" },
    { "a\xc3", "a?", "cut short" },
    { "\xc0\x80", "??", "overlong" },
    { "\xed\xa0\x80", "???", "a surrogate" },
    { "\xf4\x90\x80\x80", "????", "past the last" },
    { "\xe2\x82", "??", "cut short after two of three" },
};

CHOIR_TEST(names_become_utf8)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(texts); i++) {
        char text[32];

        CHOIR_ROW("%s", texts[i].why);
        snprintf(text, sizeof(text), "%s", texts[i].in);
        ch_flight_make_utf8(text);
        CHOIR_CHECK_STR(text, texts[i].out);
    }
}
