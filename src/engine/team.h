/*
 * team.h - for tests: ranks as threads of this process, over a raw channel.
 */
#ifndef CH_TEAM_H
#define CH_TEAM_H

#include "choir_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/channel.h"
#include "engine/runner.h"

enum { TEAM_MOST = 64 };

struct team;

struct mate {
    struct team *team;
    uint32_t me;
    pthread_t thread;
    struct ch_rank *rank;
    struct ch_channel *channel;
    choir_status status; /* of what it ran */
    choir_error error;
    void *arg;
};

struct team {
    uint32_t n;
    size_t stage_nbytes; /* of the channels; 0: as it comes */
    struct ch_hostlink_member members[TEAM_MOST];
    struct ch_channel_offer offers[TEAM_MOST];
    struct mate mates[TEAM_MOST];
    choir_status (*fn)(struct mate *mate);
};

static inline ch_deadline team_patience(void)
{
    return ch_deadline_ms(20000 * (int64_t)choir_test_slowness());
}

static inline void *team_thread(void *arg)
{
    struct mate *mate = arg;

    mate->status = mate->team->fn(mate);
    if (mate->status != CHOIR_OK)
        ch_error_save(&mate->error);
    return NULL;
}

/* All run `fn` at once. */
static inline void team_run(struct team *team, choir_status (*fn)(struct mate *mate))
{
    team->fn = fn;
    for (uint32_t i = 0; i < team->n; i++)
        CHOIR_CHECK_EQ(pthread_create(&team->mates[i].thread, NULL, team_thread, &team->mates[i]),
                       0);
    for (uint32_t i = 0; i < team->n; i++)
        pthread_join(team->mates[i].thread, NULL);
}

static inline void team_check_ok(const struct team *team)
{
    for (uint32_t i = 0; i < team->n; i++) {
        if (team->mates[i].status != CHOIR_OK)
            CHOIR_FAIL("rank %u: %s", i, team->mates[i].error.text);
    }
}

static inline choir_status team_connect(struct mate *mate)
{
    struct team *team = mate->team;
    struct ch_patience patience = { .waiter = ch_rank_waiter(mate->rank),
                                    .until = team_patience() };

    return ch_rank_connect(mate->rank, team->n, "here", team->members, team->n, &patience);
}

static inline choir_status team_offer(struct mate *mate)
{
    struct team *team = mate->team;
    struct ch_channel_offer *offer = &team->offers[mate->me];
    choir_status rc = ch_channel_offer(mate->rank, team->n, offer);

    if (team->stage_nbytes != 0 && offer->stage_nbytes > team->stage_nbytes)
        offer->stage_nbytes = team->stage_nbytes; /* the rest is lost, to this rank only */
    return rc;
}

static inline choir_status team_open(struct mate *mate)
{
    return ch_channel_open(mate->rank, mate->team->offers, mate->team->n, mate->me, "test",
                           &mate->channel);
}

/* A channel of all, with as much stage as given. */
static inline void team_channel(struct team *team, size_t stage_nbytes)
{
    team->stage_nbytes = stage_nbytes;
    team_run(team, team_offer);
    team_check_ok(team);
    team_run(team, team_open);
    team_check_ok(team);
}

static inline void team_start(struct team *team, uint32_t n)
{
    memset(team, 0, sizeof(*team));
    team->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct mate *mate = &team->mates[i];

        mate->team = team;
        mate->me = i;
        CHOIR_CHECK_OK(ch_rank_create((int)i, &mate->rank));
        team->members[i] = (struct ch_hostlink_member){ (int)i, mate->rank->link.id,
                                                        mate->rank->link.listener.name };
    }
    team_run(team, team_connect);
    team_check_ok(team);
}

static inline void team_close_channel(struct team *team)
{
    for (uint32_t i = 0; i < team->n; i++) {
        ch_channel_close(team->mates[i].channel);
        team->mates[i].channel = NULL;
    }
}

static inline void team_end(struct team *team)
{
    team_close_channel(team);
    for (uint32_t i = 0; i < team->n; i++)
        ch_rank_unref(team->mates[i].rank);
}

/* --- one operation, waited for ---------------------------------------------------------------------- */

struct team_wait {
    struct ch_channel *channel;
    struct ch_op *op;
    struct ch_run *run;
    choir_status status;
};

static inline bool team_ready(void *arg)
{
    struct team_wait *w = arg;

    w->status = ch_run_step(w->channel, w->op, w->run);
    return w->status != CHOIR_IN_PROGRESS;
}

static inline choir_status team_do(struct mate *mate, struct ch_op *op)
{
    struct ch_run run;
    struct team_wait w = { mate->channel, op, &run, CHOIR_IN_PROGRESS };
    struct ch_wait wait = { .waiter = ch_rank_waiter(mate->rank),
                            .ready = team_ready,
                            .arg = &w,
                            .until = op->until,
                            .what = "an operation" };
    choir_status rc;

    memset(&run, 0, sizeof(run));
    rc = ch_run_begin(mate->channel, op, &run);
    if (rc == CHOIR_OK) {
        rc = ch_wait(&wait);
        if (rc == CHOIR_OK)
            rc = w.status;
    }
    ch_run_end(mate->channel, &run);
    return rc;
}

#endif
