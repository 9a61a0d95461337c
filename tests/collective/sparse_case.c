/* sparse_case.c - the reference is a dense array with a mark for each coordinate that somebody named. */
#include "sparse_case.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 5, COLUMNS = 7, CELLS = ROWS * COLUMNS, VALUES_MAX = 3, ENTRIES_MAX = 12 };

struct entries {
    size_t nnz, value_count;
    int64_t indices[2 * ENTRIES_MAX];
    int32_t values[ENTRIES_MAX * VALUES_MAX];
};

/* A coordinate may come twice. */
static void give(const struct call *c, int rank, struct entries *out)
{
    struct dice d = { .state = c->seed + (uint64_t)rank };

    out->value_count = 1 + c->seed % VALUES_MAX;
    out->nnz = roll(&d, ENTRIES_MAX + 1);
    for (size_t i = 0; i < out->nnz; i++) {
        out->indices[i] = (int64_t)roll(&d, ROWS);
        out->indices[out->nnz + i] = (int64_t)roll(&d, COLUMNS);
        for (size_t v = 0; v < out->value_count; v++)
            out->values[i * out->value_count + v] = (int32_t)roll(&d, 1000) - 500;
    }
}

struct dense {
    bool named[CELLS];
    int32_t sums[CELLS][VALUES_MAX];
};

static void add_up(const struct call *c, struct dense *out)
{
    struct entries e;

    memset(out, 0, sizeof(*out));
    for (int r = 0; r < c->nranks; r++) {
        give(c, r, &e);
        for (size_t i = 0; i < e.nnz; i++) {
            size_t cell = (size_t)(e.indices[i] * COLUMNS + e.indices[e.nnz + i]);

            out->named[cell] = true;
            for (size_t v = 0; v < e.value_count; v++)
                out->sums[cell][v] += e.values[i * e.value_count + v];
        }
    }
}

static bool same(const choir_sparse *got, const struct dense *want, size_t value_count)
{
    size_t at = 0;

    for (size_t cell = 0; cell < CELLS; cell++) {
        if (!want->named[cell])
            continue;
        if (at == got->nnz || got->indices[at] != (int64_t)(cell / COLUMNS) ||
            got->indices[got->nnz + at] != (int64_t)(cell % COLUMNS) ||
            memcmp((const int32_t *)got->values + at * value_count, want->sums[cell],
                   value_count * sizeof(int32_t)) != 0)
            return false;
        at++;
    }
    return at == got->nnz;
}

bool sparse_perform(const struct scenario *s, const struct call *c, choir_group *group, int rank,
                    bool sync)
{
    static const int64_t shape[2] = { ROWS, COLUMNS };
    struct entries mine;
    struct dense want;
    choir_work *work = NULL;
    choir_status rc;
    bool good;

    give(c, rank, &mine);
    add_up(c, &want);
    choir_sparse in = { .ndim = 2,
                        .nnz = mine.nnz,
                        .value_count = mine.value_count,
                        .shape = shape,
                        .indices = mine.indices,
                        .values = mine.values,
                        .type = CHOIR_I32 };
    choir_sparse out;

    memset(&out, 0, sizeof(out));
    rc = choir_allreduce_sparse(group, &in, &out, NULL, sync ? NULL : &work);
    if (rc == CHOIR_OK && !sync) {
        rc = choir_work_wait(work, 0);
        choir_work_unref(work);
    }
    good = rc == CHOIR_OK && same(&out, &want, mine.value_count);
    if (!good)
        fprintf(stderr, "FAILED seed %llu call %d (allreduce_sparse) rank %d of %d: %s\n",
                (unsigned long long)s->seed, (int)(c - s->calls), rank, c->nranks,
                rc == CHOIR_OK ? "the sum is not right" : choir_last_error());
    if (rc == CHOIR_OK)
        choir_sparse_free(&out);
    return good;
}
