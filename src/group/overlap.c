/*
 * overlap.c - see overlap.h.
 */
#include "group/overlap.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "kernel/kernel.h"

/* Up to so many pairs are compared one by one, without asking the heap for room to sort. */
enum { PAIRS_MAX = 1024 };

/* --- two buffers -------------------------------------------------------------------------------- */

void ch_span(const choir_buf *buf, uintptr_t *first_out, uintptr_t *end_out)
{
    size_t last = buf->count > 0 ? buf->count - 1 : 0;

    if (buf->ndim > 0 && buf->count > 0) {
        last = 0;
        for (int d = 0; d < buf->ndim; d++)
            last += (size_t)(buf->sizes[d] - 1) * (size_t)buf->strides[d];
    }
    *first_out = (uintptr_t)buf->data;
    *end_out = *first_out + (buf->count > 0 ? (last + 1) * ch_type_bytes[buf->type] : 0);
}

bool ch_overlap(const choir_buf *a, const choir_buf *b)
{
    uintptr_t a_first, a_end, b_first, b_end;

    ch_span(a, &a_first, &a_end);
    ch_span(b, &b_first, &b_end);
    return a_first < b_end && b_first < a_end && a_first < a_end && b_first < b_end;
}

choir_status ch_check_apart(const char *in_name, const choir_buf *in, const char *out_name,
                            const choir_buf *out)
{
    if (!ch_overlap(in, out))
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_INVALID,
                   "%s and %s overlap: expected apart from each other, or in place", in_name,
                   out_name);
}

/* --- sorted ------------------------------------------------------------------------------------- */

struct span {
    uintptr_t first, end;
    size_t index; /* in its list */
    bool second;  /* of two lists */
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

/* Those with elements, behind the `count` that are there; how many there are then. */
static size_t add_spans(struct span *spans, size_t count, const choir_buf *bufs, size_t nbufs,
                        bool second)
{
    for (size_t i = 0; i < nbufs; i++) {
        struct span *span = &spans[count];

        *span = (struct span){ .index = i, .second = second };
        ch_span(&bufs[i], &span->first, &span->end);
        count += span->first < span->end;
    }
    return count;
}

/* The spans of both lists in the order of their addresses, for ch_free(). */
static choir_status sort_spans(const choir_buf *a, size_t na, const choir_buf *b, size_t nb,
                               struct span **spans_out, size_t *count_out)
{
    struct span *spans = ch_alloc_array(na + nb, sizeof(*spans));
    size_t count;

    if (spans == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory to compare %zu buffers", na + nb);
    count = add_spans(spans, 0, a, na, false);
    count = add_spans(spans, count, b, nb, true);
    qsort(spans, count, sizeof(*spans), compare_spans);
    *spans_out = spans;
    *count_out = count;
    return CHOIR_OK;
}

/* A pair that overlaps; of two lists, one of each. Of what starts before a span only the one that reaches furthest
 * matters. */
static bool find_pair(const struct span *spans, size_t count, bool of_two,
                      const struct span **a_out, const struct span **b_out)
{
    const struct span *furthest[2] = { NULL, NULL };

    for (size_t i = 0; i < count; i++) {
        const struct span *span = &spans[i], *other = furthest[of_two && !span->second];

        if (other != NULL && span->first < other->end) {
            *a_out = other;
            *b_out = span;
            return true;
        }
        if (furthest[span->second] == NULL || span->end > furthest[span->second]->end)
            furthest[span->second] = span;
    }
    return false;
}

/* --- lists -------------------------------------------------------------------------------------- */

static choir_status overlap_in_list(const char *name, size_t i, size_t j)
{
    return ch_fail(CHOIR_ERR_INVALID, "%s: those at index %zu and %zu overlap", name, i < j ? i : j,
                   i < j ? j : i);
}

static choir_status check_list_sorted(const char *name, const choir_buf *bufs, size_t count)
{
    const struct span *a, *b;
    struct span *spans;
    size_t nspans;
    choir_status rc = sort_spans(bufs, count, NULL, 0, &spans, &nspans);

    if (rc != CHOIR_OK)
        return rc;
    if (find_pair(spans, nspans, false, &a, &b))
        rc = overlap_in_list(name, a->index, b->index);
    ch_free(spans);
    return rc;
}

/* Mostly they come in the order in which they lie: how many do. */
static size_t count_in_order(const choir_buf *bufs, size_t count)
{
    uintptr_t first, end, before = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        ch_span(&bufs[i], &first, &end);
        if (first == end)
            continue;
        if (first < before)
            break;
        before = end;
    }
    return i;
}

choir_status ch_check_list_apart(const char *name, const choir_buf *bufs, size_t count)
{
    size_t i = count_in_order(bufs, count);

    if (i < count && count > PAIRS_MAX / count)
        return check_list_sorted(name, bufs, count);
    for (; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (ch_overlap(&bufs[i], &bufs[j]))
                return overlap_in_list(name, i, j);
        }
    }
    return CHOIR_OK;
}

static bool pairs_touch(const choir_buf *a, size_t na, const choir_buf *b, size_t nb)
{
    for (size_t i = 0; i < na; i++) {
        for (size_t j = 0; j < nb; j++) {
            if (ch_overlap(&a[i], &b[j]))
                return true;
        }
    }
    return false;
}

choir_status ch_lists_touch(const choir_buf *a, size_t na, const choir_buf *b, size_t nb,
                            bool *touch_out)
{
    const struct span *one, *other;
    struct span *spans;
    size_t count;
    choir_status rc;

    if (na == 0 || nb <= PAIRS_MAX / na) {
        *touch_out = pairs_touch(a, na, b, nb);
        return CHOIR_OK;
    }
    rc = sort_spans(a, na, b, nb, &spans, &count);
    if (rc != CHOIR_OK)
        return rc;
    *touch_out = find_pair(spans, count, true, &one, &other);
    ch_free(spans);
    return CHOIR_OK;
}

choir_status ch_check_lists_apart(const char *a_name, const choir_buf *a, size_t na,
                                  const char *b_name, const choir_buf *b, size_t nb)
{
    bool touch = false;
    choir_status rc = ch_lists_touch(a, na, b, nb, &touch);

    if (rc == CHOIR_OK && touch)
        rc = ch_fail(CHOIR_ERR_INVALID, "%s and %s overlap: expected apart from each other", a_name,
                     b_name);
    return rc;
}
