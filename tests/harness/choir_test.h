/*
 * choir_test.h - the test harness.
 *
 *   static const struct { size_t count; const char *why; } rows[] = {
 *       { 0, "nothing at all" },
 *       { 7, "does not divide" },
 *   };
 *
 *   CHOIR_TEST(sums_are_right)
 *   {
 *       for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
 *           CHOIR_ROW("count %zu: %s", rows[i].count, rows[i].why);
 *           CHOIR_CHECK_OK(sum(rows[i].count, &out));
 *           CHOIR_CHECK_EQ(out, 21);
 *       }
 *   }
 *
 * A check that fails prints the expression, both values and the row, and ends the case. Every case
 * runs in a process of its own, with a timeout, and must give back what it took: live allocations
 * and descriptors of the library are counted when it returns. `x_test` runs all its cases, `x_test
 * NAME...` some, `x_test --list` names them. tests/run runs everything.
 */
#ifndef CHOIR_TEST_H
#define CHOIR_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <choir/status.h>

#include "base/compiler.h"

enum { CHOIR_TEST_SECONDS = 30 }; /* a case's time unless it says otherwise */

typedef void (*choir_test_fn)(void);

struct choir_test_case {
    const char *name, *file;
    choir_test_fn fn;
    int seconds;
    struct choir_test_case *next;
};

void choir_test_register(struct choir_test_case *c);

#define CHOIR_TEST_TIMED(name, seconds_)                                                           \
    static void test_##name(void);                                                                 \
    static struct choir_test_case case_##name = { #name, __FILE__, test_##name, seconds_, NULL };  \
    CH_CONSTRUCTOR static void register_##name(void)                                               \
    {                                                                                              \
        choir_test_register(&case_##name);                                                         \
    }                                                                                              \
    static void test_##name(void)

#define CHOIR_TEST(name) CHOIR_TEST_TIMED(name, CHOIR_TEST_SECONDS)

/* Where we are in a table; printed with a failure. */
#define CHOIR_ROW(...) choir_test_row(__VA_ARGS__)
void choir_test_row(const char *fmt, ...) CH_PRINTF(1, 2);

/* End the case: failed, or skipped with a reason. */
#define CHOIR_FAIL(...) choir_test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHOIR_SKIP(...) choir_test_skip(__VA_ARGS__)
_Noreturn void choir_test_fail(const char *file, int line, const char *fmt, ...) CH_PRINTF(3, 4);
_Noreturn void choir_test_skip(const char *fmt, ...) CH_PRINTF(1, 2);

#define CHOIR_CHECK(cond)                                                                          \
    ((cond) ? (void)0 : choir_test_fail(__FILE__, __LINE__, "%s is false", #cond))

/* A value of any scalar type, kept for printing. Comparing two of them compares what they print. */
struct choir_test_value {
    enum { CHOIR_VALUE_INT, CHOIR_VALUE_UINT, CHOIR_VALUE_REAL, CHOIR_VALUE_PTR } kind;
    union {
        long long i;
        unsigned long long u;
        double r;
        const void *p;
    };
};

struct choir_test_value choir_value_int(long long v);
struct choir_test_value choir_value_uint(unsigned long long v);
struct choir_test_value choir_value_real(double v);
struct choir_test_value choir_value_ptr(const void *v);

#define CHOIR_VALUE(x)                                                                             \
    _Generic((x), float                                                                            \
             : choir_value_real, double                                                            \
             : choir_value_real, _Bool                                                             \
             : choir_value_uint, unsigned char                                                     \
             : choir_value_uint, unsigned short                                                    \
             : choir_value_uint, unsigned                                                          \
             : choir_value_uint, unsigned long                                                     \
             : choir_value_uint, unsigned long long                                                \
             : choir_value_uint, char                                                              \
             : choir_value_int, signed char                                                        \
             : choir_value_int, short                                                              \
             : choir_value_int, int                                                                \
             : choir_value_int, long                                                               \
             : choir_value_int, long long                                                          \
             : choir_value_int, default                                                            \
             : choir_value_ptr)(x)

enum choir_test_relation { CHOIR_IS_EQ, CHOIR_IS_NE, CHOIR_IS_LT, CHOIR_IS_LE };

void choir_test_compare(const char *file, int line, enum choir_test_relation rel,
                        const char *left_text, struct choir_test_value left, const char *right_text,
                        struct choir_test_value right);

#define CHOIR_COMPARE(rel, a, b)                                                                   \
    choir_test_compare(__FILE__, __LINE__, rel, #a, CHOIR_VALUE(a), #b, CHOIR_VALUE(b))
#define CHOIR_CHECK_EQ(a, b) CHOIR_COMPARE(CHOIR_IS_EQ, a, b)
#define CHOIR_CHECK_NE(a, b) CHOIR_COMPARE(CHOIR_IS_NE, a, b)
#define CHOIR_CHECK_LT(a, b) CHOIR_COMPARE(CHOIR_IS_LT, a, b)
#define CHOIR_CHECK_LE(a, b) CHOIR_COMPARE(CHOIR_IS_LE, a, b)

/* Strings: equal, or the first holds the second. */
#define CHOIR_CHECK_STR(a, b) choir_test_str(__FILE__, __LINE__, #a, a, b)
#define CHOIR_CHECK_HAS(a, b) choir_test_has(__FILE__, __LINE__, #a, a, b)
void choir_test_str(const char *file, int line, const char *expr, const char *a, const char *b);
void choir_test_has(const char *file, int line, const char *expr, const char *a, const char *b);

/* Statuses: a failure prints the thread's last error. */
#define CHOIR_CHECK_OK(call)           choir_test_status(__FILE__, __LINE__, #call, call, CHOIR_OK)
#define CHOIR_CHECK_STATUS(call, want) choir_test_status(__FILE__, __LINE__, #call, call, want)
void choir_test_status(const char *file, int line, const char *expr, choir_status got,
                       choir_status want);

/*
 * Make every allocation and system call inside `scenario` fail in turn (fault.h). After each the
 * scenario must have returned (with an error, or well, if it knows a way round), and must have given
 * back all memory and descriptors. The error must come with a text.
 * CHOIR_TEST_FAULT_STEP: only one in so many is made to fail, for suites that go the same way again.
 */
void choir_test_all_faults(choir_status (*scenario)(void *arg), void *arg);

/* Run `fn(arg)` in a forked child; its exit code is 0 unless a check fails in it. */
int choir_test_fork(void (*fn)(void *arg), void *arg); /* returns the pid */
void choir_test_join(int pid);                         /* fails if the child failed */

/* A reproducible random stream (xorshift); seed it with a constant or print the seed. */
struct choir_test_random {
    uint64_t state;
};
uint64_t choir_test_random(struct choir_test_random *r);

/* True if CHOIR_TEST_LONG is set: `make test-all` asks for the long counts. */
bool choir_test_long(void);

/* How much slower this build or this tool is than a plain one: 1, or more under sanitizers and
 * valgrind. Scales counts, never a promised deadline. */
unsigned choir_test_slowness(void);

/* Whether it runs under valgrind, which runs one thread at a time: less of the same will do. */
bool choir_test_valgrind(void);

#endif
