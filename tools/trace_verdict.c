/*
 * trace_verdict.c - see trace_verdict.h.
 */
#include "trace_verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The collectives of one group, member by member. */
struct member {
    const struct job_op **ops; /* rising numbers */
    size_t nops, at;           /* `at`: the walk's place */
    int64_t last;              /* number of its last; JOB_UNKNOWN: there is no record of it */
    const struct job_op *now;  /* at the walk's number; NULL: it has none */
};

struct walk {
    const struct job *job;
    const struct job_group *group;
    struct member *members;
    int64_t from; /* below it a ring may have lost something */
    bool is_empty;
};

/* --- words -------------------------------------------------------------------------------------------- */

const char *finding_name(enum finding_kind kind)
{
    switch (kind) {
    case FINDING_SKIPPED:
        return "skipped";
    case FINDING_MISMATCH:
        return "mismatch";
    case FINDING_BEHIND:
        return "behind";
    case FINDING_UNMATCHED:
        return "unmatched";
    case FINDING_NO_RECORD:
        return "no record";
    case FINDING_FAILED:
        return "failed";
    case FINDING_UNDER_WAY:
        return "under way";
    }
    return "?";
}

bool op_is_waiting(const struct job_op *op)
{
    return op->state != JOB_COMPLETED;
}

int64_t op_age_ns(const struct job *job, const struct job_op *op)
{
    const struct job_rank *rank = job_find_rank(job, op->rank);
    int64_t end = op->ended_ns != 0 ? op->ended_ns : rank != NULL ? rank->time_ns : 0;

    return op->created_ns > 0 && end > op->created_ns ? end - op->created_ns : 0;
}

static void put_ranks(FILE *out, const int *ranks, size_t n)
{
    fputs(n == 1 ? "rank " : "ranks ", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%d", i == 0 ? "" : i + 1 == n ? " and " : ", ", ranks[i]);
}

static void put_age(FILE *out, int64_t ns)
{
    if (ns < 1000000000)
        fprintf(out, "%lld ms", (long long)(ns / 1000000));
    else
        fprintf(out, "%.1f s", (double)ns / 1e9);
}

/* all_reduce number 17 of group "world" (1024 Float) */
static void put_op(FILE *out, const struct job_op *op)
{
    fprintf(out, "%s", op->name);
    if (op->is_p2p && op->peer >= 0)
        fprintf(out, " %s rank %d", op->is_send ? "to" : "from", op->peer);
    fprintf(out, " number %lld of group \"%s\"", (long long)op->number, op->group->name);
    if (op->what[0] != '\0')
        fprintf(out, " (%s)", op->what);
}

/* --- findings ----------------------------------------------------------------------------------------- */

static bool add_rank(int **ranks, size_t *n, int rank)
{
    int *grown = realloc(*ranks, (*n + 1) * sizeof(*grown));

    if (grown == NULL)
        return false;
    *ranks = grown;
    grown[(*n)++] = rank;
    return true;
}

static struct finding *new_finding(struct verdict *v, enum finding_kind kind,
                                   const struct job_op *op)
{
    struct finding *grown = realloc(v->findings, (v->nfindings + 1) * sizeof(*grown));

    if (grown == NULL)
        return NULL;
    v->findings = grown;
    grown[v->nfindings] = (struct finding){ .kind = kind, .op = op };
    return &grown[v->nfindings++];
}

/* The last thing a rank did is not over: it stands somewhere else. */
static const struct job_op *stands_in(const struct job *job, int rank)
{
    const struct job_rank *r = job_find_rank(job, rank);
    const struct job_op *last = r != NULL && r->nops > 0 ? &job->ops[r->first_op + r->nops - 1]
                                                         : NULL;

    return last != NULL && op_is_waiting(last) ? last : NULL;
}

/* How those who are in it fare: "wait since 12.3 s", or what it came to. */
static void put_fate(FILE *out, const struct walk *w, const char *they)
{
    const struct job_op *oldest = NULL;

    for (int i = 0; i < w->group->nranks; i++) {
        const struct job_op *op = w->members[i].now;

        if (op != NULL && op_is_waiting(op) &&
            (oldest == NULL || op_age_ns(w->job, op) > op_age_ns(w->job, oldest)))
            oldest = op;
    }
    if (oldest == NULL) {
        fprintf(out, ", which %s completed", they);
    } else if (oldest->error != NULL) {
        fprintf(out, ", in which %s waited ", they);
        put_age(out, op_age_ns(w->job, oldest));
        fprintf(out, ", until it failed (%s)", oldest->error);
    } else {
        fprintf(out, ", in which %s wait%s since ", they,
                strncmp(they, "rank ", 5) == 0 ? "s" : "");
        put_age(out, op_age_ns(w->job, oldest));
    }
}

static char *ranks_as_text(const int *ranks, size_t n)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return NULL;
    put_ranks(out, ranks, n);
    fclose(out);
    return text;
}

static void put_where_it_stands(FILE *out, const struct job *job, const struct finding *f)
{
    const struct job_op *there = f->nculprits == 1 ? stands_in(job, f->culprits[0]) : NULL;

    if (there == NULL || there->error != NULL)
        return;
    fprintf(out, "; it waits in ");
    put_op(out, there);
}

/* Further behind than the rings of the others reach. */
static void put_gap(FILE *out, const struct walk *w, const struct finding *f)
{
    int64_t last = w->members[job_member(w->group, f->culprits[0])].last;

    if (f->nculprits == 1 && last > 0 && last + 1 < f->op->number)
        fprintf(out, " (its last was number %lld)", (long long)last);
}

/* The line for a collective, by kind. `odd` is what the culprits called instead. */
static bool put_collective(const struct walk *w, struct finding *f, const struct job_op *odd)
{
    char *others = ranks_as_text(f->others, f->nothers);
    size_t size;
    FILE *out = others != NULL ? open_memstream(&f->text, &size) : NULL;

    if (out == NULL) {
        free(others);
        return false;
    }
    if (f->nculprits > 0)
        put_ranks(out, f->culprits, f->nculprits);
    switch (f->kind) {
    case FINDING_SKIPPED:
        fprintf(out, " did not call ");
        put_op(out, f->op);
        fprintf(out, " but went on to %s", odd->agreement);
        put_fate(out, w, others);
        break;
    case FINDING_MISMATCH:
        fprintf(out, " called %s as number %lld of group \"%s\", where %s called %s",
                odd->agreement, (long long)f->op->number, f->op->group->name, others,
                f->op->agreement);
        break;
    case FINDING_BEHIND:
        fprintf(out, " did not call ");
        put_op(out, f->op);
        put_gap(out, w, f);
        put_fate(out, w, others);
        put_where_it_stands(out, w->job, f);
        break;
    case FINDING_NO_RECORD:
        fprintf(out, " left no record: nobody knows whether %s called ",
                f->nculprits == 1 ? "it" : "they");
        put_op(out, f->op);
        put_fate(out, w, others);
        break;
    case FINDING_FAILED:
        fprintf(out, "%s called ", others);
        put_op(out, f->op);
        fprintf(out, " alike, but it failed after ");
        put_age(out, op_age_ns(w->job, f->op));
        fprintf(out, " (%s)", f->op->error);
        break;
    case FINDING_UNDER_WAY:
        fprintf(out, "%s are in ", others);
        put_op(out, f->op);
        fprintf(out, " since ");
        put_age(out, op_age_ns(w->job, f->op));
        fprintf(out, "; their calls agree");
        break;
    case FINDING_UNMATCHED:
        break;
    }
    fclose(out);
    free(others);
    return true;
}

/* --- one group's collectives --------------------------------------------------------------------------- */

static bool gather_members(struct walk *w)
{
    const struct job *job = w->job;
    int n = w->group->nranks;

    w->members = calloc((size_t)n + 1, sizeof(*w->members));
    if (w->members == NULL)
        return false;
    for (int i = 0; i < n; i++)
        w->members[i].last = job_find_rank(job, w->group->ranks[i]) == NULL ? JOB_UNKNOWN
                             : w->group->last[i] != JOB_UNKNOWN             ? w->group->last[i]
                                                                            : -1;
    for (size_t i = 0; i < job->nops; i++) {
        const struct job_op *op = &job->ops[i];
        struct member *m;

        if (op->group != w->group || op->is_p2p || op->number < 0)
            continue;
        m = &w->members[job_member(w->group, op->rank)];
        if ((m->nops & (m->nops - 1)) == 0) {
            const struct job_op **grown = realloc(m->ops, (m->nops == 0 ? 1 : 2 * m->nops) *
                                                              sizeof(*m->ops));

            if (grown == NULL)
                return false;
            m->ops = grown;
        }
        m->ops[m->nops++] = op;
        if (op->number > m->last)
            m->last = op->number;
    }
    return true;
}

static int compare_numbers(const void *a, const void *b)
{
    const struct job_op *x = *(const struct job_op *const *)a;
    const struct job_op *y = *(const struct job_op *const *)b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* From the first number of which no ring has lost anything. Who never called any has lost nothing. */
static void find_beginning(struct walk *w)
{
    w->from = 0;
    w->is_empty = true;
    for (int i = 0; i < w->group->nranks; i++) {
        struct member *m = &w->members[i];

        if (m->nops == 0)
            continue;
        qsort(m->ops, m->nops, sizeof(*m->ops), compare_numbers);
        w->is_empty = false;
        if (m->ops[0]->number > w->from)
            w->from = m->ops[0]->number;
    }
}

static void go_to(struct walk *w, int64_t number)
{
    for (int i = 0; i < w->group->nranks; i++) {
        struct member *m = &w->members[i];

        while (m->at < m->nops && m->ops[m->at]->number < number)
            m->at++;
        m->now = m->at < m->nops && m->ops[m->at]->number == number ? m->ops[m->at] : NULL;
    }
}

/* The next number that anybody called; false if there is none. */
static bool next_number(const struct walk *w, int64_t *number_io)
{
    int64_t next = INT64_MAX;

    for (int i = 0; i < w->group->nranks; i++) {
        const struct member *m = &w->members[i];
        size_t at = m->at;

        while (at < m->nops && m->ops[at]->number <= *number_io)
            at++;
        if (at < m->nops && m->ops[at]->number < next)
            next = m->ops[at]->number;
    }
    if (next == INT64_MAX)
        return false;
    *number_io = next;
    return true;
}

static bool differs(const struct job_op *op, const struct job_op *common)
{
    return op != NULL && strcmp(op->agreement, common->agreement) != 0;
}

static bool all_agree(const struct walk *w, const struct job_op **first_out)
{
    *first_out = NULL;
    for (int i = 0; i < w->group->nranks; i++) {
        const struct job_op *op = w->members[i].now;

        if (*first_out == NULL)
            *first_out = op;
        else if (differs(op, *first_out))
            return false;
    }
    return true;
}

/* What most of them called; the lowest rank's, if none is ahead. */
static const struct job_op *most_called(const struct walk *w)
{
    const struct job_op *best = NULL;
    int most = 0;

    if (all_agree(w, &best))
        return best;

    for (int i = 0; i < w->group->nranks; i++) {
        const struct job_op *mine = w->members[i].now;
        int same = 0;

        for (int j = 0; mine != NULL && j < w->group->nranks; j++) {
            const struct job_op *other = w->members[j].now;

            same += other != NULL && strcmp(other->agreement, mine->agreement) == 0;
        }
        if (same > most) {
            most = same;
            best = mine;
        }
    }
    return best;
}

static const struct job_op *next_of(const struct walk *w, const struct job_op *op)
{
    const struct member *m = &w->members[job_member(w->group, op->rank)];

    return m->at + 1 < m->nops ? m->ops[m->at + 1] : NULL;
}

/* Did `what` and then `next` come one after the other before, as a matter of course? */
static bool used_to_follow(const struct member *m, const char *what, const char *next)
{
    for (size_t i = 0; i + 1 < m->at; i++) {
        if (strcmp(m->ops[i]->agreement, what) == 0 && strcmp(m->ops[i + 1]->agreement, next) == 0)
            return true;
    }
    return false;
}

/* The odd one called what the others would have called next: it left one out. */
static bool has_skipped(const struct walk *w, const struct job_op *common, const struct job_op *odd)
{
    const struct job_op *next = next_of(w, common);

    if (next != NULL)
        return strcmp(next->agreement, odd->agreement) == 0;
    return used_to_follow(&w->members[job_member(w->group, odd->rank)], common->agreement,
                          odd->agreement);
}

/* Everybody who is at this number: those who called `common` are the others, those who did not the culprits. */
static bool sort_out(const struct walk *w, struct finding *f, const struct job_op *odd)
{
    for (int i = 0; i < w->group->nranks; i++) {
        const struct member *m = &w->members[i];
        int rank = w->group->ranks[i];
        bool is_culprit = odd != NULL ? m->now != NULL && !differs(m->now, odd)
                          : f->kind == FINDING_BEHIND
                              ? m->last != JOB_UNKNOWN && m->last < f->op->number
                          : f->kind == FINDING_NO_RECORD ? m->last == JOB_UNKNOWN
                                                         : false;

        if (is_culprit && !add_rank(&f->culprits, &f->nculprits, rank))
            return false;
        if (m->now != NULL && !differs(m->now, f->op) && !add_rank(&f->others, &f->nothers, rank))
            return false;
    }
    if (f->kind == FINDING_BEHIND)
        f->held_up = stands_in(w->job, f->culprits[0]) != NULL;
    return true;
}

static bool tell(struct verdict *v, const struct walk *w, enum finding_kind kind,
                 const struct job_op *common, const struct job_op *odd)
{
    struct finding *f = new_finding(v, kind, common);

    return f != NULL && sort_out(w, f, odd) && put_collective(w, f, odd);
}

/* Records are not written at one moment: who wrote his before the others called has done nothing wrong. */
static bool has_not_come(const struct walk *w, const struct member *m, int rank,
                         const struct job_op *common)
{
    const struct job_rank *r = job_find_rank(w->job, rank);

    return m->last != JOB_UNKNOWN && m->last < common->number &&
           (r->time_ns == 0 || r->time_ns > common->created_ns);
}

/* The walk's number. *found_out: there is something, and the walk is over. False: no memory. */
static bool look_at_number(struct verdict *v, const struct walk *w, bool *found_out)
{
    const struct job_op *common = most_called(w);

    *found_out = true;
    for (int i = 0; common != NULL && i < w->group->nranks; i++) {
        const struct job_op *odd = w->members[i].now;

        if (differs(odd, common))
            return tell(v, w, has_skipped(w, common, odd) ? FINDING_SKIPPED : FINDING_MISMATCH,
                        common, odd);
    }
    for (int i = 0; common != NULL && i < w->group->nranks; i++) {
        if (has_not_come(w, &w->members[i], w->group->ranks[i], common))
            return tell(v, w, FINDING_BEHIND, common, NULL);
    }
    *found_out = false;
    return true;
}

/* Nobody differs: the last number may still say something. */
static bool look_at_end(struct verdict *v, const struct walk *w)
{
    const struct job_op *common = most_called(w), *waiting = NULL, *failed = NULL;
    bool all_there = true;

    for (int i = 0; common != NULL && i < w->group->nranks; i++) {
        const struct job_op *op = w->members[i].now;

        all_there = all_there && w->members[i].last != JOB_UNKNOWN;
        if (op != NULL && op->error != NULL)
            failed = op;
        else if (op != NULL && op_is_waiting(op))
            waiting = op;
    }
    if (!all_there && (failed != NULL || waiting != NULL))
        return tell(v, w, FINDING_NO_RECORD, failed != NULL ? failed : waiting, NULL);
    if (failed != NULL)
        return tell(v, w, FINDING_FAILED, failed, NULL);
    return waiting == NULL || tell(v, w, FINDING_UNDER_WAY, waiting, NULL);
}

static bool look_at_group(struct verdict *v, struct walk *w)
{
    bool found = false;
    int64_t number;

    if (!gather_members(w))
        return false;
    find_beginning(w);
    if (w->is_empty)
        return true;
    number = w->from;
    do {
        go_to(w, number);
        if (!look_at_number(v, w, &found))
            return false;
    } while (!found && next_number(w, &number));
    return found || look_at_end(v, w);
}

static void free_walk(struct walk *w)
{
    for (int i = 0; w->members != NULL && i < w->group->nranks; i++)
        free(w->members[i].ops);
    free(w->members);
}

/* --- sends and receives --------------------------------------------------------------------------------- */

/* The peer's half that is not over either; NULL: it has none. */
static const struct job_op *other_half(const struct job *job, const struct job_op *op)
{
    const struct job_rank *peer = job_find_rank(job, op->peer);

    for (size_t i = 0; i < peer->nops; i++) {
        const struct job_op *other = &job->ops[peer->first_op + i];

        if (other->is_p2p && other->group == op->group && other->is_send != op->is_send &&
            other->tag == op->tag && (other->peer == op->rank || other->peer < 0) &&
            op_is_waiting(other))
            return other;
    }
    return NULL;
}

static bool tell_unmatched(struct verdict *v, const struct job *job, const struct job_op *op,
                           const struct job_op *half)
{
    struct finding *f = new_finding(v, FINDING_UNMATCHED, op);
    size_t size;
    FILE *out;

    if (f == NULL || !add_rank(&f->culprits, &f->nculprits, op->peer) ||
        !add_rank(&f->others, &f->nothers, op->rank) ||
        (out = open_memstream(&f->text, &size)) == NULL)
        return false;
    f->held_up = half == NULL && stands_in(job, op->peer) != NULL;
    if (half != NULL)
        fprintf(out, "rank %d %s %s, but rank %d %s %s", op->peer,
                half->is_send ? "sends" : "receives", half->what, op->rank,
                op->is_send ? "sends" : "receives", op->what);
    else
        fprintf(out, "rank %d has not %s what rank %d %s", op->peer,
                op->is_send ? "received" : "sent", op->rank, op->is_send ? "sends" : "waits for");
    fprintf(out, " in ");
    put_op(out, op);
    fprintf(out, " with tag %lld, %s ", (long long)op->tag, op->error != NULL ? "for" : "since");
    put_age(out, op_age_ns(job, op));
    if (op->error != NULL)
        fprintf(out, ", until it failed (%s)", op->error);
    if (half == NULL)
        put_where_it_stands(out, job, f);
    fclose(out);
    return true;
}

/* The oldest of each rank that is not over. */
static bool look_at_transfers(struct verdict *v, const struct job *job)
{
    for (size_t r = 0; r < job->nranks; r++) {
        for (size_t i = 0; i < job->ranks[r].nops; i++) {
            const struct job_op *op = &job->ops[job->ranks[r].first_op + i];
            const struct job_op *half;

            if (!op->is_p2p || !op_is_waiting(op) || op->peer < 0 ||
                job_find_rank(job, op->peer) == NULL)
                continue;
            half = other_half(job, op);
            if (half != NULL && (strcmp(half->what, op->what) == 0 || half->rank < op->rank))
                break; /* it goes on, or has been told */
            if (!tell_unmatched(v, job, op, half))
                return false;
            break;
        }
    }
    return true;
}

/* --- all -------------------------------------------------------------------------------------------------- */

static int weight(const struct finding *f)
{
    static const int weights[] = {
        [FINDING_SKIPPED] = 0,   [FINDING_MISMATCH] = 0,  [FINDING_BEHIND] = 1,
        [FINDING_UNMATCHED] = 1, [FINDING_NO_RECORD] = 2, [FINDING_FAILED] = 5,
        [FINDING_UNDER_WAY] = 6,
    };

    return weights[f->kind] + (f->held_up ? 2 : 0);
}

static int compare_findings(const void *a, const void *b)
{
    const struct finding *x = a, *y = b;

    if (weight(x) != weight(y))
        return weight(x) - weight(y);
    return (x->op->created_ns > y->op->created_ns) - (x->op->created_ns < y->op->created_ns);
}

static char *describe_rank(const struct job *job, const struct job_rank *rank)
{
    const struct job_op *last = rank->nops > 0 ? &job->ops[rank->first_op + rank->nops - 1] : NULL;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return NULL;
    fprintf(out, "rank %d: ", rank->rank);
    if (last == NULL) {
        fprintf(out, "no operation recorded");
    } else if (last->error != NULL) {
        put_op(out, last);
        fprintf(out, " failed after ");
        put_age(out, op_age_ns(job, last));
        fprintf(out, " (%s)", last->error);
    } else if (op_is_waiting(last)) {
        fprintf(out, last->state == JOB_STARTED ? "in " : "has queued ");
        put_op(out, last);
        fprintf(out, " since ");
        put_age(out, op_age_ns(job, last));
    } else {
        fprintf(out, "in no operation; ");
        put_op(out, last);
        fprintf(out, " was its last, completed ");
        put_age(out, rank->time_ns > last->ended_ns ? rank->time_ns - last->ended_ns : 0);
        fprintf(out, " before the record was written");
    }
    fclose(out);
    return text;
}

static bool describe_ranks(const struct job *job, struct verdict *v)
{
    v->ranks = calloc(job->nranks + 1, sizeof(*v->ranks));
    if (v->ranks == NULL)
        return false;
    for (v->nranks = 0; v->nranks < job->nranks; v->nranks++) {
        v->ranks[v->nranks] = describe_rank(job, &job->ranks[v->nranks]);
        if (v->ranks[v->nranks] == NULL)
            return false;
    }
    return true;
}

bool verdict_make(const struct job *job, struct verdict *verdict)
{
    *verdict = (struct verdict){ 0 };
    for (size_t i = 0; i < job->ngroups; i++) {
        struct walk w = { .job = job, .group = job->groups[i] };
        bool good = look_at_group(verdict, &w);

        free_walk(&w);
        if (!good)
            return false;
    }
    if (!look_at_transfers(verdict, job) || !describe_ranks(job, verdict))
        return false;
    if (verdict->nfindings > 1)
        qsort(verdict->findings, verdict->nfindings, sizeof(*verdict->findings), compare_findings);
    return true;
}

void verdict_free(struct verdict *verdict)
{
    for (size_t i = 0; i < verdict->nfindings; i++) {
        free(verdict->findings[i].culprits);
        free(verdict->findings[i].others);
        free(verdict->findings[i].text);
    }
    for (size_t i = 0; i < verdict->nranks; i++)
        free(verdict->ranks[i]);
    free(verdict->findings);
    free(verdict->ranks);
    *verdict = (struct verdict){ 0 };
}
