/*
 * run_fold.c - one line for several ranks that print the same: "0-3: loss 0.25".
 *
 * Lines wait in a queue in the order they came. A rank's line joins the first equal one behind the
 * rank's own last, so each rank's lines stay in order and none is lost; otherwise it is put at the end.
 * The head of the queue is printed when every rank that still runs has joined it, when it has waited
 * HOLD_MS, or when the queue is long.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOLD_MS = 30, GROUPS_MAX = 256, BYTES_MAX = 128 * 1024 };

struct group {
    char *line;
    size_t nbytes;
    uint64_t number, hash;
    int64_t since;
    int njoined, waited_for;
    bool *joined; /* by local rank */
};

struct run_fold {
    int nranks, nalive;
    int first_rank; /* of this host */
    uint64_t next;  /* number of the next group */
    uint64_t *last; /* by local rank: the group behind the one it joined last */
    bool *alive;
    struct group queue[GROUPS_MAX]; /* a ring: head, count */
    size_t head, count, nbytes;
};

struct run_fold *choir_run_fold_create(int nranks)
{
    struct run_fold *fold = calloc(1, sizeof(*fold));

    if (fold == NULL)
        return NULL;
    fold->nranks = fold->nalive = nranks;
    fold->last = calloc((size_t)nranks, sizeof(*fold->last));
    fold->alive = calloc((size_t)nranks, sizeof(*fold->alive));
    if (fold->last == NULL || fold->alive == NULL) {
        choir_run_fold_destroy(fold);
        return NULL;
    }
    memset(fold->alive, true, (size_t)nranks);
    return fold;
}

static struct group *at(struct run_fold *fold, size_t i)
{
    return &fold->queue[(fold->head + i) % GROUPS_MAX];
}

static void drop_head(struct run_fold *fold)
{
    struct group *head = at(fold, 0);

    fold->nbytes -= head->nbytes;
    free(head->line);
    free(head->joined);
    fold->head = (fold->head + 1) % GROUPS_MAX;
    fold->count--;
}

void choir_run_fold_destroy(struct run_fold *fold)
{
    if (fold == NULL)
        return;
    while (fold->count > 0)
        drop_head(fold);
    free(fold->last);
    free(fold->alive);
    free(fold);
}

static uint64_t hash_of(const char *bytes, size_t nbytes) /* FNV-1a */
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < nbytes; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
    return hash;
}

/* "0-3,5" */
static void name_ranks(const struct run_fold *fold, const struct group *group, char *out,
                       size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < fold->nranks && used + 32 < size; i++) {
        int last = i;

        if (!group->joined[i])
            continue;
        while (last + 1 < fold->nranks && group->joined[last + 1])
            last++;
        used += (size_t)snprintf(out + used, size - used, last > i ? "%s%d-%d" : "%s%d",
                                 used > 0 ? "," : "", fold->first_rank + i,
                                 fold->first_rank + last);
        i = last;
    }
}

static void print_head(struct run_sink *sink, const struct run_style *style)
{
    struct run_fold *fold = sink->fold;
    struct group *head = at(fold, 0);
    char ranks[4096];
    int first = 0;

    while (!head->joined[first])
        first++;
    name_ranks(fold, head, ranks, sizeof(ranks));
    choir_run_sink_break(sink);
    choir_run_sink_prefix(sink, style, ranks, fold->first_rank + first);
    choir_run_sink_put(sink, head->line, head->nbytes);
    choir_run_sink_put(sink, "\n", 1);
    drop_head(fold);
}

static struct group *find(struct run_fold *fold, int local, uint64_t hash, const char *line,
                          size_t nbytes)
{
    for (size_t i = 0; i < fold->count; i++) {
        struct group *group = at(fold, i);

        if (group->number >= fold->last[local] && group->hash == hash && group->nbytes == nbytes &&
            memcmp(group->line, line, nbytes) == 0)
            return group;
    }
    return NULL;
}

static struct group *append(struct run_fold *fold, uint64_t hash, const char *line, size_t nbytes,
                            int64_t now)
{
    struct group *group = at(fold, fold->count);

    *group = (struct group){ .nbytes = nbytes, .number = fold->next, .hash = hash, .since = now };
    group->line = malloc(nbytes + 1);
    group->joined = calloc((size_t)fold->nranks, sizeof(*group->joined));
    if (group->line == NULL || group->joined == NULL) {
        free(group->line);
        free(group->joined);
        return NULL;
    }
    memcpy(group->line, line, nbytes);
    fold->next++;
    fold->count++;
    fold->nbytes += nbytes;
    return group;
}

bool choir_run_fold_add(struct run_sink *sink, const struct run_feed *feed, const char *line,
                        size_t nbytes, int64_t now)
{
    struct run_fold *fold = sink->fold;
    uint64_t hash = hash_of(line, nbytes);
    struct group *group = find(fold, feed->local, hash, line, nbytes);

    fold->first_rank = feed->rank - feed->local;
    if (group == NULL) {
        while (fold->count == GROUPS_MAX || fold->nbytes > BYTES_MAX)
            print_head(sink, feed->style);
        group = append(fold, hash, line, nbytes, now);
    }
    if (group == NULL) {
        choir_run_fold_flush(sink, feed->style, now, true);
        return false;
    }
    group->joined[feed->local] = true;
    group->njoined++;
    group->waited_for += fold->alive[feed->local];
    fold->last[feed->local] = group->number + 1;
    return true;
}

void choir_run_fold_flush(struct run_sink *sink, const struct run_style *style, int64_t now,
                          bool everything)
{
    struct run_fold *fold = sink->fold;

    while (fold->count > 0 && (everything || at(fold, 0)->waited_for >= fold->nalive ||
                               now - at(fold, 0)->since >= HOLD_MS))
        print_head(sink, style);
}

int64_t choir_run_fold_due(const struct run_fold *fold)
{
    return fold->count > 0 ? fold->queue[fold->head].since + HOLD_MS : INT64_MAX;
}

void choir_run_fold_leave(struct run_fold *fold, int local)
{
    if (!fold->alive[local])
        return;
    fold->alive[local] = false;
    fold->nalive--;
    for (size_t i = 0; i < fold->count; i++)
        at(fold, i)->waited_for -= at(fold, i)->joined[local];
}
