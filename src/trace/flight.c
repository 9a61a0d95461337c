/*
 * flight.c - recording: rings, groups, and the three moments of an operation.
 *
 * Life of a slot; on each arrow, who takes it. A record is in the ring from ISSUED until another takes its slot.
 *
 *   any --[ch_flight_issue: took the turn]--> scheduled --[ch_flight_started]--> started
 *    |                                            |                                 |  |
 *    |                                            +---------[ch_flight_done]--------+--+--> over
 *    +--[ch_flight_start_plain, _messages: the same]------------------------------> started
 */
#include "trace/flight.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/mem.h"
#include "base/params.h"
#include "base/sys.h"
#include "trace/flight_impl.h"
#include "trace/flight_names.h"

enum { OPERATIONS = 2000, OPERATIONS_MAX = 1 << 20, SPINS = 64, THREADS_MAX = 256 };

struct thread_name {
    uint32_t number;
    char name[16];
};

/* Whoever asks for a dump has no group in hand, and a signal has nothing at all: so they are listed here. */
static struct {
    struct ch_lock lock;
    struct ch_list flights;                  /* under lock */
    uint64_t last_group, last_flight;        /* under lock */
    struct thread_name threads[THREADS_MAX]; /* under lock: the last that recorded something */
    uint64_t nthreads;
} the_flights = { .lock = CH_LOCK_INIT(CH_LOCK_TRACE),
                  .flights = CH_LIST_INIT(the_flights.flights) };

/* Not analysed: the lock's name is this file's alone. */
struct ch_list *ch_flights_lock(void) CH_NO_TSA
{
    ch_lock(&the_flights.lock);
    return &the_flights.flights;
}

void ch_flights_unlock(void) CH_NO_TSA
{
    ch_unlock(&the_flights.lock);
}

/* --- words --------------------------------------------------------------------------------------- */

/* Release, pairs with the acquire loads of ch_flight_read(): who sees this also sees the odd turn before it. */
static void put(struct ch_flight_slot *slot, int word, uint64_t value)
{
    atomic_store_explicit(&slot->words[word], value, memory_order_release);
}

/* By who has the turn: nobody else writes, and the turn's acquire made the last writer's words visible. */
static uint64_t get(const struct ch_flight_slot *slot, int word)
{
    return atomic_load_explicit(&slot->words[word], memory_order_relaxed);
}

static void pause_for(int *spins)
{
    if (++*spins % SPINS == 0)
        ch_sys_yield(); /* he who has the turn may have been put aside */
    else
        ch_arch_relax();
}

/* Take the turn of `slot`, which holds `record` now (`next` is the one to put there), or one before it. False:
 * a younger one has it. */
static inline bool take_turn(struct ch_flight_slot *slot, uint64_t record, bool exactly)
{
    _Atomic uint64_t *turn = &slot->words[CH_FLIGHT_TURN];
    uint64_t seen = atomic_load_explicit(turn, memory_order_relaxed);
    int spins = 0;

    for (;;) {
        if (exactly ? seen / 2 != record : seen / 2 > record)
            return false;
        if (seen % 2 != 0) {
            pause_for(&spins);
            seen = atomic_load_explicit(turn, memory_order_relaxed);
            continue;
        }
        /* Acquire, pairs with the release in leave_turn(); the words that follow are released, so none of them
         * is seen before the odd turn. */
        if (atomic_compare_exchange_weak_explicit(turn, &seen, record * 2 + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    }
}

static void leave_turn(struct ch_flight_slot *slot, uint64_t record)
{
    /* Release, pairs with take_turn() and ch_flight_read(): the record is whole. */
    atomic_store_explicit(&slot->words[CH_FLIGHT_TURN], record * 2, memory_order_release);
}

static struct ch_flight_slot *slot_of(const struct ch_flight *flight, uint64_t record)
{
    return &flight->slots[record % flight->capacity];
}

/* The largest so far. A group's operations are issued one after the other, so that nearly always there is one
 * writer; if not, an update may be lost, which costs a reader's guess and saves everybody an atomic exchange. */
static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
    if (atomic_load_explicit(value, memory_order_relaxed) < to)
        atomic_store_explicit(value, to, memory_order_relaxed);
}

/* --- what is written once ------------------------------------------------------------------------- */

/* Asked for once: the kernel wants longer for it than all else here takes. */
static _Thread_local uint32_t this_thread;

static CH_NOINLINE uint32_t find_this_thread(void)
{
    struct thread_name *entry;

    this_thread = (uint32_t)gettid();
    ch_lock(&the_flights.lock);
    entry = &the_flights.threads[the_flights.nthreads++ % THREADS_MAX];
    entry->number = this_thread;
    entry->name[0] = '\0';
    (void)!pthread_getname_np(pthread_self(), entry->name, sizeof(entry->name));
    ch_flight_make_utf8(entry->name);
    ch_unlock(&the_flights.lock);
    return this_thread;
}

const char *ch_flight_thread_name(uint32_t number)
{
    ch_lock_assert_held(&the_flights.lock);
    for (uint64_t i = the_flights.nthreads, n = 0; i > 0 && n < THREADS_MAX; i--, n++) {
        const struct thread_name *entry = &the_flights.threads[(i - 1) % THREADS_MAX];

        if (entry->number == number)
            return entry->name;
    }
    return "";
}

/* One array's shape, if there is room for it. Returns how many words it took. */
static int put_shape(struct ch_flight_slot *slot, int at, int end, choir_type type, int ndim,
                     const int64_t *sizes)
{
    if (ndim < 0 || ndim > end - at - 1)
        return 0;
    put(slot, at, (uint64_t)ndim | (uint64_t)type << 32);
    for (int i = 0; i < ndim; i++)
        put(slot, at + 1 + i, (uint64_t)sizes[i]);
    return ndim + 1;
}

static int put_buffer(struct ch_flight_slot *slot, int at, int end, const choir_buf *buf)
{
    int64_t count = (int64_t)buf->count;

    if (buf->ndim > 0 && buf->sizes != NULL)
        return put_shape(slot, at, end, buf->type, buf->ndim, buf->sizes);
    return put_shape(slot, at, end, buf->type, 1, &count);
}

/* One buffer for each rank, all alike: told as one array with a row for each, as others record it. */
static bool are_rows(choir_optype op, const choir_buf *bufs, size_t nbufs)
{
    if (nbufs < 2 || !ch_flight_has_lists(op))
        return false;
    for (size_t i = 0; i < nbufs; i++) {
        if (bufs[i].ndim > 0 || bufs[i].count != bufs[0].count || bufs[i].type != bufs[0].type)
            return false;
    }
    return true;
}

/* Returns how many words were used. What does not fit is left out. */
static int put_buffers(struct ch_flight_slot *slot, int at, int end, choir_optype op,
                       const choir_buf *bufs, size_t nbufs)
{
    int begin = at;

    if (bufs == NULL)
        return 0;
    if (are_rows(op, bufs, nbufs)) {
        const int64_t sizes[] = { (int64_t)nbufs, (int64_t)bufs[0].count };

        return put_shape(slot, at, end, bufs[0].type, 2, sizes);
    }
    for (size_t i = 0; i < nbufs; i++) {
        int used = put_buffer(slot, at, end, &bufs[i]);

        if (used == 0)
            break;
        at += used;
    }
    return at - begin;
}

static void put_all_buffers(struct ch_flight_slot *slot, const struct ch_flight_info *info)
{
    /* Neither side may crowd the other out. */
    int middle = info->nouts > 0 && info->outs != NULL ? CH_FLIGHT_SHAPES + CH_FLIGHT_SHAPES_MAX / 2
                                                       : CH_FLIGHT_WORDS;
    int in = put_buffers(slot, CH_FLIGHT_SHAPES, middle, info->op, info->ins, info->nins);
    int out = put_buffers(slot, CH_FLIGHT_SHAPES + in, CH_FLIGHT_WORDS, info->op, info->outs,
                          info->nouts);

    put(slot, CH_FLIGHT_SHAPE_WORDS, (uint64_t)in | (uint64_t)out << 32);
}

static inline uint64_t bits_of(choir_optype op, choir_redop redop, bool is_p2p, bool reduces,
                               bool has_root)
{
    return (uint64_t)(op & 0xff) | (uint64_t)(redop & 0xff) << 8 |
           (is_p2p ? CH_FLIGHT_BIT_P2P : 0) | (reduces ? CH_FLIGHT_BIT_REDUCES : 0) |
           (has_root ? CH_FLIGHT_BIT_ROOT : 0);
}

static uint64_t in_state(uint64_t bits, enum ch_flight_state state)
{
    return (bits & ~(UINT64_C(3) << CH_FLIGHT_STATE_SHIFT)) | (uint64_t)state
                                                                  << CH_FLIGHT_STATE_SHIFT;
}

static uint64_t capped(size_t n)
{
    return n < UINT16_MAX ? n : UINT16_MAX;
}

static uint64_t with_peer(int peer, int tag)
{
    return (uint32_t)peer | (uint64_t)(uint32_t)tag << 32;
}

static void put_record(struct ch_flight_slot *slot, const struct ch_flight_group *group,
                       const struct ch_flight_info *info, uint64_t now)
{
    put(slot, CH_FLIGHT_GROUP, group->id);
    put(slot, CH_FLIGHT_BITS,
        bits_of(info->op, info->redop, info->is_p2p, info->reduces, info->has_root));
    put(slot, CH_FLIGHT_PEER, with_peer(info->is_p2p ? info->peer : info->root, info->tag));
    put(slot, CH_FLIGHT_COLLECTIVE_SEQ, info->collective_seq);
    put(slot, CH_FLIGHT_P2P_SEQ, info->p2p_seq);
    put(slot, CH_FLIGHT_OP_ID, info->op_id);
    put(slot, CH_FLIGHT_ISSUED, now);
    put(slot, CH_FLIGHT_STARTED, 0);
    put(slot, CH_FLIGHT_DONE, 0);
    put(slot, CH_FLIGHT_TIMEOUT, (uint64_t)info->timeout_ms);
    put(slot, CH_FLIGHT_THREAD, this_thread | capped(info->nins) << 32 | capped(info->nouts) << 48);
    put_all_buffers(slot, info);
}

/* --- operations ----------------------------------------------------------------------------------- */

uint64_t ch_flight_issue(struct ch_flight_group *group, const struct ch_flight_info *info,
                         uint64_t now)
{
    struct ch_flight_slot *slot;
    uint64_t record;

    if (group == NULL)
        return 0;
    if (CH_UNLIKELY(this_thread == 0))
        find_this_thread();
    /* Relaxed: it only hands out numbers. */
    record = atomic_fetch_add_explicit(&group->flight->next, 1, memory_order_relaxed);
    slot = slot_of(group->flight, record);
    raise_to(&group->last_record, record);
    if (!info->is_p2p)
        raise_to(&group->enqueued, info->collective_seq + 1);
    if (take_turn(slot, record, false)) {
        put_record(slot, group, info, now);
        leave_turn(slot, record);
    }
    return record;
}

/* One array on each side, if there is one. Returns what the word about them says. */
static uint64_t put_plain_buffers(struct ch_flight_slot *slot, const struct ch_flight_plain *op)
{
    uint64_t head = 1 | (uint64_t)op->type << 32;
    int in = op->in_count > 0 ? 2 : 0, out = op->out_count > 0 ? 2 : 0;

    if (in > 0) {
        put(slot, CH_FLIGHT_SHAPES, head);
        put(slot, CH_FLIGHT_SHAPES + 1, op->in_count);
    }
    if (out > 0) {
        put(slot, CH_FLIGHT_SHAPES + in, head);
        put(slot, CH_FLIGHT_SHAPES + in + 1, op->out_count);
    }
    return (uint64_t)in | (uint64_t)out << 32;
}

static void put_plain_record(struct ch_flight_slot *slot, const struct ch_flight_group *group,
                             const struct ch_flight_plain *op, uint64_t now)
{
    put(slot, CH_FLIGHT_GROUP, group->id);
    put(slot, CH_FLIGHT_BITS,
        in_state(bits_of(op->op, op->redop, false, op->reduces, op->has_root),
                 CH_FLIGHT_IS_STARTED));
    put(slot, CH_FLIGHT_PEER, with_peer(op->root, 0));
    put(slot, CH_FLIGHT_COLLECTIVE_SEQ, op->collective_seq);
    put(slot, CH_FLIGHT_P2P_SEQ, op->p2p_seq);
    put(slot, CH_FLIGHT_OP_ID, op->collective_seq + op->p2p_seq);
    put(slot, CH_FLIGHT_ISSUED, now);
    put(slot, CH_FLIGHT_STARTED, now);
    put(slot, CH_FLIGHT_DONE, 0);
    put(slot, CH_FLIGHT_TIMEOUT, (uint64_t)op->timeout_ms);
    put(slot, CH_FLIGHT_THREAD,
        this_thread | (uint64_t)(op->in_count > 0) << 32 | (uint64_t)(op->out_count > 0) << 48);
    put(slot, CH_FLIGHT_SHAPE_WORDS, put_plain_buffers(slot, op));
}

uint64_t ch_flight_start_plain(struct ch_flight_group *group, const struct ch_flight_plain *op,
                               uint64_t now)
{
    struct ch_flight_slot *slot;
    uint64_t record;

    if (CH_UNLIKELY(this_thread == 0))
        find_this_thread();
    raise_to(&group->enqueued, op->collective_seq + 1);
    raise_to(&group->started, op->collective_seq + 1);
    record = atomic_fetch_add_explicit(&group->flight->next, 1, memory_order_relaxed);
    slot = slot_of(group->flight, record);
    raise_to(&group->last_record, record);
    if (take_turn(slot, record, false)) {
        put_plain_record(slot, group, op, now);
        leave_turn(slot, record);
    }
    return record;
}

static inline uint64_t over_well(uint64_t bits)
{
    return in_state(bits | CH_FLIGHT_BIT_OVER, CH_FLIGHT_IS_COMPLETED);
}

static inline void put_message(struct ch_flight_slot *slot, uint64_t group, uint32_t thread,
                               const struct ch_flight_message *m,
                               const struct ch_flight_moment *when, uint64_t p2p_seq)
{
    bool sends = m->op == CHOIR_OP_SEND;

    put(slot, CH_FLIGHT_GROUP, group);
    put(slot, CH_FLIGHT_BITS,
        m->over ? over_well((uint64_t)m->op | CH_FLIGHT_BIT_P2P)
                : in_state((uint64_t)m->op | CH_FLIGHT_BIT_P2P, CH_FLIGHT_IS_STARTED));
    put(slot, CH_FLIGHT_PEER, with_peer(m->peer, m->tag));
    put(slot, CH_FLIGHT_COLLECTIVE_SEQ, when->collective_seq);
    put(slot, CH_FLIGHT_P2P_SEQ, p2p_seq);
    put(slot, CH_FLIGHT_OP_ID, when->collective_seq + p2p_seq);
    put(slot, CH_FLIGHT_ISSUED, when->issued);
    put(slot, CH_FLIGHT_STARTED, when->issued);
    put(slot, CH_FLIGHT_DONE, m->over ? when->issued : 0);
    put(slot, CH_FLIGHT_TIMEOUT, (uint64_t)m->timeout_ms);
    put(slot, CH_FLIGHT_THREAD, thread | UINT64_C(1) << (sends ? 32 : 48));
    put(slot, CH_FLIGHT_SHAPE_WORDS, sends ? UINT64_C(2) : UINT64_C(2) << 32);
    put(slot, CH_FLIGHT_SHAPES, 1 | (uint64_t)m->type << 32);
    put(slot, CH_FLIGHT_SHAPES + 1, m->count);
}

static inline struct ch_flight_slot *slot_after(const struct ch_flight *flight,
                                                struct ch_flight_slot *slot)
{
    return slot + 1 < flight->slots + flight->capacity ? slot + 1 : flight->slots;
}

uint64_t ch_flight_start_messages(struct ch_flight_group *group,
                                  const struct ch_flight_message *messages, size_t count,
                                  const struct ch_flight_moment *when)
{
    struct ch_flight *flight = group->flight;
    uint32_t thread = this_thread;
    struct ch_flight_slot *slot;
    uint64_t first;

    if (CH_UNLIKELY(thread == 0))
        thread = find_this_thread();
    first = atomic_fetch_add_explicit(&flight->next, count, memory_order_relaxed);
    slot = slot_of(flight, first);
    raise_to(&group->last_record, first + count - 1);
    for (size_t i = 0; i < count; i++, slot = slot_after(flight, slot)) {
        if (CH_LIKELY(take_turn(slot, first + i, false))) {
            put_message(slot, group->id, thread, &messages[i], when, when->p2p_seq + i);
            leave_turn(slot, first + i);
        }
    }
    return first;
}

void ch_flight_messages_done(struct ch_flight_group *group, uint64_t first, size_t count,
                             uint64_t now)
{
    const struct ch_flight *flight = group->flight;
    struct ch_flight_slot *slot = slot_of(flight, first);

    for (size_t i = 0; i < count; i++, slot = slot_after(flight, slot)) {
        /* Without a turn: should it be another record's by now, there is nothing to do here either. */
        if ((get(slot, CH_FLIGHT_BITS) & CH_FLIGHT_BIT_OVER) != 0)
            continue;
        if (CH_UNLIKELY(!take_turn(slot, first + i, true)))
            continue;
        put(slot, CH_FLIGHT_DONE, now);
        put(slot, CH_FLIGHT_BITS, over_well(get(slot, CH_FLIGHT_BITS)));
        leave_turn(slot, first + i);
    }
}

static void set_state(struct ch_flight_slot *slot, enum ch_flight_state state)
{
    put(slot, CH_FLIGHT_BITS, in_state(get(slot, CH_FLIGHT_BITS), state));
}

static bool is_p2p(const struct ch_flight_slot *slot)
{
    return (get(slot, CH_FLIGHT_BITS) & CH_FLIGHT_BIT_P2P) != 0;
}

void ch_flight_started(struct ch_flight_group *group, uint64_t record, uint64_t now)
{
    struct ch_flight_slot *slot;

    if (group == NULL || record == 0)
        return;
    slot = slot_of(group->flight, record);
    if (!take_turn(slot, record, true))
        return;
    put(slot, CH_FLIGHT_STARTED, now);
    set_state(slot, CH_FLIGHT_IS_STARTED);
    if (!is_p2p(slot))
        raise_to(&group->started, get(slot, CH_FLIGHT_COLLECTIVE_SEQ) + 1);
    leave_turn(slot, record);
}

void ch_flight_done(struct ch_flight_group *group, uint64_t record, uint64_t now,
                    choir_status status, int peer)
{
    struct ch_flight_slot *slot;

    if (group == NULL || record == 0)
        return;
    slot = slot_of(group->flight, record);
    if (!take_turn(slot, record, true))
        return;
    put(slot, CH_FLIGHT_DONE, now);
    if (status == CHOIR_OK)
        set_state(slot, CH_FLIGHT_IS_COMPLETED);
    put(slot, CH_FLIGHT_BITS,
        get(slot, CH_FLIGHT_BITS) | CH_FLIGHT_BIT_OVER | (uint64_t)(uint32_t)status << 32);
    if (is_p2p(slot) && peer >= 0)
        put(slot, CH_FLIGHT_PEER, with_peer(peer, (int)(get(slot, CH_FLIGHT_PEER) >> 32)));
    if (!is_p2p(slot) && status == CHOIR_OK)
        raise_to(&group->completed, get(slot, CH_FLIGHT_COLLECTIVE_SEQ) + 1);
    leave_turn(slot, record);
}

/* --- groups --------------------------------------------------------------------------------------- */

static void group_free(struct ch_flight_group *group)
{
    ch_free(group->name);
    ch_free(group->desc);
    ch_free(group->ranks);
    ch_free(group);
}

/* No record of it is in the ring any more. Numbers that were handed out but not written yet belong to groups that
 * are not closed. */
static bool is_forgotten(const struct ch_flight_group *group)
{
    const struct ch_flight *flight = group->flight;
    uint64_t last = atomic_load_explicit(&group->last_record, memory_order_relaxed);
    uint64_t next = atomic_load_explicit(&flight->next, memory_order_relaxed);

    return last == 0 || last + flight->capacity < next;
}

/* So closed groups never number more than the ring has slots. */
static void drop_forgotten_locked(struct ch_flight *flight)
{
    ch_lock_assert_held(&the_flights.lock);
    CH_LIST_EACH (link, &flight->groups) {
        struct ch_flight_group *group = CH_CONTAINER(link, struct ch_flight_group, link);

        if (group->closed && is_forgotten(group)) {
            ch_list_remove(link);
            group_free(group);
        }
    }
}

static bool group_fill(struct ch_flight_group *group, const char *name, const char *desc,
                       const int *ranks, int nranks)
{
    group->name = ch_strdup(name);
    group->desc = ch_strdup(desc != NULL ? desc : "undefined");
    group->ranks = ch_alloc_array((size_t)nranks, sizeof(*group->ranks));
    if (group->name == NULL || group->desc == NULL || group->ranks == NULL)
        return false;
    ch_flight_make_utf8(group->name);
    ch_flight_make_utf8(group->desc);
    for (int i = 0; i < nranks; i++)
        group->ranks[i] = ranks != NULL ? ranks[i] : i;
    group->nranks = nranks;
    return true;
}

choir_status ch_flight_group_open(struct ch_flight *flight, const char *name, const char *desc,
                                  const int *ranks, int nranks, int rank,
                                  struct ch_flight_group **group_out)
{
    struct ch_flight_group *group;

    ch_assert(nranks > 0 && rank >= 0 && rank < nranks);
    if (flight == NULL) {
        *group_out = NULL;
        return CHOIR_OK;
    }
    group = ch_zalloc(sizeof(*group));
    if (group == NULL || !group_fill(group, name, desc, ranks, nranks)) {
        if (group != NULL)
            group_free(group);
        return ch_fail(CHOIR_ERR_NOMEM, "flight record: no memory for group \"%s\" of %d ranks",
                       name, nranks);
    }
    group->flight = flight;
    group->rank = rank;

    ch_lock(&the_flights.lock);
    drop_forgotten_locked(flight);
    group->id = ++the_flights.last_group;
    ch_list_push_back(&flight->groups, &group->link);
    ch_unlock(&the_flights.lock);
    *group_out = group;
    return CHOIR_OK;
}

void ch_flight_group_close(struct ch_flight_group *group)
{
    struct ch_flight *flight;

    if (group == NULL || ch_is_forked())
        return;
    flight = group->flight;
    ch_lock(&the_flights.lock);
    group->closed = true;
    drop_forgotten_locked(flight);
    ch_unlock(&the_flights.lock);
}

/* --- rings ---------------------------------------------------------------------------------------- */

/* What others call the same thing. */
static bool from_variable(const char *variable, int64_t *out)
{
    const char *text = getenv(variable);

    return text != NULL && ch_parse_int(text, out) && *out >= 0;
}

static uint64_t how_many(void)
{
    int64_t n = ch_params()->trace_operations;

    if (n < 0 && !from_variable("TORCH_FR_BUFFER_SIZE", &n) &&
        !from_variable("TORCH_NCCL_TRACE_BUFFER_SIZE", &n))
        n = OPERATIONS;
    return n < OPERATIONS_MAX ? (uint64_t)n : OPERATIONS_MAX;
}

choir_status ch_flight_create(int rank, struct ch_flight **flight_out)
{
    uint64_t capacity = how_many();
    struct ch_flight *flight;

    if (capacity == 0) {
        *flight_out = NULL;
        return CHOIR_OK;
    }
    flight = ch_zalloc_aligned(_Alignof(struct ch_flight), sizeof(*flight));
    if (flight != NULL)
        flight->slots = ch_zalloc_aligned(_Alignof(struct ch_flight_slot),
                                          capacity * sizeof(struct ch_flight_slot));
    if (flight == NULL || flight->slots == NULL) {
        ch_free(flight);
        return ch_fail(CHOIR_ERR_NOMEM, "flight record: no memory for %llu operations",
                       (unsigned long long)capacity);
    }
    ch_list_init(&flight->groups);
    flight->rank = rank;
    flight->capacity = capacity;
    atomic_store_explicit(&flight->next, 1, memory_order_relaxed); /* published by the lock */
    ch_lock(&the_flights.lock);
    flight->id = ++the_flights.last_flight;
    ch_list_push_back(&the_flights.flights, &flight->link);
    ch_unlock(&the_flights.lock);
    *flight_out = flight;
    return CHOIR_OK;
}

static void take_out(struct ch_flight *flight)
{
    ch_lock(&the_flights.lock);
    ch_list_remove(&flight->link);
    ch_unlock(&the_flights.lock);
}

void ch_flight_destroy(struct ch_flight *flight)
{
    struct ch_list *link;

    if (flight == NULL || ch_is_forked()) /* who held the lock at the fork is not here to let go */
        return;
    take_out(flight);
    while ((link = ch_list_pop_front(&flight->groups)) != NULL)
        group_free(CH_CONTAINER(link, struct ch_flight_group, link));
    ch_free(flight->slots);
    ch_free(flight);
}
