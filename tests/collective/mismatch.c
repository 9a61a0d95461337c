/*
 * mismatch.c - ranks that do not call the same thing: every one of them is told, soon, and who called what.
 *
 *   mismatch --seed S [--cases K]     ranks are threads; a case that fails says its seed
 *
 * A case is a group of 2 to 6 ranks that makes some calls together; then one rank or several, the odd ones, make a
 * call that differs in one thing. Where ranks do not meet in that call (a broadcast's root need not hear from
 * anybody), they meet in the barrier after it. Nobody may get through that. The table in the error must have
 * each rank beside the very arguments with which it called, name the operation in which they first differed, blame
 * a rank of the fewer, and be the same for all (before it is what each called). Now and then a rank is late: the
 * others do not wait for it to tell.
 */
#include <getopt.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <choir/choir.h>
#include <choir/coll.h>

#include "scenario.h"

enum thing { OPERATION, TYPE, COUNT, REDUCTION, ROOT, ORDER, NTHINGS };

static const char *const things[NTHINGS] = { "operation", "type", "count",
                                             "reduction", "root", "order" };

enum called { CALLS_ALLREDUCE, CALLS_BROADCAST, CALLS_REDUCE, CALLS_ALLGATHER, CALLS_BARRIER };

static const char *const names[] = { "allreduce", "broadcast", "reduce", "allgather", "barrier" };

struct one_call {
    enum called what;
    choir_type type;
    size_t count;
    choir_redop op;
    int root;
};

enum { COUNT_MAX = 5000, SOON_MS = 1000, NRANKS_MAX = 6 };

struct mismatch {
    uint64_t seed;
    int nranks, calls_before;
    enum thing thing;
    bool odd[NRANKS_MAX];
    struct one_call common, other;
    int late;                     /* a rank that calls when all others were told; -1: none */
    _Atomic int ntold;            /* ranks that were */
    choir_error told[NRANKS_MAX]; /* each rank writes its own */
};

static void differ(struct mismatch *m, struct dice *d)
{
    struct one_call *o = &m->other;

    *o = m->common;
    switch (m->thing) {
    case OPERATION:
    case ORDER:
        while (o->what == m->common.what)
            o->what = (enum called)roll(d, 5);
        break;
    case TYPE: /* of the same length, so that only the type differs */
        o->type = m->common.type == CHOIR_F32 ? CHOIR_I32 : CHOIR_F32;
        break;
    case COUNT:
        while (o->count == m->common.count)
            o->count = 1 + roll(d, COUNT_MAX);
        break;
    case REDUCTION:
        o->op = m->common.op == CHOIR_SUM ? CHOIR_MAX : CHOIR_SUM;
        break;
    case ROOT:
        o->root = (m->common.root + 1) % m->nranks;
        break;
    case NTHINGS:
        break;
    }
}

/* The others still differ without it. */
static bool may_be_late(const struct mismatch *m, int rank)
{
    int nodd = 0;

    for (int r = 0; r < m->nranks; r++)
        nodd += r != rank && m->odd[r];
    return nodd > 0 && nodd < m->nranks - 1;
}

static void make(uint64_t seed, struct mismatch *m)
{
    struct dice d = { .state = seed };
    int nodd;

    memset(m, 0, sizeof(*m));
    m->seed = seed;
    m->nranks = 2 + (int)roll(&d, 5);
    m->calls_before = (int)roll(&d, 5);
    m->thing = (enum thing)roll(&d, NTHINGS);
    m->common.what = (enum called)roll(&d, m->thing == OPERATION || m->thing == ORDER ? 5 : 4);
    if (m->thing == REDUCTION)
        m->common.what = chance(&d, 50) ? CALLS_ALLREDUCE : CALLS_REDUCE;
    if (m->thing == ROOT)
        m->common.what = chance(&d, 50) ? CALLS_BROADCAST : CALLS_REDUCE;
    m->common.type = chance(&d, 50) ? CHOIR_F32 : CHOIR_U32;
    m->common.count = 1 + roll(&d, chance(&d, 50) ? 20 : COUNT_MAX);
    m->common.op = chance(&d, 50) ? CHOIR_SUM : CHOIR_MIN;
    m->common.root = (int)roll(&d, (uint64_t)m->nranks);
    differ(m, &d);
    nodd = 1 + (int)roll(&d, (uint64_t)m->nranks - 1);
    for (int i = 0; i < nodd; i++)
        m->odd[roll(&d, (uint64_t)m->nranks)] = true;
    m->late = chance(&d, 5) ? (int)roll(&d, (uint64_t)m->nranks) : -1;
    if (m->late >= 0 && !may_be_late(m, m->late))
        m->late = -1;
}

/* --- calling ---------------------------------------------------------------------------------------------- */

static choir_status call(choir_group *group, const struct one_call *c, uint32_t *in, uint32_t *out)
{
    choir_coll_opts opts = { .size = sizeof(opts), .op = c->op, .root = c->root };
    choir_buf buf = { .data = in, .count = c->count, .type = c->type };
    choir_buf all = { .data = out,
                      .count = c->count * (size_t)choir_group_size(group),
                      .type = c->type };

    switch (c->what) {
    case CALLS_ALLREDUCE:
        return choir_allreduce(group, buf, &opts, NULL);
    case CALLS_BROADCAST:
        return choir_broadcast(group, buf, &opts, NULL);
    case CALLS_REDUCE:
        return choir_reduce(group, buf, &opts, NULL);
    case CALLS_ALLGATHER:
        return choir_allgather_into(group, buf, all, &opts, NULL);
    case CALLS_BARRIER:
        return choir_barrier(group, &opts, NULL);
    }
    return CHOIR_ERR_INVALID;
}

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

static void complain(const struct mismatch *m, int rank, const char *what, const char *text)
{
    fprintf(stderr, "FAILED seed %llu (%d ranks, %s differs: %s against %s; odd:",
            (unsigned long long)m->seed, m->nranks, things[m->thing], names[m->common.what],
            names[m->other.what]);
    for (int r = 0; r < m->nranks; r++)
        fprintf(stderr, "%s", m->odd[r] ? " odd" : " -");
    fprintf(stderr, ") rank %d: %s: %s\n", rank, what, text);
    _exit(1);
}

/* --- the table -------------------------------------------------------------------------------------------- */

/* A call as the table has it. */
static const char *call_text(const struct one_call *c, char *buf, size_t size)
{
    const char *type = choir_type_name(c->type);

    switch (c->what) {
    case CALLS_ALLREDUCE:
        snprintf(buf, size, "allreduce of %zu %s %s", c->count, type, choir_redop_name(c->op));
        break;
    case CALLS_BROADCAST:
        snprintf(buf, size, "broadcast of %zu %s root %d", c->count, type, c->root);
        break;
    case CALLS_REDUCE:
        snprintf(buf, size, "reduce of %zu %s %s root %d", c->count, type, choir_redop_name(c->op),
                 c->root);
        break;
    case CALLS_ALLGATHER:
        snprintf(buf, size, "allgather_into of %zu %s", c->count, type);
        break;
    case CALLS_BARRIER:
        snprintf(buf, size, "barrier");
        break;
    }
    return buf;
}

/* "ranks 0, 2-4" at *text_io, which is left behind it: a bit for each; 0 if that is not what is there. */
static unsigned read_ranks(const char **text_io)
{
    const char *p = *text_io;
    unsigned set = 0;

    if (strncmp(p, "rank", 4) != 0)
        return 0;
    p += strncmp(p, "ranks ", 6) == 0 ? 6 : 5;
    for (;;) {
        char *end;
        long first = strtol(p, &end, 10), last = first;

        if (end == p)
            return 0;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long r = first; r <= last && r < NRANKS_MAX; r++)
            set |= 1U << r;
        p = end;
        if (strncmp(p, ", ", 2) != 0)
            break;
        p += 2;
    }
    *text_io = p;
    return set;
}

struct table {
    unsigned rows[2]; /* who called what is common, who called the other */
    unsigned missing; /* who had not called yet */
};

/* False if there is anything in the table that nobody called. */
static bool read_table(const struct mismatch *m, const char *text, struct table *out)
{
    char words[2][128];

    call_text(&m->common, words[0], sizeof(words[0]));
    call_text(&m->other, words[1], sizeof(words[1]));
    memset(out, 0, sizeof(*out));
    while (*text != '\0') {
        const char *end = strstr(text, "; ");
        size_t length;
        bool late = strncmp(text, "not there yet: ", 15) == 0;
        unsigned set;

        text += late ? 15 : 0;
        set = read_ranks(&text);
        if (set == 0)
            return false;
        if (late) {
            out->missing |= set;
        } else {
            int row = -1;

            text += 2; /* ": " */
            length = end != NULL ? (size_t)(end - text) : strlen(text);
            for (int i = 0; i < 2; i++) {
                if (strlen(words[i]) == length && memcmp(words[i], text, length) == 0)
                    row = i;
            }
            if (row < 0 || out->rows[row] != 0)
                return false;
            out->rows[row] = set;
            text += length;
        }
        if (end != NULL)
            text = end + 2;
    }
    return true;
}

static unsigned odd_ones(const struct mismatch *m)
{
    unsigned set = 0;

    for (int r = 0; r < m->nranks; r++)
        set |= m->odd[r] ? 1U << r : 0;
    return set;
}

/* Everybody is in its row, and in no other. */
static const char *judge_table(const struct mismatch *m, const struct table *t)
{
    unsigned everybody = (1U << m->nranks) - 1, odd = odd_ones(m);

    if ((t->rows[0] & odd) != 0 || (t->rows[1] & ~odd) != 0)
        return "a rank stands beside what another called";
    if ((t->rows[0] | t->rows[1] | t->missing) != everybody)
        return "the table leaves a rank out";
    if (m->late >= 0 && (t->missing >> m->late & 1) == 0)
        return "a rank that has called nothing is in the table";
    if (((t->rows[0] | t->rows[1]) & t->missing) != 0)
        return "a rank is in the table, and not there yet";
    return t->rows[0] == 0 || t->rows[1] == 0 ? "the table has one row" : NULL;
}

static bool is_blamed_rightly(const struct table *t, int culprit)
{
    int n[2] = { __builtin_popcount(t->rows[0]), __builtin_popcount(t->rows[1]) };
    int row = (t->rows[1] >> culprit & 1) != 0;

    return (t->rows[row] >> culprit & 1) != 0 && n[row] <= n[!row];
}

static void check_error(const struct mismatch *m, int rank, const choir_error *error)
{
    static const char before[] = ": ranks called different operations", ago[] = " some time ago";
    const char *table = strstr(error->text, before), *number = strstr(error->text, "operation ");
    struct table t;
    const char *wrong;

    if (error->code != CHOIR_ERR_MISMATCH)
        complain(m, rank, choir_status_name(error->code), error->text);
    if (table == NULL || number == NULL || atoi(number + 10) != m->calls_before)
        complain(m, rank, "it does not say in which operation it began", error->text);
    table += sizeof(before) - 1;
    table += strncmp(table, ago, sizeof(ago) - 1) == 0 ? sizeof(ago) - 1 : 0;
    if (!read_table(m, table + 2, &t))
        complain(m, rank, "the table has what nobody called", error->text);
    wrong = judge_table(m, &t);
    if (wrong != NULL)
        complain(m, rank, wrong, error->text);
    if (error->culprit < 0 || error->culprit >= m->nranks || !is_blamed_rightly(&t, error->culprit))
        complain(m, rank, "the wrong one is blamed", error->text);
}

static choir_status be_rank(choir_group *group, void *arg)
{
    static const struct one_call barrier = { .what = CALLS_BARRIER };
    struct mismatch *m = arg;
    int rank = choir_group_rank(group);
    uint32_t *in = calloc(COUNT_MAX, sizeof(*in));
    uint32_t *out = calloc(COUNT_MAX * (size_t)m->nranks, sizeof(*out));
    const struct one_call *mine = m->odd[rank] ? &m->other : &m->common;
    choir_status rc = CHOIR_OK, last;
    double began;

    if (in == NULL || out == NULL)
        abort();
    for (int i = 0; i < m->calls_before && rc == CHOIR_OK; i++)
        rc = call(group, &m->common, in, out);
    if (rc != CHOIR_OK)
        complain(m, rank, "before anything differed", choir_last_error());

    while (rank == m->late && m->ntold < m->nranks - 1)
        sched_yield();
    began = now_ms();
    rc = call(group, mine, in, out);
    if (m->thing == ORDER && rc == CHOIR_OK)
        rc = call(group, mine == &m->other ? &m->common : &m->other, in, out);
    if (rc == CHOIR_OK)
        rc = call(group, &barrier, in, out);
    if (rc == CHOIR_OK)
        complain(m, rank, "not found", "every call went well");
    if (now_ms() - began > SOON_MS)
        complain(m, rank, "found late", choir_last_error());
    m->told[rank] = *choir_last_error_record();
    check_error(m, rank, &m->told[rank]);
    m->ntold++;
    last = call(group, &barrier, in, out); /* and it stays so */
    if (last != rc)
        complain(m, rank, "the next call fails otherwise", choir_last_error());
    free(in);
    free(out);
    return CHOIR_OK;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "seed", required_argument, NULL, 's' },
        { "cases", required_argument, NULL, 'c' },
        { NULL, 0, NULL, 0 },
    };
    uint64_t seed = 1;
    int option, cases = 1;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            seed = strtoull(optarg, NULL, 0);
        else if (option == 'c')
            cases = atoi(optarg);
        else
            return 2;
    }
    for (int i = 0; i < cases; i++) {
        static struct mismatch m;

        make(seed + (uint64_t)i, &m);
        alarm(60);
        if (choir_run_threads(m.nranks, be_rank, &m) != CHOIR_OK) {
            fprintf(stderr, "FAILED seed %llu: %s\n", (unsigned long long)m.seed,
                    choir_last_error());
            return 1;
        }
        for (int r = 1; r < m.nranks; r++) {
            if (m.told[r].culprit != m.told[0].culprit ||
                strcmp(strstr(m.told[r].text, "group "), strstr(m.told[0].text, "group ")) != 0)
                complain(&m, r, "told otherwise than rank 0", m.told[r].text);
        }
    }
    printf("%d mismatches, all told\n", cases);
    return 0;
}
