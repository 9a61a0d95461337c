/*
 * sched_fuzz.c - any text as schedules.
 *
 * Each part that starts with "schedule " is parsed. What is refused is refused in words; what is taken
 * prints and parses back to the same text. If the parts are the ranks of one operation, they are checked:
 * whatever they are, that ends.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sched/check.h"
#include "sched/sched.h"

enum { RANKS_MAX = 4, STEPS_MAX = 200, SHARES_MAX = 64 };

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void there_and_back(const struct ch_sched *s)
{
    char *text = NULL, *again = NULL;
    struct ch_sched *back = NULL;

    check(ch_sched_print(s, &text) == CHOIR_OK);
    check(ch_sched_parse(text, &back) == CHOIR_OK);
    check(ch_sched_print(back, &again) == CHOIR_OK);
    check(strcmp(text, again) == 0);
    ch_sched_destroy(back);
    ch_free(text);
    ch_free(again);
}

static struct ch_sched *parse(const char *text)
{
    struct ch_sched *s = NULL;

    if (ch_sched_parse(text, &s) != CHOIR_OK) {
        check(s == NULL && choir_last_error()[0] != '\0');
        return NULL;
    }
    there_and_back(s);
    return s;
}

/* What the checker may take long for is not what is looked for here. */
static bool is_small(const struct ch_sched *s, uint32_t nranks)
{
    if (s->nranks != nranks || s->nsteps > STEPS_MAX || s->stage_slots > STEPS_MAX ||
        s->line_slots > STEPS_MAX || s->scratch_slots > STEPS_MAX)
        return false;
    for (uint32_t i = 0; i < s->nranges; i++) {
        if (s->ranges[i].nshares > SHARES_MAX)
            return false;
    }
    return true;
}

static void check_set(struct ch_sched **scheds, uint32_t n)
{
    static char trace[CH_CHECK_TRACE_MAX];

    for (uint32_t r = 0; r < n; r++) {
        if (!is_small(scheds[r], n))
            return;
    }
    if (ch_check(scheds, n, 3, trace) != CHOIR_OK)
        check(choir_last_error()[0] != '\0' && strlen(trace) < sizeof(trace));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct ch_sched *scheds[RANKS_MAX];
    char *text = malloc(size + 1), *at = text;
    uint32_t n = 0;

    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    while (at != NULL && n < RANKS_MAX) {
        char *next = *at != '\0' ? strstr(at + 1, "schedule ") : NULL;
        char first = next != NULL ? *next : '\0';

        if (next != NULL)
            *next = '\0';
        scheds[n] = parse(at);
        if (scheds[n] == NULL)
            break;
        n++;
        if (next != NULL)
            *next = first;
        at = next;
    }
    if (n > 0)
        check_set(scheds, n);
    for (uint32_t r = 0; r < n; r++)
        ch_sched_destroy(scheds[r]);
    free(text);
    return 0;
}
