/* hostlink_test.c - ranks of one host exchange descriptors; visitors who do not belong are turned away. */
#include "choir_test.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/sys.h"
#include "engine/hostlink.h"

enum { RANKS = 3 };

static ch_deadline ample(void)
{
    return ch_deadline_ms(10000 * (int64_t)choir_test_slowness());
}

struct host {
    struct ch_hostlink links[RANKS];
    struct ch_hostlink_member members[RANKS];
};

static void open_all(struct host *host)
{
    memset(host, 0, sizeof(*host));
    for (int r = 0; r < RANKS; r++) {
        CHOIR_CHECK_OK(ch_hostlink_open(&host->links[r], r));
        host->members[r] = (struct ch_hostlink_member){ r, host->links[r].id,
                                                        host->links[r].listener.name };
    }
}

static void close_all(struct host *host)
{
    for (int r = 0; r < RANKS; r++)
        ch_hostlink_close(&host->links[r]);
}

struct rank {
    pthread_t thread;
    struct host *host;
    int rank;
    choir_status status;
    choir_error error;
};

static void *exchange(void *arg)
{
    struct rank *rank = arg;
    struct ch_hostlink *link = &rank->host->links[rank->rank];
    struct ch_patience patience = { .waiter = &link->waiter, .until = ample() };

    rank->status = ch_hostlink_exchange(link, rank->host->members, RANKS, &patience);
    if (rank->status != CHOIR_OK)
        ch_error_save(&rank->error);
    return NULL;
}

static void start(struct rank *rank, struct host *host, int number)
{
    *rank = (struct rank){ .host = host, .rank = number };
    CHOIR_CHECK_EQ(pthread_create(&rank->thread, NULL, exchange, rank), 0);
}

static void finish(struct rank *rank)
{
    pthread_join(rank->thread, NULL);
}

/* Rank 2 has announced itself and is no more: the hub need not wait for its deadline. */
CHOIR_TEST(who_is_gone_before_the_exchange_is_named)
{
    struct host host;
    struct rank ranks[2];
    char socket[CH_FDPASS_NAME_MAX];
    uint8_t id[CH_RANK_ID_NBYTES];
    uint64_t began = ch_now();

    open_all(&host);
    memcpy(id, host.links[2].id, sizeof(id));
    memcpy(socket, host.links[2].listener.name, sizeof(socket));
    host.members[2] = (struct ch_hostlink_member){ 2, id, socket };
    ch_hostlink_close(&host.links[2]);
    for (int r = 0; r < 2; r++)
        start(&ranks[r], &host, r);
    for (int r = 0; r < 2; r++)
        finish(&ranks[r]);
    CHOIR_CHECK_EQ((int)ranks[0].status, (int)CHOIR_ERR_DEAD);
    CHOIR_CHECK_EQ(ranks[0].error.culprit, 2);
    CHOIR_CHECK_HAS(ranks[0].error.text, "rank 2 has joined, but was gone");
    CHOIR_CHECK_EQ((int)ranks[1].status, (int)CHOIR_ERR_NETWORK); /* the hub has hung up */
    CHOIR_CHECK_LT((ch_now() - began) / CH_MS, (uint64_t)5000 * choir_test_slowness());
    ch_hostlink_close(&host.links[0]);
    ch_hostlink_close(&host.links[1]);
}

/* A visitor at the hub's socket that says it is `rank` with `id`, and brings what it likes. */
static void visit(const char *name, uint32_t rank, const uint8_t *id, int nfds)
{
    struct {
        uint32_t rank;
        uint8_t id[CH_RANK_ID_NBYTES];
    } intro = { .rank = rank };
    struct ch_bell_word word = { .nasleep = 0 };
    struct ch_waiter waiter = { .epfd = 0 };
    struct ch_patience patience = { .waiter = &waiter, .until = ample() };
    int fds[3] = { 0, 0, 0 }, sock;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    memcpy(intro.id, id, sizeof(intro.id));
    CHOIR_CHECK_OK(ch_fdpass_connect(name, &patience, &sock));
    CHOIR_CHECK_OK(ch_fdpass_send(sock, &intro, sizeof(intro), fds, nfds, &patience));
    ch_sys_close(sock);
    ch_waiter_fini(&waiter);
}

CHOIR_TEST(strangers_are_turned_away)
{
    struct host host;
    struct rank ranks[RANKS];
    static const uint8_t wrong[CH_RANK_ID_NBYTES] = { 1, 2, 3 };

    open_all(&host);
    start(&ranks[0], &host, 0);
    visit(host.members[0].socket, 1, wrong, 3);               /* does not know rank 1's id */
    visit(host.members[0].socket, 99, host.members[1].id, 3); /* a rank there is not */
    visit(host.members[0].socket, 1, host.members[1].id, 2);  /* too few descriptors */
    visit(host.members[0].socket, 0, host.members[0].id, 3);  /* the hub itself */
    for (int r = 1; r < RANKS; r++)
        start(&ranks[r], &host, r);
    for (int r = 0; r < RANKS; r++) {
        finish(&ranks[r]);
        if (ranks[r].status != CHOIR_OK)
            CHOIR_FAIL("rank %d: %s", r, ranks[r].error.text);
        for (int peer = 0; peer < RANKS; peer++)
            CHOIR_CHECK(ch_hostlink_find(&host.links[r], peer) != NULL);
    }
    close_all(&host);
}

/* Who knows the id but hands over something that is not that rank's segment. */
CHOIR_TEST(a_segment_must_carry_its_rank_and_id)
{
    struct host host;
    struct rank ranks[RANKS];

    open_all(&host);
    host.links[2].self.page->id[0] ^= 1;
    for (int r = 0; r < RANKS; r++)
        start(&ranks[r], &host, r);
    for (int r = 0; r < RANKS; r++) {
        finish(&ranks[r]);
        CHOIR_CHECK_NE((int)ranks[r].status, (int)CHOIR_OK);
    }
    CHOIR_CHECK_EQ((int)ranks[0].status, (int)CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(ranks[0].error.text, "rank 2: its segment belongs to");
    CHOIR_CHECK_EQ((int)ranks[1].status, (int)CHOIR_ERR_NETWORK); /* the hub gave up and closed */
    CHOIR_CHECK_HAS(ranks[1].error.text, "rank 0: ");
    close_all(&host);
}

CHOIR_TEST(a_hub_that_is_gone_is_an_error_at_once)
{
    struct host host;
    struct rank rank;

    open_all(&host);
    ch_fdpass_unlisten(&host.links[0].listener);
    start(&rank, &host, 1);
    finish(&rank);
    CHOIR_CHECK_EQ((int)rank.status, (int)CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(rank.error.text, "rank 1: exchange of descriptors on its host: to rank 0: ");
    close_all(&host);
}

CHOIR_TEST(a_post_through_a_neighbours_bell_wakes_it)
{
    struct host host;
    struct rank ranks[RANKS];
    _Atomic uint64_t flag = 0;
    struct ch_wait wait = { .waiter = &host.links[2].waiter, .until = ample(), .what = "a post" };

    open_all(&host);
    for (int r = 0; r < RANKS; r++)
        start(&ranks[r], &host, r);
    for (int r = 0; r < RANKS; r++)
        finish(&ranks[r]);
    ch_post(&ch_hostlink_find(&host.links[1], 2)->bell, &flag, 7);
    CHOIR_CHECK_OK(ch_wait_flag(&wait, &flag, 7));
    close_all(&host);
}

/* The number that comes of the pages is for all to go by (together_test.c has the cases). */
CHOIR_TEST(all_know_what_processors_they_have_together)
{
    for (unsigned together = RANKS - 1; together <= RANKS; together++) {
        struct host host;
        struct rank ranks[RANKS];

        open_all(&host);
        for (unsigned r = 0; r < RANKS; r++) {
            struct ch_rank_page *page = host.links[r].self.page;

            page->processors = page->quota = 0;
            page->mask = (struct ch_processor_set){ { UINT64_C(1) << r % together } };
            start(&ranks[r], &host, (int)r);
        }
        for (int r = 0; r < RANKS; r++) {
            finish(&ranks[r]);
            CHOIR_CHECK_OK(ranks[r].status);
            CHOIR_CHECK_EQ(host.links[r].processors, together);
            CHOIR_CHECK_EQ(host.links[r].waiter.crowded, together < RANKS);
        }
        close_all(&host);
    }
}
