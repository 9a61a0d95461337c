/*
 * check_expr.c - expressions, each built once.
 *
 * The simple ones need no memory: kind, rank and block are in the number. Others are nodes, found by a hash
 * of what they are made of.
 */
#include "sched/check_expr.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/mem.h"

/* In the highest bits of an expression. */
enum kind { NOTHING, LEAF, WIDE, TOTAL, NODE };
enum node_kind { COMBINED, FINISHED, NARROWED };
enum { KIND_SHIFT = 60, RANK_SHIFT = 32 };

struct node {
    uint8_t kind;       /* enum node_kind */
    uint32_t block;     /* whose contributions */
    uint32_t first_kid; /* in kids */
    uint32_t nkids;
    uint32_t first_word; /* in words: the set of contributions */
    uint32_t prefix;     /* if it is the sum of ranks 0 to prefix - 1 from first to last; else 0 */
    uint64_t hash;
};

/* A growing array. */
struct pile {
    void *items;
    size_t used, room;
};

struct ch_exprs {
    uint32_t nranks, set_words;
    struct pile nodes; /* struct node */
    struct pile kids;  /* ch_expr */
    struct pile words; /* uint64_t */
    uint32_t *table;   /* node + 1, 0 for free */
    uint32_t table_room;
};

/* Far beyond any schedule of ours; nonsense ends here. */
enum { PILE_MAX = 1 << 28 };

static choir_status no_memory(void)
{
    return ch_fail(CHOIR_ERR_NOMEM, "no memory for expressions");
}

static choir_status pile_reserve(struct pile *pile, size_t more, size_t size)
{
    size_t room = pile->room == 0 ? 64 : pile->room;
    void *p;

    while (room < pile->used + more)
        room *= 2;
    if (room == pile->room)
        return CHOIR_OK;
    if (room > PILE_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "expressions too large to compare");
    p = ch_regrow(pile->items, room, size);
    if (p == NULL)
        return no_memory();
    pile->items = p;
    pile->room = room;
    return CHOIR_OK;
}

choir_status ch_exprs_create(uint32_t nranks, struct ch_exprs **exprs_out)
{
    struct ch_exprs *ex = ch_zalloc(sizeof(*ex));

    if (ex == NULL)
        return no_memory();
    ex->nranks = nranks;
    ex->set_words = (nranks + 63) / 64;
    ex->table_room = 256;
    ex->table = ch_zalloc_array(ex->table_room, sizeof(*ex->table));
    if (ex->table == NULL) {
        ch_free(ex);
        return no_memory();
    }
    *exprs_out = ex;
    return CHOIR_OK;
}

void ch_exprs_destroy(struct ch_exprs *ex)
{
    if (ex == NULL)
        return;
    ch_free(ex->nodes.items);
    ch_free(ex->kids.items);
    ch_free(ex->words.items);
    ch_free(ex->table);
    ch_free(ex);
}

/* --- what is in a number ------------------------------------------------------------------------ */

static ch_expr make(enum kind kind, uint32_t rank, uint32_t block)
{
    return (uint64_t)kind << KIND_SHIFT | (uint64_t)rank << RANK_SHIFT | block;
}

static enum kind kind_of(ch_expr e)
{
    return (enum kind)(e >> KIND_SHIFT);
}

static uint32_t rank_of(ch_expr e)
{
    return (uint32_t)(e >> RANK_SHIFT) & 0xffffff;
}

static const struct node *node_of(const struct ch_exprs *ex, ch_expr e)
{
    return (const struct node *)ex->nodes.items + (uint32_t)e;
}

static uint32_t block_of(const struct ch_exprs *ex, ch_expr e)
{
    return kind_of(e) == NODE ? node_of(ex, e)->block : (uint32_t)e;
}

ch_expr ch_expr_leaf(uint32_t rank, uint32_t block)
{
    return make(LEAF, rank, block);
}

ch_expr ch_expr_total(uint32_t block)
{
    return make(TOTAL, 0, block);
}

static bool is_accumulator(const struct ch_exprs *ex, ch_expr e)
{
    return kind_of(e) == WIDE || (kind_of(e) == NODE && node_of(ex, e)->kind == COMBINED);
}

/* --- sets of contributions ---------------------------------------------------------------------- */

static const uint64_t *set_of(const struct ch_exprs *ex, const struct node *n)
{
    return (const uint64_t *)ex->words.items + n->first_word;
}

/* Add what `e` holds to `set`. False if something was there already; its rank is in *twice_out. */
static bool set_add(const struct ch_exprs *ex, uint64_t *set, ch_expr e, uint32_t *twice_out)
{
    for (uint32_t w = 0; w < ex->set_words; w++) {
        uint64_t more, both;

        if (kind_of(e) == NODE)
            more = set_of(ex, node_of(ex, e))[w];
        else
            more = rank_of(e) / 64 == w ? (uint64_t)1 << rank_of(e) % 64 : 0;
        both = set[w] & more;
        if (both != 0) {
            *twice_out = w * 64;
            for (; (both & 1) == 0; both >>= 1)
                ++*twice_out;
            return false;
        }
        set[w] |= more;
    }
    return true;
}

/* The first rank whose contribution is missing; nranks if none is. */
static uint32_t first_missing(const struct ch_exprs *ex, ch_expr e)
{
    if (kind_of(e) != NODE)
        return rank_of(e) != 0 ? 0 : 1;
    for (uint32_t r = 0; r < ex->nranks; r++) {
        if ((set_of(ex, node_of(ex, e))[r / 64] >> r % 64 & 1) == 0)
            return r;
    }
    return ex->nranks;
}

/* --- nodes -------------------------------------------------------------------------------------- */

static uint64_t hash_of(enum node_kind kind, const ch_expr *kids, uint32_t nkids)
{
    uint64_t h = kind + 1;

    for (uint32_t i = 0; i < nkids; i++) {
        h = (h ^ kids[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

static bool same_node(const struct ch_exprs *ex, const struct node *n, const struct node *like,
                      const ch_expr *kids)
{
    return n->hash == like->hash && n->kind == like->kind && n->nkids == like->nkids &&
           memcmp((const ch_expr *)ex->kids.items + n->first_kid, kids, n->nkids * sizeof(*kids)) ==
               0;
}

/* The place in the table where such a node is, or should be. */
static uint32_t *look_up(const struct ch_exprs *ex, const struct node *like, const ch_expr *kids)
{
    uint32_t mask = ex->table_room - 1;

    for (uint32_t i = (uint32_t)like->hash & mask;; i = (i + 1) & mask) {
        uint32_t found = ex->table[i];

        if (found == 0 ||
            same_node(ex, (const struct node *)ex->nodes.items + found - 1, like, kids))
            return &ex->table[i];
    }
}

static choir_status grow_table(struct ch_exprs *ex)
{
    const struct node *nodes = ex->nodes.items;
    uint32_t room = ex->table_room * 2, *table;

    if (ex->nodes.used * 2 < ex->table_room)
        return CHOIR_OK;
    table = ch_zalloc_array(room, sizeof(*table));
    if (table == NULL)
        return no_memory();
    for (uint32_t n = 0; n < ex->nodes.used; n++) {
        uint32_t i = (uint32_t)nodes[n].hash & (room - 1);

        while (table[i] != 0)
            i = (i + 1) & (room - 1);
        table[i] = n + 1;
    }
    ch_free(ex->table);
    ex->table = table;
    ex->table_room = room;
    return CHOIR_OK;
}

/* Room for everything a node needs, so that adding it cannot fail half-way. */
static choir_status reserve(struct ch_exprs *ex, uint32_t nkids)
{
    choir_status rc = grow_table(ex);

    if (rc == CHOIR_OK)
        rc = pile_reserve(&ex->nodes, 1, sizeof(struct node));
    if (rc == CHOIR_OK)
        rc = pile_reserve(&ex->kids, nkids, sizeof(ch_expr));
    if (rc == CHOIR_OK)
        rc = pile_reserve(&ex->words, ex->set_words, sizeof(uint64_t));
    return rc;
}

static choir_status check_apart(const struct ch_exprs *ex, uint64_t *set, const ch_expr *kids,
                                uint32_t nkids)
{
    uint32_t twice;

    memset(set, 0, ex->set_words * sizeof(*set));
    for (uint32_t i = 0; i < nkids; i++) {
        if (!set_add(ex, set, kids[i], &twice))
            return ch_fail(CHOIR_ERR_INVALID, "the contribution of rank %u is added twice", twice);
    }
    return CHOIR_OK;
}

/* How far the kids, one after the other, are ranks 0, 1, 2, ... added from the first to the last. */
static uint32_t prefix_of(const struct ch_exprs *ex, const ch_expr *kids, uint32_t nkids)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < nkids; i++) {
        if (kind_of(kids[i]) == WIDE && rank_of(kids[i]) == n)
            n++;
        else if (i == 0 && kind_of(kids[i]) == NODE && node_of(ex, kids[i])->prefix > 0)
            n = node_of(ex, kids[i])->prefix;
        else
            return 0;
    }
    return n;
}

static choir_status intern(struct ch_exprs *ex, enum node_kind kind, uint32_t block,
                           const ch_expr *kids, uint32_t nkids, ch_expr *out)
{
    struct node n = { .kind = (uint8_t)kind, .block = block, .nkids = nkids };
    uint32_t *place;
    choir_status rc;

    n.hash = hash_of(kind, kids, nkids);
    place = look_up(ex, &n, kids);
    if (*place != 0) {
        *out = make(NODE, 0, *place - 1);
        return CHOIR_OK;
    }
    rc = reserve(ex, nkids);
    if (rc == CHOIR_OK && kind == COMBINED)
        rc = check_apart(ex, (uint64_t *)ex->words.items + ex->words.used, kids, nkids);
    if (rc != CHOIR_OK)
        return rc;
    n.first_kid = (uint32_t)ex->kids.used;
    memcpy((ch_expr *)ex->kids.items + ex->kids.used, kids, nkids * sizeof(*kids));
    ex->kids.used += nkids;
    if (kind == COMBINED) {
        n.first_word = (uint32_t)ex->words.used;
        ex->words.used += ex->set_words;
        n.prefix = prefix_of(ex, kids, nkids);
    }
    ((struct node *)ex->nodes.items)[ex->nodes.used++] = n;
    *look_up(ex, &n, kids) = (uint32_t)ex->nodes.used;
    *out = make(NODE, 0, (uint32_t)ex->nodes.used - 1);
    return CHOIR_OK;
}

/* --- operations --------------------------------------------------------------------------------- */

static choir_status not_that(const struct ch_exprs *ex, ch_expr e, const char *what)
{
    char text[256];

    return ch_fail(CHOIR_ERR_INVALID, "%s: %s", what, ch_expr_text(ex, e, text, sizeof(text)));
}

choir_status ch_expr_widen(struct ch_exprs *ex, ch_expr e, ch_expr *out)
{
    if (kind_of(e) != LEAF)
        return not_that(ex, e, "only a contribution becomes an accumulator, not this");
    *out = make(WIDE, rank_of(e), (uint32_t)e);
    return CHOIR_OK;
}

choir_status ch_expr_narrow(struct ch_exprs *ex, ch_expr e, ch_expr *out)
{
    return intern(ex, NARROWED, block_of(ex, e), &e, 1, out);
}

choir_status ch_expr_combine(struct ch_exprs *ex, const ch_expr *kids, uint32_t nkids, ch_expr *out)
{
    for (uint32_t i = 0; i < nkids; i++) {
        if (!is_accumulator(ex, kids[i]))
            return not_that(ex, kids[i], "not an accumulator");
        if (block_of(ex, kids[i]) != block_of(ex, kids[0]))
            return ch_fail(CHOIR_ERR_INVALID, "contributions to block %u and to block %u are added",
                           block_of(ex, kids[0]), block_of(ex, kids[i]));
    }
    if (nkids == 1) {
        *out = kids[0];
        return CHOIR_OK;
    }
    return intern(ex, COMBINED, block_of(ex, kids[0]), kids, nkids, out);
}

choir_status ch_expr_finish(struct ch_exprs *ex, ch_expr e, ch_expr *out)
{
    uint32_t missing;

    if (!is_accumulator(ex, e))
        return not_that(ex, e, "not an accumulator");
    missing = first_missing(ex, e);
    if (missing < ex->nranks)
        return ch_fail(CHOIR_ERR_INVALID, "finished without the contribution of rank %u", missing);
    if (kind_of(e) == WIDE || node_of(ex, e)->prefix == ex->nranks) {
        *out = ch_expr_total(block_of(ex, e));
        return CHOIR_OK;
    }
    return intern(ex, FINISHED, block_of(ex, e), &e, 1, out);
}

bool ch_expr_finished(const struct ch_exprs *ex, ch_expr e, uint32_t block)
{
    if (e == 0 || block_of(ex, e) != block)
        return false;
    return kind_of(e) == TOTAL || (kind_of(e) == NODE && node_of(ex, e)->kind == FINISHED);
}

/* --- words -------------------------------------------------------------------------------------- */

struct words {
    char *buf;
    size_t size, used;
};

static CH_PRINTF(2, 3) void say(struct words *w, const char *fmt, ...)
{
    va_list args;
    int n;

    if (w->used + 1 >= w->size)
        return;
    va_start(args, fmt);
    n = vsnprintf(w->buf + w->used, w->size - w->used, fmt, args);
    va_end(args);
    if (n > 0)
        w->used += (size_t)n;
}

/* Deep trees are cut by the buffer long before they are by this. */
static void say_expr(const struct ch_exprs *ex, ch_expr e, struct words *w, unsigned depth)
{
    static const char *const before[] = { "(", "finished", "rounded(" };
    const struct node *n;

    switch (kind_of(e)) {
    case LEAF:
        say(w, "r%u.b%u", rank_of(e), (uint32_t)e);
        return;
    case WIDE:
        say(w, "+r%u.b%u", rank_of(e), (uint32_t)e);
        return;
    case TOTAL:
        say(w, "sum of all in rank order.b%u", (uint32_t)e);
        return;
    case NODE:
        break;
    default:
        say(w, "nothing");
        return;
    }
    n = node_of(ex, e);
    say(w, "%s", before[n->kind]);
    for (uint32_t i = 0; i < n->nkids && w->used + 1 < w->size; i++) {
        if (i > 0)
            say(w, " ");
        if (depth > 30)
            say(w, "...");
        else
            say_expr(ex, ((const ch_expr *)ex->kids.items)[n->first_kid + i], w, depth + 1);
    }
    if (n->kind != FINISHED)
        say(w, ")");
}

const char *ch_expr_text(const struct ch_exprs *ex, ch_expr e, char *buf, size_t size)
{
    struct words w = { buf, size, 0 };

    buf[0] = '\0';
    say_expr(ex, e, &w, 0);
    return buf;
}
