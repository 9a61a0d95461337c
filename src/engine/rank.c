/*
 * rank.c - making and ending a rank's context; what the service thread does for it is in watch.c.
 */
#include "engine/rank.h"

#include <stdio.h>
#include <string.h>

#include "base/arch.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/params.h"
#include "engine/channel.h"
#include "engine/poison.h"
#include "engine/watch.h"

/* CHOIR_ALGO in a word that differs where it does. */
static uint64_t overrules_id(void)
{
    uint64_t hash = 0;

    for (const char *c = ch_params()->algo; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3) + 1;
    return hash;
}

/* Messages to oneself need no long ring: who waits for room is who reads. */
enum { SELF_ROOM = 16 * 1024 };

choir_status ch_rank_create(int number, struct ch_rank **rank_out)
{
    struct ch_rank *rank = ch_zalloc_aligned(CH_CACHE_UNIT, sizeof(*rank));
    choir_status rc;

    if (rank == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for the context of rank %d", number);
    ch_ref_init(&rank->refs);
    rank->rank = number;
    ch_lock_init(&rank->lock, CH_LOCK_RANK);
    ch_list_init(&rank->channels);
    ch_list_init(&rank->leaving);
    rc = ch_hostlink_open(&rank->link, number);
    if (rc != CHOIR_OK) {
        ch_rank_unref(rank);
        return rc;
    }
    if (ch_machine_find(&rank->machine))
        rank->link.self.page->machine = ch_machine_id(&rank->machine);
    rank->link.self.page->overrules = overrules_id();
    *rank_out = rank;
    return CHOIR_OK;
}

static struct ch_byte_ring *ring_of(const struct ch_rank *rank, size_t whose, size_t writer)
{
    char *base = ch_seg_base(rank->link.neighbours[whose].seg);

    return (struct ch_byte_ring *)(void *)(base +
                                           ch_layout_ring(&rank->link.layout, (uint32_t)writer));
}

/* A way to every neighbour, and to ourselves. */
static choir_status connect_streams(struct ch_rank *rank)
{
    const struct ch_hostlink *link = &rank->link;
    size_t me = 0;

    while (link->neighbours[me].rank != link->rank)
        me++;
    for (size_t i = 0; i < link->count; i++) {
        uint32_t peer = (uint32_t)link->neighbours[i].rank;
        struct ch_stream *stream;
        choir_status rc = i == me
                              ? ch_transport_self_open(peer, SELF_ROOM, &stream)
                              : ch_transport_shm_open(peer, ring_of(rank, me, i),
                                                      ring_of(rank, i, me), link->layout.ring_room,
                                                      &link->neighbours[i].bell, &stream);

        if (rc != CHOIR_OK)
            return rc;
        if (i != me)
            ch_transport_shm_reads(stream, (int64_t)link->neighbours[i].page->pid,
                                   link->neighbours[i].page->id_at, link->neighbours[i].page->id);
        ch_p2p_connect(rank->p2p, peer, stream);
    }
    return CHOIR_OK;
}

/* Of the two kinds of processor that were measured (docs/design/performance.md) one has a kernel that copies as fast as we do. */
static bool kernel_copies_fast(void)
{
    char name[CH_ARCH_CPU_NAME_NBYTES];

    return ch_arch_cpu_name(name) && strstr(name, "Intel") != NULL;
}

/* One copy by the kernel instead of two; and where ranks take turns at processors, what goes through a ring goes a ring's
 * worth in each turn. What is longer than caches keep is faster past them, which the kernel does not do. */
static void set_reading(struct ch_rank *rank)
{
    enum { PAST_CACHES = 16 * 1024 * 1024 };
    int64_t knob = ch_params()->read_from;

    if (knob >= 0)
        ch_p2p_read_from(rank->p2p, (size_t)knob, SIZE_MAX);
    else if (rank->link.waiter.crowded)
        ch_p2p_read_from(rank->p2p, 0, SIZE_MAX);
    else if (kernel_copies_fast())
        ch_p2p_read_from(rank->p2p, 0, PAST_CACHES);
}

/* A message that we sent was refused after we were done with it. If it was a schedule's, the ranks are in
 * different operations: whoever refused it is about to fail the channel, with a table of who called what
 * (runner.c). A user's is the receiver's failure, and said there. */
static void message_refused(void *arg, uint64_t context, const choir_error *record)
{
    const struct ch_rank *rank = arg;

    if (ch_context_is_users(context))
        ch_log_warn("rank %d: %s", rank->rank, record->text);
    else
        ch_log_debug("rank %d: %s", rank->rank, record->text);
}

/* All must choose alike: figures that not everybody has are nobody's. */
static bool share_figures(const struct ch_hostlink *link)
{
    uint64_t mine = link->self.page->machine;

    for (size_t i = 0; i < link->count; i++) {
        if (link->neighbours[i].page->machine == mine)
            continue;
        ch_log_warn(
            "rank %d: rank %d has other measured figures of this machine, or none: algorithms are "
            "chosen without",
            link->rank, link->neighbours[i].rank);
        return false;
    }
    return mine != 0;
}

/* The same for what the user asks for, which is not to be passed over. If any two ranks differ then each differs from
 * one of them: all refuse. */
static choir_status check_overrules(const struct ch_hostlink *link)
{
    for (size_t i = 0; i < link->count; i++) {
        if (link->neighbours[i].page->overrules != link->self.page->overrules)
            return ch_fail_rank(CHOIR_ERR_INVALID, link->neighbours[i].rank, "init",
                                "rank %d: CHOIR_ALGO is \"%s\" here and something else on rank %d: "
                                "it must be the same on all ranks",
                                link->rank, ch_params()->algo, link->neighbours[i].rank);
    }
    return CHOIR_OK;
}

choir_status ch_rank_connect(struct ch_rank *rank, uint32_t nranks, const char *host,
                             const struct ch_hostlink_member *members, size_t count,
                             const struct ch_patience *patience)
{
    choir_status rc = ch_hostlink_exchange(&rank->link, members, count, patience);

    if (rc != CHOIR_OK)
        return rc;
    rank->nranks = nranks;
    snprintf(rank->host, sizeof(rank->host), "%s", host);
    rank->processors = rank->link.processors;
    rank->measured = share_figures(&rank->link);
    ch_pool_init(&rank->pool, &rank->link.layout);
    rc = check_overrules(&rank->link);
    if (rc == CHOIR_OK)
        rc = ch_overrules_parse(ch_params()->algo, &rank->overrules);
    if (rc == CHOIR_OK)
        rc = ch_p2p_create(nranks, &rank->link.waiter.bell, &rank->p2p);
    if (rc == CHOIR_OK) {
        ch_p2p_on_refusal(rank->p2p, &(struct ch_p2p_refusal){ message_refused, rank });
        set_reading(rank);
        rc = connect_streams(rank);
    }
    return rc == CHOIR_OK ? ch_watch_start(rank) : rc;
}

struct ch_rank *ch_rank_ref(struct ch_rank *rank)
{
    ch_ref_get(&rank->refs);
    return rank;
}

static void destroy(struct ch_rank *rank)
{
    ch_watch_stop(rank);
    if (!ch_is_forked()) { /* a child does not have the segments in which they would look */
        ch_channels_forget(rank);
        ch_p2p_destroy(rank->p2p);
    }
    ch_hostlink_close(&rank->link);
    ch_lock_fini(&rank->lock);
    ch_free(rank);
}

static void destroy_here(struct ch_task *task)
{
    destroy(CH_CONTAINER(task, struct ch_rank, stop_task));
}

void ch_rank_unref(struct ch_rank *rank)
{
    if (rank == NULL || !ch_ref_put(&rank->refs))
        return;
    /* On the service thread tasks of ours may still be waiting to be run: it ends behind them. */
    if (rank->service != NULL && !ch_is_forked() && ch_service_is_here(rank->service)) {
        rank->stop_task.run = destroy_here;
        (void)ch_service_post(rank->service, &rank->stop_task);
    } else {
        destroy(rank);
    }
}
