/*
 * rooted.c - see rooted.h.
 */
#include "engine/rooted.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engine/agree.h"
#include "engine/place.h"

const char ch_rooted_algo[] = "linear";

/* --- what fits --------------------------------------------------------------------------------------- */

static bool is_overruled(const struct ch_channel *channel, enum ch_coll coll)
{
    const struct ch_overrules *overrules = &channel->rank->overrules;

    for (uint32_t i = 0; i < overrules->count; i++) {
        if (overrules->list[i].algo->coll == coll)
            return true;
    }
    return false;
}

static size_t room_of_slot(const struct ch_channel *channel, uint32_t nslots)
{
    return channel->stage_half / nslots / CH_CACHE_LINE * CH_CACHE_LINE;
}

void ch_rooted_init(struct ch_channel *channel)
{
    size_t slot;

    if (channel->nranks < 2)
        return;
    if (!is_overruled(channel, CH_GATHER))
        channel->pair_max[CH_GATHER] = room_of_slot(channel, 1);
    slot = room_of_slot(channel, channel->nranks - 1);
    /* The last line of a slot is for the length. */
    if (slot > CH_CACHE_LINE && !is_overruled(channel, CH_SCATTER))
        channel->pair_max[CH_SCATTER] = slot - CH_CACHE_LINE;
}

#define LENGTHS_DIFFER UINT64_MAX /* no block has so many elements */

/* --- lengths ------------------------------------------------------------------------------------------ */

static const struct ch_blocks *list_of(const struct ch_op *op)
{
    return op->coll == CH_GATHER ? &op->out : &op->in;
}

static size_t length_of(const struct ch_blocks *blocks, uint32_t index)
{
    return blocks->pieces != NULL ? blocks->pieces[index].count : blocks->count;
}

/* Where the root of a scatter leaves the length of the block for `who`. */
static char *place_of_length(const struct ch_channel *channel, const struct ch_op *op, uint32_t who,
                             uint64_t round)
{
    size_t slot = room_of_slot(channel, channel->nranks - 1);
    size_t index = who < op->root ? who : who - 1;

    return channel->members[op->root].stage + round % 2 * channel->stage_half + index * slot +
           (slot - CH_CACHE_LINE);
}

static void leave_lengths(const struct ch_channel *channel, const struct ch_op *op, uint64_t round)
{
    for (uint32_t who = 0; who < channel->nranks; who++) {
        uint64_t length = length_of(&op->in, who);

        if (who != channel->me)
            memcpy(place_of_length(channel, op, who, round), &length, sizeof(length));
    }
}

uint64_t ch_rooted_tell(struct ch_channel *channel, const struct ch_op *op, uint64_t round)
{
    if (!op->differ)
        return ch_call_mix(channel->check, op->longest);
    leave_lengths(channel, op, round); /* who gathers posts nothing */
    return ch_call_mix(channel->check, LENGTHS_DIFFER);
}

static uint64_t told_by_root(const struct ch_channel *channel, const struct ch_op *op,
                             uint64_t round)
{
    uint64_t length = ch_call_longest(channel, op->root);

    if (ch_call_differs(channel, op->root))
        memcpy(&length, place_of_length(channel, op, channel->me, round), sizeof(length));
    return length;
}

choir_status ch_rooted_compare(struct ch_channel *channel, const struct ch_op *op, uint32_t who,
                               uint64_t check, uint64_t round)
{
    bool gathers = op->coll == CH_GATHER;
    uint64_t expected = length_of(&op->out, gathers ? who : 0), told;

    if (CH_LIKELY(check == ch_call_mix(channel->check, expected)))
        return CHOIR_OK;
    if (ch_call_view(channel, who) != CH_AGREES)
        return ch_call_mismatch(channel);
    told = gathers ? ch_call_longest(channel, who) : told_by_root(channel, op, round);
    return told == expected ? CHOIR_OK : ch_agree_refuse(channel, op, who, told, expected);
}

/* --- blocks that do not fit ------------------------------------------------------------------------- */

/* What the root says to those with a long block. */
struct word {
    uint64_t longest, differ, some;
};
enum { WORDS = sizeof(struct word) / sizeof(uint64_t) };

struct ch_rooted {
    struct ch_op op;
    struct word word;
    struct ch_piece pieces[];
};

static choir_status make(struct ch_channel *channel)
{
    struct ch_rooted *r;

    if (channel->rooted != NULL)
        return CHOIR_OK;
    r = ch_zalloc(sizeof(*r) + channel->nranks * sizeof(r->pieces[0]));
    if (r == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "group %s: no memory for the lengths of %u blocks",
                       channel->name, channel->nranks);
    channel->rooted = r;
    return CHOIR_OK;
}

/* A copy of `op` of which those blocks are left that are long, or are not. */
static void keep_blocks(struct ch_channel *channel, const struct ch_op *op, bool which)
{
    struct ch_rooted *r = channel->rooted;
    const struct ch_blocks *all = list_of(op);
    struct ch_blocks *own = op->coll == CH_GATHER ? &r->op.in : &r->op.out;
    struct ch_blocks *list = op->coll == CH_GATHER ? &r->op.out : &r->op.in;

    r->op = *op;
    *own = (struct ch_blocks){ .first = channel->me,
                               .step = 1,
                               .nblocks = 1,
                               .base = ch_piece_start(own, 0, ch_type_bytes[op->dtype]),
                               .count = length_of(own, 0) };
    if (ch_rooted_is_long(channel, op, own->count) != which)
        own->count = 0;
    if (channel->me != op->root)
        return;
    for (uint32_t i = 0; i < all->nblocks; i++) {
        size_t length = length_of(all, i);

        r->pieces[i] = (struct ch_piece){ .data = ch_piece_start(all, i, ch_type_bytes[op->dtype]),
                                          .count = ch_rooted_is_long(channel, op, length) == which
                                                       ? length
                                                       : 0 };
    }
    list->pieces = r->pieces;
}

choir_status ch_rooted_head(struct ch_channel *channel, const struct ch_op *op,
                            const struct ch_op **head_out)
{
    choir_status rc = make(channel);

    if (rc != CHOIR_OK)
        return rc;
    keep_blocks(channel, op, false);
    channel->rooted->op.longest = channel->pair_max[op->coll] / ch_type_bytes[op->dtype];
    *head_out = &channel->rooted->op;
    return CHOIR_OK;
}

static bool some_are_short(const struct ch_channel *channel, const struct ch_op *op)
{
    for (uint32_t who = 0; who < channel->nranks; who++) {
        if (who != op->root && !ch_rooted_is_long(channel, op, length_of(list_of(op), who)))
            return true;
    }
    return false;
}

const struct ch_op *ch_rooted_word(struct ch_channel *channel, const struct ch_op *op)
{
    struct ch_rooted *r = channel->rooted;
    uint32_t n = channel->nranks, me = channel->me;

    r->op = (struct ch_op){ .type = op->type,
                            .coll = CH_SCATTER,
                            .dtype = CHOIR_U64,
                            .root = op->root,
                            .in_place = me == op->root,
                            .longest = WORDS,
                            .seq = op->seq,
                            .until = op->until,
                            .timeout_ms = op->timeout_ms };
    r->op.out = (struct ch_blocks){
        .first = me, .step = 1, .nblocks = 1, .base = (char *)&r->word, .count = WORDS
    };
    if (me != op->root)
        return &r->op;
    r->word = (struct word){ op->longest, op->differ, some_are_short(channel, op) };
    for (uint32_t who = 0; who < n; who++) {
        bool hears = ch_rooted_is_long(channel, op, length_of(list_of(op), who));

        r->pieces[who] = (struct ch_piece){ &r->word, hears ? WORDS : 0 };
    }
    r->op.in = (struct ch_blocks){ .step = 1, .nblocks = n, .pieces = r->pieces };
    return &r->op;
}

struct ch_rooted_rest ch_rooted_rest(struct ch_channel *channel, const struct ch_op *op)
{
    struct ch_rooted *r = channel->rooted;
    struct ch_rooted_rest rest = { .op = op,
                                   .longest = (size_t)r->word.longest,
                                   .uneven = r->word.differ != 0 || r->word.some != 0,
                                   .some = r->word.some != 0 };

    if (rest.some) {
        keep_blocks(channel, op, true);
        rest.op = &r->op;
    }
    return rest;
}
