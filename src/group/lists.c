/*
 * lists.c - what the calls with a buffer for each rank have in common. See lists.h.
 */
#include "group/lists.h"

#include "base/error.h"
#include "group/args.h"
#include "group/group.h"
#include "group/overlap.h"
#include "kernel/kernel.h"

size_t ch_longest(const struct ch_piece *pieces, uint32_t count)
{
    size_t longest = 0;

    for (uint32_t i = 0; i < count; i++)
        longest = pieces[i].count > longest ? pieces[i].count : longest;
    return longest;
}

bool ch_differ(const struct ch_piece *pieces, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (pieces[i].count != pieces[0].count)
            return true;
    }
    return false;
}

static choir_status wrong_size(const char *name, size_t index, size_t expected, size_t got)
{
    return ch_fail(CHOIR_ERR_INVALID,
                   "%s: invalid tensor size at index %zu (expected (%zu), got (%zu))", name, index,
                   expected, got);
}

/* One buffer for each rank: checked, and as pieces in the call's room. */
choir_status ch_list_pieces(struct ch_call *call, const char *name, const choir_buf *bufs,
                            choir_type type, unsigned ways, struct ch_piece **pieces_out)
{
    uint32_t n = (uint32_t)call->group->nranks;
    struct ch_piece *pieces = NULL;
    choir_status rc = ch_check_list(name, bufs, n, type);

    if (rc == CHOIR_OK && (ways & CH_COMES_OUT) != 0)
        rc = ch_check_list_apart(name, bufs, n);
    if (rc == CHOIR_OK && (pieces = ch_call_room(call, n, sizeof(*pieces))) == NULL)
        rc = CHOIR_ERR_NOMEM;
    for (uint32_t i = 0; i < n && rc == CHOIR_OK; i++)
        rc = ch_block_of(call, &bufs[i], ways, &pieces[i]);
    *pieces_out = pieces;
    return rc;
}

/* This rank's single buffer against the list: its own entry has its size; the same memory is in place. */
choir_status ch_list_check_own(struct ch_call *call, const char *name, const choir_buf *own,
                               const char *list_name, const choir_buf *list)
{
    uint32_t n = (uint32_t)call->group->nranks, me = (uint32_t)call->group->rank;

    if (list[me].count != own->count)
        return wrong_size(list_name, me, own->count, list[me].count);
    for (uint32_t i = 0; i < n; i++) {
        choir_status rc;

        if (i == me && own->data == list[i].data) {
            call->op.in_place = ch_is_plain(own) && ch_is_plain(&list[i]);
            continue;
        }
        rc = ch_check_apart(name, own, list_name, &list[i]);
        if (rc != CHOIR_OK)
            return rc;
    }
    return CHOIR_OK;
}

static uint64_t hash_counts(const struct ch_piece *pieces, uint32_t count)
{
    uint64_t hash = CH_HASH_START;

    for (uint32_t i = 0; i < count; i++)
        hash = ch_hash_add(hash, pieces[i].count);
    return hash;
}

/* Lengths that every rank knows. */
void ch_list_lengths(struct ch_call *call, choir_type type, const struct ch_piece *pieces)
{
    uint32_t n = (uint32_t)call->group->nranks;

    call->op.dtype = type;
    call->op.longest = ch_longest(pieces, n);
    call->op.uneven = ch_differ(pieces, n);
    call->op.counts = hash_counts(pieces, n);
}

/* `whole` has N times the elements of `part`. */
choir_status ch_check_multiple(struct ch_call *call, const char *part_name, const choir_buf *part,
                               const char *whole_name, const choir_buf *whole)
{
    size_t n = (size_t)call->group->nranks;
    choir_status rc = ch_check_same_type(whole_name, whole, part->type);

    if (rc == CHOIR_OK && (whole->count % n != 0 || whole->count / n != part->count))
        rc = ch_fail(CHOIR_ERR_INVALID,
                     "%s: invalid tensor size (expected %zu times the %zu elements of %s, got %zu)",
                     whole_name, n, part->count, part_name, whole->count);
    return rc;
}

static bool is_own_part(const struct ch_call *call, const choir_buf *part, const choir_buf *whole)
{
    size_t before = (size_t)call->group->rank * part->count * ch_type_bytes[part->type];

    return part->count > 0 && ch_is_plain(part) && ch_is_plain(whole) &&
           part->data == (char *)whole->data + before;
}

choir_status ch_part_and_whole(struct ch_call *call, const char *part_name, const choir_buf *part,
                               const char *whole_name, const choir_buf *whole, enum ch_way way)
{
    bool goes_in = way == CH_GOES_IN;
    struct ch_blocks *own = goes_in ? &call->op.in : &call->op.out;
    struct ch_blocks *all = goes_in ? &call->op.out : &call->op.in;
    struct ch_piece part_piece, whole_piece;
    choir_status rc = ch_check_buf(part_name, part);

    if (rc == CHOIR_OK)
        rc = ch_check_buf(whole_name, whole);
    if (rc == CHOIR_OK)
        rc = ch_check_multiple(call, part_name, part, whole_name, whole);
    if (rc != CHOIR_OK)
        return rc;
    call->op.in_place = is_own_part(call, part, whole);
    if (!call->op.in_place)
        rc = ch_check_apart(part_name, part, whole_name, whole);
    if (rc == CHOIR_OK)
        rc = ch_block_of(call, part, way, &part_piece);
    if (rc == CHOIR_OK)
        rc = ch_block_of(call, whole, goes_in ? CH_COMES_OUT : CH_GOES_IN, &whole_piece);
    if (rc != CHOIR_OK)
        return rc;
    ch_op_length(call, part->type, part->count);
    ch_blocks_even(own, (uint32_t)call->group->rank, 1, 1, part_piece.data, part->count);
    ch_blocks_even(all, 0, 1, (uint32_t)call->group->nranks, whole_piece.data, part->count);
    return CHOIR_OK;
}

struct ch_slice ch_slice_of_list(const choir_buf *bufs, size_t k, size_t n, size_t i, size_t j)
{
    (void)n;
    return (struct ch_slice){ &bufs[i * k + j], 0, bufs[i * k + j].count };
}

struct ch_slice ch_slice_of_whole(const choir_buf *bufs, size_t k, size_t n, size_t i, size_t j)
{
    size_t part = bufs[j].count / n;

    (void)k;
    return (struct ch_slice){ &bufs[j], i * part, part };
}

choir_status ch_coalesced_blocks(struct ch_call *call, const choir_buf *bufs, size_t k,
                                 ch_slice_of slice, unsigned ways, struct ch_piece **pieces_out)
{
    size_t n = (size_t)call->group->nranks;
    struct ch_piece *pieces = ch_call_room(call, n, sizeof(*pieces));
    struct ch_slice *slices = pieces != NULL ? ch_call_room(call, k, sizeof(*slices)) : NULL;
    choir_status rc = slices != NULL ? CHOIR_OK : CHOIR_ERR_NOMEM;

    for (size_t i = 0; i < n && rc == CHOIR_OK; i++) {
        for (size_t j = 0; j < k; j++)
            slices[j] = slice(bufs, k, n, i, j);
        rc = ch_block_make(call, slices, k, ways, &pieces[i]);
    }
    *pieces_out = pieces;
    return rc;
}

choir_status ch_coalesced_own(struct ch_call *call, const choir_buf *bufs, size_t k, unsigned ways,
                              struct ch_piece *piece_out)
{
    struct ch_slice *slices = ch_call_room(call, k, sizeof(*slices));

    if (slices == NULL)
        return CHOIR_ERR_NOMEM;
    for (size_t j = 0; j < k; j++)
        slices[j] = (struct ch_slice){ &bufs[j], 0, bufs[j].count };
    return ch_block_make(call, slices, k, ways, piece_out);
}

/* Lengths inside the blocks: what j-th inputs have must agree too, not only their sums. */
void ch_hash_inner(struct ch_call *call, const choir_buf *bufs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        call->op.counts = ch_hash_add(call->op.counts, bufs[i].count);
}

/* k parts and k wholes of N times their length, all of one type. */
choir_status ch_check_parts(struct ch_call *call, const char *part_name, const choir_buf *parts,
                            const char *whole_name, const choir_buf *wholes, size_t k)
{
    choir_type type = k > 0 && parts != NULL ? parts[0].type : 0;
    choir_status rc = ch_check_list(part_name, parts, k, type);

    if (rc == CHOIR_OK)
        rc = ch_check_list(whole_name, wholes, k, type);
    for (size_t j = 0; j < k && rc == CHOIR_OK; j++) {
        rc = ch_check_multiple(call, part_name, &parts[j], whole_name, &wholes[j]);
        if (rc != CHOIR_OK)
            ch_error_prefix("at index %zu of ", j);
    }
    if (rc == CHOIR_OK)
        rc = ch_check_lists_apart(part_name, parts, k, whole_name, wholes, k);
    return rc;
}
