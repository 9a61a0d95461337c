/*
 * kernel_bench.c - how fast this machine copies and reduces, beside what a program would use instead.
 *
 * usage: kernel [--quick] [--json]
 *
 * The tables say what is compared; how it is measured is in bout.h. --quick is what `make run` shows;
 * without it all types, reductions and sizes are measured. --json prints one object per line.
 */
#include <stdio.h>
#include <string.h>

#include <choir/info.h>

#include "base/compiler.h"
#include "kernel/kernel.h"

#include "bout.h"

/* The few tables of --quick get more, since that is where people look. */
enum { BLOCKS = 31, QUICK_BLOCKS = BOUT_MAX_BLOCKS };

static struct {
    bool quick, json;
    bool two_cores; /* there are two to be had */
} options;

/* Too large for the stack, and there is only one at a time. */
static struct bout bout;

/* --- who takes part -------------------------------------------------------------------------------- */

static void begin(enum bout_work work, size_t nbytes, bool two_cores)
{
    bout = (struct bout){ .work = work,
                          .nbytes = nbytes,
                          .two_cores = two_cores,
                          .nblocks = options.quick ? QUICK_BLOCKS : BLOCKS };
}

static void enter(struct contender c)
{
    bout.contenders[bout.ncontenders++] = c;
}

/* All variants this CPU can run, from the reference up: the best is the last. */
static void enter_variants(choir_type type, choir_redop op)
{
    for (size_t i = 0; i < ch_kernels_count; i++) {
        const struct ch_kernels *k = ch_kernels_list[i];

        if (k->usable())
            enter((struct contender){ .name = k->name, .type = type, .op = op, .kernels = k });
    }
}

static const struct ch_kernels *best(void)
{
    const struct ch_kernels *k = ch_kernels_list[0];

    for (size_t i = 0; i < ch_kernels_count; i++) {
        if (ch_kernels_list[i]->usable())
            k = ch_kernels_list[i];
    }
    return k;
}

static void enter_best(const char *name, choir_type type)
{
    enter((struct contender){ .name = name, .type = type, .op = CHOIR_SUM, .kernels = best() });
}

static bool enter_plain(choir_type type, choir_redop op)
{
    if (op != CHOIR_SUM || plain_sum(type) == NULL)
        return false;
    enter((struct contender){ .name = "plain loop", .type = type, .plain = plain_sum(type) });
    return true;
}

/* --- printing --------------------------------------------------------------------------------------- */

static const char *size_text(size_t nbytes, char *buf, size_t size)
{
    if (nbytes >= 1 << 20)
        snprintf(buf, size, "%zu MiB", nbytes >> 20);
    else if (nbytes >= 1 << 10)
        snprintf(buf, size, "%zu KiB", nbytes >> 10);
    else
        snprintf(buf, size, "%zu B", nbytes);
    return buf;
}

static void print_json(size_t who, size_t to_whom)
{
    const struct contender *c = &bout.contenders[who];
    struct spread rate = bout_rate(&bout, who), ratio = bout_ratio(&bout, who, to_whom);

    printf("{\"work\": \"%s\", ", bout.work == BOUT_COPY ? "copy" : choir_redop_name(c->op));
    if (bout.work == BOUT_REDUCE)
        printf("\"type\": \"%s\", ", choir_type_name(c->type));
    printf("\"dst_offset\": %zu, ", bout.dst_offset);
    printf("\"bytes\": %zu, \"cores\": %d, \"contender\": \"%s\", ", bout.nbytes,
           bout.two_cores ? 2 : 1, c->name);
    printf("\"gbps\": %.3f, \"gbps_p10\": %.3f, \"gbps_p90\": %.3f, ", rate.p50, rate.p10,
           rate.p90);
    printf("\"to\": \"%s\", \"ratio\": %.3f, \"ratio_p10\": %.3f, \"ratio_p90\": %.3f, ",
           bout.contenders[to_whom].name, ratio.p50, ratio.p10, ratio.p90);
    printf("\"blocks\": %d}\n", bout.nblocks);
}

/* False if there is nothing to follow. */
static bool print_title(const char *title, bool two_cores)
{
    bool possible = !two_cores || options.two_cores;

    if (!options.json)
        printf("\n%s\n%s", title, possible ? "" : "  not measured: this needs two processors\n");
    return possible;
}

/* "size  scalar  avx2  plain loop  avx2 / plain loop" */
static void print_heads(const char *label, size_t who, size_t to_whom)
{
    char ratio[64];

    if (options.json)
        return;
    snprintf(ratio, sizeof(ratio), "%s / %s", bout.contenders[who].name,
             bout.contenders[to_whom].name);
    printf("  %-12s", label);
    for (size_t i = 0; i < bout.ncontenders; i++)
        printf("%12s", bout.contenders[i].name);
    printf("   %s\n", ratio);
}

static void print_row(const char *label, size_t who, size_t to_whom)
{
    struct spread ratio = bout_ratio(&bout, who, to_whom);

    if (options.json) {
        for (size_t i = 0; i < bout.ncontenders; i++)
            print_json(i, to_whom);
        return;
    }
    printf("  %-12s", label);
    for (size_t i = 0; i < bout.ncontenders; i++)
        printf("%12.2f", bout_rate(&bout, i).p50);
    printf("   %.2f (%.2f to %.2f)\n", ratio.p50, ratio.p10, ratio.p90);
    fflush(stdout);
}

/* Run and print; the heads above the first row of a table. */
static bool show(const char *what, const char *label, size_t who, size_t to_whom, bool *first)
{
    if (!bout_run(&bout)) {
        if (!options.json)
            printf("  not measured: no memory\n");
        return false;
    }
    if (*first)
        print_heads(what, who, to_whom);
    *first = false;
    print_row(label, who, to_whom);
    return true;
}

/* --- the tables --------------------------------------------------------------------------------------- */

static const size_t all_sizes[] = { 64,       256,       1 << 10, 4 << 10, 16 << 10,
                                    64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20 };

static void table_by_size(choir_type type, bool two_cores)
{
    char title[128], label[32];
    bool first = true;

    snprintf(title, sizeof(title), "Sum of two %s buffers into a third, %s", choir_type_name(type),
             two_cores ? "one of them just written by another core" : "on one core");
    if (!print_title(title, two_cores))
        return;
    for (size_t i = 0; i < CH_ARRAY_LEN(all_sizes); i++) {
        size_t nvariants;

        if (two_cores && (all_sizes[i] < 4 << 10 || all_sizes[i] > 1 << 20))
            continue;
        begin(BOUT_REDUCE, all_sizes[i], two_cores);
        if (options.quick)
            enter_best(best()->name, type);
        else
            enter_variants(type, CHOIR_SUM);
        nvariants = bout.ncontenders;
        if (!show("bytes", size_text(all_sizes[i], label, sizeof(label)), nvariants - 1,
                  enter_plain(type, CHOIR_SUM) ? nvariants : 0, &first))
            return;
    }
}

/* All in one bout, so that the types can be compared with each other. */
static void table_of_types(size_t nbytes)
{
    static const choir_type types[] = { CHOIR_F32, CHOIR_F64, CHOIR_F16,    CHOIR_BF16,
                                        CHOIR_I32, CHOIR_I8,  CHOIR_F8E4M3, CHOIR_F8E5M2 };
    char title[128], size[32];

    snprintf(title, sizeof(title), "The same for other types, %s, %s",
             size_text(nbytes, size, sizeof(size)), best()->name);
    print_title(title, false);
    begin(BOUT_REDUCE, nbytes, false);
    for (size_t i = 0; i < CH_ARRAY_LEN(types); i++)
        enter_best(choir_type_name(types[i]), types[i]);
    if (!bout_run(&bout))
        return;
    if (!options.json)
        printf("  %-12s%12s   %s\n", "type", "GB/s", "type / f32");
    for (size_t i = 0; i < bout.ncontenders; i++) {
        struct spread ratio = bout_ratio(&bout, i, 0);

        if (options.json)
            print_json(i, 0);
        else
            printf("  %-12s%12.2f   %.2f (%.2f to %.2f)\n", bout.contenders[i].name,
                   bout_rate(&bout, i).p50, ratio.p50, ratio.p10, ratio.p90);
    }
}

/* The best variant against the reference, in cache. */
static void table_of_reductions(choir_redop op, const choir_type *types, size_t ntypes)
{
    enum { IN_CACHE = 8 << 10 };
    char title[128];
    bool first = true;

    snprintf(title, sizeof(title), "Two buffers of 8 KiB, in cache: %s", choir_redop_name(op));
    print_title(title, false);
    for (size_t i = 0; i < ntypes; i++) {
        if (best()->reduce[types[i]][op] == NULL)
            continue;
        begin(BOUT_REDUCE, IN_CACHE, false);
        enter_variants(types[i], op);
        if (!show("type", choir_type_name(types[i]), bout.ncontenders - 1, 0, &first))
            return;
    }
}

/* Where malloc() puts large blocks: behind its own 16 bytes at the start of a page. */
enum { MALLOC_OFFSET = 16 };

static void table_of_copies(bool two_cores, size_t dst_offset)
{
    char title[128], label[32];
    bool first = true;

    snprintf(title, sizeof(title), "Copy of a buffer %s, to %s",
             two_cores ? "that another core has just written" : "on one core",
             dst_offset == 0 ? "the start of a page"
                             : "a block of malloc's (16 bytes into a page)");
    if (!print_title(title, two_cores))
        return;
    for (size_t i = 0; i < CH_ARRAY_LEN(all_sizes); i++) {
        size_t nbytes = all_sizes[i];

        if (two_cores && (nbytes < 4 << 10 || nbytes > 1 << 20))
            continue;
        if (options.quick && !two_cores && nbytes < 4 << 10)
            continue;
        begin(BOUT_COPY, nbytes, two_cores);
        bout.dst_offset = dst_offset;
        enter((struct contender){ .name = "memcpy", .is_libc = true });
        enter((struct contender){ .name = best()->name, .kernels = best() });
        if (!two_cores)
            enter(
                (struct contender){ .name = "past cache", .kernels = best(), .past_cache = true });
        if (!show("bytes", size_text(nbytes, label, sizeof(label)), 1, 0, &first))
            return;
    }
}

static void run_quick(void)
{
    static const choir_type some[] = { CHOIR_F32, CHOIR_F16, CHOIR_BF16, CHOIR_F8E4M3, CHOIR_I32 };

    table_by_size(CHOIR_F32, false);
    table_of_types(1 << 20);
    table_of_reductions(CHOIR_SUM, some, CH_ARRAY_LEN(some));
    table_of_copies(false, 0);
    table_of_copies(true, 0);
    table_of_copies(true, MALLOC_OFFSET);
}

static void run_all(void)
{
    choir_type types[CHOIR_NTYPES];

    for (int t = 0; t < CHOIR_NTYPES; t++) {
        types[t] = (choir_type)t;
        table_by_size(types[t], false);
    }
    table_by_size(CHOIR_F32, true);
    table_by_size(CHOIR_BF16, true);
    table_of_types(1 << 20);
    for (int op = 0; op < CHOIR_NREDOPS; op++)
        table_of_reductions((choir_redop)op, types, CHOIR_NTYPES);
    for (int two_cores = 0; two_cores < 2; two_cores++) {
        table_of_copies(two_cores != 0, 0);
        table_of_copies(two_cores != 0, MALLOC_OFFSET);
    }
}

static const char usage[] =
    "usage: kernel [--quick] [--json]\n"
    "\n"
    "Measures the copy and reduce kernels beside glibc's memcpy and a plain compiled loop.\n"
    "  --quick  the tables worth a look, in a quarter of a minute; else everything, in minutes\n"
    "  --json   one object per line instead of tables\n"
    "  --help   this text\n";

static bool read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            options.quick = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            options.json = true;
        } else {
            fprintf(stderr, "kernel: unknown argument %s; --help lists them\n", argv[i]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (!read_options(argc, argv))
        return 2;
    options.two_cores = choir_processors() > 1; /* asked before pinning, which it would notice */
    note_processors();
    pin(0);
    if (!options.json)
        printf(
            "Copy and reduce on this machine: %s, %s.\n"
            "GB/s are 10^9 bytes read and written in a second, the median of %d blocks in which\n"
            "the contenders take turns. A ratio is the median over the same blocks, with 10 to\n"
            "90 %% of them in brackets; above 1 the first named is faster.\n",
            choir_kernel_name(), choir_kernel_reason(), options.quick ? QUICK_BLOCKS : BLOCKS);
    if (options.quick)
        run_quick();
    else
        run_all();
    return 0;
}
