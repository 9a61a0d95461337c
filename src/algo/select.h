/*
 * select.h - which algorithm, and why.
 *
 * A pure function of the situation, which all ranks of a group describe in the same words: so they choose
 * alike without asking each other. The choice is one table (select.c), which CHOIR_ALGO may overrule.
 */
#ifndef CH_SELECT_H
#define CH_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algo/algo.h"

/* What decides. Nothing here may differ between ranks. */
struct ch_situation {
    enum ch_coll coll;
    uint32_t nranks;
    uint64_t nbytes; /* the larger of a rank's input and output, of the longest if blocks differ */
    size_t line_bytes;   /* payload that LINE holds, per rank and half */
    uint32_t processors; /* that the ranks share; 0: not known */
    bool shared;         /* all ranks share memory */
    bool uneven;         /* blocks may differ in length */
    bool ordered;        /* the sum must be the one from the first rank to the last */
    bool
        led; /* a barrier of which one rank should leave first: what follows is its broadcast or scatter */
};

enum { CH_REASON_MAX = 320 };

struct ch_choice {
    const struct ch_algo *algo;
    char reason[CH_REASON_MAX]; /* one line */
};

/* CHOIR_ALGO, understood: "allreduce:two-shot:64K-max,broadcast:binomial". */
enum { CH_OVERRULES_MAX = 32 };

struct ch_overrule {
    const struct ch_algo *algo;
    uint64_t from, to; /* of nbytes, both included */
};

struct ch_overrules {
    uint32_t count;
    struct ch_overrule list[CH_OVERRULES_MAX];
};

/* CHOIR_ERR_INVALID says which part is not understood and what there is. Empty text is no overrule. */
choir_status ch_overrules_parse(const char *text, struct ch_overrules *out);

/*
 * `overrules` may be NULL. The first that speaks of this operation and size wins; if its algorithm cannot do
 * what is asked, the table decides and the reason says so.
 * Errors: CHOIR_ERR_UNSUPPORTED if no algorithm can.
 */
choir_status ch_select(const struct ch_situation *situation, const struct ch_overrules *overrules,
                       struct ch_choice *out);

/* The same where it was measured up to how many bytes one shot is better than two (tuned.h); 0: it was not. */
choir_status ch_select_measured(const struct ch_situation *situation,
                                const struct ch_overrules *overrules, uint64_t one_shot_max,
                                struct ch_choice *out);

/* NULL if `algo` can do it, else why not ("ranks do not share memory"). */
const char *ch_algo_objection(const struct ch_algo *algo, const struct ch_situation *situation);

/* How long one block is if all are equal: the operation's nbytes, divided where there are N of them. */
uint64_t ch_block_nbytes(enum ch_coll coll, uint32_t nranks, uint64_t nbytes);

/* "two-shot, ring, ...": the names of an operation's algorithms, into `buf`, which is returned. */
const char *ch_algo_names(enum ch_coll coll, char *buf, size_t size);

#endif
