/*
 * clock.c - nanoseconds from the CPU's counter, steered by the kernel's clock.
 *
 *   UNSTARTED --[first ch_now()]--> KERNEL                     the counter is not steady: for good
 *                              \--> WARMING --[10 ms later]--> COUNTER --[counter misbehaves]--> KERNEL
 *
 * In COUNTER time is a line: now = ns0 + (ticks - ticks0) * rate. About once a second whoever asks
 * for the time steers: it measures how far the line is from the kernel's clock and bends it, from
 * this point on, so that the two meet a second later. A line never steps back, so time never does.
 * Readers take the line with a sequence number, as atomics, because ThreadSanitizer knows no fences.
 * One thread at a time steers, and never across a fork: a child must not find the line half written.
 */
#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <choir/info.h>

#include "base/arch.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/params.h"
#include "base/sys.h"

enum source { UNSTARTED, KERNEL, WARMING, COUNTER };

enum {
    WARMING_NS = 10 * CH_MS,    /* the first rate is measured over this long */
    STEER_NS = 1 * CH_S,        /* and then bent this often */
    MISBEHAVES_NS = 10 * CH_MS, /* further off than this within a steering: do not trust it */
    RATE_SHIFT = 32,            /* rates are nanoseconds per tick, times 2^32 */
};

/* Nobody asked for so long: begin a new line instead of bending the old one. */
static const uint64_t STALE_NS = UINT64_C(4) * CH_S;

/* A moment on both clocks. */
struct sample {
    uint64_t ticks, kernel_ns;
};

struct line {
    uint64_t ticks0, ns0, rate;
    uint64_t steer_at; /* ticks */
};

static struct {
    pthread_once_t once;
    _Atomic int source;
    const char *why;           /* plain: written by start(), then constant */
    _Atomic uint64_t ahead_ns; /* KERNEL after COUNTER: how far that had run ahead */
    _Atomic bool steering;     /* whoever sets it may write what follows */
    struct sample first, last; /* where rates are measured from */
    _Atomic uint32_t sequence; /* odd while the line changes */
    struct {
        _Atomic uint64_t ticks0, ns0, rate, steer_at;
    } line;
} the_clock = { .once = PTHREAD_ONCE_INIT };

/* Ticks and kernel time as close together as a few tries get them: in between, the thread may be
 * put aside. */
static struct sample take_sample(void)
{
    struct sample best = { 0, 0 };
    uint64_t best_width = UINT64_MAX;

    for (int i = 0; i < 5; i++) {
        uint64_t before = ch_arch_ticks();
        uint64_t ns = ch_sys_clock_ns();
        uint64_t after = ch_arch_ticks();

        if (after - before < best_width) {
            best_width = after - before;
            best = (struct sample){ before + (after - before) / 2, ns };
        }
    }
    return best;
}

/* --- the line, shared --------------------------------------------------------------------------- */

/* False if it changed meanwhile. Acquire on every field: each load stays in front of the later ones,
 * and one that sees a new field also sees the odd sequence number stored before it. */
static inline bool read_line(struct line *out, uint32_t *sequence_out)
{
    uint32_t sequence = atomic_load_explicit(&the_clock.sequence, memory_order_acquire);

    out->ticks0 = atomic_load_explicit(&the_clock.line.ticks0, memory_order_acquire);
    out->ns0 = atomic_load_explicit(&the_clock.line.ns0, memory_order_acquire);
    out->rate = atomic_load_explicit(&the_clock.line.rate, memory_order_acquire);
    out->steer_at = atomic_load_explicit(&the_clock.line.steer_at, memory_order_acquire);
    *sequence_out = sequence;
    return sequence % 2 == 0;
}

static bool line_is_current(uint32_t sequence)
{
    return atomic_load_explicit(&the_clock.sequence, memory_order_acquire) == sequence;
}

static uint64_t on_line(const struct line *line, uint64_t ticks)
{
    unsigned __int128 scaled;

    if (ticks <= line->ticks0) /* read just before the line was bent */
        return line->ns0;
    scaled = (unsigned __int128)(ticks - line->ticks0) * line->rate;
    return line->ns0 + (uint64_t)(scaled >> RATE_SHIFT);
}

/* Nanoseconds per tick between two samples, stretched by `extra_ns` over a steering interval. */
static uint64_t rate_between(struct sample from, struct sample to, int64_t extra_ns)
{
    unsigned __int128 ns = (unsigned __int128)(to.kernel_ns - from.kernel_ns) << RATE_SHIFT;
    uint64_t rate = (uint64_t)(ns / (to.ticks - from.ticks));

    return (uint64_t)((int64_t)rate + (__int128)(int64_t)rate * extra_ns / STEER_NS);
}

static uint64_t ticks_of(uint64_t ns, uint64_t rate)
{
    return (uint64_t)(((unsigned __int128)ns << RATE_SHIFT) / rate);
}

/* --- steering ----------------------------------------------------------------------------------- */

/* Only while forks are held off; from here until publish_line() nobody reads the line. */
static void withdraw_line(void)
{
    atomic_fetch_add_explicit(&the_clock.sequence, 1, memory_order_release);
}

/* Release on every field, pairs with read_line(). */
static void publish_line(uint64_t ticks0, uint64_t ns0, uint64_t rate)
{
    atomic_store_explicit(&the_clock.line.ticks0, ticks0, memory_order_release);
    atomic_store_explicit(&the_clock.line.ns0, ns0, memory_order_release);
    atomic_store_explicit(&the_clock.line.rate, rate, memory_order_release);
    atomic_store_explicit(&the_clock.line.steer_at, ticks0 + ticks_of(STEER_NS, rate),
                          memory_order_release);
    atomic_fetch_add_explicit(&the_clock.sequence, 1, memory_order_release);
}

/* A new line through a sample, when nobody has read the old one for long, or there is none. */
static void begin_line(struct sample at, uint64_t ahead_ns, uint64_t rate)
{
    withdraw_line();
    publish_line(at.ticks, at.kernel_ns + ahead_ns, rate);
}

/* Go on from where `line` is now, at another rate. Nobody reads from the withdrawal on, so nobody can
 * have been further on the old line. One nanosecond up, because lines are cut off below. */
static void bend_line(const struct line *line, uint64_t rate)
{
    uint64_t ticks;

    withdraw_line();
    ticks = ch_arch_ticks();
    publish_line(ticks, on_line(line, ticks) + 1, rate);
}

/* End of WARMING: a first line, if the counter moved with time at all. */
static void begin_counting(void)
{
    struct sample now = take_sample();

    if (now.ticks > the_clock.first.ticks && now.kernel_ns > the_clock.first.kernel_ns) {
        the_clock.last = now;
        /* A little ahead: a sample is good to some 50 ns, and time must not step back here. */
        begin_line(now, 200, rate_between(the_clock.first, now, 0));
        atomic_store_explicit(&the_clock.source, COUNTER, memory_order_release);
    }
}

/* The counter and the kernel's clock parted (a machine that slept, a migrated guest). From now on
 * the kernel's, shifted so that time does not step back. */
static void stop_counting(uint64_t ahead_ns)
{
    atomic_store_explicit(&the_clock.ahead_ns, ahead_ns, memory_order_relaxed);
    atomic_store_explicit(&the_clock.source, KERNEL, memory_order_release);
}

static void steer(const struct line *line)
{
    struct sample now = take_sample(), before = the_clock.last;
    uint64_t here = on_line(line, now.ticks);
    int64_t behind = (int64_t)(now.kernel_ns - here);

    the_clock.last = now;
    if (now.ticks <= before.ticks || now.kernel_ns <= before.kernel_ns)
        stop_counting(here > now.kernel_ns ? here - now.kernel_ns : 0);
    else if (now.kernel_ns - before.kernel_ns > STALE_NS)
        /* Nobody read the line since it was due, so nobody can have seen it run ahead. */
        begin_line(now, 0, rate_between(before, now, 0));
    else if (behind < -(int64_t)MISBEHAVES_NS || behind > (int64_t)MISBEHAVES_NS)
        stop_counting(behind < 0 ? (uint64_t)-behind : 0);
    else
        /* The rate of the last second or more: short enough to follow the kernel's own steering,
         * long enough that the samples' 50 ns do not matter. */
        bend_line(line, rate_between(before, now, behind));
}

/* --- reading ------------------------------------------------------------------------------------ */

static bool kernel_uses_tsc(void)
{
    char text[16] = "";
    int fd = ch_sys_open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                         O_RDONLY, 0);
    ssize_t n;

    if (fd < 0)
        return false;
    n = ch_sys_read(fd, text, sizeof(text) - 1);
    ch_sys_close(fd);
    return n > 0 &&
           (strncmp(text, "tsc", 3) == 0 || strncmp(text, "arch_sys_counter", (size_t)n - 1) == 0);
}

static bool may_count(void)
{
    const char *knob = ch_params()->clock;

    if (strcmp(knob, "vdso") == 0) {
        the_clock.why = "CHOIR_CLOCK asks for it";
        return false;
    }
    if (!ch_arch_ticks_steady(&the_clock.why))
        return false;
    if (strcmp(knob, "tsc") == 0) {
        the_clock.why = "CHOIR_CLOCK asks for it, and the counter has one rate";
        return true;
    }
    if (!kernel_uses_tsc()) {
        the_clock.why = "the kernel itself does not trust the CPU's counter as its clock source";
        return false;
    }
    return true;
}

static void start(void)
{
    bool count = may_count();

    if (count)
        the_clock.first = take_sample();
    atomic_store_explicit(&the_clock.source, count ? WARMING : KERNEL, memory_order_release);
}

/* Acquire, pairs with whoever stored the source: its line, or its offset, is there. */
static int source_now(void)
{
    return atomic_load_explicit(&the_clock.source, memory_order_acquire);
}

/* False: the line began meanwhile, and is a little ahead of what was read here; read again. */
static CH_NOINLINE bool now_warming(uint64_t *now_out)
{
    *now_out = ch_sys_clock_ns();
    if (*now_out - the_clock.first.kernel_ns >= WARMING_NS && ch_fork_try_hold()) {
        if (source_now() == WARMING)
            begin_counting();
        ch_fork_release();
    }
    return source_now() == WARMING;
}

static void warn_if_stopped(void)
{
    if (source_now() == KERNEL)
        ch_log_warn("the CPU's counter and the system clock parted by %llu us within a second; "
                    "using the system clock",
                    (unsigned long long)(atomic_load(&the_clock.ahead_ns) / CH_US));
}

/* `line` is due for steering. False: it has been bent, or must not be read any more; read again. */
static CH_NOINLINE bool now_steering(const struct line *line, uint64_t ticks, uint64_t *now_out)
{
    bool stale = ticks - line->steer_at > ticks_of(STALE_NS - STEER_NS, line->rate);

    if (ch_fork_try_hold()) {
        struct line current;
        uint32_t sequence;

        /* Another thread may have steered between our look and our turn. */
        if (source_now() == COUNTER && read_line(&current, &sequence) &&
            current.ticks0 == line->ticks0)
            steer(&current);
        ch_fork_release();
        warn_if_stopped();
        return false;
    }
    if (stale) /* somebody is about to begin a new line, which may lie below this one */
        ch_sys_yield();
    *now_out = on_line(line, ticks);
    return !stale;
}

static CH_NOINLINE uint64_t read_clock(bool rough)
{
    for (;;) {
        int source = source_now();
        struct line line;
        uint32_t sequence;
        uint64_t ticks, now;

        if (CH_UNLIKELY(source != COUNTER)) {
            if (source == KERNEL)
                return ch_sys_clock_ns() +
                       atomic_load_explicit(&the_clock.ahead_ns, memory_order_relaxed);
            if (source == UNSTARTED)
                pthread_once(&the_clock.once, start);
            else if (now_warming(&now))
                return now;
            continue;
        }
        if (CH_UNLIKELY(!read_line(&line, &sequence)))
            continue;
        ticks = rough ? ch_arch_ticks_rough() : ch_arch_ticks();
        if (CH_UNLIKELY(!line_is_current(sequence)))
            continue;
        if (CH_LIKELY(ticks <= line.steer_at))
            return on_line(&line, ticks);
        if (now_steering(&line, ticks, &now))
            return now;
    }
}

/* What read_clock() nearly always comes to. False: ask that. */
static CH_ALWAYS_INLINE bool glance(bool rough, uint64_t *now_out)
{
    struct line line;
    uint32_t sequence;
    uint64_t ticks;

    if (source_now() != COUNTER || !read_line(&line, &sequence))
        return false;
    ticks = rough ? ch_arch_ticks_rough() : ch_arch_ticks();
    *now_out = on_line(&line, ticks);
    return line_is_current(sequence) && ticks <= line.steer_at;
}

uint64_t ch_now(void)
{
    uint64_t now;

    return CH_LIKELY(glance(false, &now)) ? now : read_clock(false);
}

uint64_t ch_now_rough(void)
{
    uint64_t now;

    return CH_LIKELY(glance(true, &now)) ? now : read_clock(true);
}

uint64_t ch_now_to_monotonic(uint64_t now)
{
    if (source_now() == KERNEL)
        return now - atomic_load_explicit(&the_clock.ahead_ns, memory_order_relaxed);
    return now;
}

/* --- deadlines ---------------------------------------------------------------------------------- */

ch_deadline ch_deadline_ms(int64_t timeout_ms)
{
    uint64_t ns, until;

    if (timeout_ms < 0 || __builtin_mul_overflow((uint64_t)timeout_ms, (uint64_t)CH_MS, &ns) ||
        __builtin_add_overflow(ch_now(), ns, &until))
        return CH_NEVER;
    return until;
}

bool ch_deadline_passed(ch_deadline until)
{
    return until != CH_NEVER && ch_now() >= until;
}

int64_t ch_deadline_left_ns(ch_deadline until)
{
    uint64_t now;

    if (until == CH_NEVER)
        return -1;
    now = ch_now();
    if (now >= until)
        return 0;
    return until - now > INT64_MAX ? INT64_MAX : (int64_t)(until - now);
}

const char *choir_clock_name(void)
{
    (void)ch_now();
    return source_now() == KERNEL ? "vdso" : "tsc";
}

const char *choir_clock_reason(void)
{
    (void)ch_now();
    if (source_now() == KERNEL && atomic_load(&the_clock.ahead_ns) != 0)
        return "the CPU's counter parted from the system clock";
    return the_clock.why;
}
