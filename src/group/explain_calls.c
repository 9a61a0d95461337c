/*
 * explain_calls.c - choir_explain(): read the arguments, ask algo/, hand the answer out.
 */
#include <choir/explain.h>

#include <string.h>

#include <choir/info.h>

#include "algo/answer.h"
#include "algo/machine.h"
#include "algo/tuned.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/params.h"
#include "engine/control.h"
#include "kernel/kernel.h"
#include "store/bytes.h"

/* Sums of 16- and 8-bit floats are kept in f32. */
static uint32_t widening(choir_type type)
{
    switch (type) {
    case CHOIR_F16:
    case CHOIR_BF16:
    case CHOIR_F8E4M3:
    case CHOIR_F8E5M2:
        return (uint32_t)(sizeof(float) / ch_type_bytes[type]);
    case CHOIR_U8:
    case CHOIR_I8:
    case CHOIR_U16:
    case CHOIR_I16:
    case CHOIR_U32:
    case CHOIR_I32:
    case CHOIR_U64:
    case CHOIR_I64:
    case CHOIR_F32:
    case CHOIR_F64:
    case CHOIR_BOOL:
    case CHOIR_COMPLEX64:
    case CHOIR_COMPLEX128:
        break;
    }
    return 1;
}

/* A caller compiled against a smaller struct has the rest zero. */
static choir_status read_opts(const choir_explain_opts *given, choir_explain_opts *opts)
{
    memset(opts, 0, sizeof(*opts));
    if (given != NULL && given->size == 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "explain: opts->size is 0: fill options in with CHOIR_OPTS(explain, ...)");
    if (given != NULL)
        memcpy(opts, given, given->size < sizeof(*opts) ? given->size : sizeof(*opts));
    if (choir_type_name(opts->type) == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "explain: opts->type is %d, which is no type",
                       (int)opts->type);
    if (opts->root < 0 || opts->rank < 0 || opts->processors < 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "explain: opts->root is %d, rank %d, processors %d; none may be negative",
                       opts->root, opts->rank, opts->processors);
    return CHOIR_OK;
}

static choir_status find_operation(const char *operation, enum ch_coll *coll_out)
{
    if (ch_coll_find(operation, coll_out))
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_INVALID,
                   "explain: there is no operation \"%s\"; there are allreduce, broadcast, reduce, "
                   "allgather, reduce_scatter, gather, scatter, alltoall, barrier",
                   operation);
}

static choir_status find_answer(const char *operation, int nranks, size_t nbytes,
                                const choir_explain_opts *opts, struct ch_answer *answer)
{
    struct ch_overrules overrules;
    choir_machine machine;
    struct ch_question q = {
        .situation = { .nranks = nranks < 0 ? 0 : (uint32_t)nranks,
                       .nbytes = nbytes,
                       .line_bytes = CH_LINE_NBYTES,
                       .shared = !opts->apart },
        .overrules = &overrules,
        .algo = opts->algo,
        .root = (uint32_t)opts->root,
        .in_place = opts->in_place,
        .one_rank = opts->one_rank,
        .rank = (uint32_t)opts->rank,
    };
    choir_status rc = find_operation(operation, &q.situation.coll);

    if (rc == CHOIR_OK)
        rc = ch_overrules_parse(ch_params()->algo, &overrules);
    if (rc != CHOIR_OK)
        return rc;
    q.situation.processors = (uint32_t)(opts->processors > 0 ? opts->processors
                                                             : choir_processors());
    if (!opts->apart && ch_machine_find(&machine))
        q.one_shot_max = ch_tuned_one_shot(&machine, q.situation.coll, q.situation.nranks);
    q.type = choir_type_name(opts->type);
    q.widening = widening(opts->type);
    return ch_answer_init(answer, &q);
}

static choir_status explain(const char *operation, int nranks, size_t nbytes,
                            const choir_explain_opts *given,
                            choir_status (*put)(const struct ch_answer *answer, char **text_out),
                            choir_blob *blob_out)
{
    choir_explain_opts opts;
    struct ch_answer answer;
    char *text;
    choir_status rc;

    if (operation == NULL || blob_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "explain: operation or the place for the text is NULL");
    rc = read_opts(given, &opts);
    if (rc == CHOIR_OK)
        rc = find_answer(operation, nranks, nbytes, &opts, &answer);
    if (rc != CHOIR_OK)
        return rc;
    rc = put(&answer, &text);
    ch_answer_fini(&answer);
    if (rc == CHOIR_OK) {
        rc = ch_blob_init(blob_out, text, strlen(text));
        ch_free(text);
    }
    return rc;
}

choir_status choir_explain(const char *operation, int nranks, size_t nbytes,
                           const choir_explain_opts *opts, choir_blob *text_out)
{
    return explain(operation, nranks, nbytes, opts, ch_answer_text, text_out);
}

choir_status choir_explain_svg(const char *operation, int nranks, size_t nbytes,
                               const choir_explain_opts *opts, choir_blob *svg_out)
{
    return explain(operation, nranks, nbytes, opts, ch_answer_svg, svg_out);
}
