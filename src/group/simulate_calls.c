/*
 * simulate_calls.c - choir_simulate() and machine files: read the arguments, ask algo/.
 */
#include <choir/simulate.h>

#include <string.h>

#include "algo/machine.h"
#include "algo/select.h"
#include "algo/simulate.h"
#include "base/error.h"
#include "base/mem.h"
#include "engine/control.h"
#include "engine/layout.h"
#include "kernel/kernel.h"
#include "sched/builder.h"
#include "store/bytes.h"

/* --- machine files ----------------------------------------------------------------------------------- */

choir_status choir_machine_print(const choir_machine *machine, choir_blob *text_out)
{
    char *text;
    choir_status rc;

    if (machine == NULL || text_out == NULL || machine->size != sizeof(*machine))
        return ch_fail(CHOIR_ERR_INVALID,
                       "machine: it or the place for the text is NULL, or its size is not set");
    rc = ch_machine_text(machine, &text);
    if (rc == CHOIR_OK) {
        rc = ch_blob_init(text_out, text, strlen(text));
        ch_free(text);
    }
    return rc;
}

/* --- simulation -------------------------------------------------------------------------------------- */

static uint32_t widening(choir_type type)
{
    bool narrow = type == CHOIR_F16 || type == CHOIR_BF16 || type == CHOIR_F8E4M3 ||
                  type == CHOIR_F8E5M2;

    return narrow ? (uint32_t)(sizeof(float) / ch_type_bytes[type]) : 1;
}

/* What a group that has all of a host's stage to itself moves in one round, of every block; 0: all. */
static choir_status find_window(const struct ch_algo *algo, uint32_t nranks, uint64_t *window_out)
{
    struct ch_layout layout = ch_layout_of(nranks);
    struct ch_shape shape = { .coll = algo->coll, .nranks = nranks };
    struct ch_sched *sched;
    choir_status rc;

    *window_out = 0;
    if (!algo->uses_memory || algo->in_line)
        return CHOIR_OK;
    rc = ch_algo_build(algo, &shape, &sched);
    if (rc != CHOIR_OK)
        return rc;
    if (sched->stage_slots > 0)
        *window_out = (layout.nbytes - layout.stage_at) / 2 / sched->stage_slots;
    ch_sched_destroy(sched);
    return CHOIR_OK;
}

static choir_status simulate_one(struct ch_scene *scene, choir_simulated *out)
{
    const choir_machine *m = scene->machine;
    struct ch_situation s = { .coll = scene->algo->coll,
                              .nranks = scene->nranks,
                              .nbytes = scene->nbytes,
                              .line_bytes = CH_LINE_NBYTES,
                              .shared = m->ranks_per_host == 0 ||
                                        scene->nranks <= (uint32_t)m->ranks_per_host };
    choir_status rc;

    *out = (choir_simulated){ .algo = scene->algo->name,
                              .objection = ch_algo_objection(scene->algo, &s) };
    if (out->objection != NULL)
        return CHOIR_OK;
    rc = find_window(scene->algo, scene->nranks, &scene->window);
    if (rc == CHOIR_OK)
        rc = ch_simulate(scene, out);
    if (rc == CHOIR_ERR_UNSUPPORTED) {
        out->objection = "so many steps cannot be played, as its ranks differ";
        return CHOIR_OK;
    }
    return rc;
}

static choir_status check(const char *operation, int nranks, const choir_machine *machine,
                          const choir_simulate_opts *opts, enum ch_coll *coll_out)
{
    if (!ch_coll_find(operation, coll_out))
        return ch_fail(CHOIR_ERR_INVALID, "simulate: there is no operation \"%s\"", operation);
    if (nranks < 2 || nranks > CH_ALGO_RANKS_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "simulate: %d ranks, expected 2 to %d", nranks,
                       CH_ALGO_RANKS_MAX);
    if (machine->size != sizeof(*machine))
        return ch_fail(CHOIR_ERR_INVALID,
                       "simulate: machine->size is %zu; choir_machine_init() sets it",
                       machine->size);
    if (opts->size < sizeof(*opts) || choir_type_name(opts->type) == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "simulate: opts->size is %zu, opts->type %d", opts->size,
                       (int)opts->type);
    if (opts->root < 0 || opts->root >= nranks)
        return ch_fail(CHOIR_ERR_INVALID, "simulate: root %d of %d ranks", opts->root, nranks);
    return ch_machine_check(machine);
}

choir_status choir_simulate(const char *operation, int nranks, size_t nbytes,
                            const choir_machine *machine, const choir_simulate_opts *opts,
                            choir_simulated rows_out[CHOIR_SIMULATED_MOST], size_t *nrows_out,
                            choir_simulate_bound *bound_out)
{
    static const choir_simulate_opts defaults = { .size = sizeof(defaults), .type = CHOIR_F32 };
    struct ch_scene scene = { .machine = machine, .nranks = (uint32_t)nranks, .nbytes = nbytes };
    enum ch_coll coll;
    size_t n = 0;
    choir_status rc;

    if (operation == NULL || machine == NULL || rows_out == NULL || nrows_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID,
                       "simulate: operation, machine or a place for the answer is NULL");
    opts = opts != NULL ? opts : &defaults;
    rc = check(operation, nranks, machine, opts, &coll);
    scene.root = (uint32_t)opts->root;
    scene.in_place = opts->in_place;
    scene.widening = rc == CHOIR_OK ? widening(opts->type) : 1;
    for (size_t i = 0; rc == CHOIR_OK && ch_algos[i] != NULL; i++) {
        if (ch_algos[i]->coll != coll || n == CHOIR_SIMULATED_MOST)
            continue;
        scene.algo = ch_algos[i];
        rc = simulate_one(&scene, &rows_out[n++]);
    }
    if (rc != CHOIR_OK)
        return rc;
    *nrows_out = n;
    if (bound_out != NULL)
        *bound_out = ch_simulate_bound(coll, scene.nranks, nbytes, machine);
    return CHOIR_OK;
}
