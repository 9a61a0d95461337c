/*
 * service.c - the service thread: started with the first reference, ended with the last.
 *
 *   none --[ch_service_ref: first]--> running --[ch_service_unref: last]--> ending --> none
 *
 * A service that is ending is no longer the process's: a ref meanwhile starts another, so that
 * nobody waits for the old one with the lock held.
 */
#include "io/service.h"

#include <pthread.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"

struct ch_service {
    struct ch_loop *loop;
    pthread_t thread;
    unsigned refs;       /* guarded by the_service.lock */
    bool ends_by_itself; /* set by a task of the thread that put the last reference */
};

static struct {
    struct ch_lock lock;
    struct ch_service *running; /* under lock */
} the_service = { .lock = CH_LOCK_INIT(CH_LOCK_SERVICE) };

static void destroy(struct ch_service *service)
{
    ch_loop_destroy(service->loop);
    ch_free(service);
}

/* A loop whose wait fails can do nothing and must not burn a processor either: others still count on
 * it, and what made it fail may pass. */
static void pause_after_failure(int failures)
{
    int64_t most = CH_S, ns = (int64_t)failures * CH_MS;

    ch_log_warn("service thread: %s", choir_last_error());
    (void)!ch_sys_poll(NULL, 0, ns < most ? ns : most);
}

static void *serve(void *arg)
{
    struct ch_service *service = arg;

    pthread_setname_np(pthread_self(), "choir-service");
    for (int failures = 1; ch_loop_run(service->loop) != CHOIR_OK; failures++)
        pause_after_failure(failures);
    if (service->ends_by_itself)
        destroy(service);
    return NULL;
}

static choir_status start(struct ch_service **service_out)
{
    struct ch_service *service = ch_zalloc(sizeof(*service));
    choir_status rc;

    if (service == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "service thread: no memory for it");
    rc = ch_loop_create(&service->loop);
    if (rc == CHOIR_OK && ch_sys_thread_create(&service->thread, serve, service) != 0)
        rc = ch_fail_errno("service thread: start it");
    if (rc != CHOIR_OK) {
        destroy(service);
        return rc;
    }
    *service_out = service;
    return CHOIR_OK;
}

choir_status ch_service_ref(struct ch_service **service_out)
{
    choir_status rc = ch_forked();

    if (rc != CHOIR_OK)
        return rc; /* before the lock: who held it at the fork is not here to let go */
    ch_lock(&the_service.lock);
    if (the_service.running == NULL)
        rc = start(&the_service.running);
    if (rc == CHOIR_OK) {
        the_service.running->refs++;
        *service_out = the_service.running;
    }
    ch_unlock(&the_service.lock);
    return rc;
}

void ch_service_unref(struct ch_service *service)
{
    bool last;

    if (service == NULL || ch_is_forked())
        return;
    ch_lock(&the_service.lock);
    ch_assert(service == the_service.running && service->refs > 0);
    last = --service->refs == 0;
    if (last)
        the_service.running = NULL;
    ch_unlock(&the_service.lock);
    if (!last)
        return;

    if (ch_service_is_here(service)) {
        service->ends_by_itself = true;
        pthread_detach(service->thread);
        ch_loop_stop(service->loop);
    } else {
        ch_loop_stop(service->loop);
        pthread_join(service->thread, NULL);
        destroy(service);
    }
}

choir_status ch_service_post(struct ch_service *service, struct ch_task *task)
{
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK)
        ch_loop_post(service->loop, task);
    return rc;
}

struct ch_loop *ch_service_loop(struct ch_service *service)
{
    ch_assert(ch_service_is_here(service));
    return service->loop;
}

bool ch_service_is_here(const struct ch_service *service)
{
    return pthread_equal(pthread_self(), service->thread) != 0;
}
