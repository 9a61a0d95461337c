/*
 * perf_page.c - the page of `choir perf --html`: plots and figures in one file that needs nothing else.
 */
#include "perf.h"

#include <inttypes.h>
#include <math.h>

enum { WIDTH = 640, HEIGHT = 380, LEFT = 64, RIGHT = 16, TOP = 34, BOTTOM = 44 };

/* A plot: sizes go right by powers of two, values up, by powers of ten if `logarithmic`. */
struct plot {
    FILE *page;
    const struct perf_report *report;
    double least, most; /* of the values, as drawn: logarithms if so */
    bool logarithmic;
};

static double x_of(const struct plot *p, size_t nbytes)
{
    const struct perf_row *rows = p->report->rows;
    double first = log2((double)rows[0].nbytes + 1),
           last = log2((double)rows[p->report->nrows - 1].nbytes + 1);
    double span = last > first ? last - first : 1;

    return LEFT + (log2((double)nbytes + 1) - first) / span * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct plot *p, double value)
{
    double at = p->logarithmic ? log10(value > 1e-3 ? value : 1e-3) : value;

    return HEIGHT - BOTTOM - (at - p->least) / (p->most - p->least) * (HEIGHT - TOP - BOTTOM);
}

static const char *short_size(size_t nbytes, char *out, size_t size)
{
    static const char units[] = "\0KMGT";
    size_t unit = 0;
    double value = (double)nbytes;

    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, size, "%.4g%c", value, units[unit] != '\0' ? units[unit] : 'B');
    return out;
}

static const char *short_time(double us, char *out, size_t size)
{
    if (us >= 1e6)
        snprintf(out, size, "%g s", us / 1e6);
    else if (us >= 1e3)
        snprintf(out, size, "%g ms", us / 1e3);
    else
        snprintf(out, size, "%g us", us);
    return out;
}

static void draw_grid_line(const struct plot *p, double value)
{
    char text[32];
    double y = y_of(p, value);

    if (p->logarithmic)
        short_time(value, text, sizeof(text));
    else
        snprintf(text, sizeof(text), "%g", value);
    fprintf(p->page, "<line class='grid' x1='%d' x2='%d' y1='%.1f' y2='%.1f'/>", LEFT,
            WIDTH - RIGHT, y, y);
    fprintf(p->page, "<text x='%d' y='%.1f' text-anchor='end'>%s</text>\n", LEFT - 6, y + 4, text);
}

static void draw_frame(const struct plot *p, const char *title)
{
    const struct perf_report *r = p->report;
    size_t every = r->nrows / 9 + 1;
    double step = 1;

    fprintf(p->page, "<svg viewBox='0 0 %d %d' role='img'><title>%s</title>\n", WIDTH, HEIGHT,
            title);
    fprintf(p->page, "<text class='title' x='%d' y='18'>%s</text>\n", LEFT, title);
    if (p->logarithmic) {
        for (double e = p->least; e <= p->most + 1e-9; e++)
            draw_grid_line(p, pow(10, e));
    } else {
        step = pow(10, floor(log10(p->most)));
        step = p->most / step < 2 ? step / 4 : p->most / step < 5 ? step / 2 : step;
        for (double v = 0; v <= p->most + 1e-12; v += step)
            draw_grid_line(p, v);
    }
    for (size_t i = 0; i < r->nrows; i += every) {
        char text[32];

        fprintf(p->page, "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>",
                x_of(p, r->rows[i].nbytes), HEIGHT - BOTTOM + 18,
                short_size(r->rows[i].nbytes, text, sizeof(text)));
    }
    fprintf(p->page, "\n");
}

static void draw_curve(const struct plot *p, double (*value)(const struct perf_row *row))
{
    const struct perf_report *r = p->report;
    char size[32];

    fprintf(p->page, "<polyline class='curve' points='");
    for (size_t i = 0; i < r->nrows; i++)
        fprintf(p->page, "%.1f,%.1f ", x_of(p, r->rows[i].nbytes), y_of(p, value(&r->rows[i])));
    fprintf(p->page, "'/>\n");
    for (size_t i = 0; i < r->nrows; i++)
        fprintf(p->page, "<circle cx='%.1f' cy='%.1f' r='3.5'><title>%s: %.4g</title></circle>\n",
                x_of(p, r->rows[i].nbytes), y_of(p, value(&r->rows[i])),
                short_size(r->rows[i].nbytes, size, sizeof(size)), value(&r->rows[i]));
}

static double p50_of(const struct perf_row *row)
{
    return row->us.p50;
}

static double busbw_of(const struct perf_row *row)
{
    return row->busbw;
}

/* From the fastest round to p99. */
static void draw_band(const struct plot *p)
{
    const struct perf_report *r = p->report;

    fprintf(p->page, "<polygon class='band' points='");
    for (size_t i = 0; i < r->nrows; i++)
        fprintf(p->page, "%.1f,%.1f ", x_of(p, r->rows[i].nbytes), y_of(p, r->rows[i].us.min));
    for (size_t i = r->nrows; i-- > 0;)
        fprintf(p->page, "%.1f,%.1f ", x_of(p, r->rows[i].nbytes), y_of(p, r->rows[i].us.p99));
    fprintf(p->page, "'/>\n");
}

static void draw_times(FILE *page, const struct perf_report *r)
{
    struct plot p = { .page = page, .report = r, .logarithmic = true, .least = 9, .most = -9 };

    for (size_t i = 0; i < r->nrows; i++) {
        p.least = fmin(p.least, floor(log10(fmax(r->rows[i].us.min, 1e-3))));
        p.most = fmax(p.most, ceil(log10(fmax(r->rows[i].us.p99, 1e-3)) + 1e-9));
    }
    if (p.most <= p.least)
        p.most = p.least + 1;
    draw_frame(&p, "time of a round: p50, and from the fastest to p99");
    draw_band(&p);
    draw_curve(&p, p50_of);
    fprintf(page, "</svg>\n");
}

static void draw_bandwidth(FILE *page, const struct perf_report *r)
{
    struct plot p = { .page = page, .report = r };

    for (size_t i = 0; i < r->nrows; i++)
        p.most = fmax(p.most, r->rows[i].busbw * 1.1);
    if (p.most <= 0)
        return; /* a barrier moves nothing */
    draw_frame(&p, "bus bandwidth, GB/s");
    draw_curve(&p, busbw_of);
    fprintf(page, "</svg>\n");
}

/* --- words and figures ------------------------------------------------------------------------------ */

static void put_text(FILE *page, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<' || *text == '>' || *text == '&')
            fprintf(page, "&#%d;", *text);
        else
            fputc(*text, page);
    }
}

static void put_style(FILE *page)
{
    fprintf(
        page,
        "<style>\n"
        ":root{--ink:#1d2330;--soft:#667;--line:#dde1e8;--back:#fff;--card:#f6f7fa;--accent:#2463c5}\n"
        "@media(prefers-color-scheme:dark){:root{--ink:#e6e9f0;--soft:#99a3b5;--line:#303848;"
        "--back:#12161f;--card:#1a202c;--accent:#6ea8ff}}\n"
        "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);"
        "max-width:1380px;margin:2rem auto;padding:0 1.5rem}\n"
        "h1{font-weight:650;margin:0}p{color:var(--soft);margin:.3rem 0 1.2rem}\n"
        ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1rem}\n"
        "svg{background:var(--card);border-radius:10px;width:100%%}\n"
        "svg text{font-size:12px;fill:var(--soft)}svg .title{font-size:14px;fill:var(--ink);font-weight:600}\n"
        ".grid{stroke:var(--line)}.curve{fill:none;stroke:var(--accent);stroke-width:2.2}\n"
        ".band{fill:var(--accent);opacity:.15}circle{fill:var(--accent)}\n"
        "table{border-collapse:collapse;margin-top:1.5rem;font-variant-numeric:tabular-nums}\n"
        "th,td{padding:.3rem .8rem;text-align:right;border-bottom:1px solid var(--line)}\n"
        "th{color:var(--soft);font-weight:600}.loud{background:#b3261e;color:#fff;padding:.7rem 1rem;"
        "border-radius:8px;font-weight:600}\n"
        "</style>\n");
}

static void put_words(FILE *page, const struct perf_report *r)
{
    const struct perf_options *o = r->options;
    const struct perf_machine *m = &r->rows[r->nrows - 1].machine;

    fprintf(page,
            "<h1>%s, %d rank%s</h1>\n<p>%s%s%s, %s memory, %s inputs%s. Ranks are %s, %s.<br>",
            perf_op_name(o->op), r->nranks, r->nranks > 1 ? "s" : "", choir_type_name(o->type),
            perf_op_reduces(o->op) ? ", " : "", perf_op_reduces(o->op) ? choir_perf_redop(o) : "",
            o->memory, o->fresh ? "fresh" : "hot", o->in_place ? ", in place" : "",
            o->threads ? "threads" : "processes",
            r->bound ? "each bound to a processor" : "not bound to processors");
    put_text(page, m->cpu);
    fprintf(page,
            ", %d processors, load %.2f when it began; others kept %.2f processors busy meanwhile, "
            "%.1f %% of the time was stolen. choir %s.</p>\n",
            m->processors, m->load, m->others, m->steal, choir_version());
    if (!m->quiet)
        fprintf(
            page,
            "<p class='loud'>The machine was not quiet: these figures are not to be trusted.</p>\n");
}

static void put_table(FILE *page, const struct perf_report *r)
{
    fprintf(page,
            "<table><tr><th>size, B<th>elements<th>p50, us<th>min, us<th>p99, us<th>mean, us"
            "<th>algbw, GB/s<th>busbw, GB/s<th>wrong%s<th>algorithm</tr>\n",
            r->options->explain_cost ? "<th>model, us<th>off" : "");
    for (size_t i = 0; i < r->nrows; i++) {
        const struct perf_row *row = &r->rows[i];

        fprintf(page,
                "<tr><td>%zu<td>%zu<td>%.2f<td>%.2f<td>%.2f<td>%.2f<td>%.3f<td>%.3f<td>%" PRIu64,
                row->nbytes, row->count, row->us.p50, row->us.min, row->us.p99, row->us.mean,
                row->algbw, row->busbw, row->wrong);
        if (r->options->explain_cost && row->model_us > 0)
            fprintf(page, "<td>%.2f<td>%+.0f %%", row->model_us, choir_perf_off(row));
        else if (r->options->explain_cost)
            fprintf(page, "<td>-<td>-");
        fprintf(page, "<td>%s</tr>\n", row->algo);
    }
    fprintf(page, "</table>\n");
}

void choir_perf_put_page(const struct perf_report *r, FILE *page)
{
    fprintf(page,
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>\n<title>choir perf "
            "%s</title>\n",
            perf_op_name(r->options->op));
    put_style(page);
    fprintf(page, "</head><body>\n");
    if (r->nrows > 0) {
        put_words(page, r);
        fprintf(page, "<div class='plots'>\n");
        draw_times(page, r);
        draw_bandwidth(page, r);
        fprintf(page, "</div>\n");
        put_table(page, r);
    }
    fprintf(page, "</body></html>\n");
}
