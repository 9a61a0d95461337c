/*
 * explain.c - `choir explain`: which algorithm an operation takes, why, its steps and its cost.
 */
#include "commands.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

struct request {
    const char *svg;
    int nranks;
    size_t nbytes;
    choir_explain_opts opts;
};

static void help(void)
{
    printf(
        "usage: choir explain OPERATION [options]\n\n"
        "  allreduce, broadcast, reduce, allgather, reduce_scatter, gather, scatter, alltoall, barrier\n\n"
        "  --ranks N        how many ranks (4)\n"
        "  --bytes SIZE     the larger of a rank's input and output, such as 64K (1M)\n"
        "  --algo NAME      explain this algorithm instead of the one that would be chosen\n"
        "  --type TYPE      what the elements are, such as bf16 (f32)\n"
        "  --root R         the root, of operations that have one (0)\n"
        "  --rank R         print the steps of this rank only\n"
        "  --in-place       input and output are one buffer\n"
        "  --apart          the ranks do not share memory\n"
        "  --processors N   how many processors the ranks share (as this process has)\n"
        "  --svg FILE       draw the steps of all ranks; \"-\" is standard output\n"
        "  --help           this text\n");
}

/* --- values of options ----------------------------------------------------------------------------- */

static bool parse_rank(const char *text, struct request *r)
{
    r->opts.one_rank = true;
    return choir_cmd_number(text, 0, &r->opts.rank);
}

/* Options with a value. False with *known_out if the value makes no sense. */
static bool take_value(const char *name, const char *value, void *request, bool *known_out)
{
    struct request *r = request;

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

static bool take_switch(const char *name, void *request)
{
    struct request *r = request;

    if (strcmp(name, "--in-place") == 0)
        return r->opts.in_place = true;
    if (strcmp(name, "--apart") == 0)
        return r->opts.apart = true;
    return false;
}

/* --- the command ------------------------------------------------------------------------------------- */

int choir_cmd_explain(int argc, char **argv)
{
    struct request r = { .nranks = 4,
                         .nbytes = 1 << 20,
                         .opts = { .size = sizeof(r.opts), .type = CHOIR_F32 } };
    struct choir_cmd_line line = {
        .command = "explain", .request = &r, .take_switch = take_switch, .take_value = take_value
    };
    const char *path;
    choir_blob blob = { 0 };
    choir_status rc;
    FILE *file;
    int code = choir_cmd_parse(&line, argc, argv);

    if (code != 0)
        return code;
    if (line.helped) {
        help();
        return EXIT_SUCCESS;
    }
    path = r.svg != NULL ? r.svg : "-";
    rc = r.svg != NULL ? choir_explain_svg(line.operation, r.nranks, r.nbytes, &r.opts, &blob)
                       : choir_explain(line.operation, r.nranks, r.nbytes, &r.opts, &blob);
    if (rc != CHOIR_OK)
        return choir_cmd_failed("explain");
    file = choir_cmd_create("explain", path);
    code = EXIT_FAILURE;
    if (file != NULL) {
        fwrite(blob.data, 1, blob.nbytes, file);
        code = choir_cmd_close("explain", path, file);
    }
    choir_blob_free(&blob);
    return code;
}
