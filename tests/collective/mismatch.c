/*
 * mismatch.c - ranks that do not call the same thing: every one of them is told, soon, and who called what.
 *
 *   mismatch --seed S [--cases K]     ranks are threads; a case that fails says its seed
 *
 * A case is a group of 2 to 6 ranks that makes some calls together; then one rank or several, the odd ones, make a
 * call that differs in one thing. Where ranks do not meet in that call (a broadcast's root need not hear from
 * anybody), they meet in the barrier after it. Nobody may get through that.
 */
#include <getopt.h>
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

struct mismatch {
    uint64_t seed;
    int nranks, calls_before;
    enum thing thing;
    bool odd[8];
    struct one_call common, other;
};

enum { COUNT_MAX = 5000, SOON_MS = 1000 };

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

/* What the two calls differ in must be in the text, for both. */
static void check_text(const struct mismatch *m, int rank, const choir_error *error)
{
    char words[2][32] = { "", "" };

    if (error->code == CHOIR_ERR_TIMEOUT)
        complain(m, rank, "a time-out instead of a mismatch", error->text);
    switch (m->thing) {
    case OPERATION:
    case ORDER:
        snprintf(words[0], sizeof(words[0]), "%s", names[m->common.what]);
        snprintf(words[1], sizeof(words[1]), "%s", names[m->other.what]);
        break;
    case TYPE:
        snprintf(words[0], sizeof(words[0]), "%s", choir_type_name(m->common.type));
        snprintf(words[1], sizeof(words[1]), "%s", choir_type_name(m->other.type));
        break;
    case COUNT:
        snprintf(words[0], sizeof(words[0]), "%zu", m->common.count);
        snprintf(words[1], sizeof(words[1]), "%zu", m->other.count);
        break;
    case REDUCTION:
        snprintf(words[0], sizeof(words[0]), "%s", choir_redop_name(m->common.op));
        snprintf(words[1], sizeof(words[1]), "%s", choir_redop_name(m->other.op));
        break;
    case ROOT:
        snprintf(words[0], sizeof(words[0]), "root %d", m->common.root);
        snprintf(words[1], sizeof(words[1]), "root %d", m->other.root);
        break;
    case NTHINGS:
        break;
    }
    for (int i = 0; i < 2; i++) {
        if (strstr(error->text, words[i]) == NULL)
            complain(m, rank, words[i], error->text);
    }
}

static choir_status be_rank(choir_group *group, void *arg)
{
    static const struct one_call barrier = { .what = CALLS_BARRIER };
    const struct mismatch *m = arg;
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
    check_text(m, rank, choir_last_error_record());
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
        struct mismatch m;

        make(seed + (uint64_t)i, &m);
        alarm(60);
        if (choir_run_threads(m.nranks, be_rank, &m) != CHOIR_OK) {
            fprintf(stderr, "FAILED seed %llu: %s\n", (unsigned long long)m.seed,
                    choir_last_error());
            return 1;
        }
    }
    printf("%d mismatches, all told\n", cases);
    return 0;
}
