/*
 * comm.c - communicators: made by id, left, ended. See comm.h.
 */
#include "nccl/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "nccl/unique_id.h"

enum { TIMEOUT_MS = 300 * 1000, NUMBERS = 0x7fff };

/* All that exist: who is handed an address by somebody else asks here before he looks behind it. */
static struct {
    struct ch_lock lock;
    struct ch_list comms;
    uint32_t nmade;
} the_comms = { .lock = CH_LOCK_INIT(CH_LOCK_COMM), .comms = CH_LIST_INIT(the_comms.comms) };

bool choir_comm_exists(const void *address)
{
    bool found = false;

    ch_lock(&the_comms.lock);
    CH_LIST_EACH (link, &the_comms.comms) {
        if (CH_CONTAINER(link, choir_comm, link) == address)
            found = true;
    }
    ch_unlock(&the_comms.lock);
    return found;
}

/* --- making ---------------------------------------------------------------------------------------- */

static choir_status check_ranks(int nranks, int rank)
{
    if (nranks < 1)
        return ch_fail(CHOIR_ERR_INVALID, "nranks: %d, expected 1 or more", nranks);
    if (rank < 0 || rank >= nranks)
        return ch_fail(CHOIR_ERR_INVALID, "rank: %d, expected 0 to %d", rank, nranks - 1);
    return CHOIR_OK;
}

static choir_status join(int nranks, const choir_unique_id *id, int rank, ch_deadline until,
                         choir_group **group_out)
{
    struct ch_id_parts parts;
    choir_store *store = NULL;
    char name[32];
    int64_t left;
    choir_status rc = ch_unique_id_read(id, &parts);

    if (rc == CHOIR_OK)
        rc = ch_unique_id_open(&parts, until, &store);
    if (rc != CHOIR_OK)
        return rc;
    left = ch_deadline_left_ns(until);
    snprintf(name, sizeof(name), "nccl-%.8s", parts.name);
    rc = choir_init(group_out,
                    CHOIR_OPTS(init, .store = store, .rank = rank, .nranks = nranks, .name = name,
                               .timeout_ms = left < 0 ? -1 : left / (int64_t)CH_MS + 1,
                               .any_thread = true));
    choir_store_close(store);
    return rc;
}

/* Takes the group over, also on failure. */
static choir_status wrap(choir_group *group, choir_comm **comm_out)
{
    choir_comm *comm = ch_zalloc(sizeof(*comm));

    if (comm == NULL) {
        choir_group_destroy(group);
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a communicator");
    }
    comm->group = group;
    comm->rank = choir_group_rank(group);
    comm->nranks = choir_group_size(group);
    comm->nusing = 1;
    ch_lock_init(&comm->lock, CH_LOCK_COMM);
    ch_lock(&the_comms.lock);
    comm->number = the_comms.nmade++ % NUMBERS + 1;
    ch_list_push_back(&the_comms.comms, &comm->link);
    ch_unlock(&the_comms.lock);
    *comm_out = comm;
    return CHOIR_OK;
}

static choir_status init_rank(int nranks, const choir_unique_id *id, int rank,
                              const choir_comm_init_rank_opts *opts, choir_comm **comm_out)
{
    choir_comm_init_rank_opts all = { 0 };
    choir_group *group = NULL;
    choir_status rc;

    if (id == NULL || comm_out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "%s: is NULL", id == NULL ? "id" : "comm_out");
    if (opts != NULL && opts->size == 0)
        return ch_fail(CHOIR_ERR_INVALID, "opts->size is 0: fill options in with "
                                          "CHOIR_OPTS(comm_init_rank, ...)");
    if (opts != NULL)
        memcpy(&all, opts, opts->size < sizeof(all) ? opts->size : sizeof(all));
    rc = check_ranks(nranks, rank);
    if (rc == CHOIR_OK)
        rc = join(nranks, id, rank,
                  ch_deadline_ms(all.timeout_ms != 0 ? all.timeout_ms : TIMEOUT_MS), &group);
    return rc == CHOIR_OK ? wrap(group, comm_out) : rc;
}

choir_status choir_comm_init_rank(int nranks, const choir_unique_id *id, int rank,
                                  const choir_comm_init_rank_opts *opts, choir_comm **comm_out)
{
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK)
        rc = init_rank(nranks, id, rank, opts, comm_out);
    if (rc != CHOIR_OK)
        ch_error_prefix("init_rank: ");
    return rc;
}

/* --- using ----------------------------------------------------------------------------------------- */

static const char *const state_names[] = { "open", "finalized", "destroyed" };

choir_status ch_comm_enter(choir_comm *comm, choir_group **group_out)
{
    enum ch_comm_state state;
    choir_status rc = ch_forked();

    if (rc != CHOIR_OK)
        return rc;
    ch_lock(&comm->lock);
    state = comm->state;
    if (state == CH_COMM_OPEN)
        comm->nusing++;
    ch_unlock(&comm->lock);
    if (state != CH_COMM_OPEN)
        return ch_fail(CHOIR_ERR_STATE, "the communicator is %s", state_names[state]);
    *group_out = comm->group;
    return CHOIR_OK;
}

/* One less; the last one ends the group. */
void ch_comm_leave(choir_comm *comm)
{
    choir_group *group = NULL;

    ch_lock(&comm->lock);
    if (--comm->nusing == 0) {
        group = comm->group;
        comm->group = NULL;
    }
    ch_unlock(&comm->lock);
    choir_group_destroy(group);
}

int choir_comm_rank(const choir_comm *comm)
{
    return comm->rank;
}

int choir_comm_size(const choir_comm *comm)
{
    return comm->nranks;
}

choir_status choir_comm_error(choir_comm *comm, choir_error *record_out)
{
    choir_group *group;
    choir_status rc;

    if (comm == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "choir_comm_error: comm: is NULL");
    rc = ch_comm_enter(comm, &group);
    if (rc == CHOIR_OK) {
        rc = choir_group_error(group, record_out);
        ch_comm_leave(comm);
    } else if (record_out != NULL) {
        ch_error_save(record_out);
    }
    return rc;
}

/* --- ending ---------------------------------------------------------------------------------------- */

choir_status choir_comm_finalize(choir_comm *comm, int64_t timeout_ms)
{
    choir_group *group;
    choir_status rc;

    if (comm == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "choir_comm_finalize: comm: is NULL");
    rc = ch_comm_enter(comm, &group);
    if (rc != CHOIR_OK)
        return rc;
    rc = choir_group_shutdown(group, timeout_ms);
    if (rc == CHOIR_OK) {
        ch_lock(&comm->lock);
        if (comm->state == CH_COMM_OPEN)
            comm->state = CH_COMM_FINAL;
        ch_unlock(&comm->lock);
    }
    ch_comm_leave(comm);
    return rc;
}

void choir_comm_abort(choir_comm *comm)
{
    choir_error last;
    choir_group *group;

    if (comm == NULL)
        return;
    ch_error_save(&last);
    if (ch_comm_enter(comm, &group) == CHOIR_OK) {
        choir_group_abort(group);
        ch_comm_leave(comm);
    }
    ch_error_load(&last);
}

void choir_comm_close(choir_comm *comm)
{
    bool was_closed;

    if (comm == NULL || ch_is_forked())
        return;
    ch_lock(&comm->lock);
    was_closed = comm->state == CH_COMM_CLOSED;
    comm->state = CH_COMM_CLOSED;
    ch_unlock(&comm->lock);
    if (!was_closed)
        ch_comm_leave(comm); /* the owner's share */
}

void choir_comm_destroy(choir_comm *comm)
{
    if (comm == NULL || ch_is_forked())
        return;
    choir_comm_close(comm);
    ch_lock(&the_comms.lock);
    ch_list_remove(&comm->link);
    ch_unlock(&the_comms.lock);
    ch_lock_fini(&comm->lock);
    ch_free(comm);
}
