/*
 * flightwatch.h - the service thread leaves a rank's flight record when SIGUSR2 asks for it (CHOIR_FR_SIGNAL), also
 * while the rank waits in a call or is busy elsewhere.
 */
#ifndef CH_FLIGHTWATCH_H
#define CH_FLIGHTWATCH_H

#include <stdatomic.h>

#include "base/wait.h"
#include "io/service.h"
#include "trace/flight.h"

struct ch_flightwatch {
    struct ch_service *service; /* NULL: nobody asks */
    struct ch_waiter *waiter;
    struct ch_flight *flight;
    int fd; /* readable: write */
    struct ch_task begin_task, stop_task;
    struct ch_watch watch;    /* the service thread's */
    _Atomic uint64_t stopped; /* posted by stop_task */
};

/* Both outlive it. Nothing is started if the knob does not ask for it. */
choir_status ch_flightwatch_start(struct ch_flightwatch *watch, struct ch_flight *flight,
                                  struct ch_waiter *waiter);

/* Waits until the service thread has let go. Accepts one that was never started, if zeroed. */
void ch_flightwatch_stop(struct ch_flightwatch *watch);

#endif
