/*
 * perf_model.c - which algorithm an operation takes, and what the cost model says of it.
 */
#include "perf.h"

#include <unistd.h>

static const char *library_name(enum perf_op op)
{
    return op == PERF_REDUCESCATTER ? "reduce_scatter" : perf_op_name(op);
}

/* What was asked for, in whole blocks. */
static size_t whole_nbytes(const struct perf_options *o, int nranks, size_t nbytes)
{
    size_t element = choir_type_size(o->type);

    return perf_shape_of(o->op, 0, nranks, 0, nbytes, element).count * element;
}

/* --- the algorithm ----------------------------------------------------------------------------------- */

/* What choir explain says of it: the word behind "algorithm". */
static void take_algo(const char *text, char *out, size_t size)
{
    const char *at = strstr(text, "\nalgorithm");

    if (at == NULL)
        return;
    at += strlen("\nalgorithm");
    at += strspn(at, " ");
    snprintf(out, size, "%.*s", (int)strcspn(at, ":\n "), at);
}

choir_status choir_perf_algo(const struct perf_options *o, int nranks, int processors,
                             size_t nbytes, char algo_out[PERF_ALGO_MAX])
{
    enum { EXPLAINED_MOST = 256 };
    choir_blob text = { 0 };
    choir_status rc;

    algo_out[0] = '\0';
    if (o->op == PERF_SENDRECV) {
        snprintf(algo_out, PERF_ALGO_MAX, "messages");
        return CHOIR_OK;
    }
    rc = choir_explain(library_name(o->op), nranks, whole_nbytes(o, nranks, nbytes),
                       CHOIR_OPTS(explain, .algo = o->algo, .type = o->type,
                                  .root = perf_op_has_root(o->op) ? o->root : 0,
                                  .in_place = o->in_place, .one_rank = true,
                                  .processors = processors),
                       &text);
    if (rc != CHOIR_OK)
        return o->algo != NULL && nranks <= EXPLAINED_MOST ? rc : CHOIR_OK;
    take_algo((const char *)text.data, algo_out, PERF_ALGO_MAX);
    choir_blob_free(&text);
    return CHOIR_OK;
}

/* --- the model --------------------------------------------------------------------------------------- */

double choir_perf_model(const choir_machine *machine, const struct perf_options *o, int nranks,
                        size_t nbytes, const char *algo)
{
    choir_simulated rows[CHOIR_SIMULATED_MOST];
    size_t nrows = 0;

    if (machine->size == 0 || nranks < 2 || o->op == PERF_SENDRECV ||
        choir_simulate(library_name(o->op), nranks, whole_nbytes(o, nranks, nbytes), machine,
                       CHOIR_OPTS(simulate, .type = o->type,
                                  .root = perf_op_has_root(o->op) ? o->root : 0,
                                  .in_place = o->in_place),
                       rows, &nrows, NULL) != CHOIR_OK)
        return 0;
    for (size_t i = 0; i < nrows; i++) {
        if (strcmp(rows[i].algo, algo) == 0 && rows[i].objection == NULL)
            return rows[i].us;
    }
    return 0;
}

bool choir_perf_find_machine(const char *path, choir_machine *out)
{
    char usual[4096];

    if (path == NULL && choir_machine_path(usual, sizeof(usual)) == CHOIR_OK &&
        access(usual, R_OK) == 0)
        path = usual;
    choir_machine_init(out);
    if (path != NULL && choir_machine_load(path, out) != CHOIR_OK) {
        fprintf(stderr, "choir perf: %s\n", choir_last_error());
        return false;
    }
    if (path == NULL && !choir_perf_is_rank())
        fprintf(stderr,
                "choir perf: the model's figures are of no machine in particular: choir tune "
                "measures this one's\n");
    out->ranks_per_host = path != NULL ? out->ranks_per_host : 0;
    return true;
}
