/*
 * watch.c - see watch.h.
 *
 * The tick: as long as operations wait, the service thread rings the rank's own bell every CH_TICK_MS. It
 * starts with the first that waits and stops when for a whole tick none did, so that an idle rank causes
 * no wake-up and a busy one does not post a task for every operation.
 *
 * With each tick it also writes what a call that failed could not (ch_rank_settle()).
 *
 *   idle --[ch_rank_wait_begins: posts tick_task]--> ticking --[a tick finds nobody waiting]--> idle
 */
#include "engine/watch.h"

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "engine/poison.h"

struct ch_watched {
    struct ch_watch watch;
    struct ch_rank *rank;
    struct ch_neighbour *neighbour;
};

/* --- death -------------------------------------------------------------------------------------- */

static void neighbour_ended(struct ch_watch *watch, uint32_t events)
{
    struct ch_watched *w = CH_CONTAINER(watch, struct ch_watched, watch);

    (void)events;
    ch_watch_remove(watch);
    ch_poison_by_death(w->rank, w->neighbour);
}

/* A thread of our own process cannot die without us. */
static bool is_worth_watching(const struct ch_neighbour *neighbour)
{
    return neighbour->pidfd >= 0 && !ch_seg_is_ours(neighbour->seg);
}

static void watch_all(struct ch_rank *rank, struct ch_loop *loop)
{
    for (size_t i = 0; i < rank->link.count; i++) {
        struct ch_watched *w = &rank->watched[i];

        w->rank = rank;
        w->neighbour = &rank->link.neighbours[i];
        if (is_worth_watching(w->neighbour) && ch_watch_add(loop, &w->watch, w->neighbour->pidfd,
                                                            EPOLLIN, neighbour_ended) != CHOIR_OK)
            ch_log_warn("rank %d: should rank %d die, it is not seen: %s", rank->rank,
                        w->neighbour->rank, choir_last_error());
    }
}

/* --- what was left unsaid ------------------------------------------------------------------------- */

void ch_rank_settle(struct ch_rank *rank)
{
    if (ch_p2p_owes(rank->p2p) && atomic_exchange(&rank->unsettled, 1) == 0)
        ch_rank_wait_begins(rank);
}

static void settle(struct ch_rank *rank)
{
    if (atomic_load(&rank->unsettled) == 0)
        return;
    ch_p2p_progress(rank->p2p);
    /* Cleared before the look: who comes after that begins to wait anew. */
    atomic_store(&rank->unsettled, 0);
    if (!ch_p2p_owes(rank->p2p) || atomic_exchange(&rank->unsettled, 1) != 0)
        ch_rank_wait_ends(rank);
}

/* --- the tick ----------------------------------------------------------------------------------- */

static void tick(struct ch_timer *timer)
{
    struct ch_rank *rank = CH_CONTAINER(timer, struct ch_rank, timer);

    /* Relaxed: who began to wait after this finds `ticking` cleared, and posts. Sequentially consistent
     * there and below: of "nwaiting up, ticking?" and "ticking down, nwaiting?" one sees the other. */
    if (atomic_load(&rank->nwaiting) == 0) {
        atomic_store(&rank->ticking, 0);
        if (atomic_load(&rank->nwaiting) == 0 || atomic_exchange(&rank->ticking, 1) != 0)
            return;
    }
    settle(rank);
    /* Relaxed: it is a hint to look again; what is looked at has its own order. */
    atomic_fetch_add_explicit(&rank->ticks, 1, memory_order_relaxed);
    ch_bell_after_store(&rank->link.waiter.bell);
    ch_timer_start(ch_loop_timers(ch_service_loop(rank->service)), timer,
                   ch_deadline_ms(CH_TICK_MS));
}

static void start_ticking(struct ch_task *task)
{
    struct ch_rank *rank = CH_CONTAINER(task, struct ch_rank, tick_task);

    rank->timer.fire = tick;
    ch_timer_start(ch_loop_timers(ch_service_loop(rank->service)), &rank->timer,
                   ch_deadline_ms(CH_TICK_MS));
}

void ch_rank_wait_begins(struct ch_rank *rank)
{
    atomic_fetch_add(&rank->nwaiting, 1);
    if (atomic_load(&rank->ticking) != 0 || atomic_exchange(&rank->ticking, 1) != 0)
        return;
    /* In a forked child, where posting fails, nobody waits. */
    (void)ch_service_post(rank->service, &rank->tick_task);
}

void ch_rank_wait_ends(struct ch_rank *rank)
{
    atomic_fetch_sub(&rank->nwaiting, 1);
}

/* --- from the first to the last ------------------------------------------------------------------- */

static void start_here(struct ch_task *task)
{
    struct ch_rank *rank = CH_CONTAINER(task, struct ch_rank, start_task);

    watch_all(rank, ch_service_loop(rank->service));
}

choir_status ch_watch_start(struct ch_rank *rank)
{
    choir_status rc;

    rank->watched = ch_zalloc_array(rank->link.count, sizeof(*rank->watched));
    if (rank->watched == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to watch %zu ranks", rank->link.count);
    rc = ch_service_ref(&rank->service);
    if (rc != CHOIR_OK)
        return rc;
    rank->tick_task.run = start_ticking;
    rank->start_task.run = start_here;
    return ch_service_post(rank->service, &rank->start_task);
}

static void let_go(struct ch_rank *rank)
{
    ch_timer_stop(&rank->timer);
    for (size_t i = 0; i < rank->link.count; i++)
        ch_watch_remove(&rank->watched[i].watch);
}

static void stop_here(struct ch_task *task)
{
    struct ch_rank *rank = CH_CONTAINER(task, struct ch_rank, stop_task);

    let_go(rank);
    /* With the lock: the post looks at the bell after its store, which must not be gone by then. */
    ch_lock(&rank->lock);
    ch_post(&rank->link.waiter.bell, &rank->stopped, 1);
    ch_unlock(&rank->lock);
}

/* The task is the thread's until it has run, whatever becomes of a wait for it. */
static void wait_until_let_go(struct ch_rank *rank)
{
    struct ch_wait wait = { .waiter = &rank->link.waiter,
                            .until = CH_NEVER,
                            .what = "the service thread to let go of a rank" };

    rank->stop_task.run = stop_here;
    if (ch_service_post(rank->service, &rank->stop_task) != CHOIR_OK)
        return; /* a forked child, where there is no such thread */
    while (ch_wait_flag(&wait, &rank->stopped, 1) != CHOIR_OK) {
        ch_waiter_clear_interrupt(&rank->link.waiter); /* nobody else waits here any more */
        ch_sys_yield();
    }
    ch_lock(&rank->lock); /* until the post is over */
    ch_unlock(&rank->lock);
}

void ch_watch_stop(struct ch_rank *rank)
{
    if (rank->service != NULL && ch_service_is_here(rank->service))
        let_go(rank);
    else if (rank->service != NULL)
        wait_until_let_go(rank);
    ch_service_unref(rank->service);
    ch_free(rank->watched);
    rank->service = NULL;
    rank->watched = NULL;
}
