/*
 * choir_test.c - run cases, each in a process of its own, and print what went wrong with values.
 *
 * Exit codes of one case: 0 passed, 77 skipped (the reason is on standard output), else failed.
 */
#include "choir_test.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/sys.h"

enum { EXIT_SKIP = 77 };

static struct choir_test_case *cases;
static char row_text[256];

void choir_test_register(struct choir_test_case *c)
{
    struct choir_test_case **tail = &cases;

    while (*tail != NULL)
        tail = &(*tail)->next;
    *tail = c;
}

void choir_test_row(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(row_text, sizeof(row_text), fmt, args);
    va_end(args);
}

static _Noreturn void end_process(int code)
{
    fflush(NULL);
    _exit(code);
}

_Noreturn void choir_test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    printf("%s:%d: ", file, line);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    if (row_text[0] != '\0')
        printf("  in row: %s\n", row_text);
    end_process(EXIT_FAILURE);
}

_Noreturn void choir_test_skip(const char *fmt, ...)
{
    va_list args;

    printf("skip: ");
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    end_process(EXIT_SKIP);
}

struct choir_test_value choir_value_int(long long v)
{
    return (struct choir_test_value){ .kind = CHOIR_VALUE_INT, .i = v };
}

struct choir_test_value choir_value_uint(unsigned long long v)
{
    return (struct choir_test_value){ .kind = CHOIR_VALUE_UINT, .u = v };
}

struct choir_test_value choir_value_real(double v)
{
    return (struct choir_test_value){ .kind = CHOIR_VALUE_REAL, .r = v };
}

struct choir_test_value choir_value_ptr(const void *v)
{
    return (struct choir_test_value){ .kind = CHOIR_VALUE_PTR, .p = v };
}

static const char *value_text(struct choir_test_value v, char *buf, size_t size)
{
    switch (v.kind) {
    case CHOIR_VALUE_INT:
        snprintf(buf, size, "%lld", v.i);
        break;
    case CHOIR_VALUE_UINT:
        snprintf(buf, size, "%llu (0x%llx)", v.u, v.u);
        break;
    case CHOIR_VALUE_REAL:
        snprintf(buf, size, "%.17g", v.r);
        break;
    case CHOIR_VALUE_PTR:
        snprintf(buf, size, "%p", v.p);
        break;
    }
    return buf;
}

/* -1, 0 or 1; mixed signs compare by value, not by bits. */
static int order(struct choir_test_value a, struct choir_test_value b)
{
    if (a.kind == CHOIR_VALUE_PTR)
        return a.p == b.p ? 0 : 1;
    if (a.kind == CHOIR_VALUE_REAL || b.kind == CHOIR_VALUE_REAL) {
        double x = a.kind == CHOIR_VALUE_REAL   ? a.r
                   : a.kind == CHOIR_VALUE_UINT ? (double)a.u
                                                : (double)a.i;
        double y = b.kind == CHOIR_VALUE_REAL   ? b.r
                   : b.kind == CHOIR_VALUE_UINT ? (double)b.u
                                                : (double)b.i;
        return x == y ? 0 : x < y ? -1 : 1;
    }
    if (a.kind == CHOIR_VALUE_INT && a.i < 0)
        return b.kind == CHOIR_VALUE_INT ? (a.i > b.i) - (a.i < b.i) : -1;
    if (b.kind == CHOIR_VALUE_INT && b.i < 0)
        return 1;
    return (a.u > b.u) - (a.u < b.u);
}

void choir_test_compare(const char *file, int line, enum choir_test_relation rel,
                        const char *left_text, struct choir_test_value left, const char *right_text,
                        struct choir_test_value right)
{
    static const char *const signs[] = { "==", "!=", "<", "<=" };
    int o = order(left, right);
    bool holds = rel == CHOIR_IS_EQ   ? o == 0
                 : rel == CHOIR_IS_NE ? o != 0
                 : rel == CHOIR_IS_LT ? o < 0
                                      : o <= 0;
    char l[64], r[64];

    if (!holds)
        choir_test_fail(file, line, "%s %s %s does not hold\n  left:  %s\n  right: %s", left_text,
                        signs[rel], right_text, value_text(left, l, sizeof(l)),
                        value_text(right, r, sizeof(r)));
}

void choir_test_str(const char *file, int line, const char *expr, const char *a, const char *b)
{
    if (a == NULL || b == NULL ? a != b : strcmp(a, b) != 0)
        choir_test_fail(file, line, "%s is not as expected\n  got:      \"%s\"\n  expected: \"%s\"",
                        expr, a != NULL ? a : "(null)", b != NULL ? b : "(null)");
}

void choir_test_has(const char *file, int line, const char *expr, const char *a, const char *b)
{
    if (a == NULL || strstr(a, b) == NULL)
        choir_test_fail(file, line, "%s lacks something\n  got:   \"%s\"\n  lacks: \"%s\"", expr,
                        a != NULL ? a : "(null)", b);
}

void choir_test_status(const char *file, int line, const char *expr, choir_status got,
                       choir_status want)
{
    if (got != want)
        choir_test_fail(file, line, "%s\n  got:      %s: %s\n  expected: %s", expr,
                        choir_status_name(got), got < 0 ? choir_last_error() : "",
                        choir_status_name(want));
}

/* --- what a case must give back ---------------------------------------------------------------- */

static uint64_t live_blocks(void)
{
    uint64_t sum = 0;

    for (int sub = 0; sub < CH_NSUBSYSTEMS; sub++)
        sum += ch_mem_count((enum ch_subsystem)sub).live_blocks;
    return sum;
}

static void check_nothing_is_kept(const char *when, uint64_t blocks_before, int fds_before)
{
    if (live_blocks() != blocks_before) {
        for (int sub = 0; sub < CH_NSUBSYSTEMS; sub++) {
            struct ch_mem_count c = ch_mem_count((enum ch_subsystem)sub);

            if (c.live_blocks != 0)
                printf("  %s: %llu blocks, %llu bytes\n", ch_subsystem_name((enum ch_subsystem)sub),
                       (unsigned long long)c.live_blocks, (unsigned long long)c.live_bytes);
        }
        CHOIR_FAIL("%s: %llu allocations are still live", when,
                   (unsigned long long)(live_blocks() - blocks_before));
    }
    if (ch_sys_fd_count() != fds_before)
        CHOIR_FAIL("%s: %d descriptors are still open", when, ch_sys_fd_count() - fds_before);
}

static unsigned number_in_env(const char *name)
{
    const char *text = getenv(name);

    return text != NULL && atoi(text) > 0 ? (unsigned)atoi(text) : 1;
}

void choir_test_all_faults(choir_status (*scenario)(void *arg), void *arg)
{
    enum { TOO_MANY = 1000000 };
    unsigned step = number_in_env("CHOIR_TEST_FAULT_STEP");
    uint64_t blocks = live_blocks();
    int fds = ch_sys_fd_count();
    char when[128];

    for (uint64_t k = 1; k < TOO_MANY; k += step) {
        choir_status status;
        bool fired;

        ch_error_load(&(choir_error){ .culprit = CHOIR_NO_RANK }); /* no text left from before */
        ch_fault_arm(CH_FAULT_ANY, k, 0);
        status = scenario(arg);
        fired = ch_fault_disarm();
        snprintf(when, sizeof(when), "after failing call %llu (%s)", (unsigned long long)k,
                 ch_fault_last());
        check_nothing_is_kept(when, blocks, fds);
        if (!fired) {
            choir_test_status(__FILE__, __LINE__, "scenario without a fault", status, CHOIR_OK);
            return;
        }
        if (status < 0 && choir_last_error()[0] == '\0')
            CHOIR_FAIL("%s: %s without a text", when, choir_status_name(status));
    }
    CHOIR_FAIL("the scenario never ended");
}

/* --- children, randomness, circumstances ------------------------------------------------------- */

int choir_test_fork(void (*fn)(void *arg), void *arg)
{
    int pid;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        CHOIR_FAIL("fork: %s", strerror(errno));
    if (pid == 0) {
        fn(arg);
        end_process(EXIT_SUCCESS);
    }
    return pid;
}

void choir_test_join(int pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            CHOIR_FAIL("waitpid: %s", strerror(errno));
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        CHOIR_FAIL("child process ended with %s %d", WIFEXITED(status) ? "exit code" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

uint64_t choir_test_random(struct choir_test_random *r)
{
    uint64_t x = r->state != 0 ? r->state : UINT64_C(0x9e3779b97f4a7c15);

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    r->state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

bool choir_test_long(void)
{
    return getenv("CHOIR_TEST_LONG") != NULL;
}

unsigned choir_test_slowness(void)
{
    return number_in_env("CHOIR_TEST_SLOWNESS");
}

bool choir_test_valgrind(void)
{
    return getenv("CHOIR_TEST_VALGRIND") != NULL;
}

/* --- running ----------------------------------------------------------------------------------- */

static void run_here(const struct choir_test_case *c)
{
    c->fn();
    check_nothing_is_kept("at the end", 0, 0);
}

static void run_case(void *arg)
{
    const struct choir_test_case *c = arg;

    alarm((unsigned)c->seconds * choir_test_slowness());
    run_here(c);
}

/* For people: all cases (or those named), one child each, a line each. */
static int run_many(char **names, int count)
{
    int failed = 0, found = 0;

    for (struct choir_test_case *c = cases; c != NULL; c = c->next) {
        bool wanted = count == 0;
        int status = 0;

        for (int i = 0; i < count; i++)
            wanted = wanted || strcmp(names[i], c->name) == 0;
        if (!wanted)
            continue;
        found++;
        waitpid(choir_test_fork(run_case, c), &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
            printf("skip %s\n", c->name);
        else if (status == 0)
            printf("ok   %s\n", c->name);
        else
            printf("FAIL %s\n", c->name);
        failed += status != 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP);
    }
    if (found == 0 || found < count) {
        fprintf(stderr, "no such case; --list names them\n");
        return 2;
    }
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* `--one NAME` runs a case in this very process: what tests/run and a debugger use. */
int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (struct choir_test_case *c = cases; c != NULL; c = c->next)
            printf("%s %d\n", c->name, c->seconds);
        return EXIT_SUCCESS;
    }
    if (argc == 3 && strcmp(argv[1], "--one") == 0) {
        for (struct choir_test_case *c = cases; c != NULL; c = c->next) {
            if (strcmp(argv[2], c->name) == 0) {
                run_here(c);
                return EXIT_SUCCESS;
            }
        }
        fprintf(stderr, "no such case: %s\n", argv[2]);
        return 2;
    }
    return run_many(argv + 1, argc - 1);
}
