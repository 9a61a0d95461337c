/*
 * flight_impl.h - the ring as its writers (flight.c) and its readers (flight_dump.c) see it.
 *
 * A slot is an array of words, all atomic, guarded by the first: `turn` is the record's number times two, odd
 * while somebody writes. Writers take the slot by compare-and-swap, so that one who comes late cannot spoil the
 * record that took his place; readers copy, and look at `turn` before and after.
 *
 *   word      what
 *   0         turn
 *   1         the group's number
 *   2         bits: operation, state, status, reduction, flags (BIT_*)
 *   3         root or peer (low half), tag (high half)
 *   4 5 6     collective_seq, p2p_seq, op_id
 *   7 8 9     when it was issued, started, done (ch_now(); 0: not yet)
 *   10        timeout in ms
 *   11        the issuing thread (low half), buffers in (16 bits), buffers out (16 bits)
 *   12        words used for buffers in (low half) and out (high half)
 *   13..23    their shapes: a head (how many dimensions, type), then its lengths; what does not fit is left out
 *
 * So that the usual operation, one buffer, touches two cache lines.
 */
#ifndef CH_FLIGHT_IMPL_H
#define CH_FLIGHT_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "trace/flight.h"

enum {
    CH_FLIGHT_TURN,
    CH_FLIGHT_GROUP,
    CH_FLIGHT_BITS,
    CH_FLIGHT_PEER,
    CH_FLIGHT_COLLECTIVE_SEQ,
    CH_FLIGHT_P2P_SEQ,
    CH_FLIGHT_OP_ID,
    CH_FLIGHT_ISSUED,
    CH_FLIGHT_STARTED,
    CH_FLIGHT_DONE,
    CH_FLIGHT_TIMEOUT,
    CH_FLIGHT_THREAD,
    CH_FLIGHT_SHAPE_WORDS,
    CH_FLIGHT_SHAPES,
    CH_FLIGHT_WORDS = 24,
    CH_FLIGHT_SHAPES_MAX = CH_FLIGHT_WORDS - CH_FLIGHT_SHAPES,
};

enum ch_flight_state { CH_FLIGHT_IS_SCHEDULED, CH_FLIGHT_IS_STARTED, CH_FLIGHT_IS_COMPLETED };

/* Word 2: the operation in bits 0..7, the reduction in 8..15, the status in 32..63 (as it is), and */
enum {
    CH_FLIGHT_BIT_P2P = 1 << 16,
    CH_FLIGHT_BIT_REDUCES = 1 << 17,
    CH_FLIGHT_BIT_ROOT = 1 << 18,
    CH_FLIGHT_BIT_OVER = 1 << 19, /* done, well or not */
    CH_FLIGHT_STATE_SHIFT = 20,   /* two bits: enum ch_flight_state */
};

struct ch_flight_slot {
    _Alignas(64) _Atomic uint64_t words[CH_FLIGHT_WORDS];
};

struct ch_flight {
    struct ch_list link;   /* of all of the process; under the lock */
    struct ch_list groups; /* struct ch_flight_group, by number; under the lock */
    uint64_t id;           /* unique in the process, from 1, rising along the list */
    int rank;
    uint64_t capacity;
    struct ch_flight_slot *slots;
    _Alignas(
        CH_CACHE_UNIT) _Atomic uint64_t next; /* the next record's number, from 1; any writer */
    _Atomic uint64_t forgotten; /* records up to here are not shown any more: choir_trace_reset() */
};

struct ch_flight_group {
    struct ch_list link; /* flight->groups; under the lock */
    struct ch_flight *flight;
    uint64_t id;       /* unique in the process */
    char *name, *desc; /* valid UTF-8 */
    int *ranks;        /* of the first group */
    int nranks, rank;
    bool closed;                  /* under the lock */
    _Atomic bool failed;          /* whoever sets it writes the files */
    _Atomic uint64_t last_record; /* the youngest of its records; any writer */
    _Atomic uint64_t enqueued, started,
        completed; /* collectives: the last of each, 0 none; any writer */
};

/* The name of a thread that has recorded something; "" if it was too long ago. The caller holds the lock. */
const char *ch_flight_thread_name(uint32_t number);

/* The lists of the process: taken for opening, closing and reading, never for recording. */
struct ch_list *ch_flights_lock(void);
void ch_flights_unlock(void);

#endif
