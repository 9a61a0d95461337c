/*
 * draw.c - the answer as SVG: a lane for each rank, a box for each step, arrows from whom it waits for.
 *
 * Steps of one kind in a row (copies, awaits) are one box; what each does is in its tooltip. Time goes
 * from left to right in the columns of play.h. The file needs nothing beside itself.
 */
#include <stdio.h>

#include "algo/answer.h"
#include "algo/page.h"

enum {
    LEFT = 70,
    TOP = 96,
    COLUMN = 92,
    BOX_WIDTH = 78,
    LANE = 54,
    BOX_HEIGHT = 28,
    TEXT_MAX = 400,
};

/* The colours of boxes; text on all of them is dark. */
static const struct {
    const char *name, *fill, *what;
} kinds[CH_NSTEPS] = {
    [CH_COPY] = { "copy", "#bfdbfe", "copy" },
    [CH_REDUCE_ALL] = { "reduce", "#fcd34d", "reduce all" },
    [CH_COMBINE] = { "combine", "#fde68a", "combine partial sums" },
    [CH_FINISH] = { "finish", "#fef3c7", "finish" },
    [CH_POST] = { "post", "#bbf7d0", "post a flag" },
    [CH_AWAIT] = { "await", "#e5e7eb", "await a flag" },
    [CH_GATE] = { "gate", "#f3f4f6", "gate: all are through with the round before the last" },
    [CH_SEND] = { "send", "#fbcfe8", "send" },
    [CH_RECV] = { "recv", "#ddd6fe", "receive" },
    [CH_SENDRECV] = { "swap", "#e9d5ff", "send and receive at once" },
};

/* Steps first .. last of a rank, drawn as one box. */
struct box {
    uint32_t first, last;
};

static bool joins(uint8_t kind)
{
    return kind == CH_COPY || kind == CH_AWAIT;
}

static bool next_box(const struct ch_sched *s, struct box *box)
{
    if (box->first >= s->nsteps)
        return false;
    box->last = box->first;
    while (box->last + 1 < s->nsteps && joins(s->steps[box->first].kind) &&
           s->steps[box->last + 1].kind == s->steps[box->first].kind)
        box->last++;
    return true;
}

static int left_of(const struct ch_answer *a, uint32_t rank, uint32_t step)
{
    return LEFT + (int)a->play->steps[rank][step].column * COLUMN;
}

static int top_of(uint32_t rank)
{
    return TOP + (int)rank * LANE;
}

/* --- boxes ------------------------------------------------------------------------------------------ */

static void put_label(struct ch_page *page, const struct ch_sched *s, const struct box *box)
{
    const struct ch_step *st = &s->steps[box->first];
    uint32_t count = box->last - box->first + 1;

    switch ((enum ch_step_kind)st->kind) {
    case CH_POST:
        ch_page_put(page, "post %u", st->flag);
        break;
    case CH_AWAIT:
        if (count == 1)
            ch_page_put(page, "await %u: %u", st->peer, st->flag);
        else
            ch_page_put(page, "await %u \303\227%u", st->flag, count);
        break;
    case CH_SEND:
        ch_page_put(page, "send \342\206\222%u", st->peer);
        break;
    case CH_RECV:
        ch_page_put(page, "recv \342\206\220%u", st->peer);
        break;
    case CH_SENDRECV:
        ch_page_put(page, "\342\206\222%u \342\206\220%u", st->peer, st->flag);
        break;
    case CH_COPY:
    case CH_REDUCE_ALL:
    case CH_COMBINE:
    case CH_FINISH:
    case CH_GATE:
    case CH_NSTEPS:
        ch_page_put(page, "%s", kinds[st->kind].name);
        if (count > 1)
            ch_page_put(page, " \303\227%u", count);
        break;
    }
}

static void put_box(struct ch_page *page, const struct ch_answer *a, uint32_t rank,
                    const struct box *box)
{
    const struct ch_sched *s = a->scheds[rank];
    int x = left_of(a, rank, box->first), y = top_of(rank);
    int width = left_of(a, rank, box->last) - x + BOX_WIDTH;
    char text[TEXT_MAX];

    ch_page_put(page, "<g><title>rank %u", rank);
    for (uint32_t i = box->first; i <= box->last; i++) {
        ch_page_put(page, "\n%u: ", i);
        ch_page_put_xml(page, ch_step_text(s, i, text, sizeof(text)));
    }
    ch_page_put(page,
                "</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" "
                "stroke=\"#6b7280\"/><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
                x, y, width, BOX_HEIGHT, kinds[s->steps[box->first].kind].fill, x + width / 2,
                y + BOX_HEIGHT / 2 + 4);
    put_label(page, s, box);
    ch_page_put(page, "</text></g>\n");
}

static void put_boxes(struct ch_page *page, const struct ch_answer *a, uint32_t rank)
{
    struct box box = { 0 };

    while (next_box(a->scheds[rank], &box)) {
        put_box(page, a, rank, &box);
        box.first = box.last + 1;
    }
}

/* --- arrows ----------------------------------------------------------------------------------------- */

/* Posts are thin, since everyone waits for everyone; messages are bold. */
static void put_arrow(struct ch_page *page, const struct ch_answer *a, uint32_t rank, uint32_t step)
{
    const struct ch_play_step *to = &a->play->steps[rank][step];
    const uint8_t kind = a->scheds[rank]->steps[step].kind;
    bool swap = kind == CH_SENDRECV, message = swap || kind == CH_RECV;
    int x0 = left_of(a, to->from_rank, to->from_step) + (swap ? BOX_WIDTH / 2 : BOX_WIDTH);
    int x1 = left_of(a, rank, step) + (swap ? BOX_WIDTH / 2 : 0);
    bool down = rank > to->from_rank;
    int y0 = top_of(to->from_rank) + BOX_HEIGHT / 2, y1 = top_of(rank) + BOX_HEIGHT / 2;

    if (swap) { /* from edge to edge; the two directions beside each other */
        y0 += down ? BOX_HEIGHT / 2 : -(BOX_HEIGHT / 2);
        y1 += down ? -(BOX_HEIGHT / 2) : BOX_HEIGHT / 2;
        x0 += down ? -6 : 6;
        x1 += down ? -6 : 6;
    }
    ch_page_put(page, "<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n",
                message ? "m" : "f", x0, y0, x1, y1);
}

static void put_arrows(struct ch_page *page, const struct ch_answer *a, uint32_t rank)
{
    for (uint32_t i = 0; i < a->scheds[rank]->nsteps; i++) {
        if (a->play->steps[rank][i].from_rank != CH_PLAY_NOBODY)
            put_arrow(page, a, rank, i);
    }
}

/* --- the sheet -------------------------------------------------------------------------------------- */

static void put_head(struct ch_page *page, const struct ch_answer *a, int width, int height)
{
    const struct ch_question *q = &a->question;

    ch_page_put(
        page,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#111827\">\n",
        width, height, width, height);
    ch_page_put(page, "<style>.f{stroke:#9ca3af;stroke-width:.7;marker-end:url(#a)}"
                      ".m{stroke:#7c3aed;stroke-width:1.6;marker-end:url(#b)}</style>\n");
    ch_page_put(page, "<defs>");
    for (int i = 0; i < 2; i++)
        ch_page_put(page,
                    "<marker id=\"%c\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" "
                    "markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">"
                    "<path d=\"M0 0L8 4L0 8z\" fill=\"%s\"/></marker>",
                    "ab"[i], i == 0 ? "#9ca3af" : "#7c3aed");
    ch_page_put(page, "</defs>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
    ch_page_put(page,
                "<text x=\"12\" y=\"24\" font-size=\"16\" font-weight=\"bold\">%s %s, %u rank%s, "
                "%llu bytes</text>\n",
                ch_coll_name(q->situation.coll), a->choice.algo->name, q->situation.nranks,
                q->situation.nranks == 1 ? "" : "s", (unsigned long long)q->situation.nbytes);
    ch_page_put(page, "<text x=\"12\" y=\"44\">");
    ch_page_put_xml(page, a->choice.reason);
    ch_page_put(page, "</text>\n");
}

/* Which colour is what, of the kinds that appear. */
static void put_legend(struct ch_page *page, const struct ch_answer *a)
{
    bool used[CH_NSTEPS] = { false };
    int x = 12;

    for (uint32_t r = 0; r < a->question.situation.nranks; r++) {
        for (uint32_t i = 0; i < a->scheds[r]->nsteps; i++)
            used[a->scheds[r]->steps[i].kind] = true;
    }
    for (int k = 0; k < CH_NSTEPS; k++) {
        int length = snprintf(NULL, 0, "%s", kinds[k].what);

        if (!used[k])
            continue;
        ch_page_put(page,
                    "<rect x=\"%d\" y=\"58\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\" "
                    "stroke=\"#6b7280\"/><text x=\"%d\" y=\"68\" font-size=\"11\">%s</text>\n",
                    x, kinds[k].fill, x + 17, kinds[k].what);
        x += 32 + 6 * length;
    }
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

choir_status ch_answer_svg(const struct ch_answer *a, char **text_out)
{
    uint32_t nranks = a->question.situation.nranks;
    int lanes = LEFT + (int)a->play->ncolumns * COLUMN;
    /* Nothing wraps in SVG: the sheet is as wide as its longest line of text, about. */
    int words = 24 + 7 * snprintf(NULL, 0, "%s", a->choice.reason);
    int width = larger(larger(lanes + 12, words), 760), height = TOP + (int)nranks * LANE;
    struct ch_page page = { 0 };

    put_head(&page, a, width, height);
    put_legend(&page, a);
    for (uint32_t r = 0; r < nranks; r++)
        ch_page_put(&page,
                    "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#e5e7eb\"/>"
                    "<text x=\"12\" y=\"%d\" font-weight=\"bold\">rank %u</text>\n",
                    LEFT - 6, top_of(r) + BOX_HEIGHT / 2, lanes, top_of(r) + BOX_HEIGHT / 2,
                    top_of(r) + BOX_HEIGHT / 2 + 4, r);
    for (uint32_t r = 0; r < nranks; r++) /* behind the boxes, so that those stay readable */
        put_arrows(&page, a, r);
    for (uint32_t r = 0; r < nranks; r++)
        put_boxes(&page, a, r);
    ch_page_put(&page, "</svg>\n");
    return ch_page_end(&page, text_out);
}
