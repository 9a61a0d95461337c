/*
 * answer.c - find the answer, and put it into words.
 */
#include "algo/answer.h"

#include <inttypes.h>
#include <stdio.h>

#include "algo/cost.h"
#include "algo/page.h"
#include "base/error.h"
#include "base/mem.h"

/* --- finding it ------------------------------------------------------------------------------------- */

static choir_status check_question(const struct ch_question *q)
{
    const struct ch_situation *s = &q->situation;

    if (s->nranks < 1 || s->nranks > CH_EXPLAIN_RANKS_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "explain: %u ranks; 1 to %d can be explained", s->nranks,
                       CH_EXPLAIN_RANKS_MAX);
    if (q->root >= s->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "explain: root %u of %u ranks", q->root, s->nranks);
    if (q->one_rank && q->rank >= s->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "explain: rank %u of %u ranks", q->rank, s->nranks);
    return CHOIR_OK;
}

static choir_status use_named(const struct ch_question *q, struct ch_choice *out)
{
    const struct ch_situation *s = &q->situation;
    const struct ch_algo *algo = ch_algo_find(s->coll, q->algo);
    const char *objection;
    char known[256];

    if (algo == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "explain: %s has no algorithm \"%s\"; it has %s",
                       ch_coll_name(s->coll), q->algo,
                       ch_algo_names(s->coll, known, sizeof(known)));
    objection = ch_algo_objection(algo, s);
    if (objection != NULL)
        return ch_fail(CHOIR_ERR_INVALID, "explain: %s %s cannot do that: %s",
                       ch_coll_name(s->coll), algo->name, objection);
    out->algo = algo;
    snprintf(out->reason, sizeof(out->reason), "it was asked for");
    return CHOIR_OK;
}

static choir_status build_all(struct ch_answer *a)
{
    const struct ch_question *q = &a->question;
    uint32_t nranks = q->situation.nranks;
    choir_status rc = CHOIR_OK;

    a->scheds = ch_zalloc_array(nranks, sizeof(struct ch_sched *));
    if (a->scheds == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "explain: no memory for %u schedules", nranks);
    for (uint32_t r = 0; rc == CHOIR_OK && r < nranks; r++) {
        struct ch_shape shape = ch_shape_of(q->situation.coll, r, nranks, q->root, q->in_place);

        rc = ch_algo_build(a->choice.algo, &shape, &a->scheds[r]);
    }
    return rc == CHOIR_OK ? ch_play(a->scheds, nranks, &a->play) : rc;
}

choir_status ch_answer_init(struct ch_answer *a, const struct ch_question *q)
{
    choir_status rc = check_question(q);

    *a = (struct ch_answer){ .question = *q };
    if (rc == CHOIR_OK)
        rc = q->algo != NULL
                 ? use_named(q, &a->choice)
                 : ch_select_measured(&q->situation, q->overrules, q->one_shot_max, &a->choice);
    if (rc == CHOIR_OK)
        rc = build_all(a);
    if (rc != CHOIR_OK)
        ch_answer_fini(a);
    return rc;
}

void ch_answer_fini(struct ch_answer *a)
{
    for (uint32_t r = 0; a->scheds != NULL && r < a->question.situation.nranks; r++)
        ch_sched_destroy(a->scheds[r]);
    ch_free(a->scheds);
    ch_play_destroy(a->play);
    *a = (struct ch_answer){ 0 };
}

/* --- in words --------------------------------------------------------------------------------------- */

/* The least and the most over all ranks. */
struct span {
    double least, most;
};

static void widen(struct span *span, double value, bool first)
{
    if (first || value < span->least)
        span->least = value;
    if (first || value > span->most)
        span->most = value;
}

static void put_span(struct ch_page *page, const char *what, struct span span, const char *unit)
{
    ch_page_put(page, "%-10s%.0f", what, span.least);
    if (span.most > span.least)
        ch_page_put(page, " to %.0f", span.most);
    ch_page_put(page, " %s per rank", unit);
}

/* Bytes, and how many times the payload that is. */
static void put_bytes(struct ch_page *page, const char *what, struct span span, uint64_t nbytes)
{
    put_span(page, what, span, "bytes");
    if (nbytes > 0 && span.most > span.least)
        ch_page_put(page, ", %.2f to %.2f times the payload", span.least / (double)nbytes,
                    span.most / (double)nbytes);
    else if (nbytes > 0 && span.most > 0)
        ch_page_put(page, ", %.2f times the payload", span.most / (double)nbytes);
    ch_page_put(page, "\n");
}

static void put_cost(struct ch_page *page, const struct ch_answer *a)
{
    const struct ch_situation *s = &a->question.situation;
    const struct ch_lengths lengths = { ch_block_nbytes(s->coll, s->nranks, s->nbytes),
                                        a->question.widening };
    struct span moved = { 0 }, sent = { 0 }, messages = { 0 }, scratch = { 0 };

    for (uint32_t r = 0; r < s->nranks; r++) {
        struct ch_cost cost = ch_cost_of(a->scheds[r], &lengths);

        widen(&moved, cost.moved, r == 0);
        widen(&sent, cost.sent, r == 0);
        widen(&messages, cost.messages, r == 0);
        widen(&scratch, a->scheds[r]->scratch_slots, r == 0);
    }
    put_bytes(page, "moves", moved, s->nbytes);
    put_span(page, "messages", messages, "sent");
    ch_page_put(page, "\n");
    if (messages.most > 0)
        put_bytes(page, "sends", sent, s->nbytes);
    ch_page_put(page, "%-10s%u in a row, on the longest way\n", "waits", a->play->depth);
    ch_page_put(page, "%-10sslots: %u of the stage in each half, %u of the line, %.0f of scratch\n",
                "room", a->scheds[0]->stage_slots, a->scheds[0]->line_slots, scratch.most);
}

/* What else there is, and what speaks against it. */
static void put_others(struct ch_page *page, const struct ch_answer *a)
{
    const char *before = "";

    ch_page_put(page, "%-10s", "others");
    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        const struct ch_algo *other = ch_algos[i];
        const char *objection;

        if (other->coll != a->choice.algo->coll || other == a->choice.algo)
            continue;
        objection = ch_algo_objection(other, &a->question.situation);
        ch_page_put(page, "%s%s", before, other->name);
        if (objection != NULL)
            ch_page_put(page, " (no: %s)", objection);
        before = ", ";
    }
    ch_page_put(page, "\n");
}

static choir_status put_steps(struct ch_page *page, const struct ch_sched *sched)
{
    const char *text;
    char *all, *next;
    choir_status rc = ch_sched_print(sched, &all);

    if (rc != CHOIR_OK)
        return rc;
    ch_page_put(page, "\nrank %u\n", sched->rank);
    for (text = all; *text != '\0'; text = next) {
        next = (char *)text;
        while (*next != '\0' && *next != '\n')
            next++;
        if (text != all && next > text) /* the first line is the head, which we have said already */
            ch_page_put(page, "  %.*s\n", (int)(next - text), text);
        next += *next == '\n';
    }
    ch_free(all);
    return CHOIR_OK;
}

static void put_head(struct ch_page *page, const struct ch_answer *a)
{
    const struct ch_question *q = &a->question;

    ch_page_put(page, "%s of %" PRIu64 " bytes of %s, %u rank%s%s\n",
                ch_coll_name(q->situation.coll), q->situation.nbytes, q->type, q->situation.nranks,
                q->situation.nranks == 1 ? "" : "s", q->in_place ? ", in place" : "");
    ch_page_put(page, "%-10s%s: %s\n", "algorithm", a->choice.algo->name, a->choice.algo->help);
    ch_page_put(page, "%-10s%s\n", "why", a->choice.reason);
}

choir_status ch_answer_text(const struct ch_answer *a, char **text_out)
{
    const struct ch_question *q = &a->question;
    struct ch_page page = { 0 };
    choir_status rc = CHOIR_OK;

    put_head(&page, a);
    put_others(&page, a);
    put_cost(&page, a);
    for (uint32_t r = 0; rc == CHOIR_OK && r < q->situation.nranks; r++) {
        if (!q->one_rank || r == q->rank)
            rc = put_steps(&page, a->scheds[r]);
    }
    if (rc != CHOIR_OK) {
        ch_free(page.data);
        return rc;
    }
    return ch_page_end(&page, text_out);
}
