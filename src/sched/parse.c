/*
 * parse.c - a schedule from its text. Any text may come: it is refused with line and column, or it is a
 * schedule that the builder takes.
 */
#include "sched/sched.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "sched/builder.h"
#include "sched/text.h"

enum { WORD_MAX = 64 };
#define NOT_GIVEN UINT32_MAX

/* Where we are. All readers skip blanks before what they read, and return false after the first failure. */
struct reader {
    const char *at, *line_start;
    uint32_t line;
    choir_status rc;
};

struct head {
    enum ch_coll coll;
    char algo[WORD_MAX];
    uint32_t rank, nranks, root, nflags, stage_slots, line_slots, scratch_slots;
    bool in_place;
};

/* --- words and numbers -------------------------------------------------------------------------- */

static unsigned column(const struct reader *r)
{
    return (unsigned)(r->at - r->line_start) + 1;
}

/* What is at hand, for an error: up to a blank, unreadable characters as dots. */
static void seen(const struct reader *r, char *buf, size_t size)
{
    size_t n = 0;

    for (const char *p = r->at; n + 1 < size && *p != '\0' && !isspace((unsigned char)*p); p++)
        buf[n++] = isprint((unsigned char)*p) ? *p : '.';
    buf[n] = '\0';
}

static bool expected(struct reader *r, const char *what)
{
    char got[WORD_MAX];

    if (r->rc == CHOIR_OK) {
        seen(r, got, sizeof(got));
        r->rc = ch_fail(CHOIR_ERR_INVALID, "line %u, column %u: expected %s, seen %s%s%s", r->line,
                        column(r), what, got[0] != '\0' ? "\"" : "the end of the line", got,
                        got[0] != '\0' ? "\"" : "");
    }
    return false;
}

static void skip_blanks(struct reader *r)
{
    while (*r->at == ' ' || *r->at == '\t')
        r->at++;
}

static bool read_number(struct reader *r, const char *what, uint32_t *out)
{
    uint64_t value = 0;

    skip_blanks(r);
    if (r->rc != CHOIR_OK || !isdigit((unsigned char)*r->at))
        return expected(r, what);
    for (const char *p = r->at; isdigit((unsigned char)*p); p++) {
        value = value * 10 + (uint64_t)(*p - '0');
        if (value > UINT32_MAX)
            return expected(r, "a number below 2^32");
    }
    while (isdigit((unsigned char)*r->at))
        r->at++;
    *out = (uint32_t)value;
    return true;
}

static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

/* Letters, digits, dashes; for regions without the dot that ends their name. */
static bool read_word(struct reader *r, const char *what, bool dots, char out[WORD_MAX])
{
    size_t n = 0;

    skip_blanks(r);
    if (r->rc != CHOIR_OK)
        return false;
    while (is_word_char(r->at[n]) && (dots || r->at[n] != '.')) {
        if (n + 1 >= WORD_MAX)
            return expected(r, what);
        out[n] = r->at[n];
        n++;
    }
    out[n] = '\0';
    if (n == 0)
        return expected(r, what);
    r->at += n;
    return true;
}

/* True if `mark` comes next; then it is read. Not finding it is no failure. */
static bool found(struct reader *r, const char *mark)
{
    skip_blanks(r);
    if (r->rc != CHOIR_OK || strncmp(r->at, mark, strlen(mark)) != 0)
        return false;
    r->at += strlen(mark);
    return true;
}

static bool read_mark(struct reader *r, const char *mark)
{
    char what[WORD_MAX];

    if (found(r, mark))
        return true;
    snprintf(what, sizeof(what), "\"%s\"", mark);
    return expected(r, what);
}

static bool read_keyword(struct reader *r, const char *keyword)
{
    size_t n = strlen(keyword);
    char what[WORD_MAX];

    skip_blanks(r);
    if (r->rc == CHOIR_OK && strncmp(r->at, keyword, n) == 0 && !is_word_char(r->at[n])) {
        r->at += n;
        return true;
    }
    snprintf(what, sizeof(what), "\"%s\"", keyword);
    return expected(r, what);
}

static bool at_line_end(struct reader *r)
{
    skip_blanks(r);
    return *r->at == '\0' || *r->at == '\n' || *r->at == '#';
}

/* To the next line with something on it. False at the end of the text. */
static bool next_line(struct reader *r)
{
    while (at_line_end(r)) {
        if (*r->at == '#')
            r->at += strcspn(r->at, "\n");
        if (*r->at == '\0')
            return false;
        r->at++;
        r->line++;
        r->line_start = r->at;
    }
    return true;
}

static bool end_line(struct reader *r)
{
    if (r->rc != CHOIR_OK)
        return false;
    return at_line_end(r) || expected(r, "the end of the line");
}

/* --- the first line ----------------------------------------------------------------------------- */

static bool read_head_option(struct reader *r, struct head *h)
{
    const struct {
        const char *name;
        uint32_t *value;
    } options[] = {
        { "root", &h->root },       { "flags", &h->nflags },          { "stage", &h->stage_slots },
        { "line", &h->line_slots }, { "scratch", &h->scratch_slots },
    };
    const char *before = r->at;
    char word[WORD_MAX];

    if (!read_word(r, "an option", true, word))
        return false;
    if (strcmp(word, "in-place") == 0) {
        h->in_place = true;
        return true;
    }
    for (size_t i = 0; i < CH_ARRAY_LEN(options); i++) {
        if (strcmp(word, options[i].name) == 0)
            return read_number(r, "a number", options[i].value);
    }
    r->at = before;
    skip_blanks(r);
    return expected(r, "root, flags, stage, line, scratch or in-place");
}

static bool read_coll(struct reader *r, enum ch_coll *coll_out)
{
    const char *before = r->at;
    char word[WORD_MAX];

    if (!read_word(r, "an operation", true, word))
        return false;
    if (ch_coll_find(word, coll_out))
        return true;
    r->at = before;
    skip_blanks(r);
    return expected(r, "an operation");
}

static bool read_head(struct reader *r, struct head *h)
{
    if (!next_line(r))
        return expected(r, "\"schedule\"");
    if (!read_keyword(r, "schedule") || !read_coll(r, &h->coll) ||
        !read_word(r, "an algorithm", true, h->algo) || !read_keyword(r, "rank") ||
        !read_number(r, "a rank", &h->rank) || !read_keyword(r, "of") ||
        !read_number(r, "how many ranks there are", &h->nranks))
        return false;
    while (!at_line_end(r)) {
        if (!read_head_option(r, h))
            return false;
    }
    return true;
}

/* --- steps -------------------------------------------------------------------------------------- */

static int find_name(const char *const *names, int n, const char *word)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], word) == 0)
            return i;
    }
    return -1;
}

static bool read_region(struct reader *r, int *region_out)
{
    const char *before = r->at;
    char word[WORD_MAX];

    if (!read_word(r, "a region", false, word))
        return false;
    *region_out = find_name(ch_region_names, CH_NREGIONS, word);
    if (*region_out >= 0)
        return true;
    r->at = before;
    skip_blanks(r);
    return expected(r, "in, out, scratch, stage or line");
}

static bool read_range(struct reader *r, uint32_t me, struct ch_range *out)
{
    uint32_t rank = me, slot = 0, block, share, nshares;
    int region;

    if (!read_region(r, &region))
        return false;
    if (region == CH_STAGE || region == CH_LINE) {
        if (!read_mark(r, "[") || !read_number(r, "a rank", &rank) || !read_mark(r, "]"))
            return false;
    }
    if (region != CH_IN && region != CH_OUT) {
        if (!read_mark(r, ".") || !read_number(r, "a slot", &slot))
            return false;
    }
    if (!read_mark(r, "b") || !read_number(r, "a block", &block) ||
        !read_number(r, "a share", &share) || !read_mark(r, "/") ||
        !read_number(r, "how many shares there are", &nshares))
        return false;
    *out = ch_range((enum ch_region)region, rank, slot, block, share, nshares);
    return true;
}

/* Ranges with commas between, added to the last step; none at all if the line or the part ends here. */
static bool read_ranges(struct reader *r, struct ch_builder *b, uint32_t me)
{
    struct ch_range range;

    if (at_line_end(r) || *r->at == ';')
        return true;
    do {
        if (!read_range(r, me, &range))
            return false;
        ch_build_range(b, range);
    } while (found(r, ","));
    return true;
}

static bool read_moving(struct reader *r, struct ch_builder *b, uint32_t me, int kind)
{
    struct ch_range dst, src;

    if (!read_range(r, me, &dst) || !read_mark(r, "<-"))
        return false;
    if (kind == CH_REDUCE_ALL || kind == CH_COMBINE) {
        if (kind == CH_REDUCE_ALL)
            ch_build_reduce(b, dst);
        else
            ch_build_combine(b, dst);
        return read_ranges(r, b, me);
    }
    if (!read_range(r, me, &src))
        return false;
    if (kind == CH_COPY)
        ch_build_copy(b, dst, src);
    else
        ch_build_finish(b, dst, src);
    return true;
}

static bool read_flag_step(struct reader *r, struct ch_builder *b, int kind)
{
    uint32_t peer = 0, flag;

    if (kind == CH_AWAIT && !read_number(r, "a rank", &peer))
        return false;
    if (!read_number(r, "a flag", &flag))
        return false;
    if (kind == CH_AWAIT)
        ch_build_await(b, peer, flag);
    else
        ch_build_post(b, flag);
    return true;
}

static bool read_message(struct reader *r, struct ch_builder *b, uint32_t me, int kind)
{
    uint32_t peer;

    if (!read_number(r, "a rank", &peer) || !read_mark(r, ":"))
        return false;
    if (kind == CH_SEND)
        ch_build_send(b, peer);
    else
        ch_build_recv(b, peer);
    return read_ranges(r, b, me);
}

/* The rank to receive from is written behind what is sent, but wanted before it: looked up first. */
static bool read_sendrecv(struct reader *r, struct ch_builder *b, uint32_t me)
{
    struct reader ahead;
    uint32_t to, from;

    if (!read_number(r, "a rank", &to) || !read_mark(r, ":"))
        return false;
    ahead = *r;
    ahead.at += strcspn(ahead.at, ";\n#");
    if (!read_mark(&ahead, ";") || !read_number(&ahead, "a rank", &from) ||
        !read_mark(&ahead, ":")) {
        r->rc = ahead.rc;
        return false;
    }
    ch_build_sendrecv(b, to, from);
    if (!read_ranges(r, b, me) || !read_mark(r, ";"))
        return false;
    *r = ahead;
    ch_build_sendrecv_to(b);
    return read_ranges(r, b, me);
}

static bool read_step(struct reader *r, struct ch_builder *b, uint32_t me)
{
    const char *before = r->at;
    char word[WORD_MAX];
    int kind;

    if (!read_word(r, "a step", true, word))
        return false;
    kind = find_name(ch_step_names, CH_NSTEPS, word);
    switch (kind) {
    case CH_COPY:
    case CH_REDUCE_ALL:
    case CH_COMBINE:
    case CH_FINISH:
        return read_moving(r, b, me, kind);
    case CH_POST:
    case CH_AWAIT:
        return read_flag_step(r, b, kind);
    case CH_GATE:
        ch_build_gate(b);
        return true;
    case CH_SEND:
    case CH_RECV:
        return read_message(r, b, me, kind);
    case CH_SENDRECV:
        return read_sendrecv(r, b, me);
    default:
        r->at = before;
        return expected(r, "a step");
    }
}

/* --- all of it ---------------------------------------------------------------------------------- */

/* What the builder says, with the line it says it of. */
static bool validate_line(struct reader *r, const struct ch_builder *b)
{
    r->rc = ch_builder_validate_last(b);
    if (r->rc == CHOIR_OK)
        return true;
    ch_error_prefix("line %u, column 1: ", r->line);
    return false;
}

static bool read_steps(struct reader *r, struct ch_builder *b, const struct head *h)
{
    while (next_line(r)) {
        if (!read_step(r, b, h->rank) || !end_line(r) || !validate_line(r, b))
            return false;
    }
    return r->rc == CHOIR_OK;
}

static choir_status parse(struct reader *r, struct ch_sched **sched_out)
{
    struct head h = { .scratch_slots = NOT_GIVEN };
    struct ch_builder *b = NULL;

    if (!read_head(r, &h))
        return r->rc;
    r->rc = ch_builder_begin(h.coll, h.algo, h.rank, h.nranks, h.root, h.in_place, &b);
    if (r->rc != CHOIR_OK)
        return r->rc;
    ch_builder_promise(b, h.nflags, h.stage_slots, h.line_slots);
    if (!validate_line(r, b) || !read_steps(r, b, &h)) {
        ch_builder_drop(b);
        return r->rc;
    }
    r->rc = ch_builder_end(b, h.nflags, h.stage_slots, h.line_slots, sched_out);
    if (r->rc == CHOIR_OK && h.scratch_slots != NOT_GIVEN &&
        h.scratch_slots != (*sched_out)->scratch_slots) {
        r->rc = ch_fail(CHOIR_ERR_INVALID, "scratch %u is promised, its steps use %u",
                        h.scratch_slots, (*sched_out)->scratch_slots);
        ch_sched_destroy(*sched_out);
    }
    return r->rc;
}

choir_status ch_sched_parse(const char *text, struct ch_sched **sched_out)
{
    struct reader r = { .at = text, .line_start = text, .line = 1, .rc = CHOIR_OK };
    struct ch_sched *sched = NULL;
    choir_status rc = parse(&r, &sched);

    if (rc != CHOIR_OK) {
        ch_error_prefix("text of a schedule: ");
        return rc;
    }
    *sched_out = sched;
    return CHOIR_OK;
}
