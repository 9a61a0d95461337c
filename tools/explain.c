/*
 * explain.c - `choir explain`: which algorithm an operation takes, why, its steps and its cost.
 */
#include "commands.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

struct request {
    const char *operation, *svg;
    int nranks;
    size_t nbytes;
    choir_explain_opts opts;
};

static void help(void)
{
    printf(
        "usage: choir explain OPERATION [options]\n\n"
        "OPERATION is allreduce, broadcast, reduce, allgather, reduce_scatter, gather, scatter,\n"
        "alltoall or barrier.\n\n"
        "  --ranks N        how many ranks (4)\n"
        "  --bytes SIZE     the larger of a rank's input and output, such as 64K (1M)\n"
        "  --algo NAME      explain this algorithm instead of the one that would be chosen\n"
        "  --type TYPE      what the elements are, such as bf16 (f32)\n"
        "  --root R         the root, of operations that have one (0)\n"
        "  --rank R         print the steps of this rank only\n"
        "  --in-place       input and output are one buffer\n"
        "  --apart          the ranks do not share memory\n"
        "  --processors N   how many processors the ranks share (as this process has)\n"
        "  --svg FILE       draw the steps of all ranks; \"-\" is standard output\n");
}

/* --- values of options ----------------------------------------------------------------------------- */

static bool parse_rank(const char *text, struct request *r)
{
    r->opts.one_rank = true;
    return choir_cmd_number(text, 0, &r->opts.rank);
}

/* Options with a value. False with *known_out if the value makes no sense. */
static bool parse_valued(const char *name, const char *value, struct request *r, bool *known_out)
{
    *known_out = true;
    if (strcmp(name, "--ranks") == 0)
        return value != NULL && choir_cmd_number(value, 1, &r->nranks);
    if (strcmp(name, "--bytes") == 0)
        return value != NULL && choir_cmd_size(value, &r->nbytes);
    if (strcmp(name, "--type") == 0)
        return value != NULL && choir_cmd_type(value, &r->opts.type);
    if (strcmp(name, "--root") == 0)
        return value != NULL && choir_cmd_number(value, 0, &r->opts.root);
    if (strcmp(name, "--rank") == 0)
        return value != NULL && parse_rank(value, r);
    if (strcmp(name, "--processors") == 0)
        return value != NULL && choir_cmd_number(value, 1, &r->opts.processors);
    if (strcmp(name, "--algo") == 0)
        return (r->opts.algo = value) != NULL;
    if (strcmp(name, "--svg") == 0)
        return (r->svg = value) != NULL;
    *known_out = false;
    return false;
}

static bool parse_switch(const char *name, struct request *r)
{
    if (strcmp(name, "--in-place") == 0)
        return r->opts.in_place = true;
    if (strcmp(name, "--apart") == 0)
        return r->opts.apart = true;
    return false;
}

/* 0, or the exit code for a line that is wrong. */
static int parse(int argc, char **argv, struct request *r)
{
    for (int i = 1; i < argc; i++) {
        bool known;

        if (argv[i][0] != '-' && r->operation == NULL) {
            r->operation = argv[i];
        } else if (argv[i][0] != '-') {
            return choir_cmd_usage("explain", "one operation, not also \"%s\"", argv[i]);
        } else if (!parse_switch(argv[i], r)) {
            if (!parse_valued(argv[i], argv[i + 1], r, &known)) {
                if (!known)
                    return choir_cmd_usage("explain", "\"%s\" is not an option", argv[i]);
                if (argv[i + 1] == NULL)
                    return choir_cmd_usage("explain", "%s needs a value", argv[i]);
                return choir_cmd_usage("explain", "%s cannot be \"%s\"", argv[i], argv[i + 1]);
            }
            i++;
        }
    }
    if (r->operation == NULL)
        return choir_cmd_usage("explain", "an operation is missing");
    return 0;
}

/* --- output ---------------------------------------------------------------------------------------- */

static int failed(void)
{
    bool usage = choir_last_error_record()->code == CHOIR_ERR_INVALID;

    fprintf(stderr, "choir %s\n", choir_last_error());
    return usage ? EXIT_USAGE : EXIT_FAILURE;
}

static int write_file(const char *path, const choir_blob *blob)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    bool good;

    if (file == NULL) {
        fprintf(stderr, "choir explain: %s: %s\n", path, strerror(errno));
        return EXIT_FAILURE;
    }
    good = fwrite(blob->data, 1, blob->nbytes, file) == blob->nbytes;
    if (file != stdout)
        good = fclose(file) == 0 && good;
    if (!good)
        fprintf(stderr, "choir explain: %s: %s\n", path, strerror(errno));
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int choir_cmd_explain(int argc, char **argv)
{
    struct request r = { .nranks = 4,
                         .nbytes = 1 << 20,
                         .opts = { .size = sizeof(r.opts), .type = CHOIR_F32 } };
    choir_blob blob = { 0 };
    int code;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return EXIT_SUCCESS;
        }
    }
    code = parse(argc, argv, &r);
    if (code != 0)
        return code;
    if (r.svg != NULL) {
        if (choir_explain_svg(r.operation, r.nranks, r.nbytes, &r.opts, &blob) != CHOIR_OK)
            return failed();
        code = write_file(r.svg, &blob);
    } else {
        if (choir_explain(r.operation, r.nranks, r.nbytes, &r.opts, &blob) != CHOIR_OK)
            return failed();
        code = write_file("-", &blob);
    }
    choir_blob_free(&blob);
    return code;
}
