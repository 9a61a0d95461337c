/*
 * service.h - the one thread of the library: for what must go on while the user computes.
 *
 * Asynchronous work, heartbeats, pidfds, stall reports, served requests. It starts with the first
 * ch_service_ref() of the process, ends with the last ch_service_unref(), and sleeps without a wake-up
 * while nothing happens. It is an event loop (loop.h) named "choir-service".
 *
 * Nothing it runs may block: everybody else in the process waits behind it.
 *
 * In a forked child the thread does not exist: refs and posts fail with CHOIR_ERR_FORKED, an unref
 * does nothing.
 */
#ifndef CH_SERVICE_H
#define CH_SERVICE_H

#include <choir/status.h>

#include "io/loop.h"

struct ch_service;

/* A reference to the running service thread, started if need be.
 * Threads: any. */
choir_status ch_service_ref(struct ch_service **service_out);

/* Give a reference back. The last one runs what is still posted, ends the thread and waits for it;
 * from the thread itself it does not wait. All watches and timers must be gone by then. Accepts NULL.
 * Threads: any. */
void ch_service_unref(struct ch_service *service);

/* Have `task` run once on the service thread. The caller holds a reference.
 * Threads: any.
 * Errors:  CHOIR_ERR_FORKED only. */
choir_status ch_service_post(struct ch_service *service, struct ch_task *task);

/* For watches and timers.
 * Threads: the service thread only. */
struct ch_loop *ch_service_loop(struct ch_service *service);

/* Whether the caller is the service thread. */
bool ch_service_is_here(const struct ch_service *service);

#endif
