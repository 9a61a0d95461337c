/*
 * wait.c - spin, yield, sleep. See wait.h for the picture and bell.h for the order of the doorbell.
 */
#include "base/wait.h"

#include <errno.h>
#include <linux/membarrier.h>

#include <choir/info.h>

#include "base/arch.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/interrupt.h"
#include "base/mem.h"
#include "base/params.h"
#include "base/sys.h"

enum {
    /* A wake-up costs some 50 us in a virtual machine: to spin as long as that costs at most twice
     * the best choice (the skier's rule). With more ranks than processors a spin only keeps the
     * peer from running: none. */
    SPIN_FITS_NS = 50 * CH_US,
    SPIN_CROWDED_NS = 0,
    SPIN_LEAST_NS = 1 * CH_US,
    YIELD_FITS_NS = 100 * CH_US,
    YIELD_CROWDED_NS = 300 * CH_US,
    /* Reading the clock costs as much as several looks at a flag. */
    LOOKS_PER_CLOCK = 16,
    /* A yield that took longer than this, with the look before it, let somebody else run. */
    YIELD_ALONE_NS = 5 * CH_US,
    /* How long to sleep when a ring might be missed, for want of a descriptor or of the order. */
    NAP_NS = 1 * CH_MS,
};

/* --- seats -------------------------------------------------------------------------------------- */

static bool seat_watch(int seat, int fd)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };

    return ch_sys_epoll_ctl(seat, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* -1, with errno set, if it cannot be had. */
static int make_seat(const struct ch_waiter *waiter)
{
    int seat = ch_sys_epoll_create();

    if (seat >= 0 && seat_watch(seat, waiter->bell.fd) && seat_watch(seat, waiter->epfd))
        return seat;
    ch_sys_close(seat);
    return -1;
}

/* One more seat, with room to put it back later. */
static int add_seat_locked(struct ch_waiter *waiter)
{
    int *more;
    int seat;

    ch_lock_assert_held(&waiter->lock);
    more = ch_regrow(waiter->free_seats, waiter->nseats + 1, sizeof(*more));
    if (more == NULL)
        return -1;
    waiter->free_seats = more;
    seat = make_seat(waiter);
    if (seat >= 0)
        waiter->nseats++;
    return seat;
}

static int take_seat_locked(struct ch_waiter *waiter)
{
    ch_lock_assert_held(&waiter->lock);
    if (waiter->nfree > 0)
        return waiter->free_seats[--waiter->nfree];
    return add_seat_locked(waiter);
}

static void give_seat_locked(struct ch_waiter *waiter, int seat)
{
    ch_lock_assert_held(&waiter->lock);
    if (seat >= 0)
        waiter->free_seats[waiter->nfree++] = seat;
}

/* --- a waiter's life ---------------------------------------------------------------------------- */

static choir_status open_bell(struct ch_waiter *waiter, struct ch_bell_word *word)
{
    int fd = ch_sys_eventfd(0), seat;

    if (fd < 0)
        return ch_fail_errno("waiter: make its eventfd");
    word->needs_fence = !ch_bell_owner_orders();
    ch_bell_attach(&waiter->bell, word, fd);
    waiter->epfd = ch_sys_epoll_create();
    if (waiter->epfd < 0)
        return ch_fail_errno("waiter: make its epoll set");
    /* One thread can then always sleep; more of them want more seats. */
    ch_lock(&waiter->lock);
    seat = add_seat_locked(waiter);
    give_seat_locked(waiter, seat);
    ch_unlock(&waiter->lock);
    if (seat < 0)
        return ch_fail_errno("waiter: make a seat to sleep on");
    return CHOIR_OK;
}

choir_status ch_waiter_init(struct ch_waiter *waiter, struct ch_bell_word *word)
{
    choir_status rc = ch_forked();

    *waiter = (struct ch_waiter){ .bell = { .fd = -1 }, .epfd = -1 };
    ch_lock_init(&waiter->lock, CH_LOCK_WAITER);
    if (rc == CHOIR_OK)
        rc = open_bell(waiter, word);
    if (rc != CHOIR_OK) {
        ch_waiter_fini(waiter);
        return rc;
    }
    ch_waiter_set_crowd(waiter, 1);
    return CHOIR_OK;
}

void ch_waiter_fini(struct ch_waiter *waiter)
{
    ch_assert(waiter->nasleep == 0);
    for (size_t i = 0; i < waiter->nfree; i++)
        ch_sys_close(waiter->free_seats[i]);
    ch_free(waiter->free_seats);
    ch_sys_close(waiter->epfd);
    ch_sys_close(waiter->bell.fd);
    waiter->free_seats = NULL;
    waiter->nseats = waiter->nfree = 0;
    waiter->epfd = waiter->bell.fd = -1;
    ch_lock_fini(&waiter->lock);
}

static uint32_t knob_or(int64_t knob_us, uint32_t otherwise_ns)
{
    if (knob_us < 0)
        return otherwise_ns;
    return knob_us > UINT32_MAX / CH_US ? UINT32_MAX : (uint32_t)knob_us * CH_US;
}

void ch_waiter_set_crowd(struct ch_waiter *waiter, int ranks_on_host)
{
    const struct ch_params *params = ch_params();
    bool crowded;

    if (waiter->processors == 0)
        waiter->processors = choir_processors();
    waiter->crowded = crowded = ranks_on_host > waiter->processors;
    waiter->spin_max_ns = knob_or(params->spin_us, crowded ? SPIN_CROWDED_NS : SPIN_FITS_NS);
    waiter->yield_ns = knob_or(params->yield_us, crowded ? YIELD_CROWDED_NS : YIELD_FITS_NS);
    waiter->spin_min_ns = waiter->spin_max_ns < SPIN_LEAST_NS ? waiter->spin_max_ns : SPIN_LEAST_NS;
    atomic_store_explicit(&waiter->spin_ns, waiter->spin_max_ns, memory_order_relaxed);
}

void ch_waiter_interrupt(struct ch_waiter *waiter)
{
    /* Release, pairs with the acquire in how_it_stands(). Rung in any case: this may be a signal
     * handler of the very thread that is about to sleep. */
    atomic_store_explicit(&waiter->interrupted, 1, memory_order_release);
    ch_bell_ring(&waiter->bell);
}

void ch_waiter_clear_interrupt(struct ch_waiter *waiter)
{
    atomic_store_explicit(&waiter->interrupted, 0, memory_order_release);
}

/* --- one wait ----------------------------------------------------------------------------------- */

/* Everything a wait watches but the deadline: CHOIR_IN_PROGRESS if it has to go on. */
static choir_status how_it_stands(const struct ch_wait *wait)
{
    if (wait->ready(wait->arg))
        return CHOIR_OK;
    /* Acquire, pairs with the compare-and-swap that poisons: the culprit's record is whole. */
    if (wait->poison != NULL && atomic_load_explicit(wait->poison, memory_order_acquire) != 0)
        return ch_fail(CHOIR_ERR_REMOTE, "waiting for %s: the group has failed", wait->what);
    if (atomic_load_explicit(&wait->waiter->interrupted, memory_order_acquire) != 0)
        return ch_fail(CHOIR_ERR_INTERRUPTED, "waiting for %s: interrupted", wait->what);
    return CHOIR_IN_PROGRESS;
}

/* The thread's own check, which is dear: only where time has passed. */
static CH_NOINLINE choir_status ask_thread(const struct ch_wait *wait)
{
    if (ch_interrupt_asked())
        return ch_fail(CHOIR_ERR_INTERRUPTED, "waiting for %s: interrupted", wait->what);
    return CHOIR_IN_PROGRESS;
}

static choir_status timed_out(const struct ch_wait *wait, uint64_t began)
{
    return ch_fail(CHOIR_ERR_TIMEOUT,
                   "waiting for %s: the deadline passed (the last %llu ms of it here)", wait->what,
                   (unsigned long long)((ch_now() - began) / CH_MS));
}

/* Look again and again until `end` (or the deadline). Times are rough: nothing here depends on them being later than what
 * was seen. Where a descriptor is watched a look is a system call. */
static choir_status spin_until(const struct ch_wait *wait, uint64_t end)
{
    for (;;) {
        uint64_t now;

        for (int i = 0; i < (wait->also != NULL ? 1 : LOOKS_PER_CLOCK); i++) {
            choir_status rc = how_it_stands(wait);

            if (rc != CHOIR_IN_PROGRESS)
                return rc;
            ch_arch_relax();
        }
        now = ch_now_rough();
        if (now >= wait->until)
            return CHOIR_ERR_TIMEOUT; /* the caller looks once more and says it */
        if (now >= end)
            return CHOIR_IN_PROGRESS;
    }
}

/* The same, letting others run before each look. Where a descriptor is watched the kernel tells a sleeper of news at once:
 * then yielding is better than sleeping only as long as nobody else wants the processor. */
static choir_status yield_until(const struct ch_wait *wait, uint64_t before, uint64_t end)
{
    uint64_t ask_at = before + CH_INTERRUPT_NS;

    for (;;) {
        choir_status rc;
        uint64_t now;

        ch_sys_yield();
        rc = how_it_stands(wait);
        if (rc != CHOIR_IN_PROGRESS)
            return rc;
        now = ch_now_rough();
        if (now >= wait->until)
            return CHOIR_ERR_TIMEOUT;
        if (CH_UNLIKELY(now >= ask_at)) {
            rc = ask_thread(wait);
            if (rc != CHOIR_IN_PROGRESS)
                return rc;
            ask_at = now + CH_INTERRUPT_NS;
        }
        /* Only our own time counts: while others have the processor, most likely those that we wait for, it costs
         * nobody anything that we are next. */
        if (wait->waiter->crowded && now > before + YIELD_ALONE_NS)
            end += now - before - YIELD_ALONE_NS;
        if (now >= end || (wait->also != NULL && now > before + YIELD_ALONE_NS))
            return CHOIR_IN_PROGRESS;
        before = now;
    }
}

/* Put our stores in front of every look at a flag that follows, for all posters. False if the order could not
 * be had. */
static bool order_stores(void)
{
    if (!ch_bell_owner_orders()) {
        CH_FULL_FENCE(); /* the posters fence too: needs_fence is set */
        return true;
    }
    return ch_sys_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
}

void ch_waiter_wants_more(struct ch_waiter *waiter)
{
    /* Relaxed: of our own threads. Who is not asleep yet orders before it is. */
    if (atomic_load_explicit(&waiter->bell.word->nasleep, memory_order_relaxed) == 0)
        return;
    (void)order_stores(); /* should it fail, whoever sleeps naps (sleep_once()) */
    ch_bell_ring(&waiter->bell);
}

/* Publish that one more thread is about to sleep, in front of every look that follows. *seat_out is where to
 * sleep, -1 if none can be had. False if the order could not be had. */
static bool announce_sleep(struct ch_waiter *waiter, int *seat_out)
{
    ch_lock(&waiter->lock);
    *seat_out = take_seat_locked(waiter);
    waiter->nasleep++;
    /* Relaxed: ordered by what follows; see bell.h. */
    atomic_store_explicit(&waiter->bell.word->nasleep, waiter->nasleep, memory_order_relaxed);
    ch_unlock(&waiter->lock);
    return order_stores();
}

static void announce_awake(struct ch_waiter *waiter, int seat)
{
    ch_lock(&waiter->lock);
    waiter->nasleep--;
    atomic_store_explicit(&waiter->bell.word->nasleep, waiter->nasleep, memory_order_relaxed);
    give_seat_locked(waiter, seat);
    ch_unlock(&waiter->lock);
}

choir_status ch_waiter_sit(struct ch_waiter *waiter, int *seat_out)
{
    int seat;

    /* A ring is only sure to come if the order could be had. */
    if (announce_sleep(waiter, &seat) && seat >= 0) {
        *seat_out = seat;
        return CHOIR_OK;
    }
    announce_awake(waiter, seat);
    return ch_fail_errno("waiter: a seat for an event loop");
}

void ch_waiter_clear_seat(int seat)
{
    struct epoll_event news[2]; /* bell and set */

    (void)!ch_sys_epoll_wait(seat, news, CH_ARRAY_LEN(news), 0);
}

void ch_waiter_stand(struct ch_waiter *waiter, int seat)
{
    ch_waiter_clear_seat(seat); /* or what woke it would wake the next who sits there */
    announce_awake(waiter, seat);
}

/* Sleep until a ring, news in the set, `fd` (-1 for none), the time or a signal. CHOIR_IN_PROGRESS:
 * slept, look again; *signal_out: a signal ended it. What woke a seat is taken from it, or it would wake the next sleep too. */
static choir_status sleep_on(const struct ch_wait *wait, int seat, int fd, short events,
                             int64_t at_most_ns, bool *signal_out)
{
    struct epoll_event news[2]; /* bell and set */
    int n;

    if (seat >= 0 && fd < 0) {
        n = ch_sys_epoll_wait(seat, news, CH_ARRAY_LEN(news), at_most_ns);
    } else {
        /* poll(2) passes over negative descriptors. */
        struct pollfd fds[] = { { .fd = seat, .events = POLLIN }, { .fd = fd, .events = events } };

        n = ch_sys_poll(fds, CH_ARRAY_LEN(fds), at_most_ns);
        if (n > 0 && fds[0].revents != 0)
            n = ch_sys_epoll_wait(seat, news, CH_ARRAY_LEN(news), 0);
    }
    if (n < 0 && errno != EINTR)
        return ch_fail_errno("waiting for %s: sleep", wait->what);
    *signal_out = n < 0;
    return CHOIR_IN_PROGRESS;
}

static choir_status sleep_once(const struct ch_wait *wait, bool *signal_out)
{
    int64_t left = ch_deadline_left_ns(wait->until);
    short events = 0;
    choir_status rc;
    int seat, fd;

    /* A signal that comes before the sleep does not end it. */
    if (ch_interrupt_has_check() && (left < 0 || left > CH_INTERRUPT_NS))
        left = CH_INTERRUPT_NS;
    /* Without the order, or without a seat, a ring might be missed: then only a nap. */
    if ((!announce_sleep(wait->waiter, &seat) || seat < 0) && (left < 0 || left > NAP_NS))
        left = NAP_NS;
    rc = how_it_stands(wait); /* the look that Dekker's order is about */
    fd = rc == CHOIR_IN_PROGRESS && wait->also != NULL ? wait->also(wait->arg, &events) : -1;
    if (rc == CHOIR_IN_PROGRESS)
        rc = sleep_on(wait, seat, fd, events, left, signal_out);
    announce_awake(wait->waiter, seat);
    return rc;
}

static choir_status sleep_until_ready(const struct ch_wait *wait)
{
    choir_status rc = CHOIR_IN_PROGRESS;
    uint64_t asked = ch_now();
    bool signal = false;

    while (rc == CHOIR_IN_PROGRESS) {
        rc = how_it_stands(wait);
        if (rc == CHOIR_IN_PROGRESS && ch_deadline_passed(wait->until))
            rc = CHOIR_ERR_TIMEOUT;
        if (rc == CHOIR_IN_PROGRESS)
            rc = sleep_once(wait, &signal);
        /* By the clock: it may be rung more often than that. */
        if (rc == CHOIR_IN_PROGRESS && (signal || ch_now() - asked >= CH_INTERRUPT_NS)) {
            rc = ask_thread(wait);
            asked = ch_now();
        }
    }
    return rc;
}

/* Spin longer while spinning pays, shorter while waits end asleep anyway. Relaxed, and races between
 * two waiting threads do no harm: it is a guess. */
static void learn(struct ch_waiter *waiter, uint32_t spin_ns, bool slept)
{
    uint64_t next = slept ? spin_ns / 2 : (uint64_t)spin_ns * 2;

    if (next < waiter->spin_min_ns)
        next = waiter->spin_min_ns;
    if (next > waiter->spin_max_ns)
        next = waiter->spin_max_ns;
    if (next != spin_ns)
        atomic_store_explicit(&waiter->spin_ns, (uint32_t)next, memory_order_relaxed);
}

choir_status ch_wait(const struct ch_wait *wait)
{
    struct ch_waiter *waiter = wait->waiter;
    uint32_t spin_ns = atomic_load_explicit(&waiter->spin_ns, memory_order_relaxed);
    choir_status rc = wait->looked ? CHOIR_IN_PROGRESS : how_it_stands(wait);
    uint64_t began, end;

    if (rc != CHOIR_IN_PROGRESS)
        return rc;
    if (ch_forked() != CHOIR_OK)
        return CHOIR_ERR_FORKED;
    began = ch_now_rough();
    end = began + spin_ns;
    if (spin_ns > 0)
        rc = spin_until(wait, end);
    if (rc == CHOIR_IN_PROGRESS && waiter->yield_ns > 0)
        rc = yield_until(wait, end, end + waiter->yield_ns);
    learn(waiter, spin_ns, rc == CHOIR_IN_PROGRESS);
    if (rc == CHOIR_IN_PROGRESS)
        rc = sleep_until_ready(wait);
    if (rc == CHOIR_ERR_TIMEOUT) {
        rc = how_it_stands(wait); /* a condition that holds wins over a deadline that passed */
        if (rc == CHOIR_IN_PROGRESS)
            rc = timed_out(wait, began);
    }
    return rc;
}

bool ch_wait_turns(struct ch_waiter *waiter, int turns, bool (*ready)(void *arg), void *arg)
{
    if (!waiter->crowded || waiter->yield_ns == 0)
        return false;
    for (int i = 0; i < turns; i++) {
        ch_sys_yield();
        if (ready(arg))
            return true;
    }
    return false;
}

/* --- descriptors and flags ---------------------------------------------------------------------- */

struct fd_condition {
    int fd;
    short events;
};

static bool fd_is_ready(void *arg)
{
    const struct fd_condition *c = arg;
    struct pollfd pfd = { .fd = c->fd, .events = c->events };

    return ch_sys_poll(&pfd, 1, 0) > 0;
}

static int fd_of(void *arg, short *events_out)
{
    const struct fd_condition *c = arg;

    *events_out = c->events;
    return c->fd;
}

choir_status ch_wait_fd(struct ch_waiter *waiter, int fd, short events, ch_deadline until,
                        const _Atomic uint32_t *poison, const char *what)
{
    struct fd_condition condition = { fd, events };
    struct ch_wait wait = { .waiter = waiter,
                            .ready = fd_is_ready,
                            .also = fd_of,
                            .arg = &condition,
                            .until = until,
                            .poison = poison,
                            .what = what };

    return ch_wait(&wait);
}

struct flag_condition {
    _Atomic uint64_t *flag;
    uint64_t value;
};

static bool flag_is_raised(void *arg)
{
    const struct flag_condition *c = arg;

    return ch_flag_reached(c->flag, c->value);
}

choir_status ch_wait_flag_slow(const struct ch_wait *wait, _Atomic uint64_t *flag, uint64_t value)
{
    struct flag_condition condition = { flag, value };
    struct ch_wait with_flag = *wait;

    with_flag.ready = flag_is_raised;
    with_flag.also = NULL;
    with_flag.arg = &condition;
    return ch_wait(&with_flag);
}
