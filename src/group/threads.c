/*
 * threads.c - choir_run_threads(): every rank a thread of this process.
 *
 * The ranks meet in a store of their own, as processes would. Nobody joins before all threads are there: one that
 * could not be started would leave the others waiting.
 */
#include <stdio.h>

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"
#include "group/group.h"

struct job {
    choir_store *store;
    int nranks;
    choir_status (*main_)(choir_group *group, void *arg);
    void *arg;
};

struct thread {
    pthread_t id;
    struct job *job;
    int rank;
    choir_group *group; /* while it is open */
    bool returned;      /* it did not end half-way */
    choir_status status;
    choir_error error;
    uint64_t ended; /* ch_now() */
};

/* True if all were started. */
static bool told_to_go(const struct job *job)
{
    choir_blob word = { NULL, 0 };
    choir_status rc = choir_store_get(job->store, choir_str("go"), -1, &word);
    bool go = rc == CHOIR_OK && word.nbytes == 1 && word.data[0] == 'y';

    choir_blob_free(&word);
    return go;
}

static choir_status be_rank(struct thread *thread)
{
    const struct job *job = thread->job;
    choir_error why;
    choir_status rc = choir_init(
        &thread->group,
        CHOIR_OPTS(init, .store = job->store, .rank = thread->rank, .nranks = job->nranks));

    if (rc != CHOIR_OK)
        return rc;
    rc = job->main_(thread->group, job->arg);
    if (rc != CHOIR_OK) {
        /* A thread that gives up is what the death of a process is: the others must not wait for it. */
        if (choir_last_error_record()->code != rc)
            ch_fail(rc, "rank %d returned %s", thread->rank, choir_status_name(rc));
        ch_error_save(&why);
        choir_group_abort(thread->group);
        ch_error_load(&why);
    }
    choir_group_destroy(thread->group);
    thread->group = NULL;
    return rc;
}

static void *run(void *arg)
{
    struct thread *thread = arg;
    char name[16];

    snprintf(name, sizeof(name), "rank-%d", thread->rank);
    pthread_setname_np(pthread_self(), name);
    if (told_to_go(thread->job))
        thread->status = be_rank(thread);
    thread->ended = ch_now();
    if (thread->status != CHOIR_OK)
        ch_error_save(&thread->error);
    thread->returned = true;
    return NULL;
}

/* It never came back from main_ (pthread_exit()): what it left is ours to end, and the first of all failures. */
static void clear_up(struct thread *thread)
{
    choir_group_destroy(thread->group);
    thread->status = ch_fail_rank(CHOIR_ERR_DEAD, thread->rank, "",
                                  "rank %d has died: its thread ended without returning",
                                  thread->rank);
    ch_error_save(&thread->error);
    thread->ended = 0;
}

static choir_status first_failure(const struct thread *threads, int nranks)
{
    const struct thread *first = NULL;

    for (int r = 0; r < nranks; r++) {
        if (threads[r].status != CHOIR_OK && (first == NULL || threads[r].ended < first->ended))
            first = &threads[r];
    }
    return first != NULL ? ch_error_load(&first->error) : CHOIR_OK;
}

static choir_status run_all(struct job *job, struct thread *threads)
{
    choir_status rc = CHOIR_OK, told;
    int started = 0;

    while (started < job->nranks && rc == CHOIR_OK) {
        threads[started] = (struct thread){ .job = job, .rank = started };
        if (ch_sys_thread_create(&threads[started].id, run, &threads[started]) != 0)
            rc = ch_fail_errno("start the thread of rank %d", started);
        else
            started++;
    }
    told = choir_store_set(job->store, choir_str("go"), choir_str(rc == CHOIR_OK ? "y" : "n"));
    if (told != CHOIR_OK) {
        rc = rc == CHOIR_OK ? told : rc;
        choir_store_interrupt(job->store);
    }
    for (int r = 0; r < started; r++)
        pthread_join(threads[r].id, NULL);
    for (int r = 0; r < started; r++) {
        if (!threads[r].returned)
            clear_up(&threads[r]);
    }
    return rc != CHOIR_OK ? rc : first_failure(threads, started);
}

choir_status choir_run_threads(int nranks, choir_status (*main_)(choir_group *group, void *arg),
                               void *arg)
{
    struct job job = { .nranks = nranks, .main_ = main_, .arg = arg };
    struct thread *threads;
    choir_status rc = ch_forked();

    if (rc == CHOIR_OK && (nranks < 1 || main_ == NULL))
        rc = nranks < 1 ? ch_fail(CHOIR_ERR_INVALID, "nranks: %d, expected 1 or more", nranks)
                        : ch_fail(CHOIR_ERR_INVALID, "main_: is NULL");
    if (rc == CHOIR_OK)
        rc = choir_store_open("hash://", NULL, &job.store);
    if (rc != CHOIR_OK) {
        ch_error_prefix("choir_run_threads: ");
        return rc;
    }
    threads = ch_zalloc_array((size_t)nranks, sizeof(*threads));
    rc = threads != NULL ? run_all(&job, threads)
                         : ch_fail(CHOIR_ERR_NOMEM, "no memory for %d threads", nranks);
    ch_free(threads);
    choir_store_close(job.store);
    if (rc != CHOIR_OK)
        ch_error_prefix("choir_run_threads: ");
    return rc;
}
