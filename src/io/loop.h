/*
 * loop.h - the event loop: sleep until a descriptor is ready, a time has come or somebody posts.
 *
 * The service thread, the store's server and the launcher each run one. A loop belongs to the thread
 * that runs it: watches, timers and callbacks are that thread's alone. Only ch_loop_post() and
 * ch_loop_stop() may be called from others. An idle loop sleeps without a wake-up.
 *
 * Watches, timers and tasks live in the objects they serve, which find themselves with
 * CH_CONTAINER():
 *
 *   struct client { struct ch_watch watch; ... };
 *
 *   static void client_ready(struct ch_watch *watch, uint32_t events)
 *   {
 *       struct client *client = CH_CONTAINER(watch, struct client, watch);
 *       ...
 *       ch_watch_remove(watch);      // fine here, and for any other watch;
 *       client_destroy(client);      // so is freeing it right away
 *   }
 *
 * A callback must not run its own loop.
 *
 * Order within one turn: descriptors, then posted tasks in the order posted, then timers.
 */
#ifndef CH_LOOP_H
#define CH_LOOP_H

#include <stdint.h>
#include <sys/epoll.h>

#include <choir/status.h>

#include "base/clock.h"
#include "base/inbox.h"
#include "io/timer.h"

struct ch_loop;

choir_status ch_loop_create(struct ch_loop **loop_out);

/* No watch or timer may be left in it. Tasks not yet run are run first. Accepts NULL. */
void ch_loop_destroy(struct ch_loop *loop);

/* --- descriptors ------------------------------------------------------------------------------- */

struct ch_watch {
    /* `events` are those of epoll(7): EPOLLIN, EPOLLOUT, and unasked EPOLLERR and EPOLLHUP. */
    void (*ready)(struct ch_watch *watch, uint32_t events);
    struct ch_loop *loop; /* NULL: not watching */
    int fd;
};

/* Call `ready` as long as `fd` is ready for one of `events` (level-triggered). The descriptor stays
 * the caller's: remove the watch before closing it. */
choir_status ch_watch_add(struct ch_loop *loop, struct ch_watch *watch, int fd, uint32_t events,
                          void (*ready)(struct ch_watch *watch, uint32_t events));

/* Watch for other events from now on; on failure for the same as before. */
choir_status ch_watch_modify(struct ch_watch *watch, uint32_t events);

/* After this `ready` is not called any more, not even for an event already fetched. Ignores a watch
 * that is not watching. */
void ch_watch_remove(struct ch_watch *watch);

/* --- time -------------------------------------------------------------------------------------- */

/* For ch_timer_start(): see timer.h. */
struct ch_timers *ch_loop_timers(struct ch_loop *loop);

/* --- other threads ----------------------------------------------------------------------------- */

struct ch_task {
    void (*run)(struct ch_task *task); /* may post or free the task */
    struct ch_inbox_item item;
};

/* Have task->run() called once on the loop's thread. The task is lent until then; do not post it
 * again before. Cannot fail.
 * Threads: any. */
void ch_loop_post(struct ch_loop *loop, struct ch_task *task);

/* Make ch_loop_run() return, after the tasks posted before. If it does not run yet, the next one
 * returns at once.
 * Threads: any. */
void ch_loop_stop(struct ch_loop *loop);

/* --- running ----------------------------------------------------------------------------------- */

/* Until stopped: CHOIR_OK. After an error the loop is as before, and can be run again. */
choir_status ch_loop_run(struct ch_loop *loop);

/* One turn: wait for something to do, at most until `until`, and do it. CHOIR_IN_PROGRESS if there
 * was nothing. */
choir_status ch_loop_run_once(struct ch_loop *loop, ch_deadline until);

#endif
