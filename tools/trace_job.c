/*
 * trace_job.c - see trace_job.h.
 */
#include "trace_job.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace_json.h"

enum { FILE_MAX = 1 << 30, NAME_LENGTH_MAX = 64, TEXT_MAX = 512 };

/* What a rank says of one of its groups, until groups are put together by name and members. */
struct reading {
    struct job *job;
    const struct json *root;
    const char *file;
    int rank; /* if the entries do not say */
    int64_t time_ns;
    const char *why;

    /* The entry before was most likely of the same group. */
    struct job_group *last_group;
    int64_t last_pg;
    int last_rank;
};

/* --- small things ------------------------------------------------------------------------------------ */

/* Room for one more in an array that doubles. */
static bool more(void *array, size_t count, size_t size)
{
    void **p = array, *grown;

    if ((count & (count - 1)) != 0) /* room is always a power of two */
        return true;
    grown = realloc(*p, (count == 0 ? 1 : 2 * count) * size);
    if (grown == NULL)
        return false;
    *p = grown;
    return true;
}

static const char *keep(struct job *job, const char *text)
{
    char *copy = strdup(text);

    if (copy == NULL || !more(&job->strings, job->nstrings, sizeof(*job->strings))) {
        free(copy);
        return NULL;
    }
    job->strings[job->nstrings++] = copy;
    return copy;
}

static void append(char *text, size_t size, const char *piece)
{
    size_t used = strlen(text);

    if (used < size)
        snprintf(text + used, size - used, "%s", piece);
}

static void append_number(char *text, size_t size, int64_t number)
{
    char piece[32];

    snprintf(piece, sizeof(piece), "%lld", (long long)number);
    append(text, size, piece);
}

int job_member(const struct job_group *group, int rank)
{
    if (rank < group->nranks && group->ranks[rank] == rank)
        return rank; /* most groups are the first one */
    for (int i = 0; i < group->nranks; i++) {
        if (group->ranks[i] == rank)
            return i;
    }
    return -1;
}

const struct job_rank *job_find_rank(const struct job *job, int rank)
{
    for (size_t i = 0; i < job->nranks; i++) {
        if (job->ranks[i].rank == rank)
            return &job->ranks[i];
    }
    return NULL;
}

/* --- groups ------------------------------------------------------------------------------------------ */

static bool same_ranks(const struct job_group *group, const int *ranks, int nranks)
{
    return group->nranks == nranks &&
           memcmp(group->ranks, ranks, (size_t)nranks * sizeof(*ranks)) == 0;
}

/* Takes `ranks` over. NULL: no memory. */
static struct job_group *new_group(const char *name, int *ranks, int nranks)
{
    struct job_group *group = calloc(1, sizeof(*group));
    int64_t *last = malloc(((size_t)nranks + 1) * sizeof(*last));

    if (group == NULL || last == NULL) {
        free(group);
        free(last);
        free(ranks);
        return NULL;
    }
    for (int i = 0; i < nranks; i++)
        last[i] = JOB_UNKNOWN;
    *group = (struct job_group){ .name = name, .ranks = ranks, .nranks = nranks, .last = last };
    return group;
}

static void free_group(struct job_group *group)
{
    if (group == NULL)
        return;
    free(group->ranks);
    free(group->last);
    free(group);
}

/* Takes `ranks` over. Groups of one name but other members are others. NULL: no memory. */
static struct job_group *have_group(struct job *job, const char *name, int *ranks, int nranks)
{
    struct job_group *group;

    for (size_t i = 0; i < job->ngroups; i++) {
        group = job->groups[i];
        if (strcmp(group->name, name) == 0 && same_ranks(group, ranks, nranks)) {
            free(ranks);
            return group;
        }
    }
    group = new_group(name, ranks, nranks);
    if (group == NULL || !more(&job->groups, job->ngroups, sizeof(*job->groups))) {
        free_group(group);
        return NULL;
    }
    job->groups[job->ngroups++] = group;
    return group;
}

static int *ranks_of_list(const struct json *list, int *nranks_out)
{
    int *ranks = NULL;
    size_t n = 0;

    for (const struct json *e = list->first; e != NULL; e = e->next) {
        if (e->kind != JSON_NUMBER || e->number < 0 || e->number > INT_MAX || n == INT_MAX)
            continue;
        if (!more(&ranks, n, sizeof(*ranks))) {
            free(ranks);
            return NULL;
        }
        ranks[n++] = (int)e->number;
    }
    *nranks_out = (int)n;
    return ranks != NULL ? ranks : calloc(1, sizeof(*ranks));
}

/* "[0, 1, 2]" */
static int *ranks_of_text(const char *text, int *nranks_out)
{
    int *ranks = NULL;
    size_t n = 0;

    while (*text != '\0') {
        char *end;
        long rank = strtol(text, &end, 10);

        if (end == text) {
            text++;
            continue;
        }
        text = end;
        if (rank < 0 || rank > INT_MAX || n == INT_MAX)
            continue;
        if (!more(&ranks, n, sizeof(*ranks))) {
            free(ranks);
            return NULL;
        }
        ranks[n++] = (int)rank;
    }
    *nranks_out = (int)n;
    return ranks != NULL ? ranks : calloc(1, sizeof(*ranks));
}

static struct job_group *group_of_description(struct job *job, const struct json *description)
{
    const struct json *list = json_get(description, "ranks", JSON_LIST);
    const char *name = json_get_text(description, "name");
    int nranks, *ranks = list != NULL && name != NULL ? ranks_of_list(list, &nranks) : NULL;

    return ranks != NULL ? have_group(job, name, ranks, nranks) : NULL;
}

/* What the entry's rank calls this number, in our own list; otherwise by name, from pg_config. */
static struct job_group *look_up_group(const struct reading *r, const struct json *entry, int rank)
{
    const struct json *choir = json_get(r->root, "choir", JSON_MAP);
    const struct json *list = json_get(choir, "groups", JSON_LIST);
    const struct json *pair = json_get(entry, "process_group", JSON_LIST), *config;
    const char *name, *text;
    int nranks, *ranks;

    for (const struct json *d = list != NULL ? list->first : NULL; d != NULL; d = d->next) {
        if (json_get_number(d, "pg_id", -1) == json_get_number(entry, "pg_id", -2) &&
            json_get_number(d, "rank", -1) == rank)
            return group_of_description(r->job, d);
    }
    if (pair == NULL || pair->first == NULL || pair->first->kind != JSON_TEXT)
        return NULL;
    name = pair->first->text;
    config = json_get(json_get(r->root, "pg_config", JSON_MAP), name, JSON_MAP);
    text = json_get_text(config, "ranks");
    ranks = ranks_of_text(text != NULL ? text : "", &nranks);
    return ranks != NULL ? have_group(r->job, name, ranks, nranks) : NULL;
}

static struct job_group *find_group(struct reading *r, const struct json *entry, int rank)
{
    int64_t pg = json_get_number(entry, "pg_id", -1);

    if (r->last_group == NULL || pg < 0 || pg != r->last_pg || rank != r->last_rank) {
        r->last_group = look_up_group(r, entry, rank);
        r->last_pg = pg;
        r->last_rank = rank;
    }
    return r->last_group;
}

/* How far each rank got, also where its ring has nothing left of it. */
static void read_groups(const struct reading *r)
{
    const struct json *choir = json_get(r->root, "choir", JSON_MAP);
    const struct json *list = json_get(choir, "groups", JSON_LIST);

    for (const struct json *d = list != NULL ? list->first : NULL; d != NULL; d = d->next) {
        int64_t rank = json_get_number(d, "rank", -1);
        struct job_group *group = group_of_description(r->job, d);
        int member;

        if (group == NULL || rank < 0 || rank > INT_MAX)
            continue;
        member = job_member(group, (int)rank);
        if (member >= 0)
            group->last[member] = json_get_number(d, "last_collective", JOB_UNKNOWN);
    }
}

/* --- operations -------------------------------------------------------------------------------------- */

/* [2, 3, 5] is "2x3x5" */
static void append_shape(char *text, size_t size, const struct json *shape)
{
    for (const struct json *e = shape->first; e != NULL; e = e->next) {
        if (e != shape->first)
            append(text, size, "x");
        append_number(text, size, e->number);
    }
}

/* "1024 Float", "10, 20 and more Float"; nothing if nothing is moved. */
static void describe_side(const struct json *entry, bool out, char *text, size_t size)
{
    const struct json *sizes = json_get(entry, out ? "output_sizes" : "input_sizes", JSON_LIST);
    const struct json *types = json_get(entry, out ? "output_dtypes" : "input_dtypes", JSON_LIST);
    int64_t count = json_get_number(entry, out ? "outputs" : "inputs", 0), n = 0;

    if (sizes == NULL || types == NULL || types->first == NULL)
        return;
    for (const struct json *e = sizes->first; e != NULL; e = e->next, n++) {
        if (n > 0)
            append(text, size, ", ");
        append_shape(text, size, e);
    }
    if (n > 1 && n < count)
        append(text, size, " and more");
    if (types->first->kind == JSON_TEXT) {
        append(text, size, " ");
        append(text, size, types->first->text);
    }
}

/* Which sizes all members have alike: 'i'nput, 'o'utput, or neither: only the type is. */
static char side_that_agrees(const char *name)
{
    static const struct {
        const char *name;
        char side;
    } table[] = {
        { "all_reduce", 'i' },
        { "allreduce_coalesced", 'i' },
        { "broadcast", 'o' },
        { "reduce", 'i' },
        { "all_gather", 'o' },
        { "_all_gather_base", 'i' },
        { "reduce_scatter", 'i' },
        { "_reduce_scatter_base", 'i' },
        { "reduce_scatter_tensor_coalesced", 'i' },
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].name, name) == 0)
            return table[i].side;
    }
    return '-';
}

static void describe_agreement(const struct json *entry, const char *name, char *text, size_t size)
{
    const struct json *root = json_get(entry, "root", JSON_NUMBER);
    const char *reduction = json_get_text(entry, "reduction");
    char side = side_that_agrees(name), inside[TEXT_MAX] = "";

    if (side != '-')
        describe_side(entry, side == 'o', inside, sizeof(inside));
    if (reduction != NULL) {
        append(inside, sizeof(inside), inside[0] != '\0' ? ", " : "");
        append(inside, sizeof(inside), reduction);
    }
    if (root != NULL) {
        append(inside, sizeof(inside), inside[0] != '\0' ? ", root " : "root ");
        append_number(inside, sizeof(inside), root->number);
    }
    snprintf(text, size, "%s", name);
    if (inside[0] != '\0') {
        append(text, size, " (");
        append(text, size, inside);
        append(text, size, ")");
    }
}

/* "choir:send 0->1": the name, and for sends and receives the ranks of the group behind it. */
static void split_name(const char *profiling, char *name, size_t size, int *peer_out)
{
    const char *begin = strchr(profiling, ':'), *arrow;
    size_t n;

    begin = begin != NULL ? begin + 1 : profiling;
    n = strcspn(begin, " ");
    snprintf(name, size, "%.*s", (int)(n < size ? n : size - 1), begin);
    arrow = strpbrk(begin + n, "<-");
    *peer_out = -1;
    if (arrow != NULL && arrow[1] != '\0' && arrow[2] >= '0' && arrow[2] <= '9')
        *peer_out = (int)strtol(arrow + 2, NULL, 10);
}

static enum job_state state_of(const char *text)
{
    if (text != NULL && strcmp(text, "completed") == 0)
        return JOB_COMPLETED;
    return text != NULL && strcmp(text, "started") == 0 ? JOB_STARTED : JOB_SCHEDULED;
}

static int rank_of(const struct reading *r, const struct json *entry)
{
    int64_t rank = json_get_number(entry, "rank", r->rank);

    return rank >= 0 && rank <= INT_MAX ? (int)rank : -1;
}

static bool describe_op(struct job *job, const struct json *entry, struct job_op *op)
{
    const char *profiling = json_get_text(entry, "profiling_name");
    char name[NAME_LENGTH_MAX], what[TEXT_MAX] = "", agreement[TEXT_MAX];
    int peer;

    split_name(profiling != NULL ? profiling : "?", name, sizeof(name), &peer);
    describe_side(entry, false, what, sizeof(what));
    if (what[0] == '\0')
        describe_side(entry, true, what, sizeof(what));
    describe_agreement(entry, name, agreement, sizeof(agreement));
    op->peer = peer >= 0 && peer < op->group->nranks ? op->group->ranks[peer] : -1;
    op->is_send = strcmp(name, "send") == 0;
    op->name = keep(job, name);
    op->what = keep(job, what);
    op->agreement = keep(job, agreement);
    return op->name != NULL && op->what != NULL && op->agreement != NULL;
}

static bool add_rank(const struct reading *r, int64_t rank)
{
    struct job *job = r->job;

    if (rank < 0 || rank > INT_MAX || job_find_rank(job, (int)rank) != NULL)
        return true;
    if (!more(&job->ranks, job->nranks, sizeof(*job->ranks)))
        return false;
    job->ranks[job->nranks++] = (struct job_rank){
        .rank = (int)rank, .file = r->file, .why = r->why, .time_ns = r->time_ns
    };
    return true;
}

static bool read_op(struct reading *r, const struct json *entry)
{
    struct job *job = r->job;
    struct job_op op = { .rank = rank_of(r, entry) };
    int64_t ended;

    op.group = op.rank >= 0 ? find_group(r, entry, op.rank) : NULL;
    if (op.group == NULL || job_member(op.group, op.rank) < 0)
        return true; /* nothing that could be said of it */
    if (!add_rank(r, op.rank))
        return false;
    op.is_p2p = json_get(entry, "is_p2p", JSON_TRUE) != NULL;
    op.number = json_get_number(entry, op.is_p2p ? "p2p_seq_id" : "collective_seq_id", -1);
    op.tag = json_get_number(entry, "tag", 0);
    op.state = state_of(json_get_text(entry, "state"));
    op.error = json_get_text(entry, "error");
    op.created_ns = json_get_number(entry, "time_created_ns", 0);
    ended = json_get_number(entry, "time_discovered_completed_ns", 0);
    op.ended_ns = ended != 0 ? ended : json_get_number(entry, "time_failed_ns", 0);
    if (!describe_op(job, entry, &op) || !more(&job->ops, job->nops, sizeof(*job->ops)))
        return false;
    job->ops[job->nops++] = op;
    return true;
}

/* --- files ------------------------------------------------------------------------------------------- */

static int rank_in_name(const char *name)
{
    size_t end = strlen(name), begin;

    while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9') && name[end - 1] != '/')
        end--; /* such as .json */
    for (begin = end; begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9';)
        begin--;
    return begin < end && end - begin < 10 ? (int)strtol(name + begin, NULL, 10) : -1;
}

static bool read_ranks(struct reading *r)
{
    const struct json *choir = json_get(r->root, "choir", JSON_MAP);
    const struct json *list = json_get(choir, "ranks", JSON_LIST);

    r->time_ns = json_get_number(choir, "time_ns", 0);
    r->why = json_get_text(choir, "why");
    r->rank = -1;
    if (list == NULL) {
        r->rank = rank_in_name(r->file);
        return add_rank(r, r->rank);
    }
    for (const struct json *e = list->first; e != NULL; e = e->next) {
        if (e->kind == JSON_NUMBER && !add_rank(r, e->number))
            return false;
    }
    return true;
}

static bool read_document(struct reading *r)
{
    const struct json *entries = json_get(r->root, "entries", JSON_LIST);

    if (!read_ranks(r))
        return false;
    read_groups(r);
    for (const struct json *e = entries->first; e != NULL; e = e->next) {
        if (!read_op(r, e))
            return false;
    }
    return true;
}

bool job_add(struct job *job, const char *name, const char *text, size_t nbytes, char *why,
             size_t why_size)
{
    char reason[128];
    struct json_file *file = json_parse(text, nbytes, reason, sizeof(reason));
    struct reading r = { .job = job, .file = name };

    if (file == NULL) {
        snprintf(why, why_size, "%s is not a flight record in JSON: %s", name, reason);
        return false;
    }
    if (json_get(json_root(file), "entries", JSON_LIST) == NULL) {
        json_free(file);
        snprintf(why, why_size, "%s is not a flight record: it has no \"entries\"", name);
        return false;
    }
    r.root = json_root(file);
    if (!more(&job->files, job->nfiles, sizeof(*job->files))) {
        json_free(file);
        snprintf(why, why_size, "%s: no memory", name);
        return false;
    }
    job->files[job->nfiles++] = file;
    if (!read_document(&r)) {
        snprintf(why, why_size, "%s: no memory", name);
        return false;
    }
    return true;
}

static int compare_ranks(const void *a, const void *b)
{
    const struct job_rank *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int compare_ops(const void *a, const void *b)
{
    const struct job_op *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

void job_arrange(struct job *job)
{
    if (job->nranks > 1)
        qsort(job->ranks, job->nranks, sizeof(*job->ranks), compare_ranks);
    for (size_t i = 0; i < job->nops; i++)
        job->ops[i].order = i;
    if (job->nops > 1)
        qsort(job->ops, job->nops, sizeof(*job->ops), compare_ops);
    for (size_t i = 0, r = 0; i < job->nops; i++) {
        while (job->ranks[r].rank != job->ops[i].rank)
            r++;
        if (job->ranks[r].nops++ == 0)
            job->ranks[r].first_op = i;
    }
}

static char *read_file(const char *path, size_t *nbytes_out)
{
    FILE *file = fopen(path, "rb");
    size_t used = 0, room = 1 << 16;
    char *text = file != NULL ? malloc(room) : NULL;

    while (text != NULL && room <= FILE_MAX) {
        size_t n = fread(text + used, 1, room - used, file);
        char *grown;

        used += n;
        if (used < room)
            break;
        grown = realloc(text, room *= 2);
        if (grown == NULL)
            free(text);
        text = grown;
    }
    if (text != NULL && ferror(file) != 0) {
        free(text);
        text = NULL;
    }
    if (file != NULL)
        fclose(file);
    *nbytes_out = used;
    return text;
}

bool job_read(struct job *job, char *const *paths, size_t npaths, char *why, size_t why_size)
{
    for (size_t i = 0; i < npaths; i++) {
        size_t nbytes;
        char *text = read_file(paths[i], &nbytes);
        bool good;

        if (text == NULL) {
            snprintf(why, why_size, "%s: %s", paths[i], strerror(errno));
            return false;
        }
        good = job_add(job, paths[i], text, nbytes, why, why_size);
        free(text);
        if (!good)
            return false;
    }
    job_arrange(job);
    return true;
}

void job_free(struct job *job)
{
    for (size_t i = 0; i < job->ngroups; i++)
        free_group(job->groups[i]);
    for (size_t i = 0; i < job->nfiles; i++)
        json_free(job->files[i]);
    for (size_t i = 0; i < job->nstrings; i++)
        free(job->strings[i]);
    free(job->ranks);
    free(job->groups);
    free(job->ops);
    free(job->files);
    free(job->strings);
    *job = (struct job){ 0 };
}
