/*
 * scenario.h - a random case: some calls on some groups, made from a seed, the same on every rank.
 *
 * The seed also says how many ranks there are (1 + seed % 17), so a seed alone repeats a case. Cases
 * of one number of ranks follow each other at a distance of 17 and share one set of groups.
 */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "naive.h"

enum { CALLS_MAX = 5 };

/* The groups of a case. ALL_AGAIN and the others are splits of WORLD, and overlap. */
enum group_slot { WORLD, ALL_AGAIN, EVENS, ODDS, LOWER, NSLOTS };

struct members {
    int nranks, ranks[RANKS_MAX]; /* of WORLD */
};

void slot_members(int nranks, enum group_slot slot, struct members *out);

/* How the calls of a case are made. */
enum manner {
    IN_ORDER, /* all ranks in the same order, each call done on return or not, as each rank likes */
    SHUFFLED, /* every rank in an order of its own, but for calls of one group; all under way at once */
    BATCHED, /* all on one group, between choir_batch_begin() and choir_batch_end() */
    NMANNERS
};

struct scenario {
    uint64_t seed;
    int nranks;
    enum manner manner;
    int ncalls;
    struct call calls[CALLS_MAX];
};

int seed_nranks(uint64_t seed);
void scenario_make(uint64_t seed, struct scenario *out);

/* One line for each call, into `buf`, which is returned. */
const char *scenario_text(const struct scenario *s, char *buf, size_t size);

/* A stream of random numbers. */
struct dice {
    uint64_t state;
};
uint64_t roll(struct dice *d, uint64_t sides); /* below `sides` */
bool chance(struct dice *d, int percent);

#endif
