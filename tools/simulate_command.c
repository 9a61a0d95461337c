/*
 * simulate_command.c - `choir simulate`: every algorithm of an operation, played on a machine that need not exist.
 */
#include "commands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

enum { RANKS_MOST = 65536, SIZES_MOST = 20 };

struct request {
    const char *operation, *machine, *svg;
    int nranks;
    size_t nbytes;
    bool json;
    choir_simulate_opts opts;
};

/* All algorithms at one number of ranks. */
struct answer {
    int nranks;
    choir_simulated rows[CHOIR_SIMULATED_MOST];
    size_t nrows;
    choir_simulate_bound bound;
};

static void help(void)
{
    printf(
        "usage: choir simulate OPERATION [options]\n\n"
        "  allreduce, broadcast, reduce, allgather, reduce_scatter, gather, scatter, alltoall, barrier\n\n"
        "  --ranks N        how many ranks, up to 65536 (1024)\n"
        "  --bytes SIZE     the larger of a rank's input and output, such as 64K (1M)\n"
        "  --machine FILE   its figures, as choir tune writes them (a cluster of no one in particular)\n"
        "  --type TYPE      what the elements are, such as bf16 (f32)\n"
        "  --root R         the root, of operations that have one (0)\n"
        "  --svg FILE       draw how time grows with ranks; \"-\" is standard output\n"
        "  --json           one object a line\n"
        "  --help           this text\n");
}

/* --- the command line -------------------------------------------------------------------------------- */

static bool take_value(const char *name, const char *value, void *request, bool *known)
{
    struct request *r = request;

    *known = true;
    if (strcmp(name, "--ranks") == 0)
        return value != NULL && choir_cmd_number(value, 2, &r->nranks) && r->nranks <= RANKS_MOST;
    if (strcmp(name, "--bytes") == 0)
        return value != NULL && choir_cmd_size(value, &r->nbytes);
    if (strcmp(name, "--type") == 0)
        return value != NULL && choir_cmd_type(value, &r->opts.type);
    if (strcmp(name, "--root") == 0)
        return value != NULL && choir_cmd_number(value, 0, &r->opts.root);
    if (strcmp(name, "--machine") == 0)
        return (r->machine = value) != NULL;
    if (strcmp(name, "--svg") == 0)
        return (r->svg = value) != NULL;
    *known = false;
    return false;
}

static bool take_switch(const char *name, void *request)
{
    struct request *r = request;

    return strcmp(name, "--json") == 0 && (r->json = true);
}

/* --- words ------------------------------------------------------------------------------------------- */

static void put_machine(const choir_machine *m, const struct request *r)
{
    printf("%s of %zu bytes of %s, %d ranks", r->operation, r->nbytes,
           choir_type_name(r->opts.type), r->nranks);
    if (m->ranks_per_host > 0)
        printf(", %d on each host", m->ranks_per_host);
    printf(
        "\nmachine   %s: a flag is seen after %g us, a message takes %g us and %g GB/s inside a host, "
        "%g us and %g GB/s between hosts\n",
        r->machine != NULL ? r->machine : "no one in particular", m->wait_us, m->host_us,
        m->host_gbs, m->net_us, m->net_gbs);
}

static void put_ratio(double value, double bound)
{
    if (bound > 0)
        printf("%8.2f", value / bound);
    else
        printf("%8s", "-");
}

static void put_answer(const struct answer *a)
{
    printf("\n%-20s %14s %8s %10s %14s %8s  %s\n", "algorithm", "time, us", "/ bound", "messages",
           "their bytes", "/ bound", "played");
    printf("%-20s %14.2f %8s %10.0f %14.0f %8s  no less is possible with messages\n", "(bound)",
           a->bound.us, "", a->bound.messages, a->bound.sent, "");
    for (size_t i = 0; i < a->nrows; i++) {
        const choir_simulated *row = &a->rows[i];

        if (row->objection != NULL) {
            printf("%-20s %14s %s\n", row->algo, "-", row->objection);
            continue;
        }
        printf("%-20s %14.2f ", row->algo, row->us);
        put_ratio(row->us, a->bound.us);
        printf(" %10.0f %14.0f ", row->messages, row->sent);
        put_ratio(row->sent, row->messages > 0 ? a->bound.sent : 0);
        printf("  %s\n", row->how);
    }
}

static void put_growth(const struct answer *answers, int count)
{
    const struct answer *last = &answers[count - 1];

    printf("\ntime in us, by ranks\n%8s %12s", "ranks", "(bound)");
    for (size_t i = 0; i < last->nrows; i++)
        printf(" %*s", (int)(strlen(last->rows[i].algo) > 12 ? strlen(last->rows[i].algo) : 12),
               last->rows[i].algo);
    printf("\n");
    for (int k = 0; k < count; k++) {
        printf("%8d %12.2f", answers[k].nranks, answers[k].bound.us);
        for (size_t i = 0; i < answers[k].nrows; i++) {
            const choir_simulated *row = &answers[k].rows[i];
            int width = (int)(strlen(row->algo) > 12 ? strlen(row->algo) : 12);

            if (row->objection != NULL)
                printf(" %*s", width, "-");
            else
                printf(" %*.2f", width, row->us);
        }
        printf("\n");
    }
}

static void put_json(const struct request *r, const struct answer *a)
{
    for (size_t i = 0; i < a->nrows; i++) {
        const choir_simulated *row = &a->rows[i];

        printf("{\"op\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"algo\": \"%s\", ", r->operation,
               a->nranks, r->nbytes, row->algo);
        if (row->objection != NULL) {
            printf("\"objection\": ");
            choir_cmd_json(stdout, row->objection);
        } else {
            printf(
                "\"us\": %.3f, \"messages\": %.0f, \"sent\": %.0f, \"moved\": %.0f, \"how\": \"%s\"",
                row->us, row->messages, row->sent, row->moved, row->how);
        }
        printf(", \"bound_us\": %.3f, \"bound_messages\": %.0f, \"bound_sent\": %.0f}\n",
               a->bound.us, a->bound.messages, a->bound.sent);
    }
}

/* --- the drawing ------------------------------------------------------------------------------------- */

enum { WIDTH = 760, HEIGHT = 460, LEFT = 74, RIGHT = 170, TOP = 40, BOTTOM = 46 };

struct drawing {
    FILE *file;
    double x0, x1, y0, y1; /* logarithms */
};

static double x_of(const struct drawing *d, double ranks)
{
    return LEFT + (log2(ranks) - d->x0) / (d->x1 - d->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct drawing *d, double us)
{
    return HEIGHT - BOTTOM - (log10(us) - d->y0) / (d->y1 - d->y0) * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(const struct drawing *d, const struct request *r)
{
    fprintf(
        d->file,
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' "
        "font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n"
        "<text x='%d' y='22' font-size='15' font-weight='600'>%s of %zu bytes: time by ranks</text>\n",
        WIDTH, HEIGHT, LEFT, r->operation, r->nbytes);
    for (double e = d->y0; e <= d->y1 + 1e-9; e++) {
        double us = pow(10, e), y = y_of(d, us);

        fprintf(d->file,
                "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#e2e5ea'/><text x='%d' y='%.1f' "
                "text-anchor='end' fill='#667'>%g %s</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, us >= 1000 ? us / 1000 : us,
                us >= 1000 ? "ms" : "us");
    }
    for (double e = d->x0; e <= d->x1 + 1e-9; e += d->x1 - d->x0 > 8 ? 3 : 1)
        fprintf(d->file, "<text x='%.1f' y='%d' text-anchor='middle' fill='#667'>%.0f</text>\n",
                x_of(d, pow(2, e)), HEIGHT - BOTTOM + 20, pow(2, e));
}

static double time_of(const struct answer *a, int row)
{
    if (row < 0)
        return a->bound.us;
    return a->rows[row].objection == NULL ? a->rows[row].us : 0;
}

/* row -1 is the bound. */
static void draw_curve(const struct drawing *d, const struct answer *answers, int count, int row)
{
    static const char *const colors[] = { "#2463c5", "#e07b00", "#b0319a", "#1f9d61",
                                          "#c22f2f", "#6b5bd2", "#0a8f9c", "#8a6d00" };
    const char *color = row < 0 ? "#999" : colors[row % 8];
    double x = 0, y = 0;

    fprintf(d->file, "<polyline fill='none' stroke='%s' stroke-width='2'%s points='", color,
            row < 0 ? " stroke-dasharray='5 4'" : "");
    for (int k = 0; k < count; k++) {
        if (time_of(&answers[k], row) <= 0)
            continue;
        x = x_of(d, answers[k].nranks);
        y = y_of(d, time_of(&answers[k], row));
        fprintf(d->file, "%.1f,%.1f ", x, y);
    }
    fprintf(d->file, "'/>\n");
    if (x > 0)
        fprintf(d->file, "<text x='%.1f' y='%.1f' fill='%s'>%s</text>\n", x + 6, y + 4, color,
                row < 0 ? "bound" : answers[count - 1].rows[row].algo);
}

static int draw(const struct request *r, const struct answer *answers, int count)
{
    struct drawing d = { .file = choir_cmd_create("simulate", r->svg),
                         .x0 = 1,
                         .x1 = log2(answers[count - 1].nranks),
                         .y0 = 12,
                         .y1 = -12 };

    if (d.file == NULL)
        return EXIT_FAILURE;
    for (int k = 0; k < count; k++) {
        for (int row = -1; row < (int)answers[k].nrows; row++) {
            double us = time_of(&answers[k], row);

            if (us > 0) {
                d.y0 = fmin(d.y0, floor(log10(us)));
                d.y1 = fmax(d.y1, ceil(log10(us) + 1e-9));
            }
        }
    }
    d.x1 = d.x1 > d.x0 ? d.x1 : d.x0 + 1;
    draw_axes(&d, r);
    for (int row = -1; row < (int)answers[0].nrows; row++)
        draw_curve(&d, answers, count, row);
    fprintf(d.file, "</svg>\n");
    return choir_cmd_close("simulate", r->svg, d.file);
}

/* --- all of it --------------------------------------------------------------------------------------- */

/* 2, 4, 8, ... and the number asked for. */
static int simulate_all(const struct request *r, const choir_machine *m, struct answer *answers,
                        int *count_out)
{
    int count = 0, n = 2;

    for (;;) {
        struct answer *a = &answers[count++];
        choir_simulate_opts opts = r->opts;

        a->nranks = n;
        opts.root = opts.root < n ? opts.root : 0;
        if (choir_simulate(r->operation, n, r->nbytes, m, &opts, a->rows, &a->nrows, &a->bound) !=
            CHOIR_OK)
            return choir_cmd_failed("simulate");
        if (n == r->nranks)
            break;
        n = n * 2 < r->nranks ? n * 2 : r->nranks;
    }
    *count_out = count;
    return 0;
}

static int answer(const struct request *r)
{
    static struct answer answers[SIZES_MOST];
    choir_machine machine;
    int count = 0, code;

    choir_machine_init(&machine);
    if (r->machine != NULL && choir_machine_load(r->machine, &machine) != CHOIR_OK)
        return choir_cmd_failed("simulate");
    if (r->json && r->svg != NULL && strcmp(r->svg, "-") == 0)
        return choir_cmd_usage("simulate", "--json and --svg - both want standard output");
    if (r->opts.root >= r->nranks)
        return choir_cmd_usage("simulate", "--root %d: there are %d ranks", r->opts.root,
                               r->nranks);
    code = simulate_all(r, &machine, answers, &count);
    if (code != 0)
        return code;
    if (r->svg != NULL)
        code = draw(r, answers, count);
    if (r->json) {
        for (int k = 0; k < count; k++)
            put_json(r, &answers[k]);
    } else if (r->svg == NULL || strcmp(r->svg, "-") != 0) {
        put_machine(&machine, r);
        put_answer(&answers[count - 1]);
        put_growth(answers, count);
    }
    return code;
}

int choir_cmd_simulate(int argc, char **argv)
{
    struct request r = { .nranks = 1024,
                         .nbytes = 1 << 20,
                         .opts = { .size = sizeof(r.opts), .type = CHOIR_F32 } };
    struct choir_cmd_line line = {
        .command = "simulate", .request = &r, .take_switch = take_switch, .take_value = take_value
    };
    int code = choir_cmd_parse(&line, argc, argv);

    if (code != 0)
        return code;
    if (line.helped) {
        help();
        return EXIT_SUCCESS;
    }
    r.operation = line.operation;
    return answer(&r);
}
