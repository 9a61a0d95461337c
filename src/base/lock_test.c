/* lock_test.c - locks exclude, and debug builds refuse a wrong order. */
#include "choir_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"

enum { TURNS = 20000 };

static struct ch_lock low = CH_LOCK_INIT(CH_LOCK_SERVICE);
static struct ch_lock high;
static int counter;

static void *count(void *arg)
{
    for (int i = 0; i < TURNS; i++) {
        ch_lock(&low);
        ch_lock(&high);
        ch_lock_assert_held(&high);
        counter++;
        ch_unlock(&low); /* giving back in any order is fine */
        ch_unlock(&high);
    }
    return arg;
}

CHOIR_TEST(two_threads_count_together)
{
    pthread_t thread;

    ch_lock_init(&high, CH_LOCK_WAITER);
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, count, NULL), 0);
    count(NULL);
    pthread_join(thread, NULL);
    CHOIR_CHECK_EQ(counter, 2 * TURNS);
    ch_lock_fini(&high);
}

#if CH_DEBUG
static void wrong_order(void *arg) CH_NO_TSA
{
    (void)arg;
    ch_lock(&high);
    ch_lock(&low);
}

static void assert_without_lock(void *arg)
{
    (void)arg;
    ch_lock_assert_held(&high);
}

static int signal_of(void (*fn)(void *))
{
    int status, pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        fn(NULL);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
#endif

CHOIR_TEST(a_wrong_order_stops_a_debug_build)
{
#if CH_DEBUG
    ch_lock_init(&high, CH_LOCK_WAITER);
    CHOIR_CHECK_EQ(signal_of(wrong_order), SIGABRT);
    CHOIR_CHECK_EQ(signal_of(assert_without_lock), SIGABRT);
    ch_lock_fini(&high);
#else
    CHOIR_SKIP("lock ranks are checked in debug builds only");
#endif
}
