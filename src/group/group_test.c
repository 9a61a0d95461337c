/* group_test.c - ranks as threads meet in a store inside the process. */
#include "choir_test.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <choir/group.h>
#include <choir/info.h>

#include "base/error.h"
#include "base/sys.h"
#include "group/group.h"
#include "group/roster.h"
#include "io/io_test.h"

enum { RANKS_MAX = 17 };

/* One rank: what it is told, and what came of it. */
struct rank {
    pthread_t thread;
    choir_store *store; /* or */
    const char *url;
    int rank, nranks;
    int64_t timeout_ms;
    choir_group *group;
    choir_status status;
    choir_error error;
    choir_status (*carry)(void *arg, char *word, size_t room, int64_t timeout_ms); /* or */
    choir_store *carrier;                                                          /* its own */
};

static void *join(void *arg)
{
    struct rank *rank = arg;

    rank->status = choir_init(&rank->group, CHOIR_OPTS(init, .store = rank->store, .url = rank->url,
                                                       .rank = rank->rank, .nranks = rank->nranks,
                                                       .timeout_ms = rank->timeout_ms,
                                                       .carry = rank->carry, .carry_arg = rank));
    if (rank->status != CHOIR_OK)
        rank->error = *choir_last_error_record();
    return NULL;
}

static choir_store *new_store(void)
{
    choir_store *store;

    CHOIR_CHECK_OK(choir_store_open("hash://", NULL, &store));
    return store;
}

static void start(struct rank *rank, choir_store *store, int number, int nranks, int64_t timeout_ms)
{
    *rank = (struct rank){
        .store = store, .rank = number, .nranks = nranks, .timeout_ms = timeout_ms
    };
    CHOIR_CHECK_EQ(pthread_create(&rank->thread, NULL, join, rank), 0);
}

static void finish(struct rank *rank)
{
    pthread_join(rank->thread, NULL);
}

static int64_t ample_ms(void)
{
    return 10000 * (int64_t)choir_test_slowness();
}

/* A time-out that some ranks are to run into: long enough for the others to have joined. */
static int64_t short_ms(void)
{
    return 300 * (int64_t)choir_test_slowness();
}

static void start_all(struct rank *ranks, choir_store *store, int nranks)
{
    for (int r = 0; r < nranks; r++)
        start(&ranks[r], store, r, nranks, ample_ms());
}

static void finish_all(struct rank *ranks, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        finish(&ranks[r]);
        if (ranks[r].status != CHOIR_OK)
            CHOIR_FAIL("rank %d: %s", r, ranks[r].error.text);
    }
}

static void destroy_all(struct rank *ranks, int nranks)
{
    for (int r = 0; r < nranks; r++)
        choir_group_destroy(ranks[r].group);
}

/* Every rank rings every other's bell through the descriptors it was handed, and each hears it. */
static void check_bells(struct rank *ranks, int nranks)
{
    for (int from = 0; from < nranks; from++) {
        for (int to = 0; to < nranks; to++) {
            struct ch_neighbour *there = ch_hostlink_find(&ranks[from].group->context->engine->link,
                                                          to);
            uint64_t rings = 0;

            CHOIR_CHECK(there != NULL);
            CHOIR_CHECK_EQ((int)there->page->rank, to);
            ch_bell_ring(&there->bell);
            CHOIR_CHECK_EQ(ch_sys_read(ranks[to].group->context->engine->link.self.bell_fd, &rings,
                                       sizeof(rings)),
                           (ssize_t)sizeof(rings));
            CHOIR_CHECK_EQ(rings, 1u);
        }
    }
}

static void check_group(const choir_group *group, int rank, int nranks)
{
    CHOIR_CHECK_EQ(choir_group_rank(group), rank);
    CHOIR_CHECK_EQ(choir_group_size(group), nranks);
    CHOIR_CHECK_EQ(choir_group_local_size(group), nranks);
    CHOIR_CHECK_EQ(choir_group_local_rank(group), rank);
    CHOIR_CHECK_EQ(choir_group_processors(group), choir_processors());
    CHOIR_CHECK_HAS(choir_group_origin(group), "the caller's store");
    for (int r = 0; r < nranks; r++) {
        choir_peer peer;
        bool alive = false;

        CHOIR_CHECK_OK(choir_group_peer(group, r, &peer));
        CHOIR_CHECK_EQ(peer.rank, r);
        CHOIR_CHECK_EQ(peer.pid, (int64_t)getpid());
        CHOIR_CHECK_EQ(peer.host_index, 0);
        CHOIR_CHECK(peer.shares_memory);
        CHOIR_CHECK_EQ(strlen(peer.boot_id), 36u);
        CHOIR_CHECK(peer.host[0] != '\0' && peer.cpu[0] != '\0' && peer.build[0] != '\0');
        if (group->context->engine->link.self.pidfd < 0) { /* valgrind has none */
            CHOIR_CHECK_STATUS(choir_group_alive(group, r, &alive), CHOIR_ERR_UNSUPPORTED);
        } else {
            CHOIR_CHECK_OK(choir_group_alive(group, r, &alive));
            CHOIR_CHECK(alive);
        }
    }
}

CHOIR_TEST(all_ranks_know_each_other)
{
    for (int nranks = 1; nranks <= RANKS_MAX; nranks++) {
        choir_store *store = new_store();
        struct rank ranks[RANKS_MAX];

        CHOIR_ROW("%d ranks", nranks);
        start_all(ranks, store, nranks);
        finish_all(ranks, nranks);
        for (int r = 0; r < nranks; r++)
            check_group(ranks[r].group, r, nranks);
        check_bells(ranks, nranks);
        destroy_all(ranks, nranks);
        choir_store_close(store);
    }
}

CHOIR_TEST(a_store_sees_several_meetings)
{
    choir_store *store = new_store();
    struct rank first[3], second[3];

    start_all(first, store, 3);
    finish_all(first, 3);
    start_all(second, store, 3);
    finish_all(second, 3);
    destroy_all(first, 3);
    check_group(second[1].group, 1, 3);
    destroy_all(second, 3);
    choir_store_close(store);
}

/* Two keys count the ranks that come, and each meeting leaves its verdict. */
CHOIR_TEST(meetings_leave_little_in_the_store)
{
    enum { MEETINGS = 5 };
    choir_store *store = new_store();
    struct rank ranks[3];
    int64_t count = 0;

    for (int i = 0; i < MEETINGS; i++) {
        start_all(ranks, store, 3);
        finish_all(ranks, 3);
        destroy_all(ranks, 3);
    }
    CHOIR_CHECK_OK(choir_store_count(store, &count));
    CHOIR_CHECK_EQ(count, 2 + MEETINGS);
    choir_store_close(store);
}

CHOIR_TEST(a_rank_leaves_while_others_stay)
{
    choir_store *store = new_store();
    struct rank ranks[4];

    start_all(ranks, store, 4);
    finish_all(ranks, 4);
    choir_group_destroy(ranks[0].group); /* the hub of the exchange */
    check_group(ranks[3].group, 3, 4);
    for (int r = 1; r < 4; r++)
        choir_group_destroy(ranks[r].group);
    choir_store_close(store);
}

/* --- what goes wrong ------------------------------------------------------------------------------ */

CHOIR_TEST(missing_ranks_are_named_to_all_who_wait)
{
    choir_store *store = new_store();
    struct rank ranks[3];

    const choir_bytes joined[] = { choir_str("choir/init/0/0/rank/2"),
                                   choir_str("choir/init/0/0/rank/5") };

    start(&ranks[1], store, 2, 6, ample_ms());
    start(&ranks[2], store, 5, 6, ample_ms());
    CHOIR_CHECK_OK(choir_store_wait(store, joined, CH_ARRAY_LEN(joined), ample_ms()));
    start(&ranks[0], store, 0, 6, short_ms());
    for (int i = 0; i < 3; i++) {
        finish(&ranks[i]);
        CHOIR_ROW("rank %d: %s", ranks[i].rank, ranks[i].error.text);
        CHOIR_CHECK_EQ((int)ranks[i].status, (int)CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_HAS(ranks[i].error.text, "3 of 6 ranks have joined, missing: 1, 3-4");
        CHOIR_CHECK_HAS(ranks[i].error.text, "joined: rank 0 (host ");
        CHOIR_CHECK_EQ(ranks[i].error.culprit, 1);
    }
    choir_store_close(store);
}

/* A rank that joins and dies before the exchange: its record stands in for it. */
CHOIR_TEST(a_rank_that_brings_no_descriptors_is_named_to_all)
{
    choir_store *store = new_store(), *round;
    struct ch_record gone, all[3];
    struct rank ranks[2];
    struct ch_roster_entry entry;

    CHOIR_CHECK_OK(ch_record_of_process(&gone));
    gone.rank = 2;
    gone.nranks = 3;
    for (int r = 0; r < 2; r++)
        start(&ranks[r], store, r, 3, short_ms());
    CHOIR_CHECK_OK(ch_roster_round(store, "init", "0", 3, &round));
    CHOIR_CHECK_OK(ch_roster_join(round, &gone, ch_deadline_ms(ample_ms()), all, &entry));
    for (int r = 0; r < 2; r++) {
        finish(&ranks[r]);
        CHOIR_ROW("rank %d: %s", r, ranks[r].error.text);
        CHOIR_CHECK_EQ((int)ranks[r].status, (int)CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_HAS(ranks[r].error.text, "1 of 3 ranks of this host did not bring");
        CHOIR_CHECK_EQ(ranks[r].error.culprit, 2);
    }
    choir_store_close(round);
    choir_store_close(store);
}

static choir_status somebody_died(void *arg)
{
    ++*(int *)arg;
    return ch_fail_rank(CHOIR_ERR_DEAD, 1, "choir_init", "rank 1 has died, say the others");
}

/* All have joined, and one dies before it has said that it is ready: who sees it tells all in the store. */
CHOIR_TEST(who_dies_while_a_group_is_made_is_told_to_all)
{
    choir_store *store = new_store(), *round;
    struct ch_record mine;
    choir_blob verdict;
    int asked = 0;

    CHOIR_CHECK_OK(ch_record_of_process(&mine));
    mine.nranks = 2;
    CHOIR_CHECK_OK(ch_roster_round(store, "init", "0", 2, &round));
    CHOIR_CHECK_STATUS(ch_roster_finish(round, &mine, ch_deadline_ms(ample_ms()), CHOIR_OK,
                                        &(struct ch_roster_watch){ somebody_died, &asked }),
                       CHOIR_ERR_DEAD);
    CHOIR_CHECK_EQ(asked, 1);
    CHOIR_CHECK_OK(choir_store_get(round, choir_str("done"), ample_ms(), &verdict));
    CHOIR_CHECK_HAS(verdict.data, "rank 1 has died");
    choir_blob_free(&verdict);
    choir_store_close(round);
    choir_store_close(store);
}

CHOIR_TEST(who_failed_may_try_again)
{
    choir_store *store = new_store();
    struct rank ranks[3], late;

    for (int i = 0; i < 2; i++) {
        start(&ranks[0], store, 0, 3, short_ms());
        start(&ranks[1], store, 1, 3, short_ms());
        for (int r = 0; r < 2; r++) {
            finish(&ranks[r]);
            CHOIR_ROW("try %d, rank %d: %s", i, r, ranks[r].error.text);
            CHOIR_CHECK_EQ((int)ranks[r].status, (int)CHOIR_ERR_TIMEOUT);
            CHOIR_CHECK_HAS(ranks[r].error.text, "missing: 2");
        }
    }
    start(&late, store, 2, 3, ample_ms()); /* hears at once why it cannot meet them */
    finish(&late);
    CHOIR_CHECK_EQ((int)late.status, (int)CHOIR_ERR_TIMEOUT);
    start_all(ranks, store, 3);
    finish_all(ranks, 3);
    check_group(ranks[2].group, 2, 3);
    destroy_all(ranks, 3);
    choir_store_close(store);
}

CHOIR_TEST(two_that_claim_one_rank_are_both_told)
{
    choir_store *store = new_store();
    struct rank ranks[3];

    start(&ranks[0], store, 0, 3, ample_ms());
    start(&ranks[1], store, 1, 3, ample_ms());
    start(&ranks[2], store, 1, 3, ample_ms());
    for (int i = 0; i < 3; i++) {
        finish(&ranks[i]);
        CHOIR_ROW("caller %d: %s", i, ranks[i].error.text);
        CHOIR_CHECK_EQ((int)ranks[i].status, (int)CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(ranks[i].error.text, "two processes claim the same rank: rank 1 (host ");
        CHOIR_CHECK_EQ(ranks[i].error.culprit, 1);
    }
    choir_store_close(store);
}

/* Whoever comes first, and whatever round the others would have counted. */
static void check_sizes(int odd)
{
    choir_store *store = new_store();
    struct rank ranks[4];

    for (int i = 0; i < 4; i++) {
        choir_bytes size = choir_str("choir/init/0/size");

        start(&ranks[i], store, i == odd ? 0 : i, i == odd ? 2 : 5, ample_ms());
        CHOIR_CHECK_OK(choir_store_wait(store, &size, 1, ample_ms()));
    }
    for (int i = 0; i < 4; i++) {
        finish(&ranks[i]);
        CHOIR_ROW("caller %d, %d has the other size: %s", i, odd, ranks[i].error.text);
        CHOIR_CHECK_EQ((int)ranks[i].status, (int)CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(ranks[i].error.text, "world sizes differ: ");
        CHOIR_CHECK_HAS(ranks[i].error.text, "told 2");
        CHOIR_CHECK_HAS(ranks[i].error.text, "told 5");
    }
    choir_store_close(store);
}

/* Who was first to say how many there are may be the last to arrive. */
CHOIR_TEST(different_sizes_are_told_to_a_slow_first)
{
    choir_bytes there = choir_str("choir/init/0/0/rank/3");
    choir_store *store = new_store();
    struct rank ranks[4];

    CHOIR_CHECK_OK(choir_store_set(store, choir_str("choir/init/0/size"), choir_str("2")));
    for (int i = 1; i < 4; i++)
        start(&ranks[i], store, i, 5, ample_ms());
    CHOIR_CHECK_OK(choir_store_wait(store, &there, 1, ample_ms()));
    start(&ranks[0], store, 0, 2, ample_ms());
    for (int i = 0; i < 4; i++) {
        finish(&ranks[i]);
        CHOIR_ROW("caller %d: %s", i, ranks[i].error.text);
        CHOIR_CHECK_EQ((int)ranks[i].status, (int)CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(ranks[i].error.text, "world sizes differ: ");
    }
    choir_store_close(store);
}

CHOIR_TEST(different_sizes_are_told_to_all)
{
    for (int odd = 0; odd < 4; odd++)
        check_sizes(odd);
}

/* Who serves the store waits until all who count have heard: a second one is none of them. */
CHOIR_TEST(who_comes_second_does_not_count)
{
    choir_store *store = new_store(), *round;
    struct ch_record first, second, all[2];
    struct ch_roster_entry entry;

    CHOIR_CHECK_OK(ch_record_of_process(&first));
    CHOIR_CHECK_OK(ch_record_of_process(&second));
    first.rank = second.rank = 1;
    first.nranks = second.nranks = 2;
    second.id[0] ^= 1;
    second.pid++;
    CHOIR_CHECK_OK(ch_roster_round(store, "init", "0", 2, &round));
    CHOIR_CHECK_STATUS(ch_roster_join(round, &first, ch_deadline_ms(short_ms()), all, &entry),
                       CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK(entry.counted && !entry.spent);
    CHOIR_CHECK_STATUS(ch_roster_join(round, &second, ch_deadline_ms(ample_ms()), all, &entry),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK(!entry.counted && !entry.spent);
    choir_store_close(round);
    choir_store_close(store);
}

/* A rank of another build cannot be had here: its record stands in for it. */
static void check_foreign(void (*change)(struct ch_record *record), const char *text)
{
    choir_store *store = new_store(), *round;
    struct ch_record foreign, all[2];
    struct rank rank;
    struct ch_roster_entry entry;
    choir_status rc;

    CHOIR_CHECK_OK(ch_record_of_process(&foreign));
    foreign.rank = 1;
    foreign.nranks = 2;
    change(&foreign);
    start(&rank, store, 0, 2, ample_ms());
    CHOIR_CHECK_OK(ch_roster_round(store, "init", "0", 2, &round));
    rc = ch_roster_join(round, &foreign, ch_deadline_ms(ample_ms()), all, &entry);
    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), text);
    finish(&rank);
    CHOIR_CHECK_EQ((int)rank.status, (int)CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(rank.error.text, text);
    choir_store_close(round);
    choir_store_close(store);
}

static void other_version(struct ch_record *record)
{
    snprintf(record->version, sizeof(record->version), "9.9.9");
}

static void other_format(struct ch_record *record)
{
    record->format++;
}

static void other_order(struct ch_record *record)
{
    record->byte_order = 3 - record->byte_order;
}

CHOIR_TEST(different_builds_are_told_to_both)
{
    check_foreign(other_version, "versions differ: ");
    check_foreign(other_format, "versions differ: ");
    check_foreign(other_order, "byte orders differ: ");
}

CHOIR_TEST(a_record_that_is_none_is_refused)
{
    struct ch_record record, out;
    unsigned char bytes[sizeof(record)];

    CHOIR_CHECK_OK(ch_record_of_process(&record));
    ch_record_write(&record, bytes);
    CHOIR_CHECK_OK(ch_record_read(bytes, sizeof(bytes), &out));
    CHOIR_CHECK_EQ(memcmp(&record, &out, sizeof(out)), 0);
    CHOIR_CHECK_STATUS(ch_record_read(bytes, sizeof(bytes) - 1, &out), CHOIR_ERR_PROTO);
    memset(bytes + offsetof(struct ch_record, host), 'x', sizeof(record.host));
    CHOIR_CHECK_STATUS(ch_record_read(bytes, sizeof(bytes), &out), CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), "does not end");
    bytes[0]++;
    CHOIR_CHECK_STATUS(ch_record_read(bytes, sizeof(bytes), &out), CHOIR_ERR_PROTO);
}

/* --- a word carried by the caller ----------------------------------------------------------------- */

/* By a store: rank 0 sets a key, the others wait for it. */
static choir_status carry_by_store(void *arg, char *word, size_t room, int64_t timeout_ms)
{
    struct rank *rank = arg;
    choir_blob value;
    choir_status rc;

    if (rank->rank == 0)
        return choir_store_set(rank->carrier, choir_str("word"), choir_str(word));
    rc = choir_store_get(rank->carrier, choir_str("word"), timeout_ms, &value);
    if (rc != CHOIR_OK)
        return rc;
    CHOIR_CHECK(value.nbytes < room);
    memcpy(word, value.data, value.nbytes + 1);
    choir_blob_free(&value);
    return CHOIR_OK;
}

static choir_status carry_nothing(void *arg, char *word, size_t room, int64_t timeout_ms)
{
    (void)arg;
    (void)word;
    (void)room;
    (void)timeout_ms;
    return CHOIR_ERR_NETWORK;
}

/* Leaves what the others are given as it is, or fills it to the brim. */
static choir_status carry_rubbish(void *arg, char *word, size_t room, int64_t timeout_ms)
{
    (void)arg;
    (void)timeout_ms;
    memset(word, 'x', room);
    return CHOIR_OK;
}

/* A rank that is more than joined: the group does what it is for. */
static void *join_and_meet(void *arg)
{
    struct rank *rank = arg;

    join(rank);
    if (rank->status == CHOIR_OK)
        CHOIR_CHECK_OK(choir_barrier(rank->group, NULL, NULL));
    return NULL;
}

static void start_carried(struct rank *rank, choir_store *carrier, int number, int nranks,
                          const char *url)
{
    *rank = (struct rank){ .rank = number,
                           .nranks = nranks,
                           .timeout_ms = ample_ms(),
                           .url = url,
                           .carry = carry_by_store,
                           .carrier = carrier };
    CHOIR_CHECK_EQ(pthread_create(&rank->thread, NULL, join_and_meet, rank), 0);
}

CHOIR_TEST(ranks_meet_by_a_word_the_caller_carries)
{
    static const char *const urls[] = { NULL, "tcp://127.0.0.1:9" };

    for (int nranks = 1; nranks <= 4; nranks++) {
        for (size_t u = 0; u < CH_ARRAY_LEN(urls); u++) {
            choir_store *carrier = new_store();
            struct rank ranks[RANKS_MAX];

            CHOIR_ROW("%d ranks, url %s", nranks, urls[u] != NULL ? urls[u] : "none");
            for (int r = 0; r < nranks; r++)
                start_carried(&ranks[r], carrier, r, nranks, urls[u]);
            finish_all(ranks, nranks);
            for (int r = 0; r < nranks; r++) {
                CHOIR_CHECK_EQ(choir_group_size(ranks[r].group), nranks);
                CHOIR_CHECK_HAS(choir_group_origin(ranks[r].group), "the caller");
            }
            destroy_all(ranks, nranks);
            choir_store_close(carrier);
        }
    }
}

CHOIR_TEST(a_word_that_was_not_carried_is_an_error)
{
    struct rank rank = { .rank = 1, .nranks = 2, .timeout_ms = ample_ms() };

    rank.carry = carry_nothing;
    join(&rank);
    CHOIR_CHECK_EQ((int)rank.status, (int)CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(rank.error.text, "carry() of rank 0's word");
    rank.carry = carry_rubbish;
    join(&rank);
    CHOIR_CHECK_EQ((int)rank.status, (int)CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(rank.error.text, "expected an address and a token");
    rank.rank = 0;
    rank.carry = carry_nothing;
    join(&rank);
    CHOIR_CHECK_EQ((int)rank.status, (int)CHOIR_ERR_NETWORK);
}

CHOIR_TEST(options_are_checked)
{
    choir_store *store = new_store();
    choir_group *group = NULL;
    const struct {
        choir_init_opts opts;
        const char *text;
    } rows[] = {
        { { .size = 0 }, "opts->size is 0" },
        { { .size = sizeof(choir_init_opts), .store = store, .url = "env://", .nranks = 1 },
          "both a store and a URL" },
        { { .size = sizeof(choir_init_opts), .store = store }, "nranks is 0" },
        { { .size = sizeof(choir_init_opts), .carry = carry_nothing }, "nranks is 0" },
        { { .size = sizeof(choir_init_opts), .carry = carry_nothing, .store = store, .nranks = 2 },
          "both a store and carry()" },
        { { .size = sizeof(choir_init_opts), .nranks = -2 }, "nranks is -2" },
        { { .size = sizeof(choir_init_opts), .store = store, .nranks = 2, .rank = 2 },
          "rank is 2, expected 0 to 1" },
        { { .size = sizeof(choir_init_opts), .store = store, .nranks = 2, .rank = -1 },
          "rank is -1, expected 0 to 1" },
        { { .size = sizeof(choir_init_opts), .nranks = 2, .rank = 2 }, "rank 2 of 2" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("%s", rows[i].text);
        CHOIR_CHECK_STATUS(choir_init(&group, &rows[i].opts), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), rows[i].text);
        CHOIR_CHECK(group == NULL);
    }
    CHOIR_CHECK_STATUS(choir_init(NULL, NULL), CHOIR_ERR_INVALID);
    choir_store_close(store);
}

CHOIR_TEST(questions_about_no_rank_are_refused)
{
    choir_group *group;
    choir_peer peer;
    bool alive;

    CHOIR_CHECK_OK(choir_init(&group, NULL)); /* alone: nobody started us */
    CHOIR_CHECK_EQ(choir_group_size(group), 1);
    CHOIR_CHECK_STATUS(choir_group_peer(group, 1, &peer), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_group_peer(group, -1, &peer), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(choir_group_alive(group, 1, &alive), CHOIR_ERR_INVALID);
    CHOIR_CHECK_OK(choir_store_set(choir_group_store(group), choir_str("k"), choir_str("v")));
    choir_group_destroy(group);
}

/* --- every call fails once ------------------------------------------------------------------------ */

static choir_status init_alone(void *arg)
{
    choir_group *group;
    choir_status rc = choir_init(&group, NULL);

    (void)arg;
    if (rc == CHOIR_OK)
        choir_group_destroy(group);
    return rc;
}

/* Two ranks; either may fail, and the other must then be told, or see it by its deadline. Of both the deadline is told:
 * rank 0 takes its server along when it gives up, and all that rank 1 sees is a lost connection. */
static choir_status init_two(choir_store *store, const char *url)
{
    struct rank ranks[2];
    choir_status rc = CHOIR_OK;

    for (int r = 0; r < 2; r++) {
        ranks[r] = (struct rank){
            .store = store, .url = url, .rank = r, .nranks = 2, .timeout_ms = short_ms() / 5
        };
        CHOIR_CHECK_EQ(pthread_create(&ranks[r].thread, NULL, join, &ranks[r]), 0);
    }
    for (int r = 0; r < 2; r++) {
        finish(&ranks[r]);
        if (ranks[r].status == CHOIR_OK)
            choir_group_destroy(ranks[r].group);
        else if (rc != CHOIR_ERR_TIMEOUT)
            rc = ch_error_load(&ranks[r].error);
    }
    return rc;
}

static choir_status try_in_hash(void *arg)
{
    choir_store *store;
    choir_status rc = choir_store_open("hash://", NULL, &store);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    rc = init_two(store, NULL);
    choir_store_close(store);
    return rc;
}

/* Rank 0 serves. */
static choir_status try_over_tcp(void *arg)
{
    return init_two(NULL, arg);
}

/* A short deadline that passes though nothing was made to fail tells of a busy machine, not of us. */
static choir_status again_if_too_slow(choir_status (*attempt)(void *arg), void *arg)
{
    choir_status rc;

    do
        rc = attempt(arg);
    while (rc == CHOIR_ERR_TIMEOUT && strcmp(ch_fault_last(), "nothing") == 0);
    return rc;
}

static choir_status init_two_in_hash(void *arg)
{
    return again_if_too_slow(try_in_hash, arg);
}

static choir_status init_two_over_tcp(void *arg)
{
    return again_if_too_slow(try_over_tcp, arg);
}

CHOIR_TEST(every_failing_call_alone_is_an_error)
{
    choir_test_all_faults(init_alone, NULL);
}

CHOIR_TEST_TIMED(every_failing_call_of_two_is_an_error, 120)
{
    setenv("CHOIR_FR_SIGNAL", "1", 1); /* its descriptor and handler may fail too */
    choir_test_all_faults(init_two_in_hash, NULL);
}

/* A port that nobody listens on, to be given out again. */
static int free_port(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHOIR_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&in, len) == 0);
    CHOIR_CHECK_EQ(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    close(fd);
    return ntohs(in.sin_port);
}

/* Long: a rank whose connection broke cannot say that it has left, and rank 0 waits for that. */
CHOIR_TEST_TIMED(every_failing_call_over_tcp_is_an_error, 600)
{
    char url[64];

    if (getenv("CHOIR_TEST_LONG") == NULL)
        CHOIR_SKIP("only with CHOIR_TEST_LONG");
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", free_port());
    choir_test_all_faults(init_two_over_tcp, url);
}
