/*
 * run_nodes.c - launchers on several hosts as one run, through the store that node 0 serves.
 *
 * A thread does all that, as the store's calls wait and the launcher's loop must not. Keys, below
 * "run/":
 *   setup     node 0: id of the run, where torch's protocol is spoken
 *   node/K    launcher K: version, --nnodes, ranks, host, pid; the first to set it is node K
 *   end       why the run ends: an exit code and a sentence. The first to set it is believed by all, so
 *             every launcher exits with the same code
 *   done      how many launchers' ranks have all ended well; the last one sets end to "0"
 *   beat/K    counts up while launcher K lives; node 0 takes one that stands still for lost
 *   bye, gone launchers that have read `end`, so that node 0 does not stop serving too early
 */
#include "run.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <choir/choir.h>

enum {
    JOIN_MS = 300000, /* for all launchers to come */
    BEAT_MS = 1000,
    LOST_MS = 6000,
    BYE_MS = 3000,
    EARLY_BYE_MS = 1500, /* not all came, so not all can say bye; longer than a look at `end` */
    TEXT_MAX = 512
};

struct peer {
    int nproc;
    char host[128];
    int64_t beats, changed_at; /* node 0's watch */
};

struct run_link {
    /* Fixed before the thread starts. */
    const struct run_options *options;
    char url[RUN_ADDRESS_MAX], torch[RUN_ADDRESS_MAX];
    choir_token token;
    int bell;
    pthread_t thread;

    /* The thread's own. */
    choir_store *root, *calls;
    struct peer *peers;
    bool joined;

    pthread_mutex_t lock; /* guards the rest; the launcher and the thread use it */
    choir_store *waits;   /* the handle that is interrupted when the launcher wants something */
    bool want_done, want_fail, want_stop;
    int fail_code;
    char fail_text[TEXT_MAX];
    bool has_world, has_end, has_lost;
    struct run_world world;
    int end_code;
    char end_text[TEXT_MAX];
};

/* --- between launcher and thread ------------------------------------------------------------------------- */

static void ring(struct run_link *link)
{
    uint64_t one = 1;
    ssize_t done = write(link->bell, &one, sizeof(one));

    (void)done; /* full means that it rings already */
}

__attribute__((format(printf, 3, 4))) static void lose(struct run_link *link, int code,
                                                       const char *fmt, ...)
{
    va_list args;

    pthread_mutex_lock(&link->lock);
    if (!link->has_end && !link->has_lost) {
        link->has_lost = true;
        link->end_code = code;
        va_start(args, fmt);
        vsnprintf(link->end_text, sizeof(link->end_text), fmt, args);
        va_end(args);
    }
    pthread_mutex_unlock(&link->lock);
    ring(link);
}

static void ended(struct run_link *link, const char *value)
{
    char *space;

    pthread_mutex_lock(&link->lock);
    link->end_code = (int)strtol(value, &space, 10);
    snprintf(link->end_text, sizeof(link->end_text), "%s", space + (*space == ' '));
    link->has_end = true;
    pthread_mutex_unlock(&link->lock);
    ring(link);
}

static bool is_stopped(struct run_link *link)
{
    bool stopped;

    pthread_mutex_lock(&link->lock);
    stopped = link->want_stop;
    pthread_mutex_unlock(&link->lock);
    return stopped;
}

/* --- small words for the store ------------------------------------------------------------------------------ */

static choir_bytes key_of(char *buffer, size_t size, const char *what, int node)
{
    snprintf(buffer, size, "%s/%d", what, node);
    return choir_str(buffer);
}

/* Set `key` if nobody has; *seen_out is what is there now. */
static choir_status claim(struct run_link *link, choir_bytes key, const char *value, char *seen_out,
                          size_t size)
{
    choir_blob seen = { 0 };
    choir_status rc = choir_store_compare_set(link->calls, key, choir_str(""), choir_str(value),
                                              &seen);

    if (rc == CHOIR_OK)
        snprintf(seen_out, size, "%s", seen.data);
    choir_blob_free(&seen);
    return rc;
}

static choir_status end_run(struct run_link *link, int code, const char *text)
{
    char value[TEXT_MAX + 16], seen[TEXT_MAX + 16];
    choir_status rc;

    snprintf(value, sizeof(value), "%d %s", code, text);
    rc = claim(link, choir_str("end"), value, seen, sizeof(seen));
    if (rc == CHOIR_OK)
        ended(link, seen);
    return rc;
}

/* What the launcher wants said. */
static choir_status serve_launcher(struct run_link *link)
{
    bool done, fail;
    char text[TEXT_MAX];
    int64_t sum = 0;
    int code;
    choir_status rc = CHOIR_OK;

    pthread_mutex_lock(&link->lock);
    choir_store_resume(link->waits);
    done = link->want_done;
    fail = link->want_fail;
    code = link->fail_code;
    memcpy(text, link->fail_text, sizeof(text));
    link->want_done = link->want_fail = false;
    pthread_mutex_unlock(&link->lock);

    if (fail)
        rc = end_run(link, code, text);
    if (rc == CHOIR_OK && done)
        rc = choir_store_add(link->calls, choir_str("done"), 1, &sum);
    if (rc == CHOIR_OK && sum == link->options->nnodes)
        rc = end_run(link, 0, "");
    return rc;
}

/* --- joining ----------------------------------------------------------------------------------------------- */

/* In short attempts, as one cannot be interrupted. */
static bool connect_store(struct run_link *link)
{
    int64_t until = choir_run_now() + JOIN_MS;
    choir_status rc = CHOIR_ERR_TIMEOUT;
    choir_store *waits = NULL;

    while (rc == CHOIR_ERR_TIMEOUT && choir_run_now() < until && !is_stopped(link))
        rc = choir_store_open(link->url,
                              CHOIR_OPTS(store_open, .timeout_ms = 1000, .token = &link->token),
                              &link->root);
    if (rc == CHOIR_OK)
        rc = choir_store_set_timeout(link->root, LOST_MS);
    if (rc == CHOIR_OK)
        rc = choir_store_prefix(link->root, choir_str("run"), &link->calls);
    if (rc == CHOIR_OK)
        rc = choir_store_prefix(link->root, choir_str("run"), &waits);
    if (rc != CHOIR_OK) {
        lose(link, EXIT_FAILURE, "cannot join the run at %s: %s", link->url, choir_last_error());
        return false;
    }
    pthread_mutex_lock(&link->lock);
    link->waits = waits;
    if (link->want_fail || link->want_stop)
        choir_store_interrupt(waits); /* wanted before there was anything to interrupt */
    pthread_mutex_unlock(&link->lock);
    return true;
}

static choir_status announce(struct run_link *link, bool *taken_out)
{
    const struct run_options *o = link->options;
    char key[32], record[512], seen[512], setup[RUN_ADDRESS_MAX + 64], id[20], host[128] = "?";
    choir_status rc = CHOIR_OK;

    gethostname(host, sizeof(host) - 1);
    snprintf(record, sizeof(record), "%s %d %d %s %d", choir_version(), o->nnodes, o->nproc, host,
             (int)getpid());
    if (o->node == 0) {
        choir_run_make_id(id, sizeof(id));
        snprintf(setup, sizeof(setup), "%s %s", id, link->torch);
        rc = choir_store_set(link->calls, choir_str("setup"), choir_str(setup));
    }
    if (rc == CHOIR_OK)
        rc = claim(link, key_of(key, sizeof(key), "node", o->node), record, seen, sizeof(seen));
    *taken_out = rc == CHOIR_OK && strcmp(seen, record) != 0;
    if (*taken_out)
        lose(link, EXIT_FAILURE, "there is a launcher with --node-rank %d already: \"%s\"", o->node,
             seen);
    return rc;
}

/* Compare what launcher `node` was told with what we were. */
static bool check_record(struct run_link *link, int node, const char *record, char *text,
                         size_t size)
{
    char version[32];
    int nnodes, pid;

    if (sscanf(record, "%31s %d %d %127s %d", version, &nnodes, &link->peers[node].nproc,
               link->peers[node].host, &pid) != 5) {
        snprintf(text, size, "node %d: cannot read its record \"%s\"", node, record);
        return false;
    }
    if (strcmp(version, choir_version()) != 0)
        snprintf(text, size, "node %d has version %s, node %d version %s", link->options->node,
                 choir_version(), node, version);
    else if (nnodes != link->options->nnodes)
        snprintf(text, size, "node %d was given --nnodes %d, node %d (%s) --nnodes %d",
                 link->options->node, link->options->nnodes, node, link->peers[node].host, nnodes);
    else
        return true;
    return false;
}

/* Fetch a key, waiting for it; an early end of the run, or a wish of the launcher's, comes first. */
static choir_status fetch(struct run_link *link, choir_bytes key, int64_t until, choir_blob *out)
{
    choir_bytes end = choir_str("end");
    choir_status rc;
    bool is_over;

    for (;;) {
        rc = choir_store_get(link->waits, key, BEAT_MS, out);
        if (rc == CHOIR_ERR_INTERRUPTED) {
            rc = serve_launcher(link);
            if (is_stopped(link))
                return CHOIR_ERR_INTERRUPTED;
            if (rc == CHOIR_OK)
                continue;
        }
        if (rc != CHOIR_ERR_TIMEOUT)
            return rc;
        rc = choir_store_check(link->calls, &end, 1, &is_over);
        if (rc != CHOIR_OK || is_over)
            return rc != CHOIR_OK ? rc : CHOIR_ERR_REMOTE;
        if (choir_run_now() >= until)
            return CHOIR_ERR_TIMEOUT;
    }
}

static void name_missing(struct run_link *link, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "after %d s these launchers are missing: nodes",
                                   JOIN_MS / 1000);
    char key[32];
    bool here;

    for (int i = 0; i < link->options->nnodes && used + 16 < size; i++) {
        choir_bytes k = key_of(key, sizeof(key), "node", i);

        if (choir_store_check(link->calls, &k, 1, &here) == CHOIR_OK && !here)
            used += (size_t)snprintf(text + used, size - used, " %d", i);
    }
}

/* All launchers' records. Errors have been told. */
static bool gather(struct run_link *link)
{
    int64_t until = choir_run_now() + JOIN_MS;
    char key[32], text[TEXT_MAX];
    choir_blob record;
    choir_status rc;
    bool same;

    for (int i = 0; i < link->options->nnodes; i++) {
        rc = fetch(link, key_of(key, sizeof(key), "node", i), until, &record);
        if (rc == CHOIR_ERR_TIMEOUT) {
            name_missing(link, text, sizeof(text));
            end_run(link, EXIT_FAILURE, text);
            return false;
        }
        if (rc == CHOIR_ERR_REMOTE)
            return true; /* the watch reads why */
        if (rc != CHOIR_OK) {
            lose(link, EXIT_FAILURE, "joining the run at %s: %s", link->url, choir_last_error());
            return false;
        }
        same = check_record(link, i, record.data, text, sizeof(text));
        choir_blob_free(&record);
        if (!same) {
            end_run(link, EXIT_FAILURE, text);
            return true;
        }
    }
    link->joined = true;
    return true;
}

static bool publish_world(struct run_link *link)
{
    const struct run_options *o = link->options;
    struct run_world world = { .node = o->node, .nnodes = o->nnodes };
    char id[40], torch[RUN_ADDRESS_MAX] = "";
    choir_blob setup;

    if (choir_store_get(link->calls, choir_str("setup"), LOST_MS, &setup) != CHOIR_OK) {
        lose(link, EXIT_FAILURE, "joining the run at %s: %s", link->url, choir_last_error());
        return false;
    }
    if (sscanf(setup.data, "%39s %299s", id, torch) < 1)
        id[0] = '\0';
    choir_blob_free(&setup);
    for (int i = 0; i < o->nnodes; i++) {
        world.first_rank += i < o->node ? link->peers[i].nproc : 0;
        world.nranks += link->peers[i].nproc;
    }
    snprintf(world.run_id, sizeof(world.run_id), "%s", id);
    snprintf(world.store, sizeof(world.store), "%s", link->url);
    if (!choir_run_set_torch(&world, torch)) {
        lose(link, EXIT_FAILURE, "node 0 gave no address for torch's protocol: \"%s\"", torch);
        return false;
    }
    pthread_mutex_lock(&link->lock);
    link->world = world;
    link->has_world = true;
    pthread_mutex_unlock(&link->lock);
    ring(link);
    return true;
}

/* --- watching ------------------------------------------------------------------------------------------------ */

static choir_status watch_peers(struct run_link *link)
{
    int64_t now = choir_run_now(), beats;
    char key[32], text[TEXT_MAX];
    choir_status rc;

    for (int i = 1; link->joined && i < link->options->nnodes; i++) {
        struct peer *peer = &link->peers[i];

        rc = choir_store_add(link->calls, key_of(key, sizeof(key), "beat", i), 0, &beats);
        if (rc != CHOIR_OK)
            return rc;
        if (beats != peer->beats || peer->changed_at == 0) {
            peer->beats = beats;
            peer->changed_at = now;
        } else if (now - peer->changed_at > LOST_MS) {
            snprintf(text, sizeof(text), "the launcher of node %d (%s) is lost: silent for %d s", i,
                     peer->host, LOST_MS / 1000);
            return end_run(link, EXIT_FAILURE, text);
        }
    }
    return CHOIR_OK;
}

static choir_status beat(struct run_link *link)
{
    int64_t sum;
    char key[32];

    if (link->options->node == 0)
        return watch_peers(link);
    return choir_store_add(link->calls, key_of(key, sizeof(key), "beat", link->options->node), 1,
                           &sum);
}

static void watch(struct run_link *link)
{
    choir_blob end;
    choir_status rc;

    for (;;) {
        rc = choir_store_get(link->waits, choir_str("end"), BEAT_MS, &end);
        if (rc == CHOIR_OK) {
            ended(link, end.data);
            choir_blob_free(&end);
            return;
        }
        if (rc == CHOIR_ERR_INTERRUPTED) {
            rc = serve_launcher(link);
            if (is_stopped(link))
                return;
        } else if (rc == CHOIR_ERR_TIMEOUT) {
            rc = beat(link);
        }
        if (rc != CHOIR_OK) {
            lose(link, EXIT_FAILURE, "the launcher of node 0 is lost: %s", choir_last_error());
            return;
        }
    }
}

/* Node 0 serves until the others have read how it ended. */
static void say_bye(struct run_link *link)
{
    int others = link->options->nnodes - 1;
    choir_bytes gone = choir_str("gone");
    int64_t sum = 0;
    char seen[8];

    if (link->options->node == 0)
        choir_store_wait(link->calls, &gone, 1, link->joined ? BYE_MS : EARLY_BYE_MS);
    else if (choir_store_add(link->calls, choir_str("bye"), 1, &sum) == CHOIR_OK && sum == others)
        claim(link, gone, "1", seen, sizeof(seen));
}

static void *run_link(void *arg)
{
    struct run_link *link = arg;
    bool taken = false;
    choir_status rc;

    if (!connect_store(link))
        return NULL;
    rc = announce(link, &taken);
    if (rc != CHOIR_OK)
        lose(link, EXIT_FAILURE, "joining the run at %s: %s", link->url, choir_last_error());
    if (rc != CHOIR_OK || taken || !gather(link))
        return NULL;
    if (link->joined && !publish_world(link))
        return NULL;
    watch(link);
    return NULL;
}

/* --- for the launcher ---------------------------------------------------------------------------------------- */

struct run_link *choir_run_link_start(const struct run_options *options, const char *url,
                                      const char *torch, const choir_token *token, int *bell_out)
{
    struct run_link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return NULL;
    link->options = options;
    link->token = *token;
    snprintf(link->url, sizeof(link->url), "%s", url);
    snprintf(link->torch, sizeof(link->torch), "%s", torch != NULL ? torch : "");
    link->peers = calloc((size_t)options->nnodes, sizeof(*link->peers));
    link->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&link->lock, NULL);
    if (link->peers == NULL || link->bell < 0 ||
        pthread_create(&link->thread, NULL, run_link, link) != 0) {
        if (link->bell >= 0)
            close(link->bell);
        free(link->peers);
        free(link);
        return NULL;
    }
    *bell_out = link->bell;
    return link;
}

enum run_news choir_run_link_news(struct run_link *link, struct run_world *world, int *code,
                                  char *text, size_t size)
{
    enum run_news news = RUN_NEWS_NONE;

    pthread_mutex_lock(&link->lock);
    if (link->has_world) {
        *world = link->world;
        link->has_world = false;
        news = RUN_NEWS_WORLD;
    } else if (link->has_end || link->has_lost) {
        news = link->has_end ? RUN_NEWS_END : RUN_NEWS_LOST;
        *code = link->end_code;
        snprintf(text, size, "%s", link->end_text);
    }
    pthread_mutex_unlock(&link->lock);
    return news;
}

static void want(struct run_link *link, bool *what)
{
    pthread_mutex_lock(&link->lock);
    *what = true;
    if (link->waits != NULL)
        choir_store_interrupt(link->waits);
    pthread_mutex_unlock(&link->lock);
}

void choir_run_link_done(struct run_link *link)
{
    want(link, &link->want_done);
}

void choir_run_link_fail(struct run_link *link, int code, const char *text)
{
    pthread_mutex_lock(&link->lock);
    link->fail_code = code;
    snprintf(link->fail_text, sizeof(link->fail_text), "%s", text);
    pthread_mutex_unlock(&link->lock);
    want(link, &link->want_fail);
}

void choir_run_link_stop(struct run_link *link)
{
    if (link == NULL)
        return;
    want(link, &link->want_stop);
    pthread_join(link->thread, NULL);
    if (link->has_end)
        say_bye(link);
    choir_store_close(link->waits);
    choir_store_close(link->calls);
    choir_store_close(link->root);
    close(link->bell);
    pthread_mutex_destroy(&link->lock);
    free(link->peers);
    free(link);
}
