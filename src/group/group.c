/*
 * group.c - choir_init() and what can be asked of a group. See ARCHITECTURE.md, "How ranks meet".
 */
#include "group/group.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "group/roster.h"
#include "store/server.h"

enum { DEFAULT_TIMEOUT_MS = 300 * 1000 };

/* --- joining ------------------------------------------------------------------------------------ */

/* The options with their defaults: a caller compiled against a smaller struct has the rest zero. */
static choir_status read_opts(const choir_init_opts *given, choir_init_opts *out)
{
    memset(out, 0, sizeof(*out));
    if (given != NULL) {
        if (given->size == 0)
            return ch_fail(CHOIR_ERR_INVALID, "opts->size is 0: fill options in with "
                                              "CHOIR_OPTS(init, ...)");
        memcpy(out, given, given->size < sizeof(*out) ? given->size : sizeof(*out));
    }
    if (out->store != NULL && out->url != NULL)
        return ch_fail(CHOIR_ERR_INVALID, "both a store and a URL are given: expected one place");
    if (out->store != NULL && out->nranks <= 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "a store is given: nranks is %d, and which rank of how "
                       "many this is must be told as well",
                       out->nranks);
    if (out->nranks < 0)
        return ch_fail(CHOIR_ERR_INVALID,
                       "nranks is %d, expected 1 or more, or 0 to ask the "
                       "environment",
                       out->nranks);
    return CHOIR_OK;
}

/* The caller's own store takes the place of everything the environment could say. */
static choir_status use_given_store(const choir_init_opts *opts, struct ch_whereabouts *where,
                                    struct ch_meeting_place *place)
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
    snprintf(place->address, sizeof(place->address), "127.0.0.1");
    snprintf(place->story, sizeof(place->story), "met in the caller's store");
    return choir_store_clone(opts->store, &place->store);
}

static choir_status write_own_record(const choir_group *group, struct ch_record *out)
{
    choir_status rc = ch_record_of_process(out);

    if (rc != CHOIR_OK)
        return rc;
    out->rank = (uint32_t)group->rank;
    out->nranks = (uint32_t)group->nranks;
    memcpy(out->id, group->link.id, sizeof(out->id));
    snprintf(out->address, sizeof(out->address), "%s", group->place.address);
    snprintf(out->socket, sizeof(out->socket), "%s", group->link.listener.name);
    return CHOIR_OK;
}

/* Ranks that can share memory are one host; hosts are counted in the order of their lowest ranks. */
static void number_hosts(choir_group *group)
{
    int nhosts = 0;

    for (int r = 0; r < group->nranks; r++) {
        int first = 0;

        while (first < r && !ch_record_same_host(&group->records[first], &group->records[r]))
            first++;
        group->hosts[r] = first < r ? group->hosts[first] : nhosts++;
    }
}

static choir_status exchange(choir_group *group, const struct ch_patience *patience)
{
    struct ch_hostlink_member *members = ch_alloc_array((size_t)group->nranks, sizeof(*members));
    size_t count = 0;
    choir_status rc;

    if (members == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %d ranks", group->nranks);
    for (int r = 0; r < group->nranks; r++) {
        const struct ch_record *record = &group->records[r];

        if (group->hosts[r] == group->hosts[group->rank])
            members[count++] = (struct ch_hostlink_member){ r, record->id, record->socket };
    }
    rc = ch_hostlink_exchange(&group->link, members, count, patience);
    ch_free(members);
    return rc;
}

/* All who belong are connected. Rank 0's server needs no listener any more: strangers find none, and
 * a rank that is through and joins again, at the same address, cannot find the old one. */
static choir_status close_door(choir_group *group, const struct ch_patience *patience)
{
    if (group->place.server == NULL)
        return CHOIR_OK;
    return ch_store_server_stop_listening(group->place.server, patience);
}

/* Rounds that this process has seen fail are left behind. */
static choir_status meet_others(choir_group *group, const char *attempt,
                                const struct ch_record *mine, ch_deadline until)
{
    bool spent = true;
    choir_status rc = CHOIR_OK;

    while (spent) {
        spent = false;
        choir_store_close(group->round);
        group->round = NULL;
        rc = ch_roster_round(group->place.store, "init", attempt, group->nranks, &group->round);
        if (rc == CHOIR_OK)
            rc = ch_roster_join(group->round, mine, until, group->records, &spent);
    }
    return rc;
}

static choir_status join(choir_group *group, const char *attempt,
                         const struct ch_patience *patience)
{
    struct ch_record mine;
    choir_status rc = write_own_record(group, &mine);

    group->records = ch_alloc_array((size_t)group->nranks, sizeof(*group->records));
    group->hosts = ch_alloc_array((size_t)group->nranks, sizeof(*group->hosts));
    if (rc == CHOIR_OK && (group->records == NULL || group->hosts == NULL))
        rc = ch_fail(CHOIR_ERR_NOMEM, "no memory for the records of %d ranks", group->nranks);
    if (rc == CHOIR_OK)
        rc = meet_others(group, attempt, &mine, patience->until);
    if (rc != CHOIR_OK)
        return rc;
    number_hosts(group);
    rc = close_door(group, patience);
    if (rc == CHOIR_OK)
        rc = exchange(group, patience);
    return ch_roster_finish(group->round, &mine, patience->until, rc);
}

static choir_status meet_and_join(choir_group *group, const choir_init_opts *opts,
                                  struct ch_whereabouts *where, const struct ch_patience *patience)
{
    choir_status rc = opts->store != NULL ? use_given_store(opts, where, &group->place)
                                          : ch_meet(where, patience, &group->place);

    if (rc == CHOIR_OK)
        rc = join(group, where->attempt, patience);
    if (group->round != NULL && group->place.kept_by_rank0)
        ch_roster_leave(group->round, group->rank);
    else if (rc == CHOIR_OK)
        ch_roster_forget(group->round, group->rank);
    if (rc == CHOIR_OK)
        snprintf(group->origin, sizeof(group->origin), "%s; %s", where->source, group->place.story);
    return rc;
}

static choir_status init(choir_group *group, const choir_init_opts *opts)
{
    struct ch_whereabouts where = { .rank = opts->rank, .nranks = opts->nranks };
    struct ch_patience patience = { .waiter = &group->link.waiter };
    choir_status rc = CHOIR_OK;

    patience.until = ch_deadline_ms(opts->timeout_ms != 0 ? opts->timeout_ms : DEFAULT_TIMEOUT_MS);
    if (opts->store == NULL)
        rc = ch_whereabouts_find(opts, &ch_environ_real, &where);
    if (rc == CHOIR_OK) {
        group->rank = where.rank;
        group->nranks = where.nranks;
        group->linked = true;
        rc = ch_hostlink_open(&group->link, group->rank);
    }
    if (rc == CHOIR_OK)
        rc = meet_and_join(group, opts, &where, &patience);
    if (rc != CHOIR_OK && where.source != NULL)
        ch_error_prefix("choir_init as rank %d of %d, from %s: ", where.rank, where.nranks,
                        where.source);
    else if (rc != CHOIR_OK)
        ch_error_prefix("choir_init: ");
    return rc;
}

choir_status choir_init(choir_group **group_out, const choir_init_opts *opts)
{
    choir_init_opts all;
    choir_group *group;
    choir_status rc = ch_forked();

    if (rc != CHOIR_OK)
        return rc;
    if (group_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "choir_init: group_out is NULL");
    rc = read_opts(opts, &all);
    if (rc != CHOIR_OK) {
        ch_error_prefix("choir_init: ");
        return rc;
    }
    group = ch_zalloc_aligned(CH_CACHE_UNIT, sizeof(*group));
    if (group == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "choir_init: no memory for a group");
    rc = init(group, &all);
    if (rc != CHOIR_OK) {
        choir_group_destroy(group);
        return rc;
    }
    *group_out = group;
    return CHOIR_OK;
}

void choir_group_destroy(choir_group *group)
{
    choir_error last;

    if (group == NULL)
        return;
    ch_error_save(&last); /* of choir_init(), which ends a group that failed this way */
    if (group->round != NULL && group->place.server != NULL)
        ch_roster_linger(group->round, group->nranks);
    choir_store_close(group->round);
    ch_part(&group->place); /* before the link: its waiter may be what the server still posts to */
    if (group->linked)
        ch_hostlink_close(&group->link);
    ch_free(group->hosts);
    ch_free(group->records);
    ch_free(group);
    ch_error_load(&last);
}

/* --- asking ------------------------------------------------------------------------------------- */

int choir_group_rank(const choir_group *group)
{
    return group->rank;
}

int choir_group_size(const choir_group *group)
{
    return group->nranks;
}

static choir_status check_peer_rank(const choir_group *group, int rank)
{
    if (rank < 0 || rank >= group->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "rank is %d, expected 0 to %d", rank, group->nranks - 1);
    return CHOIR_OK;
}

choir_status choir_group_peer(const choir_group *group, int rank, choir_peer *out)
{
    const struct ch_record *record;
    choir_status rc = check_peer_rank(group, rank);

    if (rc != CHOIR_OK)
        return rc;
    record = &group->records[rank];
    *out = (choir_peer){ .rank = rank,
                         .host_index = group->hosts[rank],
                         .shares_memory = group->hosts[rank] == group->hosts[group->rank],
                         .pid = (int64_t)record->pid,
                         .host = record->host,
                         .boot_id = record->boot_id,
                         .address = record->address,
                         .version = record->version,
                         .build = record->build,
                         .cpu = record->cpu };
    return CHOIR_OK;
}

int choir_group_local_size(const choir_group *group)
{
    return (int)group->link.count;
}

int choir_group_local_rank(const choir_group *group)
{
    int local = 0;

    while (group->link.neighbours[local].rank != group->rank)
        local++;
    return local;
}

choir_status choir_group_alive(const choir_group *group, int rank, bool *alive_out)
{
    const struct ch_neighbour *neighbour;
    choir_status rc = check_peer_rank(group, rank);

    if (rc != CHOIR_OK)
        return rc;
    neighbour = ch_hostlink_find(&group->link, rank);
    if (neighbour == NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "rank %d is on another host (%s): its life is not watched from here yet",
                       rank, group->records[rank].host);
    return ch_neighbour_alive(neighbour, alive_out);
}

const char *choir_group_origin(const choir_group *group)
{
    return group->origin;
}

choir_store *choir_group_store(const choir_group *group)
{
    return group->place.store;
}
