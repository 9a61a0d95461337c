/*
 * describe.c - see describe.h.
 */
#include "engine/describe.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "engine/poison.h"
#include "sched/blocks.h"

enum { TELL_AFTER_NS = 100 * CH_MS };

/* --- writing and reading a slot ------------------------------------------------------------------- */

static struct ch_call_slot *slot_of(const struct ch_channel *channel, uint32_t who, uint64_t number)
{
    return &channel->members[who].control->calls[number % CH_CALLS_KEPT];
}

/* Relaxed: after the acquire of `entered` or of a flag. */
static struct ch_call_desc read_slot(struct ch_call_slot *slot)
{
    struct ch_call_desc desc;
    uint64_t words[CH_ARRAY_LEN(slot->words)];

    for (size_t i = 0; i < CH_ARRAY_LEN(words); i++)
        words[i] = atomic_load_explicit(&slot->words[i], memory_order_relaxed);
    memcpy(&desc, words, sizeof(desc));
    return desc;
}

static uint64_t entered_by(const struct ch_channel *channel, uint32_t who)
{
    /* Acquire, pairs with the release in ch_call_enter(): the descriptor is whole. */
    return atomic_load_explicit(&channel->members[who].control->entered, memory_order_acquire);
}

/* --- entering ------------------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0;

    for (; name != NULL && *name != '\0'; name++)
        hash = ch_call_mix(hash, (unsigned char)*name);
    return hash;
}

/* Of everything that must be the same on all ranks. */
static uint64_t hash_of(const struct ch_op *op)
{
    const uint64_t words[] = {
        op->type,   op->coll,
        op->dtype,  op->reduces,
        op->redop,  op->root,
        op->uneven, op->uneven ? 0 : op->longest, /* which else is as far as a rank knows */
        op->counts, hash_name(op->algo)
    };
    uint64_t hash = 0;

    for (size_t i = 0; i < CH_ARRAY_LEN(words); i++)
        hash = ch_call_mix(hash, words[i]);
    return hash;
}

void ch_call_say(struct ch_channel *channel, const struct ch_op *op, struct ch_said *said)
{
    /* A factor is that of one call. */
    bool once = op->reduces && op->redop == CHOIR_PREMUL_SUM;

    *said = (struct ch_said){ .type = once ? CHOIR_OP_UNKNOWN : op->type,
                              .counts = op->counts,
                              .hash = hash_of(op) };
    for (size_t i = 0; i < CH_CALLS_KEPT; i++) {
        if (channel->shown[i] == said)
            channel->shown[i] = NULL;
    }
}

void ch_call_show(struct ch_channel *channel, uint64_t number, const struct ch_op *op,
                  const struct ch_said *said)
{
    struct ch_call_slot *slot = slot_of(channel, channel->me, number);
    struct ch_call_desc desc = { .counts = op->counts,
                                 .longest = op->longest,
                                 .factor = op->factor,
                                 .root = op->root,
                                 .type = (uint16_t)op->type,
                                 .dtype = (uint8_t)op->dtype,
                                 .redop = (uint8_t)op->redop,
                                 .coll = (uint8_t)op->coll,
                                 .reduces = op->reduces,
                                 .rooted = ch_coll_rooted(op->coll),
                                 .uneven = op->differ   ? CH_UNEVEN_DIFFER
                                           : op->uneven ? CH_UNEVEN_MAY
                                                        : 0 };
    uint64_t words[CH_ARRAY_LEN(slot->words)];

    memcpy(words, &desc, sizeof(words));
    for (size_t i = 0; i < CH_ARRAY_LEN(words); i++)
        ch_call_put(slot, i * sizeof(words[i]), words[i]);
    channel->shown[number % CH_CALLS_KEPT] = said;
}

/* --- comparing ------------------------------------------------------------------------------------ */

enum ch_view ch_call_view(const struct ch_channel *channel, uint32_t who)
{
    if (entered_by(channel, who) < channel->ncalls)
        return CH_NOT_ENTERED;
    return read_slot(slot_of(channel, who, channel->ncalls)).check == channel->check ? CH_AGREES
                                                                                     : CH_DIFFERS;
}

double ch_call_factor(const struct ch_channel *channel, uint32_t who)
{
    return read_slot(slot_of(channel, who, channel->ncalls)).factor;
}

uint64_t ch_call_longest(const struct ch_channel *channel, uint32_t who)
{
    return read_slot(slot_of(channel, who, channel->ncalls)).longest;
}

bool ch_call_differs(const struct ch_channel *channel, uint32_t who)
{
    return read_slot(slot_of(channel, who, channel->ncalls)).uneven == CH_UNEVEN_DIFFER;
}

/* --- words ---------------------------------------------------------------------------------------- */

/* Append, cut at the end. */
static CH_PRINTF(4, 5) void say(char *buf, size_t size, size_t *used_io, const char *fmt, ...)
{
    va_list args;
    int n;

    if (*used_io + 1 >= size)
        return;
    va_start(args, fmt);
    n = vsnprintf(buf + *used_io, size - *used_io, fmt, args);
    va_end(args);
    *used_io += n > 0 ? (size_t)n : 0;
    if (*used_io >= size)
        *used_io = size - 1;
}

static const char *name_or(const char *name)
{
    return name != NULL ? name : "?";
}

const char *ch_op_text(const struct ch_op *op, char *buf, size_t size)
{
    snprintf(buf, size, "%s, number %" PRIu64, name_or(ch_optype_name(op->type)), op->seq);
    return buf;
}

const char *ch_call_text_last(const struct ch_channel *channel, uint32_t who, char *buf,
                              size_t size)
{
    uint64_t number = entered_by(channel, who);
    struct ch_call_desc desc;

    if (number == 0) {
        snprintf(buf, size, "none");
        return buf;
    }
    desc = read_slot(slot_of(channel, who, number));
    snprintf(buf, size, "%s, number %" PRIu64, name_or(ch_optype_name((choir_optype)desc.type)),
             desc.seq);
    return buf;
}

/* "broadcast of 1000 f32 from 2" */
static void say_call(const struct ch_call_desc *d, char *buf, size_t size, size_t *used_io)
{
    say(buf, size, used_io, "%s", name_or(ch_optype_name((choir_optype)d->type)));
    if (d->coll != CH_BARRIER && d->type != CHOIR_OP_SPLIT) /* whose elements nobody gave */
        say(buf, size, used_io, " of %s%" PRIu64 " %s", d->uneven ? "up to " : "", d->longest,
            name_or(choir_type_name((choir_type)d->dtype)));
    if (d->uneven) /* the lengths themselves do not fit, but that they differ must be seen */
        say(buf, size, used_io, " (lengths #%04x)", (unsigned)(d->counts & 0xffff));
    if (d->reduces)
        say(buf, size, used_io, " %s", name_or(choir_redop_name((choir_redop)d->redop)));
    if (d->rooted)
        say(buf, size, used_io, " root %u", d->root);
}

uint32_t ch_ranks_text(const struct ch_channel *channel,
                       bool (*is)(const struct ch_channel *channel, uint32_t who, const void *arg),
                       const void *arg, char *buf, size_t size)
{
    uint32_t count = 0, who = 0;
    size_t used = 0;
    char list[256] = "";

    while (who < channel->nranks) {
        uint32_t first = who;

        while (who < channel->nranks && is(channel, who, arg))
            who++;
        if (who - first > 2)
            say(list, sizeof(list), &used, "%s%u-%u", count > 0 ? ", " : "", first, who - 1);
        else
            for (uint32_t i = first; i < who; i++)
                say(list, sizeof(list), &used, "%s%u", count + i - first > 0 ? ", " : "", i);
        count += who - first;
        who++;
    }
    snprintf(buf, size, "rank%s %s", count == 1 ? "" : "s", list);
    return count;
}

/* --- the table ------------------------------------------------------------------------------------ */

struct same_call {
    uint64_t number, check;
};

static bool entered_it(const struct ch_channel *channel, uint32_t who, uint64_t number)
{
    return entered_by(channel, who) >= number;
}

static bool calls_the_same(const struct ch_channel *channel, uint32_t who, const void *arg)
{
    const struct same_call *same = arg;

    return entered_it(channel, who, same->number) &&
           read_slot(slot_of(channel, who, same->number)).check == same->check;
}

static bool is_missing(const struct ch_channel *channel, uint32_t who, const void *arg)
{
    const struct same_call *same = arg;

    return !entered_it(channel, who, same->number);
}

/* The earliest call that is still described and that not all who have entered it describe alike. */
static uint64_t where_it_began(const struct ch_channel *channel)
{
    uint64_t oldest = channel->ncalls > CH_CALLS_KEPT - 1 ? channel->ncalls - (CH_CALLS_KEPT - 1)
                                                          : 1;

    for (uint64_t number = oldest; number < channel->ncalls; number++) {
        struct same_call mine = { number, read_slot(slot_of(channel, channel->me, number)).check };

        for (uint32_t who = 0; who < channel->nranks; who++) {
            struct ch_call_desc theirs = read_slot(slot_of(channel, who, number));

            if (entered_it(channel, who, number) && theirs.number == number &&
                theirs.check != mine.check)
                return number;
        }
    }
    return channel->ncalls;
}

/* Rows of those who call the same, by lowest rank; *odd_out is the lowest rank of the smallest row. */
static void say_table(const struct ch_channel *channel, uint64_t number, char *buf, size_t size,
                      size_t *used_io, uint32_t *odd_out)
{
    uint32_t fewest = UINT32_MAX;
    char ranks[128];

    for (uint32_t who = 0; who < channel->nranks; who++) {
        struct ch_call_desc desc = read_slot(slot_of(channel, who, number));
        struct same_call same = { number, desc.check };
        uint32_t first = 0, count;

        if (!entered_it(channel, who, number))
            continue;
        while (!calls_the_same(channel, first, &same) && first < who)
            first++;
        if (first != who)
            continue; /* in an earlier row */
        count = ch_ranks_text(channel, calls_the_same, &same, ranks, sizeof(ranks));
        if (count < fewest || (count == fewest && *odd_out == channel->me)) {
            fewest = count;
            *odd_out = who;
        }
        say(buf, size, used_io, "%s%s: ", *used_io == 0 ? "" : "; ", ranks);
        say_call(&desc, buf, size, used_io);
    }
}

static choir_status tell(const struct ch_channel *channel)
{
    uint64_t number = where_it_began(channel);
    struct ch_call_desc mine = read_slot(slot_of(channel, channel->me, number));
    struct same_call here = { number, 0 };
    char table[384] = "", ranks[128], what[CHOIR_ERROR_OPERATION_MAX];
    uint32_t odd = channel->me;
    size_t used = 0;

    say_table(channel, number, table, sizeof(table), &used, &odd);
    if (ch_ranks_text(channel, is_missing, &here, ranks, sizeof(ranks)) > 0)
        say(table, sizeof(table), &used, "; not there yet: %s", ranks);
    snprintf(what, sizeof(what), "%s", name_or(ch_optype_name((choir_optype)mine.type)));
    return ch_fail_rank(CHOIR_ERR_MISMATCH, (int)odd, what,
                        "group %s, operation %" PRIu64 ": ranks called different operations%s: %s",
                        channel->name, mine.seq, number < channel->ncalls ? " some time ago" : "",
                        table);
}

/* Whether everybody is in the table who will be soon. */
static bool is_time_to_tell(struct ch_channel *channel)
{
    uint64_t now = ch_now();

    if (channel->differs_since == 0)
        channel->differs_since = now;
    if (now - channel->differs_since >= TELL_AFTER_NS)
        return true;
    for (uint32_t who = 0; who < channel->nranks; who++) {
        if (!entered_it(channel, who, channel->ncalls))
            return false;
    }
    return true;
}

choir_status ch_call_mismatch(struct ch_channel *channel)
{
    if (!is_time_to_tell(channel))
        return CHOIR_IN_PROGRESS;
    tell(channel);
    return ch_poison_last_error(channel);
}
