/*
 * tuned.c - see tuned.h.
 */
#include "algo/tuned.h"

#include "algo/simulate.h"

enum { RANKS_MOST = 64, NBYTES_LEAST = 256, NBYTES_MOST = 1 << 20 };

static bool is_better(const choir_machine *machine, const struct ch_algo *one,
                      const struct ch_algo *two, uint32_t nranks, uint64_t nbytes)
{
    struct ch_scene scene = {
        .machine = machine, .nranks = nranks, .nbytes = nbytes, .widening = 1
    };
    choir_simulated first, second;

    scene.algo = one;
    if (ch_simulate(&scene, &first) != CHOIR_OK)
        return false;
    scene.algo = two;
    return ch_simulate(&scene, &second) == CHOIR_OK && first.us <= second.us;
}

uint64_t ch_tuned_one_shot(const choir_machine *machine, enum ch_coll coll, uint32_t nranks)
{
    const struct ch_algo *one = ch_algo_find(coll, "one-shot"),
                         *two = ch_algo_find(coll, "two-shot");
    uint64_t most = 0;

    if (one == NULL || two == NULL || nranks < 2 || nranks > RANKS_MOST)
        return 0;
    for (uint64_t nbytes = NBYTES_LEAST; nbytes <= NBYTES_MOST; nbytes *= 2) {
        if (!is_better(machine, one, two, nranks, nbytes))
            break;
        most = nbytes;
    }
    /* None at all is an answer, too, and must not look like none known. */
    return most > 0 ? most : 1;
}
