/*
 * check_clock.h - which steps of different ranks are ordered.
 *
 * A rank's clock counts its releases: posts, sends, ends of rounds. Its vector says, for every rank, how
 * much of that rank's past is certain to be over. An access at clock c of rank q is over for whoever has
 * vector[q] >= c.
 */
#ifndef CH_CHECK_CLOCK_H
#define CH_CHECK_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include <choir/status.h>

#include "sched/sched.h"

struct ch_clocks;

/* `rounds[i]` are the schedules of round i; they outlive the clocks. */
choir_status ch_clocks_create(struct ch_sched *const *const *rounds, uint32_t nrounds,
                              uint32_t nranks, struct ch_clocks **clocks_out);
void ch_clocks_destroy(struct ch_clocks *clocks); /* accepts NULL */

const uint32_t *ch_clock_vector(const struct ch_clocks *clocks, uint32_t rank);
uint32_t ch_clock_now(const struct ch_clocks *clocks, uint32_t rank);

/* Post a flag; `nth` is which of the schedule's posts it is, from 0. */
choir_status ch_clock_post(struct ch_clocks *clocks, uint32_t rank, uint32_t round, uint32_t nth);

/* What awaiting a flag comes to: it never comes, not yet, or now it is there and what was before it is over
 * for `rank`. */
enum ch_awaited { CH_AWAITED_NEVER, CH_AWAITED_NOT_YET, CH_AWAITED };
enum ch_awaited ch_clock_await(struct ch_clocks *clocks, uint32_t rank, uint32_t round,
                               uint32_t peer, uint32_t flag);

/* Start and end a round. */
void ch_clock_enter(struct ch_clocks *clocks, uint32_t rank, uint32_t round);
choir_status ch_clock_leave(struct ch_clocks *clocks, uint32_t rank, uint32_t round);

/* The gate of `round`: false as long as somebody is not through with the round `back` before it. */
bool ch_clock_gate(struct ch_clocks *clocks, uint32_t rank, uint32_t round, uint32_t back);

/* The first rank that is not through with `round`; nranks if all are. */
uint32_t ch_clock_first_inside(const struct ch_clocks *clocks, uint32_t round);

/* Whether rank `other` has entered `round`, for certain, as far as `rank` can know. */
bool ch_clock_knows_entry(const struct ch_clocks *clocks, uint32_t rank, uint32_t other,
                          uint32_t round);

/* A message is given to the transport: what is before it is over for who receives it, what comes after, in
 * a SENDRECV also what it receives itself, is not. Then it goes over. The receiver takes its order over with
 * ch_clock_received(), when its step ends. */
void ch_clock_send(struct ch_clocks *clocks, uint32_t from);
void ch_clock_deliver(struct ch_clocks *clocks, uint32_t from, uint32_t to);
void ch_clock_received(struct ch_clocks *clocks, uint32_t rank);

#endif
