/*
 * split.c - choir_group_split(): new groups from the ranks of one, with one all-gather over it.
 *
 * Every rank tells which list it was called with (as a hash, and its length), whether it can take part, and what
 * it offers for the new group's channel. Everybody then sees the same: a list of n ranks must have been given by
 * exactly n of them, each of which is in it. So all ranks of the parent come to the same verdict.
 */
#include <stdio.h>
#include <string.h>

#include "backend/backend_host.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "group/args.h"
#include "group/batch.h"
#include "group/group.h"
#include "group/memory.h"
#include "group/registry.h"

/* What a rank says, as all-gathered. */
struct say {
    uint64_t list; /* a hash of its list and of the name it wants; 0: it is in none */
    uint32_t nranks;
    uint32_t name_is_taken; /* on that rank */
    int32_t refused;        /* it has nothing to offer: why, as a choir_status */
    uint32_t unused;
    struct ch_channel_offer offer;
};

struct split {
    choir_group *parent;
    const int *ranks;
    size_t nranks;
    int me; /* our place in the list; -1: in none */
    choir_group_split_opts opts;
    uint64_t number; /* of this parent's splits */
    struct say mine, *all;
    bool offered;
    choir_error why; /* mine.refused, in words */
    char *name, *description;
};

/* --- arguments ---------------------------------------------------------------------------------- */

static choir_status check_list(struct split *s)
{
    choir_group *parent = s->parent;

    s->me = -1;
    if (s->nranks > 0 && s->ranks == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "ranks: is NULL, but nranks is %zu", s->nranks);
    if (s->nranks > (size_t)parent->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "nranks: %zu, but group %s has %d", s->nranks,
                       parent->name, parent->nranks);
    for (size_t i = 0; i < s->nranks; i++) {
        if (s->ranks[i] < 0 || s->ranks[i] >= parent->nranks)
            return ch_fail(CHOIR_ERR_INVALID, "ranks: %d at index %zu, expected 0 to %d",
                           s->ranks[i], i, parent->nranks - 1);
        if (i > 0 && s->ranks[i] <= s->ranks[i - 1])
            return ch_fail(
                CHOIR_ERR_INVALID,
                "ranks: %d at index %zu after %d: expected a rising list, each rank once",
                s->ranks[i], i, s->ranks[i - 1]);
        if (s->ranks[i] == parent->rank)
            s->me = (int)i;
    }
    if (s->nranks > 0 && s->me < 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "ranks: does not contain the caller's rank %d; who is in no list gives an "
                       "empty one",
                       parent->rank);
    return CHOIR_OK;
}

static choir_status read_opts(struct split *s, const choir_group_split_opts *given)
{
    if (given == NULL)
        return CHOIR_OK;
    if (given->size == 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "opts: its size is 0: fill options in with CHOIR_OPTS(group_split, ...)");
    memcpy(&s->opts, given, given->size < sizeof(s->opts) ? given->size : sizeof(s->opts));
    return CHOIR_OK;
}

/* --- names -------------------------------------------------------------------------------------- */

/* "<parent>:split:[0, 2]", and if that is taken on one of the members, with the split's number behind. */
static choir_status default_name(struct split *s, bool numbered)
{
    size_t room = strlen(s->parent->name) + 13 * s->nranks + 64, at;
    char *name = ch_alloc(room);

    if (name == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a group's name");
    at = (size_t)snprintf(name, room, "%s:split:[", s->parent->name);
    for (size_t i = 0; i < s->nranks; i++)
        at += (size_t)snprintf(name + at, room - at, "%s%d", i > 0 ? ", " : "", s->ranks[i]);
    at += (size_t)snprintf(name + at, room - at, "]");
    if (numbered)
        snprintf(name + at, room - at, "#%llu", (unsigned long long)s->number);
    ch_free(s->name);
    s->name = name;
    return CHOIR_OK;
}

static choir_status make_names(struct split *s)
{
    const char *parents = s->parent->description;
    size_t room = strlen(parents) + 64;
    choir_status rc;

    if (s->opts.name == NULL) {
        rc = default_name(s, false);
        if (rc != CHOIR_OK)
            return rc;
    } else {
        s->name = ch_strdup(s->opts.name);
    }
    if (s->opts.description != NULL) {
        s->description = ch_strdup(s->opts.description);
    } else {
        s->description = ch_alloc(room);
        if (s->description != NULL)
            snprintf(s->description, room, "%s:split:%llu", parents, (unsigned long long)s->number);
    }
    if (s->name == NULL || s->description == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a group's name");
    return CHOIR_OK;
}

/* --- the exchange ------------------------------------------------------------------------------- */

static uint64_t hash_list(const struct split *s)
{
    uint64_t hash = ch_hash_add(CH_HASH_START, s->nranks);

    for (size_t i = 0; i < s->nranks; i++)
        hash = ch_hash_add(hash, (uint64_t)s->ranks[i]);
    for (const char *c = s->opts.name; c != NULL && *c != '\0'; c++)
        hash = ch_hash_add(hash, (unsigned char)*c);
    return hash | 1;
}

static void say_what(struct split *s)
{
    struct ch_rank *rank = s->parent->context->engine;
    choir_status rc;

    if (s->me < 0)
        return;
    s->mine.list = hash_list(s);
    s->mine.nranks = (uint32_t)s->nranks;
    rc = make_names(s);
    if (rc == CHOIR_OK) {
        s->mine.name_is_taken = ch_registry_has(s->parent, s->name);
        if (s->parent->backend != &ch_backend_fake) {
            rc = ch_channel_offer(rank, (uint32_t)s->nranks, &s->mine.offer);
            s->offered = rc == CHOIR_OK;
        }
    }
    s->mine.refused = (int32_t)rc;
    if (rc != CHOIR_OK)
        ch_error_save(&s->why);
}

static choir_status gather_says(struct split *s)
{
    choir_group *parent = s->parent;
    struct ch_call here, *call;
    choir_status rc = ch_call_open(parent, "choir_group_split", CHOIR_OP_SPLIT, NULL, false, &here,
                                   &call);

    if (rc != CHOIR_OK)
        return rc;
    call->op.coll = CH_ALLGATHER;
    ch_op_length(call, CHOIR_U8, sizeof(s->mine));
    ch_blocks_even(&call->op.in, (uint32_t)parent->rank, 1, 1, &s->mine, sizeof(s->mine));
    ch_blocks_even(&call->op.out, 0, 1, (uint32_t)parent->nranks, s->all, sizeof(s->mine));
    return ch_call_run(call);
}

/* --- the verdict -------------------------------------------------------------------------------- */

static uint32_t count_sayers(const struct split *s, uint64_t list)
{
    uint32_t count = 0;

    for (int r = 0; r < s->parent->nranks; r++)
        count += s->all[r].list == list;
    return count;
}

/* Seen alike by all ranks of the parent. */
static choir_status judge(const struct split *s)
{
    for (int r = 0; r < s->parent->nranks; r++) {
        const struct say *say = &s->all[r];

        if (say->list == 0)
            continue;
        if (say->refused != CHOIR_OK)
            return ch_fail_rank(
                (choir_status)say->refused, r, "split", "rank %d cannot take part: %s", r,
                r == s->parent->rank ? s->why.text : choir_status_text((choir_status)say->refused));
        if (count_sayers(s, say->list) != say->nranks)
            return ch_fail_rank(CHOIR_ERR_INVALID, r, "split",
                                "ranks do not agree: rank %d gave a list (and name) of %u ranks, "
                                "which %u of them gave",
                                r, say->nranks, count_sayers(s, say->list));
    }
    return CHOIR_OK;
}

/* Of our own list alone. */
static choir_status settle_name(struct split *s)
{
    for (size_t i = 0; i < s->nranks; i++) {
        if (s->all[s->ranks[i]].name_is_taken == 0)
            continue;
        if (s->opts.name == NULL)
            return default_name(s, true);
        return ch_fail_rank(CHOIR_ERR_INVALID, s->ranks[i], "split",
                            "opts->name: the name %s is taken on rank %d", s->name, s->ranks[i]);
    }
    return CHOIR_OK;
}

/* --- the child ---------------------------------------------------------------------------------- */

static choir_status open_channel(struct split *s, struct ch_channel **channel_out)
{
    struct ch_rank *rank = s->parent->context->engine;
    struct ch_channel_offer *offers = ch_alloc_array(s->nranks, sizeof(*offers));
    choir_status rc;

    if (offers == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %zu ranks", s->nranks);
    for (size_t i = 0; i < s->nranks; i++)
        offers[i] = s->all[s->ranks[i]].offer;
    s->offered = false; /* taken over, whatever comes of it */
    rc = ch_channel_open(rank, offers, (uint32_t)s->nranks, (uint32_t)s->me, s->name, channel_out);
    ch_free(offers);
    return rc;
}

static int *global_ranks(const struct split *s)
{
    int *global = ch_alloc_array(s->nranks, sizeof(*global));

    for (size_t i = 0; global != NULL && i < s->nranks; i++)
        global[i] = choir_group_global_rank(s->parent, s->ranks[i]);
    if (global == NULL)
        ch_fail(CHOIR_ERR_NOMEM, "no memory for %zu ranks", s->nranks);
    return global;
}

static choir_status make_child(struct split *s, choir_group **child_out)
{
    choir_group *parent = s->parent, *child;
    bool fake = parent->backend == &ch_backend_fake;
    struct ch_channel *channel = NULL;
    int *global;
    choir_status rc = fake ? CHOIR_OK : open_channel(s, &channel);

    if (rc != CHOIR_OK)
        return rc;
    global = global_ranks(s);
    if (global == NULL) {
        ch_channel_close(channel);
        return CHOIR_ERR_NOMEM;
    }
    rc = ch_group_create(ch_context_ref(parent->context), s->me, (int)s->nranks, global, s->name,
                         s->description, parent->backend, channel, &child);
    if (rc != CHOIR_OK)
        return rc;
    if (fake) {
        child->fake = (struct ch_fake){ s->me, parent->fake.error_on_collective };
        child->backend_self = &child->fake;
    }
    atomic_store_explicit(&child->timeout_ms,
                          s->opts.timeout_ms != 0 ? s->opts.timeout_ms
                                                  : choir_group_timeout(parent),
                          memory_order_relaxed);
    rc = ch_registry_add(child);
    if (rc != CHOIR_OK) {
        choir_group_destroy(child);
        return rc;
    }
    *child_out = child;
    return CHOIR_OK;
}

/* In a fake group nobody else says anything: the others are taken to agree. */
static void agree_with_self(struct split *s)
{
    if (s->parent->backend != &ch_backend_fake)
        return;
    memset(s->all, 0, (size_t)s->parent->nranks * sizeof(*s->all));
    for (size_t i = 0; i < s->nranks; i++)
        s->all[s->ranks[i]] = s->mine;
}

static choir_status split(struct split *s, choir_group **child_out)
{
    choir_group *child = NULL;
    choir_status rc;

    s->all = ch_zalloc_array((size_t)s->parent->nranks, sizeof(*s->all));
    if (s->all == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for the words of %d ranks", s->parent->nranks);
    ch_lock(&s->parent->lock);
    s->number = ++s->parent->nsplits;
    ch_unlock(&s->parent->lock);
    say_what(s);
    rc = gather_says(s);
    agree_with_self(s);
    if (rc == CHOIR_OK)
        rc = judge(s);
    if (rc == CHOIR_OK && s->me >= 0)
        rc = settle_name(s);
    if (rc == CHOIR_OK && s->me >= 0)
        rc = make_child(s, &child);
    if (s->offered)
        ch_channel_withdraw(s->parent->context->engine, &s->mine.offer);
    if (rc == CHOIR_OK)
        *child_out = child;
    return rc;
}

choir_status choir_group_split(choir_group *group, const int *ranks, size_t nranks,
                               const choir_group_split_opts *opts, choir_group **child_out)
{
    struct split s = { .parent = group, .ranks = ranks, .nranks = nranks };
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && (group == NULL || child_out == NULL))
        rc = ch_fail(CHOIR_ERR_INVALID, "%s: is NULL", group == NULL ? "group" : "child_out");
    if (rc == CHOIR_OK)
        rc = check_list(&s);
    if (rc == CHOIR_OK)
        rc = read_opts(&s, opts);
    if (rc == CHOIR_OK)
        rc = ch_batch_refuse(group);
    if (rc == CHOIR_OK)
        rc = ch_group_check(group);
    if (rc == CHOIR_OK)
        rc = split(&s, child_out);
    ch_free(s.all);
    ch_free(s.name);
    ch_free(s.description);
    if (rc != CHOIR_OK)
        ch_error_prefix("choir_group_split: ");
    return rc;
}
