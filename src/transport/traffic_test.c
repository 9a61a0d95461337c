/* traffic_test.c - random traffic between ranks that are threads, against what must come of it. */
#include "transport/mesh_test.h"

#include <pthread.h>
#include <stdlib.h>

#include "kernel/always_by_test.h"
#include "transport/p2p_state.h"

/*
 * A plan is drawn from a seed before the ranks start: for every ordered pair of ranks, context and tag how many
 * messages go and how long each is. Each rank starts all its sends and receives in an order of its own, keeping
 * only that of each pair and tag, moves things now and then, and waits for all in the end. What the k-th receive
 * of a pair and tag must hold follows from the plan; a receive from any source must hold the next message of the
 * source that it names. Some try the short way first; some ranks read what is lent to them where it is, and some write past the caches. A last kind of message is
 * taken back at random, by either side or both: it ends, and if it arrived it is right, whatever its sender does with its
 * memory from then on.
 */
enum { RANKS = 5, CONTEXTS = 2, TAGS = 3, ANY_TAG = TAGS, FICKLE_TAG = 1000, PER_LANE = 6 };

enum lane_kind { ORDERED, FROM_ANY, FICKLE };

struct item {
    struct ch_transfer transfer;
    struct iovec iov[3];
    int niov;
    unsigned char *data;
    size_t nbytes;
    uint64_t seed;
    enum lane_kind kind;
    bool is_send;
    int peer;
    uint64_t context, tag;
    bool started;
};

struct rank {
    pthread_t thread;
    uint32_t rank;
    struct item *items;
    size_t nitems;
    struct choir_test_random random;
    uint64_t turns;
};

static struct mesh mesh;
static struct rank ranks[RANKS];
static uint64_t plan_seed;

static uint64_t mix(uint64_t x)
{
    x = (x ^ plan_seed) * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 32);
}

static uint64_t message_seed(uint32_t from, uint32_t to, uint64_t context, uint64_t tag, uint64_t k)
{
    return mix((((from * RANKS + to) * CONTEXTS + context) * (FICKLE_TAG * 2) + tag) * PER_LANE +
               k);
}

static size_t length_of(uint64_t seed, enum lane_kind kind)
{
    static const size_t lengths[] = {
        0, 1, 7, 64, 100, 4096, 200, 3000, 8000, 8192, CH_P2P_EAGER + 1, 100000
    };

    if (kind == FROM_ANY)
        return 700;
    return lengths[(seed >> 8) % CH_ARRAY_LEN(lengths)];
}

static uint64_t draw(struct rank *r, uint64_t below)
{
    return choir_test_random(&r->random) % below;
}

/* The memory of a transfer in up to three pieces. */
static void lay_out(struct rank *r, struct item *it)
{
    size_t a = it->nbytes == 0 ? 0 : draw(r, it->nbytes), b = a + (it->nbytes - a) / 2;

    it->data = ch_zalloc(it->nbytes + 1);
    CHOIR_CHECK(it->data != NULL);
    it->iov[0] = (struct iovec){ it->data, a };
    it->iov[1] = (struct iovec){ it->data + a, b - a };
    it->iov[2] = (struct iovec){ it->data + b, it->nbytes - b };
    it->niov = draw(r, 2) == 0 ? 1 : 3;
    if (it->niov == 1)
        it->iov[0].iov_len = it->nbytes;
    if (it->is_send)
        fill(it->data, it->nbytes, it->seed);
}

static void add(struct rank *r, enum lane_kind kind, bool is_send, uint32_t peer, uint64_t context,
                uint64_t tag, uint64_t k)
{
    struct item *it = &r->items[r->nitems++];

    *it = (struct item){ .kind = kind, .is_send = is_send, .peer = (int)peer };
    it->context = context + 1;
    it->tag = tag;
    it->seed = is_send ? message_seed(r->rank, peer, context, tag, k)
                       : message_seed(peer, r->rank, context, tag, k);
    it->nbytes = length_of(it->seed, kind);
    if (kind == FROM_ANY && !is_send)
        it->peer = CH_P2P_ANY;
    lay_out(r, it);
}

static void plan_pair(struct rank *r, uint32_t peer)
{
    for (uint64_t c = 0; c < CONTEXTS; c++) {
        for (int sending = 0; sending < 2; sending++) {
            for (uint64_t k = 0; k < PER_LANE; k++) {
                for (uint64_t tag = 0; tag < TAGS; tag++)
                    add(r, ORDERED, sending, peer, c, tag, k);
                add(r, FROM_ANY, sending, peer, c, ANY_TAG, k);
                add(r, FICKLE, sending, peer, c, FICKLE_TAG + k, 0);
            }
        }
    }
}

static void plan(struct rank *r, uint32_t rank)
{
    r->rank = rank;
    r->nitems = 0;
    r->random.state = mix(rank + 77) | 1;
    r->items = ch_zalloc_array((size_t)RANKS * CONTEXTS * 2 * PER_LANE * (TAGS + 2),
                               sizeof(struct item));
    CHOIR_CHECK(r->items != NULL);
    for (uint32_t peer = 0; peer < RANKS; peer++)
        plan_pair(r, peer);
}

/* --- a rank ------------------------------------------------------------------------------------------- */

/* The short way, if it can be gone: as good as the other. */
static bool start_short(struct rank *r, struct item *it)
{
    struct ch_short s = { .envelope = { it->context, it->tag, it->tag + 1, it->nbytes },
                          .data = it->data,
                          .peer = (uint32_t)it->peer,
                          .is_send = it->is_send };

    if (it->peer == CH_P2P_ANY ||
        ch_p2p_short(mesh.p2p[r->rank], &s, 1, (int)draw(r, 3), NULL) == 0)
        return false;
    it->transfer.status = CHOIR_OK;
    atomic_store(&it->transfer.done, 1);
    return true;
}

static void start(struct rank *r, struct item *it)
{
    struct ch_p2p *p2p = mesh.p2p[r->rank];

    if (draw(r, 2) == 0 && start_short(r, it))
        ;
    else if (it->is_send)
        ch_p2p_send(p2p, &it->transfer, (uint32_t)it->peer, it->context, it->tag, it->tag + 1,
                    it->iov, it->niov);
    else
        ch_p2p_recv(p2p, &it->transfer, it->peer, it->context, it->tag, it->tag + 1, it->iov,
                    it->niov);
    it->started = true;
}

static bool same_lane(const struct item *a, const struct item *b)
{
    return a->is_send == b->is_send && a->peer == b->peer && a->context == b->context &&
           a->tag == b->tag;
}

/* Start a random item, or rather the first of its lane that is not started yet. */
static void start_some(struct rank *r, size_t *nstarted)
{
    size_t at = draw(r, r->nitems);

    while (r->items[at].started)
        at = (at + 1) % r->nitems;
    for (size_t i = 0; i < r->nitems; i++) {
        if (!r->items[i].started && same_lane(&r->items[i], &r->items[at])) {
            start(r, &r->items[i]);
            ++*nstarted;
            return;
        }
    }
}

static void take_back_some(struct rank *r)
{
    struct item *it = &r->items[draw(r, r->nitems)];

    if (it->kind != FICKLE || !it->started)
        return;
    ch_p2p_cancel(mesh.p2p[r->rank], &it->transfer, CHOIR_ERR_TIMEOUT);
    if (it->is_send) /* it is its owner's again */
        memset(it->data, 0xee, it->nbytes);
}

static bool all_done(void *arg)
{
    struct rank *r = arg;

    ch_p2p_progress(mesh.p2p[r->rank]);
    if (r->turns++ % 4 == 0)
        take_back_some(r);
    for (size_t i = 0; i < r->nitems; i++) {
        if (r->items[i].kind != FICKLE && !is_done(&r->items[i].transfer))
            return false;
    }
    return true;
}

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    size_t nstarted = 0;
    struct ch_wait wait = { .waiter = &mesh.waiters[r->rank],
                            .ready = all_done,
                            .arg = r,
                            .until = CH_NEVER,
                            .what = "all transfers" };

    while (nstarted < r->nitems) {
        for (uint64_t batch = 1 + draw(r, 40); batch > 0 && nstarted < r->nitems; batch--)
            start_some(r, &nstarted);
        for (uint64_t turns = draw(r, 4); turns > 0; turns--) {
            ch_p2p_progress(mesh.p2p[r->rank]);
            take_back_some(r);
        }
    }
    CHOIR_CHECK_OK(ch_wait(&wait));
    return NULL;
}

/* --- what came of it ---------------------------------------------------------------------------------- */

/* The k-th receive from any source that names a source holds that one's k-th message. */
static void check_from_any(struct rank *r, struct item *it, uint64_t next[CONTEXTS][RANKS])
{
    uint64_t context = it->context - 1, *k;

    CHOIR_CHECK(it->transfer.source >= 0 && it->transfer.source < RANKS);
    k = &next[context][it->transfer.source];
    check_filled(it->data, it->nbytes,
                 message_seed((uint32_t)it->transfer.source, r->rank, context, ANY_TAG, (*k)++));
}

static void check_rank(struct rank *r)
{
    uint64_t next[CONTEXTS][RANKS] = { { 0 } };

    for (size_t i = 0; i < r->nitems; i++) {
        struct item *it = &r->items[i];

        CHOIR_ROW("seed %llu rank %u item %zu", (unsigned long long)plan_seed, r->rank, i);
        CHOIR_CHECK(is_done(&it->transfer));
        if (it->kind == FICKLE && it->transfer.status != CHOIR_OK) {
            CHOIR_CHECK(it->transfer.status == CHOIR_ERR_TIMEOUT ||
                        it->transfer.status == CHOIR_ERR_NETWORK);
            continue;
        }
        if (it->transfer.status != CHOIR_OK)
            CHOIR_FAIL("%s", it->transfer.error.text);
        if (it->is_send)
            continue;
        if (it->kind == FROM_ANY)
            check_from_any(r, it, next);
        else
            check_filled(it->data, it->nbytes, it->seed);
    }
}

static void end_rank(struct rank *r)
{
    for (size_t i = 0; i < r->nitems; i++)
        ch_free(r->items[i].data);
    ch_free(r->items);
}

/* As where that is faster than ordinary stores. */
static void write_by(enum ch_copy_how how)
{
    for (uint32_t i = 0; i < RANKS * RANKS; i++) {
        struct ch_stream *stream = mesh.p2p[i / RANKS]->peers[i % RANKS].stream;

        if (stream->ways != NULL)
            always_by(stream->ways, how);
    }
}

static void run_traffic(uint64_t seed)
{
    static const size_t rooms[] = { 64, 256, 4096, 65536 };
    /* With little credit most messages are held back and asked for. */
    static const size_t kept[] = { CH_P2P_KEPT, 16384, 1024, 512, 256 };

    plan_seed = seed;
    mesh_open(&mesh, RANKS, rooms[seed % CH_ARRAY_LEN(rooms)]);
    for (uint32_t r = 0; r < RANKS; r++)
        mesh.p2p[r]->kept_max = kept[seed % CH_ARRAY_LEN(kept)];
    for (uint32_t r = 0; r < RANKS; r++)
        ch_p2p_read_from(mesh.p2p[r], (seed / 2 + r) % 3 == 0 ? SIZE_MAX : 0, SIZE_MAX);
    if (seed % 3 != 0)
        write_by(seed % 3 == 1 ? CH_COPY_PAST : CH_COPY_STRING);
    for (uint32_t r = 0; r < RANKS; r++)
        plan(&ranks[r], r);
    for (uint32_t r = 0; r < RANKS; r++)
        CHOIR_CHECK_EQ(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(ranks[r].thread, NULL);
    /* Nobody waits for the fickle ones: take back what is left of them. */
    for (uint32_t r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < ranks[r].nitems; i++)
            ch_p2p_cancel(mesh.p2p[r], &ranks[r].items[i].transfer, CHOIR_ERR_TIMEOUT);
    }
    mesh_settle(&mesh);
    for (uint32_t r = 0; r < RANKS; r++)
        check_rank(&ranks[r]);
    for (uint32_t r = 0; r < RANKS; r++)
        end_rank(&ranks[r]);
    mesh_close(&mesh);
}

CHOIR_TEST_TIMED(random_traffic_arrives_as_planned, 900)
{
    const char *given = getenv("CHOIR_TEST_SEED");
    bool slow = choir_test_slowness() > 1;
    uint64_t rounds = choir_test_long() ? (slow ? 40 : 400) : slow ? 4 : 12;

    if (given != NULL) {
        run_traffic(strtoull(given, NULL, 0));
        return;
    }
    for (uint64_t i = 0; i < rounds; i++) {
        CHOIR_ROW("seed %llu", (unsigned long long)(i + 1));
        run_traffic(i + 1);
    }
}

/* --- one rank, many threads --------------------------------------------------------------------------- */

/* Threads of one rank use its p2p at once: each has a tag of its own and plays ping-pong with the other rank. */
enum { THREADS = 3, ROUNDS = 200 };

struct player {
    pthread_t thread;
    uint32_t rank;
    uint64_t tag;
    struct ch_transfer transfer;
    uint64_t number;
};

static bool player_done(void *arg)
{
    struct player *p = arg;

    ch_p2p_progress(mesh.p2p[p->rank]);
    return is_done(&p->transfer);
}

static void play_one(struct player *p, bool sends)
{
    struct iovec iov = { &p->number, sizeof(p->number) };
    struct ch_wait wait = { .waiter = &mesh.waiters[p->rank],
                            .ready = player_done,
                            .arg = p,
                            .until = CH_NEVER,
                            .what = "the other player" };

    if (sends)
        ch_p2p_send(mesh.p2p[p->rank], &p->transfer, 1 - p->rank, 1, p->tag, 0, &iov, 1);
    else
        ch_p2p_recv(mesh.p2p[p->rank], &p->transfer, 1 - (int)p->rank, 1, p->tag, 0, &iov, 1);
    CHOIR_CHECK_OK(ch_wait(&wait));
    CHOIR_CHECK_EQ(p->transfer.status, CHOIR_OK);
}

static void *play(void *arg)
{
    struct player *p = arg;

    for (uint64_t n = 0; n < ROUNDS; n++) {
        p->number = p->rank == 0 ? n * THREADS + p->tag : 0;
        play_one(p, p->rank == 0);
        CHOIR_CHECK_EQ(p->number, n * THREADS + p->tag);
        play_one(p, p->rank != 0);
        CHOIR_CHECK_EQ(p->number, n * THREADS + p->tag);
    }
    return NULL;
}

CHOIR_TEST_TIMED(threads_of_one_rank_share_it, 120)
{
    static struct player players[2 * THREADS];

    mesh_open(&mesh, 2, 4096);
    for (uint32_t i = 0; i < 2 * THREADS; i++) {
        players[i].rank = i % 2;
        players[i].tag = i / 2;
        CHOIR_CHECK_EQ(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    for (uint32_t i = 0; i < 2 * THREADS; i++)
        pthread_join(players[i].thread, NULL);
    mesh_close(&mesh);
}
