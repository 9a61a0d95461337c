/*
 * context.c - how a rank joins a job, and what its groups share from then on. See ARCHITECTURE.md, "How ranks
 * meet".
 */
#include "group/context.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "engine/poison.h"
#include "group/caller.h"
#include "group/environ.h"
#include "group/roster.h"
#include "store/server.h"

enum { DEFAULT_TIMEOUT_MS = 300 * 1000 };

/* --- joining ------------------------------------------------------------------------------------ */

/* The caller's own store, or word, takes the place of everything the environment could say. */
static choir_status believe_caller(const choir_init_opts *opts, struct ch_whereabouts *where)
{
    *where = (struct ch_whereabouts){ .rank = opts->rank,
                                      .nranks = opts->nranks,
                                      .local_rank = -1,
                                      .local_nranks = -1,
                                      .source = "the caller's arguments",
                                      .attempt = "0",
                                      .token_fd = -1 };
    if (opts->rank < 0 || opts->rank >= opts->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "rank is %d, expected 0 to %d", opts->rank,
                       opts->nranks - 1);
    return CHOIR_OK;
}

static choir_status use_given_store(const choir_init_opts *opts, struct ch_meeting_place *place)
{
    snprintf(place->address, sizeof(place->address), "127.0.0.1");
    snprintf(place->story, sizeof(place->story), "met in the caller's store");
    return choir_store_clone(opts->store, &place->store);
}

static choir_status write_own_record(const struct ch_context *context, struct ch_record *out)
{
    choir_status rc = ch_record_of_process(out);

    if (rc != CHOIR_OK)
        return rc;
    out->rank = (uint32_t)context->rank;
    out->nranks = (uint32_t)context->nranks;
    memcpy(out->id, context->engine->link.id, sizeof(out->id));
    snprintf(out->address, sizeof(out->address), "%s", context->place.address);
    snprintf(out->socket, sizeof(out->socket), "%s", context->engine->link.listener.name);
    return CHOIR_OK;
}

/* Ranks that can share memory are one host; hosts are counted in the order of their lowest ranks. */
static void number_hosts(struct ch_context *context)
{
    int nhosts = 0;

    for (int r = 0; r < context->nranks; r++) {
        int first = 0;

        while (first < r && !ch_record_same_host(&context->records[first], &context->records[r]))
            first++;
        context->hosts[r] = first < r ? context->hosts[first] : nhosts++;
    }
}

/* With the ranks of this host: segments, doorbells, pidfds. */
static choir_status exchange(struct ch_context *context, const struct ch_patience *patience)
{
    struct ch_hostlink_member *members = ch_alloc_array((size_t)context->nranks, sizeof(*members));
    size_t count = 0;
    choir_status rc;

    if (members == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %d ranks", context->nranks);
    for (int r = 0; r < context->nranks; r++) {
        const struct ch_record *record = &context->records[r];

        if (context->hosts[r] == context->hosts[context->rank])
            members[count++] = (struct ch_hostlink_member){ r, record->id, record->socket };
    }
    context->one_host = count == (size_t)context->nranks;
    rc = ch_rank_connect(context->engine, (uint32_t)context->nranks,
                         context->records[context->rank].host, members, count, patience);
    ch_free(members);
    return rc;
}

/* Everything that can fail here is done before the others are told that it went well. */
static choir_status open_first_channel(struct ch_context *context, const char *name)
{
    if (!context->one_host)
        return CHOIR_OK;
    return ch_channel_open_first(context->engine, name, &context->first_channel);
}

/* Ranks of this host are watched since they are connected; a death fails the channel. */
static choir_status all_live(void *arg)
{
    const struct ch_context *context = arg;

    return context->first_channel != NULL ? ch_poisoned(context->first_channel) : CHOIR_OK;
}

/* All who belong are connected. Rank 0's server needs no listener any more: strangers find none, and
 * a rank that is through and joins again, at the same address, cannot find the old one. */
static choir_status close_door(struct ch_context *context, const struct ch_patience *patience)
{
    if (context->place.server == NULL)
        return CHOIR_OK;
    return ch_store_server_stop_listening(context->place.server, patience);
}

/* Rounds that this process has seen fail are left behind. */
static choir_status meet_others(struct ch_context *context, const char *attempt,
                                const struct ch_record *mine, ch_deadline until)
{
    struct ch_roster_entry entry = { .spent = true };
    choir_status rc = CHOIR_OK;

    while (entry.spent) {
        entry = (struct ch_roster_entry){ .counted = false };
        choir_store_close(context->round);
        context->round = NULL;
        rc = ch_roster_round(context->place.store, "init", attempt, context->nranks,
                             &context->round);
        if (rc == CHOIR_OK)
            rc = ch_roster_join(context->round, mine, until, context->records, &entry);
    }
    context->counted = entry.counted;
    return rc;
}

static choir_status join(struct ch_context *context, const char *name, const char *attempt,
                         const struct ch_patience *patience)
{
    struct ch_record mine;
    choir_status rc = write_own_record(context, &mine);

    context->records = ch_alloc_array((size_t)context->nranks, sizeof(*context->records));
    context->hosts = ch_alloc_array((size_t)context->nranks, sizeof(*context->hosts));
    if (rc == CHOIR_OK && (context->records == NULL || context->hosts == NULL))
        rc = ch_fail(CHOIR_ERR_NOMEM, "no memory for the records of %d ranks", context->nranks);
    if (rc == CHOIR_OK)
        rc = meet_others(context, attempt, &mine, patience->until);
    if (rc != CHOIR_OK)
        return rc;
    number_hosts(context);
    rc = close_door(context, patience);
    if (rc == CHOIR_OK)
        rc = exchange(context, patience);
    if (rc == CHOIR_OK)
        rc = open_first_channel(context, name);
    if (rc == CHOIR_OK)
        rc = ch_attend_init(&context->attendant, context->waiter, true);
    if (rc == CHOIR_OK)
        rc = ch_flightwatch_start(&context->flightwatch, context->flight, context->waiter);
    return ch_roster_finish(context->round, &mine, patience->until, rc,
                            &(struct ch_roster_watch){ all_live, context });
}

static choir_status meet_and_join(struct ch_context *context, const choir_init_opts *opts,
                                  struct ch_whereabouts *where, const struct ch_patience *patience)
{
    choir_status rc;

    if (opts->store != NULL)
        rc = use_given_store(opts, &context->place);
    else if (opts->carry != NULL)
        rc = ch_meet_carried(where, opts, patience, &context->place);
    else
        rc = ch_meet(where, patience, &context->place);
    if (rc == CHOIR_OK)
        rc = join(context, opts->name, where->attempt, patience);
    if (context->place.kept_by_rank0 && context->counted)
        ch_roster_leave(context->round, context->rank);
    if (rc == CHOIR_OK && !context->place.kept_by_rank0)
        ch_roster_forget(context->round, context->rank, context->nranks);
    if (rc == CHOIR_OK)
        snprintf(context->origin, sizeof(context->origin), "%s; %s", where->source,
                 context->place.story);
    return rc;
}

static choir_status join_job(struct ch_context *context, const choir_init_opts *opts)
{
    struct ch_whereabouts where = { .rank = opts->rank, .nranks = opts->nranks };
    struct ch_patience patience = { .waiter = NULL };
    choir_status rc;

    patience.until = ch_deadline_ms(opts->timeout_ms != 0 ? opts->timeout_ms : DEFAULT_TIMEOUT_MS);
    if (opts->store != NULL || opts->carry != NULL)
        rc = believe_caller(opts, &where);
    else
        rc = ch_whereabouts_find(opts, &ch_environ_real, &where);
    if (rc == CHOIR_OK) {
        context->rank = where.rank;
        context->nranks = where.nranks;
        rc = ch_rank_create(context->rank, &context->engine);
    }
    if (rc == CHOIR_OK)
        rc = ch_flight_create(context->rank, &context->flight);
    if (rc == CHOIR_OK) {
        context->waiter = patience.waiter = ch_rank_waiter(context->engine);
        rc = meet_and_join(context, opts, &where, &patience);
    }
    if (rc != CHOIR_OK && where.source != NULL)
        ch_error_prefix("as rank %d of %d, from %s: ", where.rank, where.nranks, where.source);
    return rc;
}

/* --- life --------------------------------------------------------------------------------------- */

static struct ch_context *create(void)
{
    struct ch_context *context = ch_zalloc_aligned(CH_CACHE_UNIT, sizeof(*context));

    if (context == NULL) {
        ch_fail(CHOIR_ERR_NOMEM, "no memory for a rank's context");
        return NULL;
    }
    ch_ref_init(&context->refs);
    ch_lock_init(&context->attendant.lock, CH_LOCK_ATTENDANT);
    context->alone.epfd = context->alone.bell.fd = -1;
    context->home = pthread_self();
    return context;
}

static void destroy(struct ch_context *context)
{
    choir_error last;

    ch_error_save(&last); /* of choir_init(), which ends a context that failed this way */
    ch_flightwatch_stop(&context->flightwatch);
    ch_attend_fini(&context->attendant);
    ch_caller_end(context->caller);
    if (context->round != NULL && context->place.server != NULL)
        ch_roster_linger(context->round, context->nranks);
    ch_channel_close(context->first_channel); /* NULL once the first group has it */
    choir_store_close(context->round);
    ch_part(
        &context->place); /* before the rank: its waiter may be what the server still posts to */
    ch_rank_unref(context->engine);
    ch_flight_destroy(context->flight);
    if (context->waiter == &context->alone)
        ch_waiter_fini(&context->alone);
    ch_free(context->hosts);
    ch_free(context->records);
    ch_lock_fini(&context->attendant.lock);
    ch_free(context);
    ch_error_load(&last);
}

struct ch_context *ch_context_ref(struct ch_context *context)
{
    ch_ref_get(&context->refs);
    return context;
}

void ch_context_unref(struct ch_context *context)
{
    if (context != NULL && ch_ref_put(&context->refs))
        destroy(context);
}

choir_status ch_context_create_alone(int rank, int nranks, struct ch_context **context_out)
{
    struct ch_context *context = create();
    choir_status rc;

    if (context == NULL)
        return CHOIR_ERR_NOMEM;
    context->rank = rank;
    context->nranks = nranks;
    rc = ch_waiter_init(&context->alone, &context->bell);
    if (rc == CHOIR_OK) {
        context->waiter = &context->alone;
        rc = ch_attend_init(&context->attendant, context->waiter, false);
    }
    if (rc != CHOIR_OK) {
        ch_context_unref(context);
        return rc;
    }
    snprintf(context->origin, sizeof(context->origin), "a fake group, which has no peers");
    *context_out = context;
    return CHOIR_OK;
}

choir_status ch_context_join(const choir_init_opts *opts, struct ch_context **context_out)
{
    struct ch_context *context = create();
    choir_status rc;

    if (context == NULL)
        return CHOIR_ERR_NOMEM;
    rc = join_job(context, opts);
    if (rc != CHOIR_OK) {
        ch_context_unref(context);
        return rc;
    }
    *context_out = context;
    return CHOIR_OK;
}
