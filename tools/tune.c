/*
 * tune.c - `choir tune`: find the figures of the cost model for this machine, in a few seconds.
 *
 * Two ranks, each on a processor of its own, measure a few operations as `choir perf` does. Then
 *   wait_us    is what the second wait of a two-shot all-reduce costs, beside a one-shot one;
 *   call_us    is what a barrier costs beyond its wait;
 *   points     are, for each size, the two costs of a byte (copied, reduced) with which the model is nearest to the
 *              operations' times, in the sense of least squares of relative errors. The operations are as long as it takes for
 *              their buffers to have that size.
 * The file says how near it is.
 *
 * All is measured in several passes, one after the other, and the median of them counts: machines change their speed by half
 * and more from one second to the next, and the least, or what is measured in a row, would be that of one such moment.
 */
#include "perf.h"
#include "commands.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { PASSES = 5, PASSES_LONG = 3, LONG = 4 << 20, NRANKS = 2, SIZES_MOST = 16 };

/* What the points are fitted to. The all-reduce counts for more: it is what most programs wait for. `larger` is how many
 * times as long as an all-reduce it is whose buffers take as much room. */
static const struct {
    enum perf_op op;
    double weight, larger;
} fitted[] = { { PERF_ALLREDUCE, 16, 1 },
               { PERF_ALLGATHER, 1, 4.0 / 3 },
               { PERF_REDUCESCATTER, 1, 4.0 / 3 },
               { PERF_BROADCAST, 1, 2 },
               { PERF_ALLTOALL, 1, 1 } };
enum { NFITTED = sizeof(fitted) / sizeof(fitted[0]) };

/* One operation at one size. */
struct sample {
    enum perf_op op;
    const char *algo;
    size_t nbytes;
    double us[PASSES]; /* p50 of each */
};

struct tuning {
    choir_group *group;
    int processors;
    choir_machine machine;
    size_t sizes[SIZES_MOST]; /* of an all-reduce */
    int nsizes;
    struct sample barrier, one_shot, two_shot, samples[SIZES_MOST][NFITTED];
    double us[SIZES_MOST][NFITTED];
    double worst, worst_allreduce; /* relative errors */
    struct perf_machine meanwhile;
};

static void help(void)
{
    printf(
        "usage: choir tune [options]\n\n"
        "  --output FILE   where the figures go (a place by processor model, where others look)\n"
        "  --show          print them, and write nothing\n"
        "  --help          this text\n");
}

/* --- measuring --------------------------------------------------------------------------------------- */

static struct perf_options options_of(enum perf_op op, const char *algo)
{
    return (struct perf_options){ .op = op,
                                  .type = CHOIR_F32,
                                  .redop = CHOIR_SUM,
                                  .fresh = true,
                                  .algo = algo,
                                  .memory = "ordinary" };
}

static int passes_of(const struct sample *sample)
{
    return sample->nbytes < LONG ? PASSES : PASSES_LONG;
}

static choir_status measure(struct tuning *t, struct sample *sample, int pass)
{
    struct perf_options o = options_of(sample->op, sample->algo);
    struct perf_row row = { 0 };
    choir_status rc;

    if (pass >= passes_of(sample))
        return CHOIR_OK;
    /* The first rounds are slower than those that follow: choir perf has more of them, and so have programs. */
    o.iters = sample->nbytes < LONG ? perf_default_rounds(sample->nbytes) / 2 : 9;
    rc = choir_perf_case(t->group, &o, sample->nbytes, &row);
    sample->us[pass] = row.us.p50;
    return rc;
}

static double median(struct sample *sample)
{
    return perf_times_of(sample->us, passes_of(sample)).p50;
}

static void plan(struct tuning *t)
{
    enum { SMALL = 512, LEAST = 2048, MOST = 16 << 20 };

    t->barrier = (struct sample){ .op = PERF_BARRIER, .nbytes = 8 };
    t->one_shot = (struct sample){ .op = PERF_ALLREDUCE, .algo = "one-shot", .nbytes = SMALL };
    t->two_shot = (struct sample){ .op = PERF_ALLREDUCE, .algo = "two-shot", .nbytes = SMALL };
    for (size_t nbytes = LEAST; nbytes <= MOST; nbytes *= 2) {
        for (int i = 0; i < NFITTED; i++)
            t->samples[t->nsizes][i] = (struct sample){
                .op = fitted[i].op, .nbytes = (size_t)((double)nbytes * fitted[i].larger)
            };
        t->sizes[t->nsizes++] = nbytes;
    }
}

static choir_status measure_pass(struct tuning *t, int pass)
{
    choir_status rc = measure(t, &t->barrier, pass);

    if (rc == CHOIR_OK)
        rc = measure(t, &t->one_shot, pass);
    if (rc == CHOIR_OK)
        rc = measure(t, &t->two_shot, pass);
    for (int s = 0; s < t->nsizes; s++) {
        for (int i = 0; i < NFITTED && rc == CHOIR_OK; i++)
            rc = measure(t, &t->samples[s][i], pass);
    }
    return rc;
}

static choir_status measure_all(struct tuning *t)
{
    double barrier, own;
    choir_status rc = choir_perf_host_cpu(t->group, false, &own);

    plan(t);
    choir_perf_machine_begin(&t->meanwhile, own);
    for (int pass = 0; pass < PASSES && rc == CHOIR_OK; pass++)
        rc = measure_pass(t, pass);
    if (rc == CHOIR_OK)
        rc = choir_perf_host_cpu(t->group, false, &own);
    if (rc != CHOIR_OK)
        return rc;
    choir_perf_machine_look(&t->meanwhile, own);
    barrier = median(&t->barrier);
    /* A noisy machine may say that it is next to nothing, or everything. */
    t->machine.wait_us = fmin(fmax(median(&t->two_shot) - median(&t->one_shot), barrier * 0.2),
                              barrier * 0.9);
    t->machine.call_us = barrier - t->machine.wait_us;
    for (int s = 0; s < t->nsizes; s++) {
        for (int i = 0; i < NFITTED; i++)
            t->us[s][i] = median(&t->samples[s][i]);
    }
    return CHOIR_OK;
}

/* --- fitting ----------------------------------------------------------------------------------------- */

/* The model's time if a byte costs so much, in ns. */
static double model(const struct tuning *t, int i, int s, double copy_ns, double reduce_ns)
{
    const double nothing = 1e-9;
    size_t nbytes = t->samples[s][i].nbytes;
    struct perf_options o = options_of(fitted[i].op, NULL);
    choir_machine m = t->machine;
    char algo[PERF_ALGO_MAX];

    m.npoints = 1;
    m.points[0] = (choir_machine_point){ (double)t->sizes[s], 1 / fmax(copy_ns, nothing),
                                         1 / fmax(reduce_ns, nothing) };
    if (choir_perf_algo(&o, NRANKS, t->processors, nbytes, algo) != CHOIR_OK)
        return 0;
    return choir_perf_model(&m, &o, NRANKS, nbytes, algo);
}

/* Times are all but linear in the two costs: us = free + copy_ns * a + reduce_ns * b. */
static choir_machine_point fit(const struct tuning *t, int s)
{
    const double least_ns = 1e-3;
    double aa = 0, ab = 0, bb = 0, ay = 0, by = 0, copy, reduce, det;

    for (int i = 0; i < NFITTED; i++) {
        double free_us = model(t, i, s, 0, 0), us = t->us[s][i];
        double a = (model(t, i, s, 1, 0) - free_us) / us, b = (model(t, i, s, 0, 1) - free_us) / us;
        double y = (us - free_us) / us, w = fitted[i].weight;

        aa += w * a * a;
        ab += w * a * b;
        bb += w * b * b;
        ay += w * a * y;
        by += w * b * y;
    }
    det = aa * bb - ab * ab;
    copy = det > 0 ? (ay * bb - by * ab) / det : 0;
    reduce = det > 0 ? (by * aa - ay * ab) / det : 0;
    /* Where one would be less than nothing the other has to explain it all. */
    if (reduce < least_ns) {
        reduce = least_ns;
        copy = aa > 0 ? (ay - ab * reduce) / aa : 1;
    } else if (copy < least_ns) {
        copy = least_ns;
        reduce = bb > 0 ? (by - ab * copy) / bb : 1;
    }
    return (choir_machine_point){ (double)t->sizes[s], 1 / fmax(copy, least_ns),
                                  1 / fmax(reduce, least_ns) };
}

static void fit_all(struct tuning *t)
{
    choir_machine *m = &t->machine;

    choir_perf_cpu(m->cpu, sizeof(m->cpu));
    m->ranks_per_host = 0;
    for (int s = 0; s < t->nsizes; s++)
        m->points[s] = fit(t, s);
    m->npoints = t->nsizes;
    for (int s = 0; s < t->nsizes; s++) {
        for (int i = 0; i < NFITTED; i++) {
            const choir_machine_point *p = &m->points[s];
            double us = model(t, i, s, 1 / p->copy_gbs, 1 / p->reduce_gbs);
            double error = fabs(us / t->us[s][i] - 1);

            t->worst = fmax(t->worst, error);
            if (fitted[i].op == PERF_ALLREDUCE)
                t->worst_allreduce = fmax(t->worst_allreduce, error);
        }
    }
}

/* --- the file ---------------------------------------------------------------------------------------- */

/* All folders above the file. */
static void make_folders(const char *path)
{
    char copy[4096];

    snprintf(copy, sizeof(copy), "%s", path);
    for (char *c = copy + 1; *c != '\0'; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        mkdir(copy,
              0777); /* what is there already, or cannot be made, shows when the file is opened */
        *c = '/';
    }
}

/* The figures, and what is to be thought of them. */
static void put_figures(FILE *file, const struct tuning *t, const choir_blob *text)
{
    const struct perf_machine *m = &t->meanwhile;

    fwrite(text->data, 1, text->nbytes, file);
    fprintf(
        file,
        "# measured at load %.2f; meanwhile others kept %.2f processors busy, %.1f %% was stolen%s\n",
        m->load, m->others, m->steal, m->quiet ? "" : ": NOT QUIET, not to be trusted");
}

static bool write_file(const char *path, const struct tuning *t, const choir_blob *text)
{
    struct perf_file file;

    make_folders(path);
    if (choir_perf_file_begin(&file, "tune", path) == NULL)
        return false;
    put_figures(file.file, t, text);
    return choir_perf_file_end(&file);
}

static int write_down(struct tuning *t, const char *path, bool show)
{
    choir_blob text;
    int code = EXIT_SUCCESS;

    if (choir_machine_print(&t->machine, &text) != CHOIR_OK) {
        fprintf(stderr, "choir tune: %s\n", choir_last_error());
        return EXIT_FAILURE;
    }
    if (show) {
        put_figures(stdout, t, &text);
    } else {
        code = write_file(path, t, &text) ? EXIT_SUCCESS : EXIT_FAILURE;
        if (code == EXIT_SUCCESS)
            printf("%s: a wait %.2f us, a call %.2f us; the model is within %.0f %% of what was "
                   "measured, %.0f %% for all-reduce\n",
                   path, t->machine.wait_us, t->machine.call_us, 100 * t->worst,
                   100 * t->worst_allreduce);
    }
    choir_blob_free(&text);
    fflush(stdout);
    if (!t->meanwhile.quiet)
        choir_perf_put_noise("tune", &t->meanwhile);
    return code;
}

/* --- all of it --------------------------------------------------------------------------------------- */

/* Of a run that somebody else has started, with another number of ranks. */
static int refuse(choir_group *group)
{
    if (choir_group_rank(group) == 0)
        choir_cmd_usage("tune", "the run that this is part of has %d ranks, not %d",
                        choir_group_size(group), NRANKS);
    choir_barrier(group, NULL, NULL); /* who leaves first ends the run, and with it rank 0's word */
    choir_group_destroy(group);
    return EXIT_USAGE;
}

static int run_as_rank(const char *path, bool show)
{
    static struct tuning t; /* too large for some stacks */
    choir_status rc = choir_init(&t.group, NULL);
    int code = EXIT_SUCCESS;

    if (rc == CHOIR_OK) {
        t.processors = choir_group_processors(t.group);
        choir_machine_init(&t.machine);
        if (choir_group_size(t.group) != NRANKS)
            return refuse(t.group);
        if (t.processors >= NRANKS)
            perf_bind(choir_group_local_rank(t.group));
        else if (choir_group_rank(t.group) == 0)
            fprintf(stderr,
                    "choir tune: the ranks share one processor: the figures will be of no use\n");
        rc = measure_all(&t);
    }
    if (rc != CHOIR_OK) {
        fprintf(stderr, "choir tune: %s\n", choir_perf_why(rc));
        code = EXIT_FAILURE;
    } else if (choir_group_rank(t.group) == 0) {
        fit_all(&t);
        code = write_down(&t, path, show);
    }
    if (t.group != NULL)
        choir_group_destroy(t.group);
    return code;
}

int choir_cmd_tune(int argc, char **argv)
{
    char usual[4096];
    const char *path = NULL;
    bool show = false;

    for (int i = 1; i < argc; i++) {
        char name[32];
        const char *value;
        bool one = choir_cmd_option(argv, i, name, sizeof(name), &value);
        bool valued = strcmp(name, "--output") == 0 || strcmp(name, "--terminal") == 0;

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return EXIT_SUCCESS;
        }
        if (strcmp(argv[i], "--show") == 0)
            show = true;
        else if (!valued)
            return choir_cmd_usage("tune", "there is no option \"%s\"", argv[i]);
        else if (value == NULL || value[0] == '\0')
            return choir_cmd_usage("tune", "%s needs a value", name);
        else if (strcmp(name, "--output") == 0)
            path = value;
        if (valued && !one)
            i++;
    }
    if (path == NULL && !show) {
        if (choir_machine_path(usual, sizeof(usual)) != CHOIR_OK)
            return choir_cmd_usage("tune", "%s: use --output", choir_last_error());
        path = usual;
    }
    if (choir_perf_is_rank())
        return run_as_rank(path, show);
    if (!show)
        make_folders(path);
    if (!show && !choir_perf_file_try("tune", path))
        return EXIT_FAILURE;
    return choir_perf_start("tune", argc, argv, NRANKS);
}
