/*
 * memory.c - packing and unpacking, and a call's own memory. See memory.h.
 */
#include "group/memory.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "kernel/kernel.h"

/* --- a call's room ------------------------------------------------------------------------------ */

struct ch_room {
    struct ch_room *next;
    _Alignas(16) char bytes[]; /* as the heap gives it, and call.h promises */
};

static bool round_up(size_t *nbytes)
{
    if (*nbytes > SIZE_MAX - 15 - sizeof(struct ch_room))
        return false;
    *nbytes = (*nbytes + 15) & ~(size_t)15;
    return true;
}

void *ch_call_room(struct ch_call *call, size_t count, size_t size)
{
    struct ch_room *room;
    size_t nbytes;

    if (__builtin_mul_overflow(count, size, &nbytes) || !round_up(&nbytes)) {
        ch_fail(CHOIR_ERR_NOMEM, "no memory for %zu times %zu bytes", count, size);
        return NULL;
    }
    if (nbytes <= CH_CALL_ROOM - call->room_used) {
        void *at = call->room + call->room_used;

        call->room_used += nbytes;
        return at;
    }
    room = ch_alloc(sizeof(*room) + nbytes);
    if (room == NULL) {
        ch_fail(CHOIR_ERR_NOMEM, "no memory for %zu bytes of staging", nbytes);
        return NULL;
    }
    room->next = call->heap;
    call->heap = room;
    return room->bytes;
}

void ch_memory_release(struct ch_call *call)
{
    while (call->heap != NULL) {
        struct ch_room *room = call->heap;

        call->heap = room->next;
        ch_free(room);
    }
    call->staged = NULL;
    call->room_used = 0;
}

/* --- shapes ------------------------------------------------------------------------------------- */

static choir_status check_sizes(const choir_buf *buf)
{
    size_t product = 1;

    for (int d = 0; d < buf->ndim; d++) {
        if (buf->sizes[d] < 0 || buf->strides[d] < 0)
            return ch_fail(CHOIR_ERR_INVALID,
                           "dimension %d has size %lld and stride %lld, expected none below 0", d,
                           (long long)buf->sizes[d], (long long)buf->strides[d]);
        if (__builtin_mul_overflow(product, (size_t)buf->sizes[d], &product))
            return ch_fail(CHOIR_ERR_INVALID, "its sizes multiply to more than there is memory");
    }
    if (product != buf->count)
        return ch_fail(CHOIR_ERR_INVALID, "its sizes make %zu elements, but count is %zu", product,
                       buf->count);
    return CHOIR_OK;
}

/* Taking the dimensions by rising stride, each must step over all that the smaller ones cover. That is enough
 * for no two elements to be in one place, and whoever cuts or transposes arrays keeps to it. */
static choir_status check_strides(const choir_buf *buf)
{
    uint64_t done = 0;  /* dimensions */
    size_t covered = 0; /* elements behind the first */

    for (;;) {
        size_t more;
        int next = -1;

        for (int d = 0; d < buf->ndim; d++) {
            if ((done >> d & 1) == 0 && buf->sizes[d] > 1 &&
                (next < 0 || buf->strides[d] < buf->strides[next]))
                next = d;
        }
        if (next < 0)
            return CHOIR_OK;
        if ((size_t)buf->strides[next] <= covered)
            return ch_fail(CHOIR_ERR_INVALID,
                           "its elements overlap: stride %lld of dimension %d is within the %zu "
                           "elements that smaller strides cover",
                           (long long)buf->strides[next], next, covered + 1);
        if (__builtin_mul_overflow((size_t)buf->strides[next], (size_t)buf->sizes[next] - 1,
                                   &more) ||
            __builtin_add_overflow(covered, more, &covered) ||
            covered >= SIZE_MAX / 2 / ch_type_bytes[buf->type])
            return ch_fail(CHOIR_ERR_INVALID, "its strides reach further than there is memory");
        done |= UINT64_C(1) << next;
    }
}

choir_status ch_shape_check(const choir_buf *buf)
{
    choir_status rc;

    if (buf->ndim == 0)
        return CHOIR_OK;
    if (buf->ndim < 0 || buf->ndim > CH_DIMS_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "ndim is %d, expected 0 to %d", buf->ndim, CH_DIMS_MAX);
    if (buf->sizes == NULL || buf->strides == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "ndim is %d, but %s is NULL", buf->ndim,
                       buf->sizes == NULL ? "sizes" : "strides");
    rc = check_sizes(buf);
    if (rc == CHOIR_OK && buf->count > 0)
        rc = check_strides(buf);
    return rc;
}

bool ch_is_plain(const choir_buf *buf)
{
    int64_t stride = 1;

    for (int d = buf->ndim - 1; d >= 0; d--) {
        if (buf->sizes[d] != 1 && buf->strides[d] != stride)
            return buf->count <= 1;
        stride *= buf->sizes[d];
    }
    return true;
}

/* --- staging ------------------------------------------------------------------------------------ */

struct ch_staged {
    struct ch_staged *next;
    choir_buf buf;
    size_t first, count; /* elements of buf, in row-major order */
    char *at;
    unsigned ways;
};

/* Where in an array we are. */
struct cursor {
    const choir_buf *buf;
    int64_t at[CH_DIMS_MAX];
    char *element;
};

static void cursor_set(struct cursor *c, const choir_buf *buf, size_t index)
{
    size_t size = ch_type_bytes[buf->type], offset = 0;

    c->buf = buf;
    for (int d = buf->ndim - 1; d >= 0; d--) {
        c->at[d] = (int64_t)(index % (size_t)buf->sizes[d]);
        index /= (size_t)buf->sizes[d];
        offset += (size_t)c->at[d] * (size_t)buf->strides[d];
    }
    c->element = (char *)buf->data + offset * size;
}

/* To the element after the last of the current row. */
static void cursor_next_row(struct cursor *c)
{
    size_t size = ch_type_bytes[c->buf->type];
    int d = c->buf->ndim - 1;

    c->element -= (size_t)c->at[d] * (size_t)c->buf->strides[d] * size;
    c->at[d] = 0;
    for (d--; d >= 0; d--) {
        c->element += (size_t)c->buf->strides[d] * size;
        if (++c->at[d] < c->buf->sizes[d])
            return;
        c->element -= (size_t)c->buf->sizes[d] * (size_t)c->buf->strides[d] * size;
        c->at[d] = 0;
    }
}

/* `n` elements between a row of an array and plain memory. */
static void move_row(char *array, size_t step, char *plain, size_t size, size_t n, bool pack)
{
    if (step == size) {
        ch_copy(pack ? plain : array, pack ? array : plain, n * size);
        return;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(pack ? plain + i * size : array + i * step,
               pack ? array + i * step : plain + i * size, size);
}

static void move_array(const struct ch_staged *s, bool pack)
{
    size_t size = ch_type_bytes[s->buf.type], left = s->count;
    int inner = s->buf.ndim - 1;
    struct cursor c;
    char *plain = s->at;

    cursor_set(&c, &s->buf, s->first);
    while (left > 0) {
        size_t n = (size_t)(s->buf.sizes[inner] - c.at[inner]);

        if (n > left)
            n = left;
        move_row(c.element, (size_t)s->buf.strides[inner] * size, plain, size, n, pack);
        plain += n * size;
        left -= n;
        cursor_next_row(&c);
    }
}

static void move(const struct ch_staged *s, bool pack)
{
    size_t size = ch_type_bytes[s->buf.type];
    char *plain;

    if (s->count == 0)
        return;
    if (!ch_is_plain(&s->buf)) {
        move_array(s, pack);
        return;
    }
    plain = (char *)s->buf.data + s->first * size;
    ch_copy(pack ? s->at : plain, pack ? plain : s->at, s->count * size);
}

void ch_memory_pack(struct ch_call *call, bool all)
{
    for (const struct ch_staged *s = call->staged; s != NULL; s = s->next) {
        if (all || (s->ways & CH_GOES_IN) != 0)
            move(s, true);
    }
}

void ch_memory_unpack(struct ch_call *call)
{
    for (const struct ch_staged *s = call->staged; s != NULL; s = s->next) {
        if ((s->ways & CH_COMES_OUT) != 0)
            move(s, false);
    }
}

/* --- blocks ------------------------------------------------------------------------------------- */

static choir_status stage(struct ch_call *call, const struct ch_slice *slices, size_t nslices,
                          unsigned ways, struct ch_piece *piece)
{
    size_t size = ch_type_bytes[slices[0].buf->type];
    struct ch_staged *all = ch_call_room(call, nslices, sizeof(*all));
    char *at = all != NULL ? ch_call_room(call, piece->count, size) : NULL;

    if (at == NULL)
        return CHOIR_ERR_NOMEM;
    piece->data = at;
    for (size_t i = 0; i < nslices; i++) {
        all[i] = (struct ch_staged){ .next = call->staged,
                                     .buf = *slices[i].buf,
                                     .first = slices[i].first,
                                     .count = slices[i].count,
                                     .at = at,
                                     .ways = ways };
        call->staged = &all[i];
        at += slices[i].count * size;
    }
    return CHOIR_OK;
}

/* Where a slice starts; NULL if it is not plain, or of nothing that is nowhere. */
static char *plain_start(const struct ch_slice *slice)
{
    if (!ch_is_plain(slice->buf) || slice->buf->data == NULL)
        return NULL;
    return (char *)slice->buf->data + slice->first * ch_type_bytes[slice->buf->type];
}

choir_status ch_block_make(struct ch_call *call, const struct ch_slice *slices, size_t nslices,
                           unsigned ways, struct ch_piece *piece_out)
{
    bool plain = true;

    *piece_out = (struct ch_piece){ NULL, 0 };
    for (size_t i = 0; i < nslices; i++) {
        char *start = plain_start(&slices[i]), *data = piece_out->data;

        if (slices[i].count == 0)
            continue;
        if (data == NULL)
            piece_out->data = start;
        else if (start != data + piece_out->count * ch_type_bytes[slices[i].buf->type])
            plain = false;
        plain = plain && start != NULL;
        if (__builtin_add_overflow(piece_out->count, slices[i].count, &piece_out->count))
            return ch_fail(CHOIR_ERR_INVALID, "the buffers have too many elements together");
    }
    return plain ? CHOIR_OK : stage(call, slices, nslices, ways, piece_out);
}

choir_status ch_block_of(struct ch_call *call, const choir_buf *buf, unsigned ways,
                         struct ch_piece *piece_out)
{
    const struct ch_slice whole = { buf, 0, buf->count };

    return ch_block_make(call, &whole, 1, ways, piece_out);
}

choir_status ch_block_copy(struct ch_call *call, const choir_buf *buf, struct ch_piece *piece_out)
{
    const struct ch_slice whole = { buf, 0, buf->count };

    piece_out->count = buf->count;
    return stage(call, &whole, 1, CH_GOES_IN, piece_out);
}

void ch_blocks_of(struct ch_blocks *blocks, uint32_t first, uint32_t step, uint32_t nblocks,
                  const struct ch_piece *pieces, size_t size)
{
    size_t count = nblocks > 0 ? pieces[0].count : 0;

    ch_blocks_even(blocks, first, step, nblocks, nblocks > 0 ? pieces[0].data : NULL, count);
    for (uint32_t i = 1; i < nblocks; i++) {
        if (pieces[i].count != count ||
            (count > 0 && (char *)pieces[i].data != blocks->base + i * count * size)) {
            blocks->pieces = pieces;
            return;
        }
    }
}
