/*
 * perf_output.c - results as a table or as JSON, and progress on a terminal.
 */
#include "perf.h"
#include "commands.h"

#include <inttypes.h>

const char *choir_perf_redop(const struct perf_options *o)
{
    return perf_op_reduces(o->op) ? choir_redop_name(o->redop) : "none";
}

/* --- table ------------------------------------------------------------------------------------------ */

void choir_perf_put_head(const struct perf_report *r, const struct perf_machine *m)
{
    const struct perf_options *o = r->options;

    if (o->json)
        return;
    printf("# %s, %d rank%s (%s, %s), %s memory, %s inputs%s\n", perf_op_name(o->op), r->nranks,
           r->nranks > 1 ? "s" : "", o->threads ? "threads" : "processes",
           r->bound ? "each bound to a processor" : "not bound to processors", o->memory,
           o->fresh ? "fresh" : "hot", o->in_place ? ", in place" : "");
    printf("# %s, %d processor%s, load %.2f when it began; choir %s, kernels %s\n", m->cpu,
           m->processors, m->processors > 1 ? "s" : "", m->load, choir_version(),
           choir_kernel_name());
    printf("# time is the mean; algbw and busbw are those of p50, in GB/s\n");
    printf("#%11s %12s %6s %10s %5s %10s %8s %8s %6s %10s %10s %10s  %s\n", "size", "count", "type",
           "redop", "root", "time", "algbw", "busbw", "wrong", "p50", "min", "p99",
           o->explain_cost ? "     model    off  algo" : "algo");
    printf("#%11s %12s %6s %10s %5s %10s %8s %8s %6s %10s %10s %10s\n", "(B)", "(elements)", "", "",
           "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)");
    fflush(stdout);
}

double choir_perf_off(const struct perf_row *row)
{
    return row->us.p50 > 0 ? 100 * (row->model_us / row->us.p50 - 1) : 0;
}

static void put_model(const struct perf_row *row)
{
    if (row->model_us > 0)
        printf("%10.2f %+5.0f%%  ", row->model_us, choir_perf_off(row));
    else
        printf("%10s %6s  ", "-", "-");
}

static void put_line(const struct perf_options *o, const struct perf_row *row)
{
    printf("%12zu %12zu %6s %10s %5d %10.2f %8.3f %8.3f %6" PRIu64 " %10.2f %10.2f %10.2f  ",
           row->nbytes, row->count, choir_type_name(o->type), choir_perf_redop(o),
           perf_op_has_root(o->op) ? o->root : -1, row->us.mean, row->algbw, row->busbw, row->wrong,
           row->us.p50, row->us.min, row->us.p99);
    if (o->explain_cost)
        put_model(row);
    printf("%s\n", row->algo);
}

/* --- JSON ------------------------------------------------------------------------------------------- */

static void put_machine(const struct perf_machine *m)
{
    printf("\"machine\": {\"cpu\": ");
    choir_cmd_json(stdout, m->cpu);
    printf(", \"processors\": %d, \"load\": %.2f, \"steal_percent\": %.2f, \"others_busy\": %.2f, "
           "\"quiet\": %s}",
           m->processors, m->load, m->steal, m->others, m->quiet ? "true" : "false");
}

static void put_object(const struct perf_report *r, const struct perf_row *row)
{
    const struct perf_options *o = r->options;

    printf("{\"op\": \"%s\", \"bytes\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", "
           "\"ranks\": %d, \"memory\": \"%s\", \"fresh\": %s, \"algo\": ",
           perf_op_name(o->op), row->nbytes, row->count, choir_type_name(o->type),
           choir_perf_redop(o), r->nranks, o->memory, o->fresh ? "true" : "false");
    choir_cmd_json(stdout, row->algo[0] != '\0' ? row->algo : NULL);
    printf(", \"p50_us\": %.3f, \"min_us\": %.3f, \"p99_us\": %.3f, \"algbw_gbs\": %.4f, "
           "\"busbw_gbs\": %.4f, \"wrong\": %" PRIu64 ", ",
           row->us.p50, row->us.min, row->us.p99, row->algbw, row->busbw, row->wrong);
    printf("\"mean_us\": %.3f, \"iters\": %d, \"root\": %d, \"inplace\": %s, \"threads\": %s, "
           "\"bound\": %s, ",
           row->us.mean, row->rounds, perf_op_has_root(o->op) ? o->root : -1,
           o->in_place ? "true" : "false", o->threads ? "true" : "false",
           r->bound ? "true" : "false");
    if (row->model_us > 0)
        printf("\"model_us\": %.3f, \"model_off_percent\": %.1f, ", row->model_us,
               choir_perf_off(row));
    put_machine(&row->machine);
    printf("}\n");
}

void choir_perf_put_row(const struct perf_report *r, const struct perf_row *row)
{
    if (r->options->json)
        put_object(r, row);
    else
        put_line(r->options, row);
    fflush(stdout);
}

/* --- the end ---------------------------------------------------------------------------------------- */

void choir_perf_put_end(const struct perf_report *r)
{
    uint64_t wrong = 0;
    double busbw = 0;

    for (size_t i = 0; i < r->nrows; i++) {
        wrong += r->rows[i].wrong;
        busbw += r->rows[i].busbw / (double)r->nrows;
    }
    if (wrong > 0)
        fprintf(stderr,
                "choir perf: WRONG RESULTS: %" PRIu64 " elements are not what they must be\n",
                wrong);
    if (r->nrows == 0)
        return;
    if (!r->options->json)
        printf("# wrong: %" PRIu64
               "%s; average busbw %.3f GB/s; others busy %.2f processors, stolen "
               "%.1f %%\n",
               wrong, wrong == 0 ? " (all verified)" : " (WRONG)", busbw,
               r->rows[r->nrows - 1].machine.others, r->rows[r->nrows - 1].machine.steal);
    fflush(stdout);
    if (!r->rows[r->nrows - 1].machine.quiet)
        choir_perf_put_noise("perf", &r->rows[r->nrows - 1].machine);
}

void choir_perf_progress(const struct perf_report *r, size_t nbytes)
{
    if (r->terminal == NULL)
        return;
    if (nbytes == 0)
        fprintf(r->terminal, "\r\033[K");
    else
        fprintf(r->terminal, "\r\033[K%s of %zu bytes, up to %zu ...", perf_op_name(r->options->op),
                nbytes, r->options->last);
    fflush(r->terminal);
}
