/* loop_test.c - watches, timers and posts; removal at the worst moment; faults. */
#include "io/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "io/io_test.h"

/* An eventfd that is watched: ready after ping(). */
struct client {
    struct ch_watch watch;
    int served;
    struct client *victim; /* removed and freed when this one is served */
    int *tally;            /* counts those served that are gone by the time one looks */
};

static void ping(struct client *client)
{
    uint64_t one = 1;

    CHOIR_CHECK_EQ(ch_sys_write(client->watch.fd, &one, sizeof(one)), (ssize_t)sizeof(one));
}

static void leave(struct client *client)
{
    int fd = client->watch.fd;

    ch_watch_remove(&client->watch);
    ch_sys_close(fd);
    ch_free(client);
}

static void serve(struct ch_watch *watch, uint32_t events)
{
    struct client *client = CH_CONTAINER(watch, struct client, watch);
    uint64_t value;

    CHOIR_CHECK_EQ(events, (uint32_t)EPOLLIN);
    (void)!ch_sys_read(watch->fd, &value, sizeof(value));
    client->served++;
}

static struct client *join_loop(struct ch_loop *loop, void (*ready)(struct ch_watch *, uint32_t))
{
    struct client *client = ch_zalloc(sizeof(*client));
    int fd = ch_sys_eventfd(0);

    CHOIR_CHECK(client != NULL && fd >= 0);
    CHOIR_CHECK_OK(ch_watch_add(loop, &client->watch, fd, EPOLLIN, ready));
    return client;
}

static ch_deadline soon(void)
{
    return ch_deadline_ms(10000 * (int64_t)choir_test_slowness());
}

CHOIR_TEST(a_ready_descriptor_is_served_until_removed)
{
    struct ch_loop *loop;
    struct client *client;

    CHOIR_CHECK_OK(ch_loop_create(&loop));
    client = join_loop(loop, serve);
    CHOIR_CHECK_STATUS(ch_loop_run_once(loop, 0), CHOIR_IN_PROGRESS);
    ping(client);
    CHOIR_CHECK_OK(ch_loop_run_once(loop, soon()));
    CHOIR_CHECK_EQ(client->served, 1);

    ping(client);
    CHOIR_CHECK_OK(ch_watch_modify(&client->watch, 0)); /* not now */
    CHOIR_CHECK_STATUS(ch_loop_run_once(loop, 0), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_OK(ch_watch_modify(&client->watch, EPOLLIN));
    CHOIR_CHECK_OK(ch_loop_run_once(loop, soon()));
    CHOIR_CHECK_EQ(client->served, 2);

    ping(client);
    ch_watch_remove(&client->watch);
    ch_watch_remove(&client->watch); /* harmless */
    CHOIR_CHECK_STATUS(ch_loop_run_once(loop, 0), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_EQ(client->served, 2);
    leave(client);
    ch_loop_destroy(loop);
}

static void serve_and_remove_victim(struct ch_watch *watch, uint32_t events)
{
    struct client *client = CH_CONTAINER(watch, struct client, watch);

    serve(watch, events);
    if (client->victim != NULL) {
        client->victim->victim = NULL;
        leave(client->victim);
        client->victim = NULL;
    }
}

static void serve_and_leave(struct ch_watch *watch, uint32_t events)
{
    struct client *client = CH_CONTAINER(watch, struct client, watch);

    serve(watch, events);
    (*client->tally)++;
    leave(client);
}

/* Both ready in one batch, each would free the other: whoever comes first wins, the other's event is
 * already fetched and must not be served. ASan and valgrind would see a touch of the freed one. */
CHOIR_TEST(a_watch_may_be_freed_while_its_event_waits)
{
    for (int round = 0; round < 50; round++) {
        struct ch_loop *loop;
        struct client *a, *b, *left;

        CHOIR_CHECK_OK(ch_loop_create(&loop));
        a = join_loop(loop, serve_and_remove_victim);
        b = join_loop(loop, serve_and_remove_victim);
        a->victim = b;
        b->victim = a;
        ping(round % 2 == 0 ? a : b);
        ping(round % 2 == 0 ? b : a);
        CHOIR_CHECK_OK(ch_loop_run_once(loop, soon()));
        CHOIR_CHECK_STATUS(ch_loop_run_once(loop, 0), CHOIR_IN_PROGRESS);
        left = round % 2 == 0 ? a : b; /* eventfds become ready in the order pinged */
        CHOIR_CHECK_EQ(left->served, 1);
        CHOIR_CHECK(left->victim == NULL);
        leave(left);
        ch_loop_destroy(loop);
    }
}

CHOIR_TEST(a_watch_may_free_itself)
{
    enum { COUNT = 200 }; /* several batches */
    struct ch_loop *loop;
    int served = 0;

    CHOIR_CHECK_OK(ch_loop_create(&loop));
    for (int i = 0; i < COUNT; i++) {
        struct client *client = join_loop(loop, serve_and_leave);

        client->tally = &served;
        ping(client);
    }
    while (served < COUNT)
        CHOIR_CHECK_OK(ch_loop_run_once(loop, soon()));
    CHOIR_CHECK_STATUS(ch_loop_run_once(loop, 0), CHOIR_IN_PROGRESS);
    ch_loop_destroy(loop);
}

/* --- time --------------------------------------------------------------------------------------- */

struct alarm {
    struct ch_timer timer;
    uint64_t fired_at;
};

static void note_time(struct ch_timer *timer)
{
    CH_CONTAINER(timer, struct alarm, timer)->fired_at = ch_now();
}

CHOIR_TEST(a_timer_fires_not_before_its_time)
{
    struct ch_loop *loop;
    struct alarm alarm = { .timer = { .fire = note_time } };
    ch_deadline at;

    CHOIR_CHECK_OK(ch_loop_create(&loop));
    at = ch_now() + 20 * CH_MS;
    ch_timer_start(ch_loop_timers(loop), &alarm.timer, at);
    /* Done already only if this thread was put aside for so long. */
    if (ch_loop_run_once(loop, ch_now() + CH_MS) == CHOIR_IN_PROGRESS) {
        CHOIR_CHECK_EQ(alarm.fired_at, 0u);
        CHOIR_CHECK_OK(ch_loop_run_once(loop, soon()));
    }
    CHOIR_CHECK_LE(at, alarm.fired_at);
    check_took_about(at, 0);
    ch_loop_destroy(loop);
}

CHOIR_TEST(thousands_of_timers_and_watches)
{
    enum { COUNT = 2000 };
    struct ch_loop *loop;
    struct alarm *alarms = calloc(COUNT, sizeof(*alarms));
    struct client *clients[200];
    int fired = 0;

    CHOIR_CHECK(alarms != NULL);
    CHOIR_CHECK_OK(ch_loop_create(&loop));
    for (int i = 0; i < COUNT; i++) {
        alarms[i].timer.fire = note_time;
        ch_timer_start(ch_loop_timers(loop), &alarms[i].timer,
                       ch_now() + (unsigned)(i * 7 % COUNT) * 10 * CH_US);
    }
    for (size_t i = 0; i < CH_ARRAY_LEN(clients); i++) {
        clients[i] = join_loop(loop, serve);
        ping(clients[i]);
    }
    while (ch_timers_next(ch_loop_timers(loop)) != CH_NEVER)
        CHOIR_CHECK_OK(ch_loop_run_once(loop, soon()));
    for (int i = 0; i < COUNT; i++)
        fired += alarms[i].fired_at != 0;
    CHOIR_CHECK_EQ(fired, COUNT);
    while (ch_loop_run_once(loop, 0) == CHOIR_OK)
        ;
    for (size_t i = 0; i < CH_ARRAY_LEN(clients); i++) {
        CHOIR_CHECK_EQ(clients[i]->served, 1);
        leave(clients[i]);
    }
    free(alarms);
    ch_loop_destroy(loop);
}

/* --- other threads ------------------------------------------------------------------------------ */

enum { POSTERS = 4 };

struct posted {
    struct ch_task task;
    struct run *run;
    int poster, number;
};

struct run {
    struct ch_loop *loop;
    int each;
    int next[POSTERS]; /* what is expected from each: the order of posting is kept */
    int total;
    choir_status result;
};

struct poster {
    struct run *run;
    struct posted *tasks;
    int number;
};

static void take(struct ch_task *task)
{
    struct posted *posted = CH_CONTAINER(task, struct posted, task);
    struct run *run = posted->run;

    CHOIR_CHECK_EQ(posted->number, run->next[posted->poster]);
    run->next[posted->poster]++;
    if (++run->total == POSTERS * run->each)
        ch_loop_stop(run->loop);
}

static void *post_all(void *arg)
{
    struct poster *poster = arg;

    for (int i = 0; i < poster->run->each; i++) {
        poster->tasks[i] = (struct posted){
            .task = { .run = take }, .run = poster->run, .poster = poster->number, .number = i
        };
        ch_loop_post(poster->run->loop, &poster->tasks[i].task);
    }
    return NULL;
}

static void *run_loop(void *arg)
{
    struct run *run = arg;

    run->result = ch_loop_run(run->loop);
    return NULL;
}

CHOIR_TEST(posts_from_many_threads_are_all_run_in_order)
{
    struct run run = { .each = 20000 / (int)choir_test_slowness() };
    struct poster posters[POSTERS];
    pthread_t threads[POSTERS], runner;

    CHOIR_CHECK_OK(ch_loop_create(&run.loop));
    CHOIR_CHECK_EQ(pthread_create(&runner, NULL, run_loop, &run), 0);
    for (int i = 0; i < POSTERS; i++) {
        posters[i] = (struct poster){ .run = &run, .number = i };
        posters[i].tasks = calloc((size_t)run.each, sizeof(struct posted));
        CHOIR_CHECK(posters[i].tasks != NULL);
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, post_all, &posters[i]), 0);
    }
    for (int i = 0; i < POSTERS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(runner, NULL);
    CHOIR_CHECK_OK(run.result);
    CHOIR_CHECK_EQ(run.total, POSTERS * run.each);
    for (int i = 0; i < POSTERS; i++)
        free(posters[i].tasks);
    ch_loop_destroy(run.loop);
}

struct note {
    struct ch_task task;
    struct ch_loop *again; /* post once more when run */
    int ran;
};

static void note_run(struct ch_task *task)
{
    struct note *note = CH_CONTAINER(task, struct note, task);
    struct ch_loop *again = note->again;

    note->ran++;
    note->again = NULL;
    if (again != NULL)
        ch_loop_post(again, task);
}

CHOIR_TEST(what_is_posted_before_the_stop_is_run)
{
    struct ch_loop *loop;
    struct note a = { .task = { .run = note_run } }, b = a;

    CHOIR_CHECK_OK(ch_loop_create(&loop));
    ch_loop_post(loop, &a.task);
    ch_loop_stop(loop); /* before it runs: it returns at once */
    CHOIR_CHECK_OK(ch_loop_run(loop));
    CHOIR_CHECK_EQ(a.ran, 1);

    b.again = loop;
    ch_loop_post(loop, &b.task);
    ch_loop_destroy(loop); /* runs the rest, and what that posts */
    CHOIR_CHECK_EQ(b.ran, 2);
}

/* --- faults ------------------------------------------------------------------------------------- */

static void count_up(struct ch_watch *watch, uint32_t events)
{
    uint64_t value;

    (void)events;
    if (ch_sys_read(watch->fd, &value, sizeof(value)) > 0)
        CH_CONTAINER(watch, struct client, watch)->served++;
}

struct life {
    struct ch_loop *loop;
    struct client client;
    struct note note;
    struct alarm alarm;
};

/* A descriptor, a task and a timer, all three served. */
static choir_status live(struct life *life)
{
    struct ch_loop *loop = life->loop;
    choir_status rc = ch_watch_add(loop, &life->client.watch, life->client.watch.fd, EPOLLIN,
                                   count_up);

    if (rc == CHOIR_OK)
        rc = ch_watch_modify(&life->client.watch, EPOLLIN | EPOLLRDHUP);
    ch_loop_post(loop, &life->note.task);
    ch_timer_start(ch_loop_timers(loop), &life->alarm.timer, ch_now() + CH_MS);
    while (rc == CHOIR_OK &&
           (life->client.served == 0 || life->note.ran == 0 || life->alarm.fired_at == 0)) {
        rc = ch_loop_run_once(loop, ch_deadline_ms(1000 * (int64_t)choir_test_slowness()));
        if (rc == CHOIR_IN_PROGRESS)
            CHOIR_FAIL("something was not served");
    }
    ch_loop_stop(loop);
    if (rc == CHOIR_OK)
        rc = ch_loop_run(loop);
    ch_timer_stop(&life->alarm.timer);
    ch_watch_remove(&life->client.watch);
    return rc;
}

static choir_status whole_life(void *arg)
{
    struct life life = { .note = { .task = { .run = note_run } },
                         .alarm = { .timer = { .fire = note_time } } };
    choir_status rc = ch_loop_create(&life.loop);
    int fd;

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    fd = ch_sys_eventfd(1);
    if (fd >= 0) {
        life.client.watch.fd = fd;
        rc = live(&life);
        ch_sys_close(fd);
    }
    ch_loop_destroy(life.loop);
    return rc;
}

CHOIR_TEST(every_failure_of_a_loop_is_an_error)
{
    choir_test_all_faults(whole_life, NULL);
    check_copes_with(CH_FAULT_epoll_wait, EINTR, whole_life, NULL);
    check_copes_with(CH_FAULT_write, EAGAIN, whole_life,
                     NULL); /* a ring that does not go through */
    check_copes_with(CH_FAULT_read, EAGAIN, whole_life, NULL);
}

/* --- fork --------------------------------------------------------------------------------------- */

static void use_in_child(void *arg)
{
    struct ch_loop *loop = arg, *other;
    struct client client = { .served = 0 };
    struct note note = { .task = { .run = note_run } };

    CHOIR_CHECK_STATUS(ch_loop_create(&other), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_loop_run(loop), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_loop_run_once(loop, CH_NEVER), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_watch_add(loop, &client.watch, 0, EPOLLIN, count_up), CHOIR_ERR_FORKED);
    ch_loop_post(loop, &note.task);
    ch_loop_destroy(loop);
    CHOIR_CHECK_EQ(note.ran, 0);
}

CHOIR_TEST(a_forked_child_cannot_use_the_loop)
{
    struct ch_loop *loop;
    struct client *client;

    CHOIR_CHECK_OK(ch_loop_create(&loop));
    client = join_loop(loop, serve);
    choir_test_join(choir_test_fork(use_in_child, loop));
    ping(client);
    CHOIR_CHECK_OK(ch_loop_run_once(loop, soon()));
    CHOIR_CHECK_EQ(client->served, 1);
    leave(client);
    ch_loop_destroy(loop);
}
