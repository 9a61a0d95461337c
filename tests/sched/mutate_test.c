/*
 * mutate_test.c - the checker checked: algorithms with one thing wrong must be refused.
 *
 * Every algorithm at 2, 3, 4, 5 and 8 ranks, every step of every rank, every way to be wrong (mutate.h).
 * What is not refused must be one of the changes that can be harmless, and is then played for real in
 * random orders (replay.h), where it must do what the original does. Some of the refused are played too, to
 * see that playing has eyes. Prints a table, and every mutant that was not refused, with the reason why it is none;
 * under sanitizers a sample is enough.
 */
#include "mutate.h"
#include "replay.h"

#include <stdio.h>

#include "algo/algo.h"
#include "sched/check.h"
#include "sched/valid.h"

enum { ROUNDS = 3, REPLAYS = 40, SAMPLE = 41, PLAY_REFUSED = 17 };

struct tally {
    uint64_t tried;
    uint64_t invalid;  /* the builder would have refused it */
    uint64_t refused;  /* the checker did */
    uint64_t harmless; /* neither did, and it is none: by excuse */
    uint64_t missed;
    uint64_t played, failed; /* of the refused */
};

/* A mutant that was not refused. */
struct survivor {
    const struct ch_algo *algo;
    enum excuse excuse;
    enum mutation how;
    uint32_t nranks, rank, step;
    bool in_place;
};

enum { SURVIVORS_MAX = 4096 };

struct session {
    const struct ch_algo *algo;
    struct survivor survivors[SURVIVORS_MAX];
    size_t nsurvivors;
    struct tally all, by_kind[NMUTATIONS], by_algo;
    uint64_t by_excuse[NEXCUSES];
    uint64_t counter;
};

/* --- playing ------------------------------------------------------------------------------------ */

/* Whether playing them gives, whatever the order, what `right` gives. */
static bool plays_well(struct ch_sched **scheds, struct ch_sched **right, uint32_t n)
{
    uint64_t want, got;

    CHOIR_CHECK(replay_once(right, scheds, n, ROUNDS, 1, &want));
    for (uint64_t seed = 0; seed < REPLAYS; seed++) {
        if (!replay_once(scheds, right, n, ROUNDS, seed, &got) || got != want)
            return false;
    }
    return true;
}

/* --- one mutant --------------------------------------------------------------------------------- */

struct mutant {
    uint32_t rank, step, which;
    enum mutation how;
};

static void report(const struct ch_sched *s, const struct mutant *m, const char *what)
{
    char text[200], next[200] = "";

    if (m->how == MUTATE_SWAP)
        ch_step_text(s, m->step + 1, next, sizeof(next));
    printf("  %s: %s %s, rank %u of %u root %u%s, step %u, %s %u: %s%s%s\n", what,
           ch_coll_name(s->coll), s->algo, m->rank, s->nranks, s->root,
           s->in_place ? " in place" : "", m->step, mutation_names[m->how], m->which,
           ch_step_text(s, m->step, text, sizeof(text)), next[0] != '\0' ? "; then " : "", next);
}

static void judge_survivor(struct session *ses, struct tally *t, struct ch_sched **scheds,
                           struct ch_sched **right, const struct mutant *m)
{
    const struct ch_sched *s = right[m->rank];
    enum excuse excuse = mutate_excuse(s, m->step, m->how, m->which);

    if (excuse != EXCUSE_NONE && plays_well(scheds, right, s->nranks)) {
        t->harmless = 1;
        ses->by_excuse[excuse]++;
        CHOIR_CHECK_LT(ses->nsurvivors, (size_t)SURVIVORS_MAX);
        ses->survivors[ses->nsurvivors++] = (struct survivor){ ses->algo,  excuse,  m->how,
                                                               s->nranks,  m->rank, m->step,
                                                               s->in_place };
        return;
    }
    t->missed = 1;
    report(s, m, "MISSED");
}

static void count(struct tally *to, const struct tally *t)
{
    to->tried += t->tried;
    to->invalid += t->invalid;
    to->refused += t->refused;
    to->harmless += t->harmless;
    to->missed += t->missed;
    to->played += t->played;
    to->failed += t->failed;
}

static void try_mutant(struct session *ses, struct ch_sched **right, const struct mutant *m)
{
    uint32_t n = right[0]->nranks;
    struct ch_sched *scheds[REPLAY_RANKS_MAX];
    struct tally t = { .tried = 1 };

    if (choir_test_slowness() > 1 && ses->counter++ % SAMPLE != 0)
        return;
    memcpy(scheds, right, n * sizeof(scheds[0]));
    scheds[m->rank] = mutate(right, m->rank, m->step, m->how, m->which);
    if (scheds[m->rank] == NULL)
        return;
    if (ch_sched_validate(scheds[m->rank]) != CHOIR_OK) {
        t.invalid = 1;
    } else if (ch_check(scheds, n, ROUNDS, NULL) == CHOIR_OK) {
        judge_survivor(ses, &t, scheds, right, m);
    } else {
        t.refused = 1;
        t.played = ses->all.refused % PLAY_REFUSED == 0;
        t.failed = t.played && !plays_well(scheds, right, n);
    }
    count(&ses->all, &t);
    count(&ses->by_algo, &t);
    count(&ses->by_kind[m->how], &t);
    mutate_free(scheds[m->rank]);
}

/* --- all of them -------------------------------------------------------------------------------- */

static void try_step(struct session *ses, struct ch_sched **right, uint32_t rank, uint32_t step)
{
    for (int how = 0; how < NMUTATIONS; how++) {
        uint32_t n = mutate_count(right[rank], step, (enum mutation)how);

        for (uint32_t which = 0; which < n; which++) {
            struct mutant m = { rank, step, which, (enum mutation)how };

            try_mutant(ses, right, &m);
        }
    }
}

static void try_set(struct session *ses, const struct ch_algo *algo, uint32_t n, bool in_place)
{
    uint32_t root = ch_coll_rooted(algo->coll) || algo->coll == CH_BARRIER ? n / 2 : 0;
    struct ch_sched *right[REPLAY_RANKS_MAX];

    CHOIR_ROW("%s %s ranks %u", ch_coll_name(algo->coll), algo->name, n);
    for (uint32_t r = 0; r < n; r++) {
        struct ch_shape shape = { algo->coll, r, n, root, in_place };

        CHOIR_CHECK_OK(ch_algo_build(algo, &shape, &right[r]));
    }
    CHOIR_CHECK_OK(ch_check(right, n, ROUNDS, NULL));
    CHOIR_CHECK(plays_well(right, right, n));
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t step = 0; step < right[r]->nsteps; step++)
            try_step(ses, right, r, step);
    }
    for (uint32_t r = 0; r < n; r++)
        ch_sched_destroy(right[r]);
}

static void print_row(const char *coll, const char *name, const struct tally *t)
{
    printf("%-15s%-20s %8llu %8llu %8llu %8llu %6llu %8.2f%%\n", coll, name,
           (unsigned long long)t->tried, (unsigned long long)t->invalid,
           (unsigned long long)t->refused, (unsigned long long)t->harmless,
           (unsigned long long)t->missed,
           t->tried > 0 ? 100.0 * (double)(t->invalid + t->refused) / (double)t->tried : 100.0);
}

static bool same_line(const struct survivor *a, const struct survivor *b)
{
    return a->algo == b->algo && a->excuse == b->excuse && a->how == b->how &&
           a->nranks == b->nranks && a->in_place == b->in_place;
}

/* Each of them, by rank and step; those of one schedule and one kind in one line. */
static void print_survivors(const struct session *ses, enum excuse excuse)
{
    const struct survivor *before = NULL;

    for (size_t i = 0; i < ses->nsurvivors; i++) {
        const struct survivor *s = &ses->survivors[i];

        if (s->excuse != excuse)
            continue;
        if (before == NULL || !same_line(before, s))
            printf("%s    %s %s, %u ranks%s, %s:", before != NULL ? "\n" : "",
                   ch_coll_name(s->algo->coll), s->algo->name, s->nranks,
                   s->in_place ? " in place" : "", mutation_names[s->how]);
        printf(" %u.%u", s->rank, s->step);
        before = s;
    }
    printf("%s", before != NULL ? "\n" : "");
}

static void print_table_end(const struct session *ses)
{
    for (int how = 0; how < NMUTATIONS; how++)
        print_row("", mutation_names[how], &ses->by_kind[how]);
    print_row("all", "", &ses->all);
    puts(
        "not refused, and why that is no mistake (rank.step; all were played and do what the original does):");
    for (int i = 1; i < NEXCUSES; i++) {
        printf("  %s: %llu\n", excuse_words[i], (unsigned long long)ses->by_excuse[i]);
        print_survivors(ses, (enum excuse)i);
    }
    printf("of %llu refused ones that were played, %llu went wrong\n",
           (unsigned long long)ses->all.played, (unsigned long long)ses->all.failed);
    fflush(stdout);
}

CHOIR_TEST_TIMED(mutants_are_refused, 300)
{
    static const uint32_t sizes[] = { 2, 3, 4, 5, 8 };
    static struct session ses;

    printf("%-35s %8s %8s %8s %8s %6s %9s\n", "algorithm", "mutants", "invalid", "refused",
           "harmless", "missed", "caught");
    for (size_t a = 0; ch_algos[a] != NULL; a++) {
        ses.by_algo = (struct tally){ .tried = 0 };
        ses.algo = ch_algos[a];
        for (size_t i = 0; i < CH_ARRAY_LEN(sizes); i++) {
            if (!ch_algo_fits(ch_algos[a], sizes[i]))
                continue;
            try_set(&ses, ch_algos[a], sizes[i], false);
            try_set(&ses, ch_algos[a], sizes[i], true);
        }
        print_row(ch_coll_name(ch_algos[a]->coll), ch_algos[a]->name, &ses.by_algo);
    }
    print_table_end(&ses);
    CHOIR_CHECK_EQ(ses.all.missed, 0u);
    /* Of all, harmless ones included. */
    CHOIR_CHECK_LE(99 * ses.all.tried, 100 * (ses.all.invalid + ses.all.refused));
    /* Playing must see most of what is wrong, or it says nothing of what is not. */
    CHOIR_CHECK_LE(80 * ses.all.played, 100 * ses.all.failed);
}
