/*
 * answer.h - an operation in words and as a drawing: which algorithm, why, its steps, what they cost.
 */
#ifndef CH_ANSWER_H
#define CH_ANSWER_H

#include "algo/play.h"
#include "algo/select.h"

/* What is asked; the public call is choir_explain(). */
struct ch_question {
    struct ch_situation situation;
    const struct ch_overrules *overrules; /* may be NULL */
    uint64_t one_shot_max;                /* of measured figures (select.h) */
    const char *algo;                     /* NULL: the one that would be chosen */
    const char *type;                     /* of the elements, for the text */
    uint32_t root;
    bool in_place;
    uint32_t widening; /* bytes of an accumulator per byte of an element */
    bool one_rank;     /* the steps of `rank` alone */
    uint32_t rank;
};

/* The answer, from which text and drawing are made. Zeroed is empty. */
struct ch_answer {
    struct ch_question question;
    struct ch_choice choice;
    struct ch_sched **scheds; /* of all ranks */
    struct ch_play *play;
};

enum { CH_EXPLAIN_RANKS_MAX = 256 };

/* CHOIR_ERR_INVALID if the question makes no sense, or the algorithm cannot do it: the text says why. */
choir_status ch_answer_init(struct ch_answer *answer, const struct ch_question *question);
void ch_answer_fini(struct ch_answer *answer); /* also half made */

/* *text_out ends with ch_free(). */
choir_status ch_answer_text(const struct ch_answer *answer, char **text_out);
choir_status ch_answer_svg(const struct ch_answer *answer, char **text_out); /* draw.c */

#endif
