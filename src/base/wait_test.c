/* wait_test.c - conditions, deadlines, poison, interrupts; several sleepers; what sleeping costs. */
#include "choir_test.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <choir/info.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/sys.h"
#include "base/wait.h"

static struct ch_bell_word word;
static struct ch_waiter waiter;
static _Atomic uint64_t flag;
static _Atomic uint32_t poison;

static struct ch_wait for_flag(ch_deadline until)
{
    return (
        struct ch_wait){ .waiter = &waiter, .until = until, .poison = &poison, .what = "the flag" };
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * CH_S + (uint64_t)ts.tv_nsec;
}

/* Wait, in a helper thread, for the main thread to be asleep. */
static void until_somebody_sleeps(uint32_t howmany)
{
    while (atomic_load(&word.nasleep) < howmany)
        sched_yield();
}

CHOIR_TEST(a_condition_that_holds_needs_no_waiting)
{
    struct ch_wait wait = for_flag(1); /* long past: the condition wins */

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    flag = 3;
    poison = 1;
    CHOIR_CHECK_OK(ch_wait_flag(&wait, &flag, 3));
    CHOIR_CHECK_OK(ch_wait_flag_slow(&wait, &flag, 2));
    ch_waiter_fini(&waiter);
}

static void *post_when_asleep(void *arg)
{
    until_somebody_sleeps(1);
    ch_post(&waiter.bell, &flag, *(const uint64_t *)arg);
    return NULL;
}

CHOIR_TEST(a_post_wakes_a_sleeper)
{
    struct ch_wait wait = for_flag(CH_NEVER);

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    for (uint64_t round = 1; round <= 200; round++) {
        pthread_t thread;

        CHOIR_CHECK_EQ(pthread_create(&thread, NULL, post_when_asleep, &round), 0);
        CHOIR_CHECK_OK(ch_wait_flag(&wait, &flag, round));
        pthread_join(thread, NULL);
    }
    CHOIR_CHECK_EQ(atomic_load(&word.nasleep), 0);
    ch_waiter_fini(&waiter);
}

CHOIR_TEST(deadlines_are_exact)
{
    uint64_t late = UINT64_MAX;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    for (unsigned ms = 0; ms <= 40; ms += 5) {
        uint64_t began = ch_now();
        ch_deadline until = began + ms * (uint64_t)CH_MS + 123456;
        struct ch_wait wait = for_flag(until);

        CHOIR_ROW("%u.123456 ms", ms);
        CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_TIMEOUT);
        CHOIR_CHECK_LE(until, ch_now());
        late = ch_now() - until < late ? ch_now() - until : late;
        CHOIR_CHECK_HAS(choir_last_error(), "waiting for the flag: the deadline passed");
    }
    /* The best of them: a machine in use may be late now and then, not always. */
    CHOIR_CHECK_LT(late, 5 * (uint64_t)CH_MS);
    ch_waiter_fini(&waiter);
}

static void *poison_when_asleep(void *arg)
{
    until_somebody_sleeps(1);
    atomic_store(&poison, 4);
    ch_bell_after_store(&waiter.bell);
    return arg;
}

CHOIR_TEST(poison_ends_a_wait)
{
    struct ch_wait wait = for_flag(CH_NEVER);
    pthread_t thread;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, poison_when_asleep, NULL), 0);
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_REMOTE);
    pthread_join(thread, NULL);
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_REMOTE);
    ch_waiter_fini(&waiter);
}

static void *interrupt_when_asleep(void *arg)
{
    until_somebody_sleeps(1);
    ch_waiter_interrupt(&waiter);
    return arg;
}

CHOIR_TEST(an_interrupt_ends_a_wait_until_it_is_cleared)
{
    struct ch_wait wait = for_flag(CH_NEVER);
    pthread_t thread;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, interrupt_when_asleep, NULL), 0);
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_INTERRUPTED);
    pthread_join(thread, NULL);
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_INTERRUPTED);
    ch_waiter_clear_interrupt(&waiter);
    wait.until = ch_deadline_ms(1);
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_TIMEOUT);
    ch_waiter_fini(&waiter);
}

static int asked;

static bool says_yes_the_third_time(void *arg)
{
    asked++;
    return asked == *(int *)arg;
}

CHOIR_TEST(a_threads_own_check_ends_a_wait)
{
    struct ch_wait wait = for_flag(CH_NEVER);
    uint64_t began = ch_now();
    int third = 3;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    choir_set_interrupt_check(says_yes_the_third_time, &third);
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_INTERRUPTED);
    CHOIR_CHECK_HAS(choir_last_error(), "waiting for the flag: interrupted");
    CHOIR_CHECK_EQ(asked, 3);
    CHOIR_CHECK_LE(2 * (uint64_t)CH_INTERRUPT_NS, ch_now() - began);
    wait.until = ch_deadline_ms(120); /* says no: only the deadline ends it */
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_LE(4, asked);
    choir_set_interrupt_check(NULL, NULL);
    asked = 0;
    wait.until = ch_deadline_ms(120);
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_EQ(asked, 0);
    ch_waiter_fini(&waiter);
}

static void on_alarm(int signal)
{
    (void)signal;
    ch_waiter_interrupt(&waiter);
}

/* A handler on the waiting thread itself: the worst place to be interrupted from. */
CHOIR_TEST(a_signal_handler_may_interrupt)
{
    struct sigaction action = { .sa_handler = on_alarm };
    struct ch_wait wait = for_flag(CH_NEVER);
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    sigaction(SIGUSR1, &action, NULL);
    CHOIR_CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    for (long ns = 1000; ns < 2000000; ns = ns * 5 / 4) {
        struct itimerspec when = { .it_value = { .tv_nsec = ns } };

        timer_settime(timer, 0, &when, NULL);
        CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_INTERRUPTED);
        ch_waiter_clear_interrupt(&waiter);
    }
    timer_delete(timer);
    ch_waiter_fini(&waiter);
}

/* --- several threads asleep on one bell --------------------------------------------------------- */

enum { SLEEPERS = 3, ROUNDS = 300, MAX_SLEEPERS = 8 };

static _Atomic uint64_t own_flag[MAX_SLEEPERS], own_answer[MAX_SLEEPERS];
static struct ch_bell_word poster_word;
static struct ch_waiter poster;

static void *sleep_for_own_flag(void *arg)
{
    int i = (int)(intptr_t)arg;
    struct ch_wait wait = for_flag(CH_NEVER); /* a lost wake-up hangs, and is seen */

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        CHOIR_CHECK_OK(ch_wait_flag(&wait, &own_flag[i], round));
        ch_post(&poster.bell, &own_answer[i], round);
    }
    return NULL;
}

/* A ring meant for one must not be swallowed by another who got up first. */
CHOIR_TEST(several_sleepers_lose_no_wake_up)
{
    struct choir_test_random random = { 7 };
    struct ch_wait wait = { .waiter = &poster, .until = CH_NEVER, .what = "an answer" };
    pthread_t threads[SLEEPERS];
    uint64_t round[SLEEPERS] = { 0 };

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK_OK(ch_waiter_init(&poster, &poster_word));
    waiter.spin_ns = waiter.spin_max_ns = waiter.spin_min_ns = waiter.yield_ns = 0;
    for (int i = 0; i < SLEEPERS; i++)
        pthread_create(&threads[i], NULL, sleep_for_own_flag, (void *)(intptr_t)i);
    for (int left = SLEEPERS * ROUNDS; left > 0;) {
        unsigned i = (unsigned)(choir_test_random(&random) % SLEEPERS);

        if (round[i] == ROUNDS)
            continue;
        ch_post(&waiter.bell, &own_flag[i], ++round[i]);
        CHOIR_CHECK_OK(ch_wait_flag(&wait, &own_answer[i], round[i]));
        left--;
    }
    for (int i = 0; i < SLEEPERS; i++)
        pthread_join(threads[i], NULL);
    ch_waiter_fini(&waiter);
    ch_waiter_fini(&poster);
}

static void *write_when_asleep(void *arg)
{
    until_somebody_sleeps(1);
    CHOIR_CHECK_EQ(write(*(const int *)arg, "x", 1), 1);
    return NULL;
}

/* --- what others' rings and descriptors cost ----------------------------------------------------- */

enum { IDLERS = 8 };

static void *wait_for_own_flag(void *arg)
{
    struct ch_wait wait = for_flag(CH_NEVER);

    CHOIR_CHECK_OK(ch_wait_flag(&wait, &own_flag[(intptr_t)arg], 1));
    return NULL;
}

static uint64_t process_cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * CH_S + (uint64_t)ts.tv_nsec;
}

/* The processor time of a wait for `ms`, the least of three tries: while the host of a virtual machine runs
 * somebody else, the thread that was running is charged for it. */
static uint64_t least_cost_of_waiting(int64_t ms)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 3; i++) {
        struct ch_wait wait = for_flag(ch_deadline_ms(ms));
        uint64_t before = thread_cpu_ns(), cost;

        CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_TIMEOUT);
        cost = thread_cpu_ns() - before;
        least = cost < least ? cost : least;
    }
    return least;
}

/* Likewise of the whole process, while this thread naps: not to wait for a state, but to see that nothing
 * happens. */
static uint64_t least_cost_of_napping(long ms)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 3; i++) {
        uint64_t before = process_cpu_ns(), cost;

        nanosleep(&(struct timespec){ .tv_nsec = ms * (long)CH_MS }, NULL);
        cost = process_cpu_ns() - before;
        least = cost < least ? cost : least;
    }
    return least;
}

/* A ring gets everybody up once. They must not wake each other over and over. */
CHOIR_TEST(a_ring_for_one_lets_the_others_sleep_on)
{
    pthread_t threads[IDLERS];

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    for (int i = 0; i < IDLERS; i++)
        pthread_create(&threads[i], NULL, wait_for_own_flag, (void *)(intptr_t)i);
    until_somebody_sleeps(IDLERS);
    ch_post(&waiter.bell, &own_flag[0], 1);
    pthread_join(threads[0], NULL);
    CHOIR_CHECK_LE(least_cost_of_napping(300), 20 * (uint64_t)CH_MS * choir_test_slowness());
    for (int i = 1; i < IDLERS; i++) {
        ch_post(&waiter.bell, &own_flag[i], 1);
        pthread_join(threads[i], NULL);
    }
    ch_waiter_fini(&waiter);
}

/* A byte that nobody reads, in the waiter's set. */
CHOIR_TEST(a_ready_descriptor_of_no_concern_lets_us_sleep)
{
    struct epoll_event event = { .events = EPOLLIN };
    int fds[2];

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHOIR_CHECK_EQ(ch_sys_epoll_ctl(waiter.epfd, EPOLL_CTL_ADD, fds[0], &event), 0);
    CHOIR_CHECK_EQ(write(fds[1], "x", 1), 1);
    CHOIR_CHECK_LE(least_cost_of_waiting(500), 5 * (uint64_t)CH_MS * choir_test_slowness());
    close(fds[0]);
    close(fds[1]);
    ch_waiter_fini(&waiter);
}

static bool take_byte(void *arg)
{
    char byte;

    return recv(*(const int *)arg, &byte, 1, MSG_DONTWAIT) == 1;
}

/* News on a descriptor of the set wakes a sleeper, every time. */
CHOIR_TEST(news_in_the_set_wakes_a_sleeper)
{
    struct epoll_event event = { .events = EPOLLIN };
    struct ch_wait wait = for_flag(CH_NEVER);
    pthread_t thread;
    int fds[2];

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHOIR_CHECK_EQ(ch_sys_epoll_ctl(waiter.epfd, EPOLL_CTL_ADD, fds[0], &event), 0);
    wait.ready = take_byte;
    wait.arg = &fds[0];
    for (int i = 0; i < 100; i++) {
        CHOIR_CHECK_EQ(pthread_create(&thread, NULL, write_when_asleep, &fds[1]), 0);
        CHOIR_CHECK_OK(ch_wait(&wait));
        pthread_join(thread, NULL);
    }
    close(fds[0]);
    close(fds[1]);
    ch_waiter_fini(&waiter);
}

/* --- data behind a flag: what ThreadSanitizer is here for --------------------------------------- */

static struct {
    uint64_t payload[8]; /* plain: ordered by the post alone */
} mail;

static void *write_mail(void *arg)
{
    for (int i = 0; i < 8; i++)
        mail.payload[i] = 42;
    ch_post(&waiter.bell, &flag, 1);
    return arg;
}

CHOIR_TEST(what_was_written_before_a_post_is_seen_after_the_wait)
{
    struct ch_wait wait = for_flag(CH_NEVER);
    pthread_t thread;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, write_mail, NULL), 0);
    CHOIR_CHECK_OK(ch_wait_flag(&wait, &flag, 1));
    for (int i = 0; i < 8; i++)
        CHOIR_CHECK_EQ(mail.payload[i], 42);
    pthread_join(thread, NULL);
    ch_waiter_fini(&waiter);
}

/* --- descriptors -------------------------------------------------------------------------------- */

CHOIR_TEST(a_descriptor_is_waited_for_in_the_same_sleep)
{
    pthread_t thread;
    int fds[2];
    char byte;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHOIR_CHECK_STATUS(ch_wait_fd(&waiter, fds[0], POLLIN, ch_deadline_ms(5), NULL, "a byte"),
                       CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), "a byte");
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, write_when_asleep, &fds[1]), 0);
    CHOIR_CHECK_OK(ch_wait_fd(&waiter, fds[0], POLLIN, CH_NEVER, NULL, "a byte"));
    CHOIR_CHECK_EQ(read(fds[0], &byte, 1), 1);
    pthread_join(thread, NULL);
    close(fds[1]);
    CHOIR_CHECK_OK(ch_wait_fd(&waiter, fds[0], POLLIN, CH_NEVER, NULL, "a hang-up"));
    close(fds[0]);
    ch_waiter_fini(&waiter);
}

/* --- costs and limits --------------------------------------------------------------------------- */

CHOIR_TEST(a_second_asleep_costs_at_most_5_ms_of_cpu)
{
    uint64_t cost;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    cost = least_cost_of_waiting(1000);
    printf("CPU in one second: %llu us\n", (unsigned long long)cost / CH_US);
    CHOIR_CHECK_LE(cost, 5 * (uint64_t)CH_MS * choir_test_slowness());
    ch_waiter_fini(&waiter);
}

static void *keep_a_processor_busy(void *arg)
{
    while (atomic_load_explicit((_Atomic bool *)arg, memory_order_relaxed))
        continue;
    return NULL;
}

/* Where ranks outnumber processors a wait yields for longer if others run meanwhile; that must cost no more, whether
 * they do or not. */
CHOIR_TEST(a_wait_in_a_crowd_costs_at_most_5_ms_of_cpu)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int nthreads = choir_processors() < MOST ? choir_processors() : MOST;
    _Atomic bool busy = true;
    uint64_t quiet, cost;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    ch_waiter_set_crowd(&waiter, 100000);
    quiet = least_cost_of_waiting(300);
    for (int i = 0; i < nthreads; i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, keep_a_processor_busy, &busy), 0);
    cost = least_cost_of_waiting(300);
    atomic_store(&busy, false);
    for (int i = 0; i < nthreads; i++)
        pthread_join(threads[i], NULL);
    printf("CPU in 0.3 seconds: %llu us, among busy threads %llu us\n",
           (unsigned long long)quiet / CH_US, (unsigned long long)cost / CH_US);
    CHOIR_CHECK_LE(quiet, 5 * (uint64_t)CH_MS * choir_test_slowness());
    CHOIR_CHECK_LE(cost, 5 * (uint64_t)CH_MS * choir_test_slowness());
    ch_waiter_fini(&waiter);
}

CHOIR_TEST(more_ranks_than_processors_spin_less)
{
    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    ch_waiter_set_crowd(&waiter, 1);
    CHOIR_CHECK_EQ(waiter.spin_max_ns, 50 * CH_US);
    ch_waiter_set_crowd(&waiter, 100000);
    CHOIR_CHECK_EQ(waiter.spin_max_ns, 0);
    ch_waiter_fini(&waiter);
}

static bool third_time(void *arg)
{
    return ++*(int *)arg == 3;
}

CHOIR_TEST(turns_are_for_those_who_take_turns)
{
    int times = 0;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK(!ch_wait_turns(&waiter, 10, third_time, &times));
    CHOIR_CHECK_EQ(times, 0);
    ch_waiter_set_crowd(&waiter, 100000);
    CHOIR_CHECK(!ch_wait_turns(&waiter, 2, third_time, &times));
    CHOIR_CHECK_EQ(times, 2);
    CHOIR_CHECK(ch_wait_turns(&waiter, 10, third_time, &times));
    CHOIR_CHECK_EQ(times, 3);
    ch_waiter_fini(&waiter);
}

CHOIR_TEST(spinning_adapts)
{
    struct ch_wait wait = for_flag(0);

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    /* A wait during which this thread was put aside until its end does not get to sleep, and counts for spinning: each takes longer. */
    for (int i = 0; i < 1000 && atomic_load(&waiter.spin_ns) != waiter.spin_min_ns; i++) {
        wait.until = ch_deadline_ms(2 + i);
        CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_TIMEOUT);
    }
    CHOIR_CHECK_EQ(atomic_load(&waiter.spin_ns), waiter.spin_min_ns);
    ch_waiter_fini(&waiter);
}

static choir_status wait_a_little(void *arg)
{
    struct ch_wait wait = for_flag(ch_deadline_ms(2));
    choir_status rc = ch_waiter_init(&waiter, &word);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    rc = ch_wait_flag(&wait, &flag, 1);
    ch_waiter_fini(&waiter);
    return rc == CHOIR_ERR_TIMEOUT ? CHOIR_OK : rc;
}

CHOIR_TEST(every_failing_call_is_an_error_or_a_detour)
{
    choir_test_all_faults(wait_a_little, NULL);
}

static void wait_in_child(void *arg)
{
    struct ch_wait wait = for_flag(CH_NEVER);

    (void)arg;
    CHOIR_CHECK_STATUS(ch_wait_flag(&wait, &flag, 1), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_waiter_init(&poster, &poster_word), CHOIR_ERR_FORKED);
}

CHOIR_TEST(a_forked_child_does_not_wait)
{
    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    choir_test_join(choir_test_fork(wait_in_child, NULL));
    ch_waiter_fini(&waiter);
}

static bool seat_is_rung(int seat)
{
    struct pollfd pfd = { .fd = seat, .events = POLLIN };

    return ch_sys_poll(&pfd, 1, 0) == 1;
}

CHOIR_TEST(who_sits_is_rung_like_a_sleeper)
{
    int seat, next;

    CHOIR_CHECK_OK(ch_waiter_init(&waiter, &word));
    CHOIR_CHECK_OK(ch_waiter_sit(&waiter, &seat));
    CHOIR_CHECK_EQ(atomic_load(&word.nasleep), 1u);
    CHOIR_CHECK(!seat_is_rung(seat));
    for (uint64_t round = 1; round <= 3; round++) {
        ch_post(&waiter.bell, &flag, round);
        CHOIR_CHECK(seat_is_rung(seat));
        ch_waiter_clear_seat(seat);
        CHOIR_CHECK(!seat_is_rung(seat));
    }
    ch_waiter_wants_more(&waiter); /* there is something new to look for */
    CHOIR_CHECK(seat_is_rung(seat));
    ch_post(&waiter.bell, &flag, 4);
    ch_waiter_stand(&waiter, seat);
    CHOIR_CHECK_EQ(atomic_load(&word.nasleep), 0u);
    CHOIR_CHECK_OK(ch_waiter_sit(&waiter, &next));
    CHOIR_CHECK_EQ(next, seat);
    CHOIR_CHECK(!seat_is_rung(next)); /* what rang before is not news to the next */
    ch_waiter_stand(&waiter, next);
    ch_waiter_fini(&waiter);
}
