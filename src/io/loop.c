/*
 * loop.c - the event loop, on epoll. See loop.h.
 */
#include "io/loop.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"

enum {
    BATCH = 64, /* events fetched at once; a removal looks through them all */
    /* A ring and the end of a watch have no caller who could be told of a failure. Neither call
     * fails on a descriptor that is in order; should one, it is tried again. */
    TRIES = 3,
};

struct ch_loop {
    int epfd;
    struct ch_watch bell; /* an eventfd: others rang */
    struct ch_timers timers;
    struct ch_inbox inbox; /* tasks; anybody pushes, the loop's thread takes */
    _Atomic bool stopped;  /* anybody sets, ch_loop_run() clears */
    int nwatches;          /* without the bell */

    /* The batch being dispatched. An entry whose watch was removed meanwhile has a NULL for it. */
    struct epoll_event batch[BATCH];
    int nbatch;
};

/* --- descriptors ------------------------------------------------------------------------------- */

static choir_status control(struct ch_watch *watch, int op, uint32_t events, const char *verb)
{
    struct epoll_event event = { .events = events, .data = { .ptr = watch } };

    if (ch_sys_epoll_ctl(watch->loop->epfd, op, watch->fd, &event) != 0)
        return ch_fail_errno("event loop: %s descriptor %d", verb, watch->fd);
    return CHOIR_OK;
}

choir_status ch_watch_add(struct ch_loop *loop, struct ch_watch *watch, int fd, uint32_t events,
                          void (*ready)(struct ch_watch *watch, uint32_t events))
{
    choir_status rc;

    *watch = (struct ch_watch){ .ready = ready, .loop = loop, .fd = fd };
    rc = control(watch, EPOLL_CTL_ADD, events, "watch");
    if (rc != CHOIR_OK)
        watch->loop = NULL;
    else
        loop->nwatches++;
    return rc;
}

choir_status ch_watch_modify(struct ch_watch *watch, uint32_t events)
{
    return control(watch, EPOLL_CTL_MOD, events, "change the watch of");
}

/* The kernel must forget the watch before it may be freed. */
static void forget(struct ch_watch *watch)
{
    struct epoll_event unused = { .events = 0 };
    int tries = 0;

    while (ch_sys_epoll_ctl(watch->loop->epfd, EPOLL_CTL_DEL, watch->fd, &unused) != 0) {
        if (ch_is_forked())
            return; /* the epoll set is the parent's, ours is closed */
        if (++tries == TRIES) {
            ch_log_error("event loop: cannot stop watching descriptor %d: errno %d", watch->fd,
                         errno);
            return;
        }
    }
}

void ch_watch_remove(struct ch_watch *watch)
{
    struct ch_loop *loop = watch->loop;

    if (loop == NULL)
        return;
    forget(watch);
    for (int i = 0; i < loop->nbatch; i++) {
        if (loop->batch[i].data.ptr == watch)
            loop->batch[i].data.ptr = NULL;
    }
    watch->loop = NULL;
    loop->nwatches--;
}

/* --- other threads ----------------------------------------------------------------------------- */

static void ring(struct ch_loop *loop)
{
    uint64_t one = 1;

    for (int tries = 0; tries < TRIES; tries++) {
        if (ch_sys_write(loop->bell.fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
            return;
    }
}

void ch_loop_post(struct ch_loop *loop, struct ch_task *task)
{
    /* Only the first into an empty box rings: the others know that the owner has yet to look. */
    if (ch_inbox_push(&loop->inbox, &task->item))
        ring(loop);
}

void ch_loop_stop(struct ch_loop *loop)
{
    /* Release, pairs with the acquire in ch_loop_run(): what the caller posted is in the inbox. */
    atomic_store_explicit(&loop->stopped, true, memory_order_release);
    ring(loop);
}

static int run_tasks(struct ch_loop *loop)
{
    struct ch_inbox_item *item = ch_inbox_take(&loop->inbox);
    int ran = 0;

    for (; item != NULL; ran++) {
        struct ch_task *task = CH_CONTAINER(item, struct ch_task, item);

        item = item->next; /* the task may be gone after its run */
        task->run(task);
    }
    return ran;
}

/* Emptied before the tasks are taken: a ring that comes later is for a task that may be missed. If
 * reading fails the bell stays ready, and the next turn tries again. */
static void answer_bell(struct ch_watch *watch, uint32_t events)
{
    uint64_t rings;

    (void)events;
    (void)!ch_sys_read(watch->fd, &rings, sizeof(rings));
}

/* --- a loop's life ----------------------------------------------------------------------------- */

static choir_status open_loop(struct ch_loop *loop)
{
    choir_status rc;
    int fd;

    loop->epfd = ch_sys_epoll_create();
    if (loop->epfd < 0)
        return ch_fail_errno("event loop: make its epoll set");
    fd = ch_sys_eventfd(0);
    if (fd < 0)
        return ch_fail_errno("event loop: make its eventfd");
    rc = ch_watch_add(loop, &loop->bell, fd, EPOLLIN, answer_bell);
    if (rc != CHOIR_OK) {
        ch_sys_close(fd);
        loop->bell.fd = -1;
    } else {
        loop->nwatches = 0;
    }
    return rc;
}

choir_status ch_loop_create(struct ch_loop **loop_out)
{
    choir_status rc = ch_forked();
    struct ch_loop *loop;

    if (rc != CHOIR_OK)
        return rc;
    loop = ch_zalloc(sizeof(*loop));
    if (loop == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "event loop: no memory for it");
    loop->epfd = loop->bell.fd = -1;
    rc = open_loop(loop);
    if (rc != CHOIR_OK) {
        ch_loop_destroy(loop);
        return rc;
    }
    *loop_out = loop;
    return CHOIR_OK;
}

void ch_loop_destroy(struct ch_loop *loop)
{
    if (loop == NULL)
        return;
    while (!ch_is_forked() && run_tasks(loop) > 0)
        ;
    ch_assert(ch_is_forked() || (loop->nwatches == 0 && loop->timers.root == NULL));
    ch_sys_close(loop->bell.fd);
    ch_sys_close(loop->epfd);
    ch_free(loop);
}

struct ch_timers *ch_loop_timers(struct ch_loop *loop)
{
    return &loop->timers;
}

/* --- running ----------------------------------------------------------------------------------- */

static int dispatch(struct ch_loop *loop, int nevents)
{
    int served = 0;

    loop->nbatch = nevents;
    for (int i = 0; i < nevents; i++) {
        struct ch_watch *watch = loop->batch[i].data.ptr;

        if (watch == NULL)
            continue; /* removed by a callback before it in this batch */
        served += watch != &loop->bell;
        watch->ready(watch, loop->batch[i].events);
    }
    loop->nbatch = 0;
    return served;
}

/* Wait and serve once; *did_out is how many callbacks ran. */
static choir_status turn(struct ch_loop *loop, ch_deadline until, int *did_out)
{
    ch_deadline next = ch_timers_next(&loop->timers);
    int64_t left = ch_deadline_left_ns(next < until ? next : until);
    int n, did = 0;

    ch_assert(loop->nbatch == 0); /* a callback must not run its own loop */
    n = ch_sys_epoll_wait(loop->epfd, loop->batch, BATCH, left);

    if (n < 0 && errno != EINTR)
        return ch_fail_errno("event loop: wait");
    if (n > 0)
        did = dispatch(loop, n);
    did += run_tasks(loop);
    did += ch_timers_fire(&loop->timers, ch_now());
    *did_out = did;
    return CHOIR_OK;
}

choir_status ch_loop_run(struct ch_loop *loop)
{
    choir_status rc = ch_forked();
    int did;

    /* Acquire, pairs with the release in ch_loop_stop(). */
    while (rc == CHOIR_OK && !atomic_exchange_explicit(&loop->stopped, false, memory_order_acquire))
        rc = turn(loop, CH_NEVER, &did);
    if (rc == CHOIR_OK)
        run_tasks(loop); /* what was posted before the stop, if it came late in the last turn */
    return rc;
}

choir_status ch_loop_run_once(struct ch_loop *loop, ch_deadline until)
{
    choir_status rc = ch_forked();
    int did = 0;

    while (rc == CHOIR_OK && did == 0) {
        rc = turn(loop, until, &did);
        if (rc == CHOIR_OK && did == 0 && ch_deadline_passed(until))
            return CHOIR_IN_PROGRESS;
    }
    return rc;
}
