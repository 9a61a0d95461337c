/*
 * coll_sparse.c - choir_allreduce_sparse(): three all-gathers and a sum.
 *
 *   1. what each rank has: dimensions, shape, entries
 *   2. all indices, uneven: a rank's as it has them, ndim rows of its nnz
 *   3. all values, uneven
 *
 * Then everybody sorts all entries by coordinate, and of entries with the same one adds up the values in rank
 * order (of one rank: in its own): so all ranks get the same bits, as a dense all-reduce would give them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "group/args.h"
#include "group/group.h"
#include "group/memory.h"
#include "kernel/kernel.h"

enum { DIMS_MAX = 8 };

/* As all-gathered; 64-bit words. */
struct meta {
    int64_t ndim, nnz, value_count, shape_hash;
};

struct sparse {
    choir_sparse in, *out;
    int64_t shape[DIMS_MAX];
    struct meta mine, *all; /* of every rank */
    int64_t *indices;       /* of all, rank by rank */
    char *values;
    size_t total; /* entries of all ranks */
    struct ch_piece *pieces;
    choir_sparse result;
    int stage;
};

/* An entry of some rank. */
struct entry {
    int64_t at[DIMS_MAX];
    const char *value;
    size_t order; /* rank and place in one number */
};

/* --- checks ------------------------------------------------------------------------------------- */

static choir_status check_indices(const choir_sparse *in)
{
    for (int d = 0; d < in->ndim; d++) {
        for (size_t i = 0; i < in->nnz; i++) {
            int64_t index = in->indices[(size_t)d * in->nnz + i];

            if (index < 0 || index >= in->shape[d])
                return ch_fail(
                    CHOIR_ERR_INVALID,
                    "in->indices: entry %zu has %lld in dimension %d, expected 0 to %lld", i,
                    (long long)index, d, (long long)in->shape[d] - 1);
        }
    }
    return CHOIR_OK;
}

static choir_status check(struct ch_call *call, const choir_sparse *in, const choir_sparse *out)
{
    if (in == NULL || out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: is NULL", in == NULL ? "in" : "out");
    if (in->ndim < 1 || in->ndim > DIMS_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "in->ndim: %d, expected 1 to %d", in->ndim, DIMS_MAX);
    if (in->shape == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "in->shape: is NULL");
    for (int d = 0; d < in->ndim; d++) {
        if (in->shape[d] < 0)
            return ch_fail(CHOIR_ERR_INVALID, "in->shape: %lld in dimension %d, expected 0 or more",
                           (long long)in->shape[d], d);
    }
    if (choir_type_size(in->type) == 0)
        return ch_fail(CHOIR_ERR_TYPE, "in->type: invalid scalar type %d", (int)in->type);
    if (in->value_count == 0 || in->value_count > SIZE_MAX / 16 ||
        in->nnz > SIZE_MAX / 16 / in->value_count || in->nnz > SIZE_MAX / 64 / DIMS_MAX)
        return ch_fail(CHOIR_ERR_INVALID,
                       "in: %zu entries of %zu elements: expected at least one "
                       "element, and no more than there is memory",
                       in->nnz, in->value_count);
    if (in->nnz > 0 && (in->indices == NULL || in->values == NULL))
        return ch_fail(CHOIR_ERR_INVALID, "in->%s: is NULL, but there are %zu entries",
                       in->indices == NULL ? "indices" : "values", in->nnz);
    if (call->opts.op != CHOIR_SUM)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "opts->op: sparse all-reduce needs ReduceOp.SUM (choir's sum), got %s",
                       choir_redop_name(call->opts.op) ? choir_redop_name(call->opts.op) : "?");
    return check_indices(in);
}

/* --- the three all-gathers ------------------------------------------------------------------------ */

static void gather_even(struct ch_call *call, choir_type type, void *in, void *out, size_t count)
{
    ch_op_length(call, type, count);
    call->op.uneven = false;
    ch_blocks_even(&call->op.in, (uint32_t)call->group->rank, 1, 1, in, count);
    ch_blocks_even(&call->op.out, 0, 1, (uint32_t)call->group->nranks, out, count);
}

/* `each` elements for each entry of a rank. */
static void gather_uneven(struct ch_call *call, choir_type type, void *in, char *out, size_t each)
{
    struct sparse *s = call->next_arg;
    uint32_t n = (uint32_t)call->group->nranks;
    size_t size = ch_type_bytes[type];

    ch_op_length(call, type, 0);
    for (uint32_t r = 0; r < n; r++) {
        size_t count = (size_t)s->all[r].nnz * each;

        s->pieces[r] = (struct ch_piece){ out, count };
        out += count * size;
        call->op.counts = ch_hash_add(call->op.counts, count);
        call->op.longest = count > call->op.longest ? count : call->op.longest;
        call->op.uneven = call->op.uneven || count != s->pieces[0].count;
    }
    ch_blocks_even(&call->op.in, (uint32_t)call->group->rank, 1, 1, in, s->in.nnz * each);
    ch_blocks_of(&call->op.out, 0, 1, n, s->pieces, size);
}

static choir_status compare_metas(struct ch_call *call)
{
    struct sparse *s = call->next_arg;

    if (call->group->backend->at_once) /* then nobody filled in more than our own */
        for (int r = 0; r < call->group->nranks; r++)
            s->all[r] = (struct meta){ s->mine.ndim, r == call->group->rank ? s->mine.nnz : 0,
                                       s->mine.value_count, s->mine.shape_hash };
    for (int r = 0; r < call->group->nranks; r++) {
        const struct meta *m = &s->all[r];

        if (m->ndim != s->mine.ndim || m->shape_hash != s->mine.shape_hash ||
            m->value_count != s->mine.value_count)
            return ch_fail_rank(CHOIR_ERR_INVALID, r, "allreduce_sparse",
                                "Sparse dimensions do not match: rank %d has %lld dimensions and "
                                "%lld elements in an entry, rank %d %lld and %lld%s",
                                call->group->rank, (long long)s->mine.ndim,
                                (long long)s->mine.value_count, r, (long long)m->ndim,
                                (long long)m->value_count,
                                m->shape_hash != s->mine.shape_hash ? ", and another shape" : "");
        if (m->nnz < 0 || __builtin_add_overflow(s->total, (size_t)m->nnz, &s->total))
            return ch_fail_rank(CHOIR_ERR_PROTO, r, "allreduce_sparse",
                                "rank %d says it has %lld entries", r, (long long)m->nnz);
    }
    return CHOIR_OK;
}

static choir_status room_for_all(struct sparse *s)
{
    s->indices = ch_alloc_array(s->total + 1, (size_t)s->in.ndim * sizeof(*s->indices));
    s->values = ch_alloc_array(s->total + 1, s->in.value_count * ch_type_bytes[s->in.type]);
    if (s->indices == NULL || s->values == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for the %zu entries of all ranks", s->total);
    return CHOIR_OK;
}

/* --- the sum ------------------------------------------------------------------------------------ */

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    for (int d = 0; d < DIMS_MAX; d++) {
        if (x->at[d] != y->at[d])
            return x->at[d] < y->at[d] ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Peers' indices are their word: checked before anybody counts with them. */
static choir_status read_entries(struct ch_call *call, struct entry *entries)
{
    struct sparse *s = call->next_arg;
    size_t value_bytes = s->in.value_count * ch_type_bytes[s->in.type], n = 0;
    const int64_t *indices = s->indices;

    for (int r = 0; r < call->group->nranks; r++) {
        size_t nnz = (size_t)s->all[r].nnz;

        for (size_t i = 0; i < nnz; i++, n++) {
            entries[n] = (struct entry){ .value = s->values + n * value_bytes, .order = n };
            for (int d = 0; d < s->in.ndim; d++) {
                entries[n].at[d] = indices[(size_t)d * nnz + i];
                if (entries[n].at[d] < 0 || entries[n].at[d] >= s->shape[d])
                    return ch_fail_rank(CHOIR_ERR_PROTO, r, "allreduce_sparse",
                                        "rank %d sent the index %lld in dimension %d of %lld", r,
                                        (long long)entries[n].at[d], d, (long long)s->shape[d]);
            }
        }
        indices += nnz * (size_t)s->in.ndim;
    }
    return CHOIR_OK;
}

static bool same_place(const struct entry *a, const struct entry *b)
{
    return memcmp(a->at, b->at, sizeof(a->at)) == 0;
}

static size_t count_places(const struct entry *entries, size_t total)
{
    size_t places = total > 0;

    for (size_t i = 1; i < total; i++)
        places += !same_place(&entries[i - 1], &entries[i]);
    return places;
}

/* Entries in order become the result: each place once. */
static void add_up(struct sparse *s, const struct entry *entries, const void **srcs)
{
    const struct ch_reduction sum = { .type = s->in.type, .op = CHOIR_SUM, .divisor = 1 };
    size_t value_bytes = s->in.value_count * ch_type_bytes[s->in.type], place = 0, last;

    for (size_t i = 0; i < s->total; i = last, place++) {
        void *dst = (char *)s->result.values + place * value_bytes;

        for (last = i; last < s->total && same_place(&entries[i], &entries[last]); last++)
            srcs[last - i] = entries[last].value;
        ch_reduce(&sum, &dst, 1, srcs, last - i, s->in.value_count);
        for (int d = 0; d < s->in.ndim; d++)
            s->result.indices[(size_t)d * s->result.nnz + place] = entries[i].at[d];
    }
}

static choir_status make_result(struct sparse *s, size_t places)
{
    int64_t *shape = ch_alloc_array((size_t)s->in.ndim, sizeof(*shape));

    s->result = (choir_sparse){ .ndim = s->in.ndim,
                                .nnz = places,
                                .value_count = s->in.value_count,
                                .shape = shape,
                                .type = s->in.type };
    s->result.indices = ch_alloc_array(places + 1, (size_t)s->in.ndim * sizeof(int64_t));
    s->result.values = ch_alloc_array(places + 1, s->in.value_count * ch_type_bytes[s->in.type]);
    if (shape == NULL || s->result.indices == NULL || s->result.values == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a sum of %zu entries", places);
    memcpy(shape, s->shape, (size_t)s->in.ndim * sizeof(*shape));
    return CHOIR_OK;
}

static choir_status sum_up(struct ch_call *call)
{
    struct sparse *s = call->next_arg;
    struct entry *entries = ch_alloc_array(s->total + 1, sizeof(*entries));
    const void **srcs = ch_alloc_array(s->total + 1, sizeof(*srcs));
    choir_status rc = CHOIR_OK;

    if (entries == NULL || srcs == NULL)
        rc = ch_fail(CHOIR_ERR_NOMEM, "no memory to sort %zu entries", s->total);
    if (rc == CHOIR_OK)
        rc = read_entries(call, entries);
    if (rc == CHOIR_OK) {
        qsort(entries, s->total, sizeof(*entries), compare_entries);
        rc = make_result(s, count_places(entries, s->total));
    }
    if (rc == CHOIR_OK) {
        add_up(s, entries, srcs);
        *s->out = s->result;
        s->result = (choir_sparse){ 0 };
    }
    ch_free(entries);
    ch_free(srcs);
    return rc;
}

/* --- the call ----------------------------------------------------------------------------------- */

static choir_status next(struct ch_call *call)
{
    struct sparse *s = call->next_arg;
    choir_status rc;

    switch (++s->stage) {
    case 1:
        rc = compare_metas(call);
        if (rc == CHOIR_OK)
            rc = room_for_all(s);
        if (rc == CHOIR_OK)
            gather_uneven(call, CHOIR_I64, s->in.indices, (char *)s->indices, (size_t)s->in.ndim);
        return rc == CHOIR_OK ? CHOIR_IN_PROGRESS : rc;
    case 2:
        gather_uneven(call, s->in.type, s->in.values, s->values, s->in.value_count);
        return CHOIR_IN_PROGRESS;
    default:
        return sum_up(call);
    }
}

static void cleanup(struct ch_call *call)
{
    struct sparse *s = call->next_arg;

    choir_sparse_free(&s->result);
    ch_free(s->indices);
    ch_free(s->values);
    ch_free(s);
}

static int64_t hash_shape(const choir_sparse *in)
{
    uint64_t hash = CH_HASH_START;

    for (int d = 0; d < in->ndim; d++)
        hash = ch_hash_add(hash, (uint64_t)in->shape[d]);
    return (int64_t)(ch_hash_add(hash, (uint64_t)in->type) >> 1);
}

static choir_status build(struct ch_call *call, const choir_sparse *in, choir_sparse *out)
{
    size_t n = (size_t)call->group->nranks;
    struct sparse *s;
    choir_status rc = check(call, in, out);

    if (rc != CHOIR_OK)
        return rc;
    s = ch_zalloc(sizeof(*s));
    if (s == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a sparse all-reduce");
    call->next = next;
    call->next_arg = s;
    call->cleanup = cleanup;
    s->in = *in;
    s->out = out;
    memcpy(s->shape, in->shape, (size_t)in->ndim * sizeof(*s->shape));
    s->mine = (struct meta){ in->ndim, (int64_t)in->nnz, (int64_t)in->value_count, hash_shape(in) };
    s->all = ch_call_room(call, n, sizeof(*s->all));
    s->pieces = ch_call_room(call, n, sizeof(*s->pieces));
    if (s->all == NULL || s->pieces == NULL)
        return CHOIR_ERR_NOMEM;
    gather_even(call, CHOIR_I64, &s->mine, s->all, sizeof(s->mine) / sizeof(int64_t));
    return CHOIR_OK;
}

choir_status choir_allreduce_sparse(choir_group *group, const choir_sparse *in, choir_sparse *out,
                                    const choir_coll_opts *opts, choir_work **work_out)
{
    struct ch_call here, *call;
    choir_status rc = ch_call_open(group, "choir_allreduce_sparse", CHOIR_OP_ALLREDUCE_SPARSE, opts,
                                   work_out != NULL, &here, &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLGATHER;
    return ch_call_issue(call, build(call, in, out), work_out);
}

void choir_sparse_free(choir_sparse *sparse)
{
    if (sparse == NULL)
        return;
    ch_free((void *)(uintptr_t)sparse->shape);
    ch_free(sparse->indices);
    ch_free(sparse->values);
    *sparse = (choir_sparse){ 0 };
}
