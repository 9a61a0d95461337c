/*
 * flightwatch.c - see flightwatch.h.
 */
#include "group/flightwatch.h"

#include "base/error.h"
#include "base/log.h"
#include "trace/flight_signal.h"

/* --- the service thread's part ------------------------------------------------------------------- */

static void asked(struct ch_watch *inner, uint32_t events)
{
    struct ch_flightwatch *watch = CH_CONTAINER(inner, struct ch_flightwatch, watch);

    (void)events;
    ch_flight_signal_take(watch->fd, watch->flight);
}

static void begin(struct ch_task *task)
{
    struct ch_flightwatch *watch = CH_CONTAINER(task, struct ch_flightwatch, begin_task);

    if (ch_watch_add(ch_service_loop(watch->service), &watch->watch, watch->fd, EPOLLIN, asked) !=
        CHOIR_OK)
        ch_log_warn("SIGUSR2 will not have the flight record written: %s", choir_last_error());
}

static void stop(struct ch_task *task)
{
    struct ch_flightwatch *watch = CH_CONTAINER(task, struct ch_flightwatch, stop_task);

    ch_watch_remove(&watch->watch);
    ch_post(&watch->waiter->bell, &watch->stopped, 1);
}

/* --- the rank's ---------------------------------------------------------------------------------- */

choir_status ch_flightwatch_start(struct ch_flightwatch *watch, struct ch_flight *flight,
                                  struct ch_waiter *waiter)
{
    choir_status rc;

    if (flight == NULL)
        return CHOIR_OK;
    rc = ch_flight_signal_open(&watch->fd);
    if (rc != CHOIR_OK || watch->fd < 0)
        return rc;
    rc = ch_service_ref(&watch->service);
    if (rc != CHOIR_OK) {
        ch_flight_signal_close(watch->fd);
        return rc;
    }
    watch->flight = flight;
    watch->waiter = waiter;
    watch->begin_task.run = begin;
    watch->stop_task.run = stop;
    return ch_service_post(watch->service, &watch->begin_task);
}

void ch_flightwatch_stop(struct ch_flightwatch *watch)
{
    struct ch_wait wait = { .waiter = watch->waiter,
                            .until = CH_NEVER,
                            .what = "the service thread to let go of the flight record" };

    if (watch->service == NULL)
        return;
    if (ch_service_post(watch->service, &watch->stop_task) == CHOIR_OK) {
        while (ch_wait_flag(&wait, &watch->stopped, 1) != CHOIR_OK)
            ch_log_warn("%s", choir_last_error()); /* it must: the memory is about to go */
    }
    ch_flight_signal_close(watch->fd);
    ch_service_unref(watch->service);
    watch->service = NULL;
}
