/* service_test.c - the service thread: started, shared, asleep, ended, started again. */
#include "io/service.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <choir/log.h>

#include "base/mem.h"
#include "io/io_test.h"

/* What a task found out about the thread it ran on. */
struct probe {
    struct ch_task task;
    struct ch_service *service;
    sem_t done;
    bool is_here;
    pid_t tid;
    char name[32];
};

static void look_around(struct ch_task *task)
{
    struct probe *probe = CH_CONTAINER(task, struct probe, task);

    probe->is_here = ch_service_is_here(probe->service);
    probe->tid = gettid();
    pthread_getname_np(pthread_self(), probe->name, sizeof(probe->name));
    sem_post(&probe->done);
}

static void wait_for_sem(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        CHOIR_CHECK_EQ(errno, EINTR);
}

static void probe_service(struct ch_service *service, struct probe *probe)
{
    memset(probe, 0, sizeof(*probe));
    probe->task.run = look_around;
    probe->service = service;
    CHOIR_CHECK_EQ(sem_init(&probe->done, 0, 0), 0);
    CHOIR_CHECK_OK(ch_service_post(service, &probe->task));
    wait_for_sem(&probe->done);
    sem_destroy(&probe->done);
}

/* Threads of that name: sanitizers have some of their own. */
static int service_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int count = 0;

    CHOIR_CHECK(dir != NULL);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char path[300], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
        file = fopen(path, "r");
        if (file == NULL)
            continue;
        count += fgets(name, sizeof(name), file) != NULL && strcmp(name, "choir-service\n") == 0;
        fclose(file);
    }
    closedir(dir);
    return count;
}

CHOIR_TEST(one_thread_for_all_and_a_new_one_later)
{
    struct ch_service *first, *second;
    struct probe probe;
    pid_t tid;

    CHOIR_CHECK_OK(ch_service_ref(&first));
    CHOIR_CHECK_OK(ch_service_ref(&second));
    CHOIR_CHECK(first == second);
    probe_service(first, &probe);
    CHOIR_CHECK_EQ(service_threads(), 1);
    CHOIR_CHECK(probe.is_here);
    CHOIR_CHECK(!ch_service_is_here(first));
    CHOIR_CHECK_STR(probe.name, "choir-service");
    tid = probe.tid;
    ch_service_unref(first);
    probe_service(second, &probe); /* still there for the other */
    CHOIR_CHECK_EQ(probe.tid, tid);
    ch_service_unref(second);
    /* A thread that was joined may be listed a moment longer. */
    while (service_threads() != 0)
        sched_yield();
    ch_service_unref(NULL);

    CHOIR_CHECK_OK(ch_service_ref(&first));
    probe_service(first, &probe);
    CHOIR_CHECK_EQ(service_threads(), 1);
    ch_service_unref(first);
}

/* --- asleep ------------------------------------------------------------------------------------- */

struct look {
    pid_t tid;
    char state;
    long switches;
};

static void read_status(struct look *look)
{
    char path[64], line[256];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)look->tid);
    file = fopen(path, "r");
    CHOIR_CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "State: %c", &look->state);
        sscanf(line, "voluntary_ctxt_switches: %ld", &look->switches);
    }
    fclose(file);
}

static bool is_asleep(void *arg)
{
    struct look *look = arg;

    read_status(look);
    return look->state == 'S';
}

/* Every wake-up ends in a new sleep, which the kernel counts. */
CHOIR_TEST(an_idle_thread_does_not_wake_up)
{
    struct ch_service *service;
    struct probe probe;
    struct look look;
    long before;
    int tries =
        3; /* it looks asleep a moment before the kernel counts that: so one second may have one more */

    CHOIR_CHECK_OK(ch_service_ref(&service));
    probe_service(service, &probe);
    look.tid = probe.tid;
    wait_until(is_asleep, &look, "the service thread asleep");
    do {
        struct timespec second = { .tv_sec = 1 };

        before = look.switches;
        while (nanosleep(&second, &second) != 0)
            ;
        read_status(&look);
    } while (look.switches != before && --tries > 0);
    CHOIR_CHECK_EQ(look.switches - before, 0);
    CHOIR_CHECK_EQ(look.state, 'S');
    ch_service_unref(service);
}

/* --- its loop ----------------------------------------------------------------------------------- */

struct beat {
    struct ch_task task;
    struct ch_timer timer;
    struct ch_service *service;
    int left;
    sem_t done;
};

static void beat_again(struct ch_timer *timer)
{
    struct beat *beat = CH_CONTAINER(timer, struct beat, timer);

    if (--beat->left == 0)
        sem_post(&beat->done);
    else
        ch_timer_start(ch_loop_timers(ch_service_loop(beat->service)), timer, ch_now() + CH_MS);
}

static void start_beating(struct ch_task *task)
{
    struct beat *beat = CH_CONTAINER(task, struct beat, task);

    ch_timer_start(ch_loop_timers(ch_service_loop(beat->service)), &beat->timer, ch_now());
}

CHOIR_TEST(timers_run_on_it)
{
    struct beat beat = { .task = { .run = start_beating },
                         .timer = { .fire = beat_again },
                         .left = 10 };

    CHOIR_CHECK_EQ(sem_init(&beat.done, 0, 0), 0);
    CHOIR_CHECK_OK(ch_service_ref(&beat.service));
    CHOIR_CHECK_OK(ch_service_post(beat.service, &beat.task));
    wait_for_sem(&beat.done);
    ch_service_unref(beat.service);
    sem_destroy(&beat.done);
}

/* --- ending ------------------------------------------------------------------------------------- */

struct last_word {
    struct ch_task task;
    struct ch_service *service;
    _Atomic int ran;
};

static void count_run(struct ch_task *task)
{
    atomic_fetch_add(&CH_CONTAINER(task, struct last_word, task)->ran, 1);
}

CHOIR_TEST(what_was_posted_is_run_before_the_end)
{
    enum { COUNT = 100 };
    static struct last_word words[COUNT];
    struct ch_service *service;

    CHOIR_CHECK_OK(ch_service_ref(&service));
    for (int i = 0; i < COUNT; i++) {
        words[i].task.run = count_run;
        CHOIR_CHECK_OK(ch_service_post(service, &words[i].task));
    }
    ch_service_unref(service);
    for (int i = 0; i < COUNT; i++)
        CHOIR_CHECK_EQ(atomic_load(&words[i].ran), 1);
}

static void put_last(struct ch_task *task)
{
    struct last_word *word = CH_CONTAINER(task, struct last_word, task);

    ch_service_unref(word->service);
    atomic_store(&word->ran, 1);
}

static bool all_is_given_back(void *arg)
{
    (void)arg;
    return ch_mem_count(CH_SUB_IO).live_blocks == 0 && ch_sys_fd_count() == 0;
}

CHOIR_TEST(the_thread_may_drop_the_last_reference_itself)
{
    static struct last_word word = { .task = { .run = put_last } };

    CHOIR_CHECK_OK(ch_service_ref(&word.service));
    CHOIR_CHECK_OK(ch_service_post(word.service, &word.task));
    wait_until(all_is_given_back, NULL, "the end of a service thread that ends itself");
    CHOIR_CHECK_EQ(atomic_load(&word.ran), 1);
}

static void *get_and_put(void *arg)
{
    int rounds = 400 / (int)choir_test_slowness() + 10;

    for (int i = 0; i < rounds; i++) {
        struct last_word word = { .task = { .run = count_run } };

        CHOIR_CHECK_OK(ch_service_ref(&word.service));
        CHOIR_CHECK_OK(ch_service_post(word.service, &word.task));
        while (atomic_load(&word.ran) == 0)
            sched_yield();
        ch_service_unref(word.service);
    }
    return arg;
}

CHOIR_TEST(threads_get_and_put_at_once)
{
    pthread_t threads[4];

    for (size_t i = 0; i < CH_ARRAY_LEN(threads); i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, get_and_put, NULL), 0);
    for (size_t i = 0; i < CH_ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
}

/* --- faults and forks --------------------------------------------------------------------------- */

static void swallow(void *arg, choir_log_level level, const char *subsystem, const char *line)
{
    (void)arg, (void)level, (void)subsystem, (void)line;
}

static choir_status whole_life(void *arg)
{
    struct ch_service *service;
    struct probe probe;
    choir_status rc = ch_service_ref(&service);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    probe_service(service, &probe);
    ch_service_unref(service);
    return CHOIR_OK;
}

CHOIR_TEST(every_failure_is_an_error_or_outlived)
{
    choir_log_set_sink(swallow, NULL); /* the thread warns that its wait failed, and goes on */
    choir_test_all_faults(whole_life, NULL);
    check_copes_with(CH_FAULT_epoll_wait, 0, whole_life, NULL);
    check_copes_with(CH_FAULT_epoll_wait, EINTR, whole_life, NULL);
    check_copes_with(CH_FAULT_write, 0, whole_life, NULL);
}

static void use_in_child(void *arg)
{
    struct ch_service *service = arg, *other;
    struct last_word word = { .task = { .run = count_run } };

    CHOIR_CHECK_STATUS(ch_service_ref(&other), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_service_post(service, &word.task), CHOIR_ERR_FORKED);
    ch_service_unref(service); /* must not wait for a thread that is not here */
    CHOIR_CHECK_EQ(atomic_load(&word.ran), 0);
}

CHOIR_TEST(a_forked_child_has_no_service)
{
    struct ch_service *service;
    struct probe probe;

    CHOIR_CHECK_OK(ch_service_ref(&service));
    choir_test_join(choir_test_fork(use_in_child, service));
    probe_service(service, &probe); /* the parent's goes on */
    ch_service_unref(service);
}
