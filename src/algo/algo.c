/*
 * algo.c - the table of algorithms, and what is the same for all of them.
 */
#include "algo/algo.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "sched/builder.h"

#define CH_ALGO(name) extern const struct ch_algo ch_algo_##name;
#include "algo/algo.def"
#undef CH_ALGO

const struct ch_algo *const ch_algos[] = {
#define CH_ALGO(name) &ch_algo_##name,
#include "algo/algo.def"
#undef CH_ALGO
    NULL,
};

const struct ch_algo *ch_algo_find(enum ch_coll coll, const char *name)
{
    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        if (ch_algos[i]->coll == coll && strcmp(ch_algos[i]->name, name) == 0)
            return ch_algos[i];
    }
    return NULL;
}

bool ch_algo_fits(const struct ch_algo *algo, uint32_t nranks)
{
    uint32_t most = algo->uses_memory ? CH_ALGO_SHARING_MAX : CH_ALGO_RANKS_MAX;

    return nranks >= 1 && nranks <= most && (algo->fits == NULL || algo->fits(nranks));
}

/* One rank: its input is the output. A reduction of one contribution may still divide or scale. */
static void emit_alone(const struct ch_shape *shape, struct ch_builder *b)
{
    switch (shape->coll) {
    case CH_ALLREDUCE:
    case CH_REDUCE:
    case CH_REDUCE_SCATTER:
        ch_build_reduce(b, ch_out(0, 0, 0, 1));
        ch_build_range(b, ch_in(0, 0, 0, 1));
        break;
    case CH_BROADCAST:
    case CH_ALLGATHER:
    case CH_GATHER:
    case CH_SCATTER:
    case CH_ALLTOALL:
        if (!shape->in_place)
            ch_build_copy(b, ch_out(0, 0, 0, 1), ch_in(0, 0, 0, 1));
        break;
    case CH_BARRIER:
    case CH_NCOLLS:
        break;
    }
}

static choir_status check_shape(const struct ch_algo *algo, const struct ch_shape *shape)
{
    if (shape->coll != algo->coll)
        return ch_fail(CHOIR_ERR_INVALID, "%s is an algorithm of %s, asked for %s", algo->name,
                       ch_coll_name(algo->coll), ch_coll_name(shape->coll));
    if (shape->nranks < 1 || shape->nranks > CH_ALGO_RANKS_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "%s %s: %u ranks, not 1 to %d", ch_coll_name(algo->coll),
                       algo->name, shape->nranks, CH_ALGO_RANKS_MAX);
    if (shape->rank >= shape->nranks || shape->root >= shape->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "%s %s: rank %u and root %u of %u ranks",
                       ch_coll_name(algo->coll), algo->name, shape->rank, shape->root,
                       shape->nranks);
    if (!ch_algo_fits(algo, shape->nranks))
        return ch_fail(CHOIR_ERR_INVALID, "%s %s cannot do %u ranks: %s", ch_coll_name(algo->coll),
                       algo->name, shape->nranks, algo->help);
    return CHOIR_OK;
}

choir_status ch_algo_build(const struct ch_algo *algo, const struct ch_shape *shape,
                           struct ch_sched **sched_out)
{
    struct ch_needs needs = { 0 };
    struct ch_builder *b;
    choir_status rc = check_shape(algo, shape);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_builder_begin(shape->coll, algo->name, shape->rank, shape->nranks, shape->root,
                          shape->in_place, &b);
    if (rc != CHOIR_OK)
        return rc;
    if (shape->nranks == 1)
        emit_alone(shape, b);
    else
        needs = algo->emit(shape, b);
    return ch_builder_end(b, needs.flags, needs.stage_slots, needs.line_slots, sched_out);
}

choir_status ch_algo_tally(const struct ch_algo *algo, const struct ch_shape *shape,
                           uint32_t widening, struct ch_tally *tally_out)
{
    struct ch_builder *b;
    choir_status rc = check_shape(algo, shape);

    if (rc == CHOIR_OK)
        rc = ch_builder_begin_tally(shape->coll, algo->name, shape->rank, shape->nranks,
                                    shape->root, widening, &b);
    if (rc != CHOIR_OK)
        return rc;
    if (shape->nranks == 1)
        emit_alone(shape, b);
    else
        algo->emit(shape, b);
    return ch_builder_end_tally(b, tally_out);
}
