/*
 * select.c - the table of choices.
 *
 * Read from the top: the first row of the operation whose limits hold and whose algorithm can do what is asked
 * is taken. The limits are first guesses from the algorithms' costs: a wait costs about a microsecond,
 * more where ranks outnumber processors, and a core moves some ten bytes in a nanosecond.
 */
#include "algo/select.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "sched/blocks.h"

enum { K = 1024, M = 1024 * 1024 };

struct rule {
    enum ch_coll coll;
    const char *algo;
    uint64_t nbytes_max; /* 0: any */
    uint64_t
        reading_max; /* of nbytes times ranks: what everyone reads if everyone reads all; 0: any */
    bool crowded;    /* only if ranks outnumber processors */
    bool
        measured; /* only if measured figures say so, which then decide instead of the limits here */
    bool led;     /* only if one rank should leave first */
    const char *why;
};

static const struct rule rules[] = {
    /* ranks share memory */
    { CH_ALLREDUCE, "inline", 0, 0, false, false, false, "it fits the flag's own cache lines" },
    { CH_ALLREDUCE, "one-shot", 0, 0, false, true, false,
      "as measured here, reading everyone's input costs less than a second wait" },
    { CH_ALLREDUCE, "one-shot", 8 * K, 128 * K, false, false, false,
      "reading everyone's input costs less than a second wait" },
    { CH_ALLREDUCE, "one-shot", 64 * K, 512 * K, true, false, false,
      "ranks outnumber processors: a second wait would cost a time slice" },
    { CH_ALLREDUCE, "two-shot", 0, 0, false, false, false,
      "everyone reducing its own share costs less than everyone reading all inputs" },
    { CH_BROADCAST, "inline", 0, 0, false, false, false, "it fits the flag's own cache lines" },
    { CH_BROADCAST, "staged", 0, 0, false, false, false, "nobody moves a byte more than it must" },
    { CH_REDUCE, "inline", 0, 0, false, false, false, "it fits the flag's own cache lines" },
    { CH_REDUCE, "one-shot", 0, 0, false, true, false,
      "as measured here, the root's reading all inputs costs less than a second wait" },
    { CH_REDUCE, "one-shot", 8 * K, 128 * K, false, false, false,
      "the root's reading all inputs costs less than a second wait" },
    { CH_REDUCE, "one-shot", 64 * K, 512 * K, true, false, false,
      "ranks outnumber processors: a second wait would cost a time slice" },
    { CH_REDUCE, "two-shot", 0, 0, false, false, false,
      "everyone reducing its own share costs less than the root's reading all inputs" },
    { CH_REDUCE_SCATTER, "inline", 0, 0, false, false, false,
      "it fits the flag's own cache lines" },
    { CH_REDUCE_SCATTER, "one-shot", 0, 0, false, false, false,
      "no byte is read twice, and there is one wait" },
    { CH_ALLGATHER, "inline", 0, 0, false, false, false, "it fits the flag's own cache lines" },
    { CH_ALLGATHER, "staged", 0, 0, false, false, false,
      "no byte is moved twice, and there is one wait" },
    { CH_GATHER, "inline", 0, 0, false, false, false, "it fits the flag's own cache lines" },
    { CH_GATHER, "staged", 0, 0, false, false, false,
      "no byte is moved twice, and there is one wait" },
    { CH_SCATTER, "inline", 0, 0, false, false, false, "it fits the flag's own cache lines" },
    { CH_SCATTER, "staged", 0, 0, false, false, false,
      "no byte is moved twice, and there is one wait" },
    { CH_ALLTOALL, "inline", 0, 0, false, false, false, "it fits the flag's own cache lines" },
    { CH_ALLTOALL, "staged", 0, 0, false, false, false,
      "no byte is moved twice, and there is one wait" },
    { CH_BARRIER, "central", 0, 0, false, false, true,
      "a root's turn comes next: it leaves first" },
    { CH_BARRIER, "flags", 0, 0, false, false, false, "one look at everyone's flag" },

    /* messages */
    { CH_ALLREDUCE, "recursive-doubling", 16 * K, 0, false, false, false,
      "short: the fewest waits" },
    { CH_ALLREDUCE, "halving-doubling", M, 0, false, false, false,
      "as few bytes as a ring, in fewer waits" },
    { CH_ALLREDUCE, "ring", 0, 0, false, false, false,
      "long: the fewest bytes, to neighbours only" },
    { CH_BROADCAST, "binomial", 64 * K, 0, false, false, false, "short: the fewest waits" },
    { CH_BROADCAST, "scatter-ring", 0, 0, false, false, false,
      "long: the root sends about twice the payload, however many ranks" },
    { CH_REDUCE, "binomial", 0, 0, false, false, false, "the fewest waits" },
    { CH_REDUCE_SCATTER, "pairwise", 256 * K, 0, false, false, false,
      "no message waits for another" },
    { CH_REDUCE_SCATTER, "ring", 0, 0, false, false, false,
      "long: to neighbours only, with little room" },
    { CH_REDUCE_SCATTER, "pairwise", 0, 0, false, false, false, "it adds up in the ranks' order" },
    { CH_ALLGATHER, "bruck", 64 * K, 0, false, false, false, "short: the fewest waits" },
    { CH_ALLGATHER, "ring", 0, 0, false, false, false, "long: to neighbours only" },
    { CH_GATHER, "binomial", 64 * K, 0, false, false, false,
      "short: the fewest messages for the root" },
    { CH_GATHER, "linear", 0, 0, false, false, false, "every block is sent once" },
    { CH_SCATTER, "binomial", 64 * K, 0, false, false, false,
      "short: the fewest messages for the root" },
    { CH_SCATTER, "linear", 0, 0, false, false, false, "every block is sent once" },
    { CH_ALLTOALL, "bruck", 8 * K, 0, false, false, false, "short: the fewest messages" },
    { CH_ALLTOALL, "pairwise", 0, 0, false, false, false, "every block is sent once" },
    { CH_BARRIER, "dissemination", 0, 0, false, false, false, "the fewest waits" },
};

uint64_t ch_block_nbytes(enum ch_coll coll, uint32_t nranks, uint64_t nbytes)
{
    switch (coll) {
    case CH_ALLREDUCE:
    case CH_BROADCAST:
    case CH_REDUCE:
        return nbytes;
    case CH_ALLGATHER:
    case CH_REDUCE_SCATTER:
    case CH_GATHER:
    case CH_SCATTER:
    case CH_ALLTOALL:
        return nbytes / nranks + (nbytes % nranks != 0);
    case CH_BARRIER:
    case CH_NCOLLS:
        break;
    }
    return 0;
}

/* --- who can ---------------------------------------------------------------------------------------- */

/* How many blocks a rank must show in its line at once: one, or one for every other rank. */
static uint32_t line_blocks(enum ch_coll coll, uint32_t nranks)
{
    switch (coll) {
    case CH_REDUCE_SCATTER:
    case CH_SCATTER:
    case CH_ALLTOALL:
        return nranks - 1;
    case CH_ALLREDUCE:
    case CH_BROADCAST:
    case CH_REDUCE:
    case CH_ALLGATHER:
    case CH_GATHER:
    case CH_BARRIER:
    case CH_NCOLLS:
        break;
    }
    return 1;
}

static bool fits_line(const struct ch_situation *s)
{
    uint64_t block = ch_block_nbytes(s->coll, s->nranks, s->nbytes), needed;

    return !__builtin_mul_overflow(block, line_blocks(s->coll, s->nranks), &needed) &&
           needed <= s->line_bytes;
}

const char *ch_algo_objection(const struct ch_algo *algo, const struct ch_situation *s)
{
    if (algo->uses_memory && !s->shared)
        return "the ranks do not all share memory";
    if (!ch_algo_fits(algo, s->nranks))
        return "it cannot do this number of ranks";
    if (algo->in_line && !fits_line(s))
        return "the payload does not fit the flag's line";
    if (algo->even_only && s->uneven && ch_coll_nblocks(s->coll, s->nranks) > 1)
        return "blocks differ in length";
    if (algo->any_order && s->ordered)
        return "it does not add up in the ranks' order";
    return NULL;
}

static bool holds(const struct rule *rule, const struct ch_situation *s, uint64_t one_shot_max)
{
    bool crowded = s->processors != 0 && s->nranks > s->processors;
    uint64_t reading;

    if (rule->measured)
        return !crowded && one_shot_max != 0 && s->nbytes <= one_shot_max;
    if ((rule->crowded && !crowded) || (rule->led && !s->led))
        return false;
    /* A guess is not asked where it was measured. */
    if (!crowded && one_shot_max != 0 && rule->reading_max != 0)
        return false;
    if (rule->nbytes_max != 0 && s->nbytes > rule->nbytes_max)
        return false;
    return rule->reading_max == 0 || (!__builtin_mul_overflow(s->nbytes, s->nranks, &reading) &&
                                      reading <= rule->reading_max);
}

/* --- the choice ------------------------------------------------------------------------------------- */

static const struct ch_overrule *find_overrule(const struct ch_situation *s,
                                               const struct ch_overrules *overrules)
{
    for (uint32_t i = 0; overrules != NULL && i < overrules->count; i++) {
        const struct ch_overrule *o = &overrules->list[i];

        if (o->algo->coll == s->coll && s->nbytes >= o->from && s->nbytes <= o->to)
            return o;
    }
    return NULL;
}

static void choose(struct ch_choice *out, const struct ch_situation *s, const struct ch_algo *algo,
                   const char *before, const char *why)
{
    out->algo = algo;
    snprintf(out->reason, sizeof(out->reason), "%s%s: %" PRIu64 " bytes, %u rank%s%s; %s", before,
             algo->name, s->nbytes, s->nranks, s->nranks == 1 ? "" : "s",
             s->shared ? " sharing memory" : "", why);
}

choir_status ch_select(const struct ch_situation *s, const struct ch_overrules *overrules,
                       struct ch_choice *out)
{
    return ch_select_measured(s, overrules, 0, out);
}

choir_status ch_select_measured(const struct ch_situation *s, const struct ch_overrules *overrules,
                                uint64_t one_shot_max, struct ch_choice *out)
{
    const struct ch_overrule *overrule;
    char before[160] = "";

    if ((unsigned)s->coll >= CH_NCOLLS || s->nranks < 1 || s->nranks > CH_ALGO_RANKS_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "no algorithm for operation %d of %u ranks", (int)s->coll,
                       s->nranks);
    overrule = find_overrule(s, overrules);
    if (overrule != NULL) {
        const char *objection = ch_algo_objection(overrule->algo, s);

        if (objection == NULL) {
            choose(out, s, overrule->algo, "", "CHOIR_ALGO asks for it");
            return CHOIR_OK;
        }
        snprintf(before, sizeof(before), "not %s, which CHOIR_ALGO asks for: %s. ",
                 overrule->algo->name, objection);
    }
    for (size_t i = 0; i < CH_ARRAY_LEN(rules); i++) {
        const struct ch_algo *algo;

        if (rules[i].coll != s->coll || !holds(&rules[i], s, one_shot_max))
            continue;
        algo = ch_algo_find(s->coll, rules[i].algo);
        if (algo != NULL && ch_algo_objection(algo, s) == NULL) {
            choose(out, s, algo, before, rules[i].why);
            return CHOIR_OK;
        }
    }
    return ch_fail(CHOIR_ERR_UNSUPPORTED, "%s of %u ranks%s%s%s: no algorithm can do that",
                   ch_coll_name(s->coll), s->nranks,
                   s->shared ? "" : " that do not all share memory", s->uneven ? ", uneven" : "",
                   s->ordered ? ", in the ranks' order" : "");
}
