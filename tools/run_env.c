/*
 * run_env.c - the environment of a rank: who it is, how many there are, where the store is.
 *
 * Two vocabularies: ours (CHOIR_*), and torchrun's, so that programs written for that run unchanged.
 * The job token is in neither: a rank inherits it as a descriptor, whose number is CHOIR_TOKEN_FD.
 */
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct list {
    char **of;
    size_t count, size;
    bool failed;
};

static void add(struct list *list, char *entry)
{
    if (list->count + 1 >= list->size) {
        size_t size = list->size * 2 + 64;
        char **grown = realloc(list->of, size * sizeof(*grown));

        if (grown == NULL || entry == NULL) {
            list->failed = true;
            return;
        }
        list->of = grown;
        list->size = size;
    }
    list->of[list->count++] = entry;
    list->of[list->count] = NULL;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");

    return strncmp(a, b, n) == 0 && (b[n] == '=' || b[n] == '\0');
}

/* Replaces what is there under the same name. */
static void put(struct list *list, char *entry)
{
    for (size_t i = 0; entry != NULL && i < list->count; i++) {
        if (same_name(entry, list->of[i])) {
            list->of[i] = entry;
            return;
        }
    }
    add(list, entry);
}

__attribute__((format(printf, 2, 3))) static void set(struct list *list, const char *fmt, ...)
{
    char *entry = NULL;
    va_list args;

    va_start(args, fmt);
    if (vasprintf(&entry, fmt, args) < 0)
        entry = NULL;
    va_end(args);
    if (entry == NULL)
        list->failed = true;
    else
        put(list, entry);
}

static bool has(const struct list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (same_name(name, list->of[i]))
            return true;
    }
    return false;
}

static void drop(struct list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (same_name(name, list->of[i])) {
            list->of[i--] = list->of[--list->count];
            list->of[list->count] = NULL;
        }
    }
}

static void set_ours(struct list *env, const struct run_job *job, int index,
                     const struct run_world *world)
{
    set(env, "CHOIR_RANK=%d", world->first_rank + index);
    set(env, "CHOIR_SIZE=%d", world->nranks);
    set(env, "CHOIR_LOCAL_RANK=%d", index);
    set(env, "CHOIR_LOCAL_SIZE=%d", job->count);
    set(env, "CHOIR_NODE=%d", world->node);
    /* What an outer run may have set. */
    drop(env, "CHOIR_STORE");
    drop(env, "CHOIR_TOKEN_FD");
    drop(env, "CHOIR_TOKEN_FILE");
    if (world->store[0] != '\0')
        set(env, "CHOIR_STORE=%s", world->store);
    if (job->token_fd >= 0)
        set(env, "CHOIR_TOKEN_FD=%d", job->token_fd);
}

static void set_torchrun(struct list *env, const struct run_job *job, int index,
                         const struct run_world *world)
{
    int rank = world->first_rank + index;

    set(env, "RANK=%d", rank);
    set(env, "WORLD_SIZE=%d", world->nranks);
    set(env, "LOCAL_RANK=%d", index);
    set(env, "LOCAL_WORLD_SIZE=%d", job->count);
    set(env, "GROUP_RANK=%d", world->node);
    set(env, "GROUP_WORLD_SIZE=%d", world->nnodes);
    set(env, "ROLE_RANK=%d", rank);
    set(env, "ROLE_WORLD_SIZE=%d", world->nranks);
    set(env, "ROLE_NAME=default");
    set(env, "TORCHELASTIC_RESTART_COUNT=0");
    set(env, "TORCHELASTIC_MAX_RESTARTS=0");
    set(env, "TORCHELASTIC_RUN_ID=%s", world->run_id);
    drop(env, "MASTER_ADDR");
    drop(env, "MASTER_PORT");
    drop(env, "TORCHELASTIC_USE_AGENT_STORE");
    if (world->torch_port[0] != '\0') {
        set(env, "MASTER_ADDR=%s", world->torch_host);
        set(env, "MASTER_PORT=%s", world->torch_port);
        set(env, "TORCHELASTIC_USE_AGENT_STORE=True");
    }
    /* As torchrun: several ranks that each take all processors for their threads are slow. */
    if (job->count > 1 && !has(env, "OMP_NUM_THREADS"))
        set(env, "OMP_NUM_THREADS=1");
}

char **choir_run_environment(const struct run_job *job, int index, const struct run_world *world)
{
    struct list env = { 0 };

    for (char **entry = environ; *entry != NULL; entry++)
        add(&env, *entry);
    for (int i = 0; i < job->options->nenv; i++)
        put(&env, job->options->env[i]);
    set_ours(&env, job, index, world);
    set_torchrun(&env, job, index, world);
    return env.failed ? NULL : env.of;
}
