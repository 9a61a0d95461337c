/*
 * flight_dump.c - see flight_dump.h.
 */
#include "trace/flight_dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/version.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "base/sys.h"
#include "trace/emit.h"
#include "trace/flight_impl.h"
#include "trace/flight_names.h"

/* A record, copied out of its ring. */
struct entry {
    const struct ch_flight_group *group;
    uint64_t words[CH_FLIGHT_WORDS];
};

struct dump {
    struct ch_emit emit;
    const struct ch_list *flights; /* of the process; under the lock */
    uint64_t which;                /* 0: all of them */
    struct entry *entries;         /* oldest first */
    size_t nentries, room;
    uint64_t now, wall_ns; /* the same moment */
    const char *why;
};

static bool is_wanted(const struct dump *dump, const struct ch_flight *flight)
{
    return dump->which == 0 || dump->which == flight->id;
}

/* --- copying out ----------------------------------------------------------------------------------- */

/* False: it is gone, not written yet, or being written so busily that we give up on it. */
static bool read_slot(const struct ch_flight_slot *slot, uint64_t record, uint64_t *words_out)
{
    for (int tries = 0; tries < 1000; tries++) {
        /* Acquire on every word, pairs with put() and leave_turn() in flight.c: the later ones are not read
         * before it, and who sees a word of a newer record also sees its odd turn. */
        uint64_t turn = atomic_load_explicit(&slot->words[CH_FLIGHT_TURN], memory_order_acquire);

        if (turn / 2 != record)
            return false;
        for (int i = 1; i < CH_FLIGHT_WORDS; i++)
            words_out[i] = atomic_load_explicit(&slot->words[i], memory_order_acquire);
        if (turn % 2 == 0 &&
            atomic_load_explicit(&slot->words[CH_FLIGHT_TURN], memory_order_relaxed) == turn) {
            words_out[CH_FLIGHT_TURN] = record;
            return true;
        }
        ch_sys_yield();
    }
    return false;
}

static const struct ch_flight_group *find_group_locked(const struct ch_flight *flight, uint64_t id)
{
    CH_LIST_EACH (link, &flight->groups) {
        const struct ch_flight_group *group = CH_CONTAINER(link, struct ch_flight_group, link);

        if (group->id == id)
            return group;
    }
    return NULL;
}

static choir_status make_room(struct dump *dump, uint64_t more)
{
    struct entry *entries;

    if (dump->room - dump->nentries >= more)
        return CHOIR_OK;
    entries = ch_regrow(dump->entries, dump->nentries + more, sizeof(*entries));
    if (entries == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "flight record: no memory to copy %llu operations",
                       (unsigned long long)more);
    dump->entries = entries;
    dump->room = dump->nentries + more;
    return CHOIR_OK;
}

static choir_status copy_locked(struct dump *dump, const struct ch_flight *flight)
{
    uint64_t next = atomic_load_explicit(&flight->next, memory_order_relaxed);
    uint64_t from = atomic_load_explicit(&flight->forgotten, memory_order_relaxed) + 1;
    choir_status rc;

    if (next > flight->capacity && from < next - flight->capacity)
        from = next - flight->capacity;
    if (from >= next)
        return CHOIR_OK;
    rc = make_room(dump, next - from);
    for (uint64_t record = from; rc == CHOIR_OK && record < next; record++) {
        struct entry *entry = &dump->entries[dump->nentries];

        if (!read_slot(&flight->slots[record % flight->capacity], record, entry->words))
            continue;
        entry->group = find_group_locked(flight, entry->words[CH_FLIGHT_GROUP]);
        if (entry->group != NULL)
            dump->nentries++;
    }
    return rc;
}

/* Of several ranks: by time, and of one moment in the order of their ranks. */
static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    uint64_t at = x->words[CH_FLIGHT_ISSUED], bt = y->words[CH_FLIGHT_ISSUED];

    if (x->group->flight == y->group->flight)
        at = x->words[CH_FLIGHT_TURN], bt = y->words[CH_FLIGHT_TURN];
    else if (at == bt)
        at = (uint64_t)x->group->flight->rank, bt = (uint64_t)y->group->flight->rank;
    return at < bt ? -1 : at > bt;
}

/* --- entries --------------------------------------------------------------------------------------- */

static choir_optype op_of(const struct entry *entry)
{
    return (choir_optype)(entry->words[CH_FLIGHT_BITS] & 0xff);
}

static bool has(const struct entry *entry, uint64_t bit)
{
    return (entry->words[CH_FLIGHT_BITS] & bit) != 0;
}

static choir_status status_of(const struct entry *entry)
{
    return (choir_status)(int32_t)(entry->words[CH_FLIGHT_BITS] >> 32);
}

static int peer_of(const struct entry *entry)
{
    return (int)(int32_t)(uint32_t)entry->words[CH_FLIGHT_PEER];
}

static void key_text(struct ch_emit *emit, const char *key, const char *text)
{
    ch_emit_key(emit, key);
    ch_emit_text(emit, text);
}

static void key_int(struct ch_emit *emit, const char *key, int64_t value)
{
    ch_emit_key(emit, key);
    ch_emit_int(emit, value);
}

static void key_bool(struct ch_emit *emit, const char *key, bool value)
{
    ch_emit_key(emit, key);
    ch_emit_bool(emit, value);
}

/* "choir:send 0->1"; ranks are the group's. */
static void emit_name(struct ch_emit *emit, const struct entry *entry)
{
    bool compatible = emit->format == CHOIR_TRACE_PICKLE;
    choir_optype op = op_of(entry);
    const char *name = compatible ? ch_flight_op_compatible_name(op) : ch_flight_op_name(op);
    const char *library = compatible ? "gloo" : "choir";
    const char *arrow = op == CHOIR_OP_SEND ? "->" : "<-";
    int peer = peer_of(entry);
    char text[96];

    if (op != CHOIR_OP_SEND && op != CHOIR_OP_RECV && op != CHOIR_OP_RECV_ANY)
        snprintf(text, sizeof(text), "%s:%s", library, name);
    else if (peer < 0)
        snprintf(text, sizeof(text), "%s:%s %d%s?", library, name, entry->group->rank, arrow);
    else
        snprintf(text, sizeof(text), "%s:%s %d%s%d", library, name, entry->group->rank, arrow,
                 peer);
    key_text(emit, "profiling_name", text);
}

static void emit_shape(struct ch_emit *emit, const uint64_t *words, bool types)
{
    uint32_t ndim = (uint32_t)words[0];

    if (types) {
        ch_emit_text(emit, ch_flight_type_name((choir_type)(words[0] >> 32)));
        return;
    }
    ch_emit_list(emit);
    for (uint32_t i = 0; i < ndim; i++)
        ch_emit_int(emit, (int64_t)words[1 + i]);
    ch_emit_end(emit);
}

/* Shapes or types of one side. What has none is told as an empty array, which the analyser wants to be there. */
static void emit_shapes(struct ch_emit *emit, const char *key, const uint64_t *words,
                        uint32_t nwords, bool types)
{
    ch_emit_key(emit, key);
    ch_emit_list(emit);
    for (uint32_t at = 0; at < nwords; at += 1 + (uint32_t)words[at])
        emit_shape(emit, words + at, types);
    if (nwords == 0 && !types) {
        ch_emit_list(emit);
        ch_emit_end(emit);
    }
    ch_emit_end(emit);
}

static void emit_buffers(struct ch_emit *emit, const struct entry *entry)
{
    const uint64_t *in = &entry->words[CH_FLIGHT_SHAPES], *out;
    uint32_t nin = (uint32_t)entry->words[CH_FLIGHT_SHAPE_WORDS];
    uint32_t nout = (uint32_t)(entry->words[CH_FLIGHT_SHAPE_WORDS] >> 32);

    out = in + nin;
    if (nout == 0 && ch_flight_is_in_place(op_of(entry))) {
        out = in;
        nout = nin;
    }

    emit_shapes(emit, "input_sizes", in, nin, false);
    emit_shapes(emit, "input_dtypes", in, nin, true);
    emit_shapes(emit, "output_sizes", out, nout, false);
    emit_shapes(emit, "output_dtypes", out, nout, true);
}

/* 0: not known, which is None in a pickle. */
static void emit_time(struct dump *dump, const char *key, uint64_t at)
{
    ch_emit_key(&dump->emit, key);
    if (at == 0 && dump->emit.format == CHOIR_TRACE_PICKLE)
        ch_emit_none(&dump->emit);
    else
        ch_emit_int(&dump->emit, at == 0 ? 0 : (int64_t)(dump->wall_ns - (dump->now - at)));
}

static void emit_progress(struct dump *dump, const struct entry *entry)
{
    static const char *const states[] = { "scheduled", "started", "completed", "?" };
    uint64_t state = entry->words[CH_FLIGHT_BITS] >> CH_FLIGHT_STATE_SHIFT & 3;
    uint64_t begin = entry->words[CH_FLIGHT_STARTED], end = entry->words[CH_FLIGHT_DONE];
    bool is_completed = state == CH_FLIGHT_IS_COMPLETED;

    key_text(&dump->emit, "state", states[state]);
    emit_time(dump, "time_created_ns", entry->words[CH_FLIGHT_ISSUED]);
    emit_time(dump, "time_discovered_started_ns", begin);
    emit_time(dump, "time_discovered_completed_ns", is_completed ? end : 0);
    if (is_completed && begin != 0 && end >= begin) {
        ch_emit_key(&dump->emit, "duration_ms");
        ch_emit_real(&dump->emit, (double)(end - begin) / CH_MS);
    }
    key_bool(&dump->emit, "retired", has(entry, CH_FLIGHT_BIT_OVER));
    if (status_of(entry) != CHOIR_OK) {
        key_text(&dump->emit, "error", choir_status_name(status_of(entry)));
        emit_time(dump, "time_failed_ns", end);
    }
}

/* What others do not record, and mismatches are made of. */
static void emit_extras(struct ch_emit *emit, const struct entry *entry)
{
    key_int(emit, "rank", entry->group->flight->rank);
    if (has(entry, CH_FLIGHT_BIT_REDUCES))
        key_text(emit, "reduction",
                 choir_redop_name((choir_redop)(entry->words[CH_FLIGHT_BITS] >> 8 & 0xff)));
    if (has(entry, CH_FLIGHT_BIT_ROOT))
        key_int(emit, "root", peer_of(entry));
    if (has(entry, CH_FLIGHT_BIT_P2P)) {
        key_int(emit, "peer", peer_of(entry));
        key_int(emit, "tag", (int32_t)(entry->words[CH_FLIGHT_PEER] >> 32));
    }
    key_int(emit, "inputs", (int64_t)(entry->words[CH_FLIGHT_THREAD] >> 32 & UINT16_MAX));
    key_int(emit, "outputs", (int64_t)(entry->words[CH_FLIGHT_THREAD] >> 48));
}

static void emit_entry(struct dump *dump, const struct entry *entry)
{
    struct ch_emit *emit = &dump->emit;
    uint32_t thread = (uint32_t)entry->words[CH_FLIGHT_THREAD];

    ch_emit_dict(emit);
    key_int(emit, "record_id", (int64_t)entry->words[CH_FLIGHT_TURN] - 1);
    key_int(emit, "pg_id", (int64_t)entry->group->id);
    ch_emit_key(emit, "process_group");
    ch_emit_tuple(emit);
    ch_emit_text(emit, entry->group->name);
    ch_emit_text(emit, entry->group->desc);
    ch_emit_end(emit);
    key_int(emit, "thread_id", thread);
    key_text(emit, "thread_name", ch_flight_thread_name(thread));
    key_int(emit, "collective_seq_id", (int64_t)entry->words[CH_FLIGHT_COLLECTIVE_SEQ]);
    key_int(emit, "p2p_seq_id", (int64_t)entry->words[CH_FLIGHT_P2P_SEQ]);
    key_int(emit, "op_id", (int64_t)entry->words[CH_FLIGHT_OP_ID]);
    emit_name(emit, entry);
    emit_buffers(emit, entry);
    emit_progress(dump, entry);
    key_int(emit, "timeout_ms", (int64_t)entry->words[CH_FLIGHT_TIMEOUT]);
    key_bool(emit, "is_p2p", has(entry, CH_FLIGHT_BIT_P2P));
    emit_extras(emit, entry);
    if (emit->format == CHOIR_TRACE_PICKLE) {
        ch_emit_key(emit, "frames");
        ch_emit_list(emit);
        ch_emit_end(emit);
    }
    ch_emit_end(emit);
}

/* The analyser turns the source of a receive into a number, and gives everything up where there is none yet. */
static bool fits(const struct entry *entry, choir_trace_format format)
{
    return format != CHOIR_TRACE_PICKLE || op_of(entry) != CHOIR_OP_RECV_ANY || peer_of(entry) >= 0;
}

/* --- the rest of the document ---------------------------------------------------------------------- */

/* "[0, 2, 5]": Python's own way of printing a list, which readers evaluate. */
static void emit_ranks_as_text(struct ch_emit *emit, const struct ch_flight_group *group)
{
    size_t room = (size_t)group->nranks * 12 + 3, used = 1;
    char *text = ch_alloc(room);

    if (text == NULL) {
        emit->failure = ch_fail(CHOIR_ERR_NOMEM, "flight record: no memory for %zu bytes", room);
        ch_emit_none(emit);
        return;
    }
    text[0] = '[';
    for (int i = 0; i < group->nranks; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%d", i > 0 ? ", " : "",
                                 group->ranks[i]);
    snprintf(text + used, room - used, "]");
    ch_emit_text(emit, text);
    ch_free(text);
}

typedef void (*each_group)(struct dump *dump, const struct ch_flight_group *group);

static void walk_groups(struct dump *dump, each_group each)
{
    CH_LIST_EACH (link, dump->flights) {
        const struct ch_flight *flight = CH_CONTAINER(link, struct ch_flight, link);

        if (!is_wanted(dump, flight))
            continue;
        CH_LIST_EACH (inner, &flight->groups) {
            each(dump, CH_CONTAINER(inner, struct ch_flight_group, link));
        }
    }
}

/* Ranks of one process share most of their groups, and a name may be used again: the last one counts. */
static bool is_last_of_its_name(const struct dump *dump, const struct ch_flight_group *group)
{
    bool is_last = false;

    CH_LIST_EACH (link, dump->flights) {
        const struct ch_flight *flight = CH_CONTAINER(link, struct ch_flight, link);

        if (!is_wanted(dump, flight))
            continue;
        CH_LIST_EACH (inner, &flight->groups) {
            const struct ch_flight_group *other = CH_CONTAINER(inner, struct ch_flight_group, link);

            if (strcmp(other->name, group->name) == 0)
                is_last = other == group;
        }
    }
    return is_last;
}

static void config_of(struct dump *dump, const struct ch_flight_group *group)
{
    if (!is_last_of_its_name(dump, group))
        return;
    ch_emit_key(&dump->emit, group->name);
    ch_emit_dict(&dump->emit);
    key_text(&dump->emit, "name", group->name);
    key_text(&dump->emit, "desc", group->desc);
    ch_emit_key(&dump->emit, "ranks");
    emit_ranks_as_text(&dump->emit, group);
    ch_emit_end(&dump->emit);
}

/* Collectives are stored as one more, so that 0 is none. */
static void emit_last(struct ch_emit *emit, const char *key, const _Atomic uint64_t *last)
{
    int64_t value = (int64_t)atomic_load_explicit(last, memory_order_relaxed) - 1;
    char text[32];

    ch_emit_key(emit, key);
    snprintf(text, sizeof(text), "%lld", (long long)value);
    if (emit->format == CHOIR_TRACE_JSON)
        ch_emit_text(emit, text);
    else
        ch_emit_int(emit, value);
}

static void status_of_group(struct dump *dump, const struct ch_flight_group *group)
{
    char id[32];

    snprintf(id, sizeof(id), "%llu", (unsigned long long)group->id);
    ch_emit_key(&dump->emit, id);
    ch_emit_dict(&dump->emit);
    emit_last(&dump->emit, "last_enqueued_collective", &group->enqueued);
    emit_last(&dump->emit, "last_started_collective", &group->started);
    emit_last(&dump->emit, "last_completed_collective", &group->completed);
    ch_emit_end(&dump->emit);
}

/* What pg_config leaves out: groups of one name in several ranks, who we are, and numbers as numbers. */
static void describe_group(struct dump *dump, const struct ch_flight_group *group)
{
    ch_emit_dict(&dump->emit);
    key_int(&dump->emit, "rank", group->flight->rank);
    key_int(&dump->emit, "pg_id", (int64_t)group->id);
    key_text(&dump->emit, "name", group->name);
    key_text(&dump->emit, "desc", group->desc);
    ch_emit_key(&dump->emit, "ranks");
    ch_emit_list(&dump->emit);
    for (int i = 0; i < group->nranks; i++)
        ch_emit_int(&dump->emit, group->ranks[i]);
    ch_emit_end(&dump->emit);
    key_bool(&dump->emit, "closed", group->closed);
    key_int(&dump->emit, "last_collective",
            (int64_t)atomic_load_explicit(&group->enqueued, memory_order_relaxed) - 1);
    ch_emit_end(&dump->emit);
}

static void emit_ranks(struct dump *dump)
{
    ch_emit_key(&dump->emit, "ranks");
    ch_emit_list(&dump->emit);
    CH_LIST_EACH (link, dump->flights) {
        const struct ch_flight *flight = CH_CONTAINER(link, struct ch_flight, link);

        if (is_wanted(dump, flight))
            ch_emit_int(&dump->emit, flight->rank);
    }
    ch_emit_end(&dump->emit);
}

static void emit_head(struct dump *dump)
{
    struct ch_emit *emit = &dump->emit;

    key_text(emit, "version", "2.10");
    key_text(emit, "comm_lib_version", "choir " CHOIR_VERSION_STRING);
    ch_emit_key(emit, "choir");
    ch_emit_dict(emit);
    key_text(emit, "why", dump->why);
    key_int(emit, "pid", getpid());
    key_int(emit, "time_ns", (int64_t)dump->wall_ns);
    emit_ranks(dump);
    ch_emit_key(emit, "groups");
    ch_emit_list(emit);
    walk_groups(dump, describe_group);
    ch_emit_end(emit);
    ch_emit_end(emit);
    ch_emit_key(emit, "pg_config");
    ch_emit_dict(emit);
    walk_groups(dump, config_of);
    ch_emit_end(emit);
    ch_emit_key(emit, "pg_status");
    ch_emit_dict(emit);
    walk_groups(dump, status_of_group);
    ch_emit_end(emit);
}

static void emit_document(struct dump *dump)
{
    ch_emit_dict(&dump->emit);
    emit_head(dump);
    ch_emit_key(&dump->emit, "entries");
    ch_emit_list(&dump->emit);
    for (size_t i = 0; i < dump->nentries; i++) {
        if (fits(&dump->entries[i], dump->emit.format))
            emit_entry(dump, &dump->entries[i]);
    }
    ch_emit_end(&dump->emit);
    ch_emit_end(&dump->emit);
}

static choir_status copy_all_locked(struct dump *dump)
{
    choir_status rc = CHOIR_OK;

    CH_LIST_EACH (link, dump->flights) {
        const struct ch_flight *flight = CH_CONTAINER(link, struct ch_flight, link);

        if (rc == CHOIR_OK && is_wanted(dump, flight))
            rc = copy_locked(dump, flight);
    }
    if (dump->nentries > 1)
        qsort(dump->entries, dump->nentries, sizeof(*dump->entries), compare_entries);
    return rc;
}

choir_status ch_flight_dump(uint64_t which, choir_trace_format format, const char *why,
                            choir_blob *out)
{
    struct dump dump = { .which = which, .why = why };
    choir_status rc = ch_forked();

    if (rc != CHOIR_OK)
        return rc; /* before the lock: who held it at the fork is not here to let go */
    dump.flights = ch_flights_lock();
    rc = copy_all_locked(&dump);
    if (rc == CHOIR_OK) {
        dump.now = ch_now();
        dump.wall_ns = ch_sys_wall_ns();
        ch_emit_init(&dump.emit, format);
        emit_document(&dump);
        rc = ch_emit_finish(&dump.emit, out);
    }
    ch_flights_unlock();
    ch_free(dump.entries);
    return rc;
}

uint64_t ch_flight_next(uint64_t after, int *rank_out)
{
    const struct ch_list *flights = ch_flights_lock();
    uint64_t found = 0;

    CH_LIST_EACH (link, flights) {
        const struct ch_flight *flight = CH_CONTAINER(link, struct ch_flight, link);

        if (flight->id > after && found == 0) {
            found = flight->id;
            *rank_out = flight->rank;
        }
    }
    ch_flights_unlock();
    return found;
}

void ch_flight_forget(void)
{
    const struct ch_list *flights;

    if (ch_is_forked())
        return;
    flights = ch_flights_lock();
    CH_LIST_EACH (link, flights) {
        struct ch_flight *flight = CH_CONTAINER(link, struct ch_flight, link);

        /* Relaxed: what is issued meanwhile may be shown or not. */
        atomic_store_explicit(&flight->forgotten,
                              atomic_load_explicit(&flight->next, memory_order_relaxed) - 1,
                              memory_order_relaxed);
    }
    ch_flights_unlock();
}
