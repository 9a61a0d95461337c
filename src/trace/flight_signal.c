/*
 * flight_signal.c - see flight_signal.h.
 *
 * The handler writes to the descriptors in a table. One that is being closed is taken out of it first, and then
 * waited for until no handler is inside: it may have read the number just before, and by the time it writes the
 * number may belong to somebody else.
 */
#include "trace/flight_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/params.h"
#include "base/sys.h"
#include "trace/flight_file.h"
#include "trace/flight_impl.h"

enum { PLACES = 256 }; /* ranks of one process; more go without */

static struct {
    _Atomic int
        fds[PLACES]; /* descriptor plus one; 0: free. Written under the lock, read by the handler */
    _Atomic int inside;      /* handlers at work */
    int users;               /* under the lock */
    struct sigaction before; /* under the lock */
} the_signal;

/* On any thread, at any moment. Sequentially consistent, as in take_out(): it either sees that a descriptor is out,
 * or is seen to be inside. */
static void on_signal(int number)
{
    const uint64_t one = 1;
    int keep = errno;

    (void)number;
    atomic_fetch_add(&the_signal.inside, 1);
    for (int i = 0; i < PLACES; i++) {
        int fd = atomic_load(&the_signal.fds[i]) - 1;

        if (fd >= 0 && !ch_is_forked())
            (void)!ch_sys_write(fd, &one, sizeof(one));
    }
    atomic_fetch_sub(&the_signal.inside, 1);
    errno = keep;
}

static choir_status install_locked(void)
{
    struct sigaction ours = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

    if (the_signal.users > 0)
        return CHOIR_OK;
    sigemptyset(&ours.sa_mask);
    if (ch_sys_sigaction(SIGUSR2, &ours, &the_signal.before) != 0)
        return ch_fail_errno("flight record: install a handler for SIGUSR2");
    return CHOIR_OK;
}

static void uninstall_locked(void)
{
    struct sigaction now;

    if (ch_sys_sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == on_signal &&
        ch_sys_sigaction(SIGUSR2, &the_signal.before, NULL) != 0)
        ch_log_warn("flight record: the handler of SIGUSR2 stays");
}

static bool put_in_locked(int fd)
{
    for (int i = 0; i < PLACES; i++) {
        if (atomic_load(&the_signal.fds[i]) == 0) {
            atomic_store(&the_signal.fds[i], fd + 1);
            return true;
        }
    }
    return false;
}

static void take_out_locked(int fd)
{
    for (int i = 0; i < PLACES; i++) {
        if (atomic_load(&the_signal.fds[i]) == fd + 1)
            atomic_store(&the_signal.fds[i], 0);
    }
}

choir_status ch_flight_signal_open(int *fd_out)
{
    choir_status rc;
    int fd;

    *fd_out = -1;
    if (!ch_params()->fr_signal)
        return CHOIR_OK;
    fd = ch_sys_eventfd(0);
    if (fd < 0)
        return ch_fail_errno("flight record: a descriptor for SIGUSR2");
    ch_flights_lock();
    rc = install_locked();
    if (rc == CHOIR_OK && put_in_locked(fd)) {
        the_signal.users++;
        *fd_out = fd;
    } else if (rc == CHOIR_OK && the_signal.users == 0) {
        uninstall_locked();
    }
    ch_flights_unlock();
    if (*fd_out < 0)
        ch_sys_close(fd);
    return rc;
}

void ch_flight_signal_close(int fd)
{
    if (fd < 0 || ch_is_forked())
        return;
    ch_flights_lock();
    take_out_locked(fd);
    if (--the_signal.users == 0)
        uninstall_locked();
    ch_flights_unlock();
    while (atomic_load(&the_signal.inside) != 0)
        ch_sys_yield(); /* a handler is a few writes long */
    ch_sys_close(fd);
}

void ch_flight_signal_take(int fd, struct ch_flight *flight)
{
    uint64_t count;

    (void)!ch_sys_read(fd, &count, sizeof(count)); /* nonblocking: another may have been quicker */
    if (ch_flight_leave(flight, "SIGUSR2") != CHOIR_OK)
        ch_log_warn("%s", choir_last_error());
}
