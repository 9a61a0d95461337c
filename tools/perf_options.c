/*
 * perf_options.c - the command line of `choir perf`.
 */
#include "perf.h"
#include "commands.h"

#include <string.h>

enum { RANKS_MAX = 65536, MOST_ROUNDS = 10 * 1000 * 1000 };

void choir_perf_help(void)
{
    printf("usage: choir perf OPERATION [options]\n\n"
           "  allreduce       all get the reduction of everybody's elements\n"
           "  broadcast       all get the root's\n"
           "  reduce          the root gets the reduction\n"
           "  allgather       all get everybody's, in rank order\n"
           "  reducescatter   each gets its share of the reduction\n"
           "  alltoall        each gets a share from everybody\n"
           "  gather          the root gets everybody's\n"
           "  scatter         each gets its share of the root's\n"
           "  barrier         nothing but meeting\n"
           "  sendrecv        each sends to the next rank and receives from the one before\n\n"
           "  -n N                how many ranks (one for each processor, 2 at least)\n"
           "  -b SIZE             from this size (8): the larger of a rank's input and output\n"
           "  -e SIZE             to this size (64M)\n"
           "  -f FACTOR           from size to size (2)\n"
           "  --iters K           rounds that are timed (by size: 2000 to 20)\n"
           "  --type TYPE         what the elements are, such as bf16 (f32)\n"
           "  --redop OP          how they are reduced, such as max (sum)\n"
           "  --root R            the root, of operations that have one (0)\n"
           "  --memory KIND       what the buffers are: ordinary\n"
           "  --fresh             write the inputs anew before every round\n"
           "  --inplace           input and output are one buffer\n"
           "  --algo NAME         use this algorithm instead of the one the library chooses\n"
           "  --threads           ranks are threads of one process\n"
           "  --bind HOW          core: one processor for each rank, in turn; none (core)\n"
           "  --check             verify the result of every round, not of some\n"
           "  --explain-cost      beside each time what the cost model says; implies --fresh\n"
           "  --machine FILE      that model's figures (those that choir tune has left)\n"
           "  --json              one object a line instead of a table\n"
           "  --html FILE         write a page with plots as well\n"
           "  --help              this text\n\n"
           "Inside choir run, or another launcher, the ranks are those of the run.\n");
}

static bool parse_memory(const char *text, struct perf_options *o)
{
    o->memory = text;
    return strcmp(text, "ordinary") == 0;
}

static bool parse_bind(const char *text, struct perf_options *o)
{
    o->bind = strcmp(text, "core") == 0 ? PERF_BIND_CORE : PERF_BIND_NONE;
    return o->bind == PERF_BIND_CORE || strcmp(text, "none") == 0;
}

/* What an option's value has to be; NULL if it takes none, or is none. */
static const char *expected(const char *name)
{
    static const struct {
        const char *name, *expects;
    } valued[] = {
        { "-n", "a number from 1 to 65536" },
        { "-b", "a size such as 64K" },
        { "-e", "a size such as 64K" },
        { "-f", "a number from 2" },
        { "--iters", "a number from 1 to 10000000" },
        { "--type", "a type such as f32 or bf16" },
        { "--redop", "a reduction such as sum or max" },
        { "--root", "a rank" },
        { "--memory", "a kind of memory: ordinary" },
        { "--algo", "the name of an algorithm" },
        { "--bind", "core or none" },
        { "--machine", "the name of a file" },
        { "--html", "the name of a file" },
        { "--terminal", "a terminal" }, /* between us and the ranks we start */
    };

    for (size_t i = 0; i < sizeof(valued) / sizeof(valued[0]); i++) {
        if (strcmp(valued[i].name, name) == 0)
            return valued[i].expects;
    }
    return NULL;
}

static bool take_value(const char *name, const char *value, struct perf_options *o)
{
    if (strcmp(name, "-n") == 0)
        return choir_cmd_number(value, 1, &o->nranks) && o->nranks <= RANKS_MAX;
    if (strcmp(name, "-b") == 0)
        return choir_cmd_size(value, &o->first);
    if (strcmp(name, "-e") == 0)
        return o->ends = choir_cmd_size(value, &o->last);
    if (strcmp(name, "-f") == 0)
        return choir_cmd_number(value, 2, &o->factor);
    if (strcmp(name, "--iters") == 0)
        return choir_cmd_number(value, 1, &o->iters) && o->iters <= MOST_ROUNDS;
    if (strcmp(name, "--type") == 0)
        return choir_cmd_type(value, &o->type);
    if (strcmp(name, "--redop") == 0)
        return choir_cmd_redop(value, &o->redop);
    if (strcmp(name, "--root") == 0)
        return choir_cmd_number(value, 0, &o->root);
    if (strcmp(name, "--memory") == 0)
        return parse_memory(value, o);
    if (strcmp(name, "--bind") == 0)
        return parse_bind(value, o);
    if (strcmp(name, "--algo") == 0)
        return (o->algo = value)[0] != '\0';
    if (strcmp(name, "--machine") == 0)
        return (o->machine = value)[0] != '\0';
    if (strcmp(name, "--terminal") == 0)
        return (o->terminal = value)[0] != '\0';
    return (o->html = value)[0] != '\0';
}

static bool take_switch(const char *name, struct perf_options *o)
{
    const struct {
        const char *name;
        bool *flag;
    } switches[] = { { "--fresh", &o->fresh },
                     { "--inplace", &o->in_place },
                     { "--in-place", &o->in_place },
                     { "--threads", &o->threads },
                     { "--check", &o->check },
                     { "--json", &o->json },
                     { "--explain-cost", &o->explain_cost },
                     { "--help", &o->help },
                     { "-h", &o->help } };

    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
        if (strcmp(switches[i].name, name) == 0)
            return *switches[i].flag = true;
    }
    return false;
}

static int take(char **argv, int *i, struct perf_options *o)
{
    char name[32];
    const char *value, *expects;
    bool one = choir_cmd_option(argv, *i, name, sizeof(name), &value);

    expects = expected(name);
    if (expects == NULL && take_switch(argv[*i], o))
        return 0;
    if (expects == NULL)
        return choir_cmd_usage("perf", "there is no option \"%s\"", argv[*i]);
    if (value == NULL)
        return choir_cmd_usage("perf", "%s needs a value: %s", name, expects);
    *i += one ? 0 : 1;
    if (!take_value(name, value, o))
        return choir_cmd_usage("perf", "%s: \"%s\" is not %s", name, value, expects);
    return 0;
}

/* What can be said without ranks. */
static int check(struct perf_options *o)
{
    if (o->op == PERF_NOPS && o->explain_cost)
        o->op = PERF_ALLREDUCE; /* what the model is asked about first */
    if (o->op == PERF_NOPS)
        return choir_cmd_usage("perf", "an operation is missing");
    if (o->machine != NULL && !o->explain_cost)
        return choir_cmd_usage("perf", "--machine goes with --explain-cost");
    o->fresh = o->fresh || o->explain_cost; /* the model is of fresh inputs */
    if (!o->ends)
        o->last = o->first > 64u << 20 ? o->first : 64u << 20;
    if (o->first < 1 || o->first > o->last)
        return choir_cmd_usage("perf", "sizes from %zu (-b) to %zu (-e): there is none", o->first,
                               o->last);
    if (perf_op_reduces(o->op) && choir_redop_check(o->redop, o->type) != CHOIR_OK)
        return choir_cmd_usage("perf", "%s", choir_last_error());
    if (perf_op_has_root(o->op) && o->nranks > 0 && o->root >= o->nranks)
        return choir_cmd_usage("perf", "--root %d: there are %d ranks", o->root, o->nranks);
    if (o->in_place && o->op == PERF_SENDRECV)
        return choir_cmd_usage("perf", "--inplace: sendrecv cannot send and receive in one buffer");
    if (o->algo != NULL && o->op == PERF_SENDRECV)
        return choir_cmd_usage("perf", "--algo: sendrecv has no algorithms");
    return 0;
}

int choir_perf_parse(int argc, char **argv, struct perf_options *o)
{
    int code = 0;

    *o = (struct perf_options){
        .op = PERF_NOPS, .first = 8, .factor = 2, .type = CHOIR_F32, .memory = "ordinary"
    };
    for (int i = 1; i < argc && code == 0; i++) {
        if (argv[i][0] == '-') {
            code = take(argv, &i, o);
        } else if (o->op != PERF_NOPS) {
            code = choir_cmd_usage("perf", "one operation, not also \"%s\"", argv[i]);
        } else {
            o->op = perf_op_find(argv[i]);
            if (o->op == PERF_NOPS)
                code = choir_cmd_usage("perf", "there is no operation \"%s\"", argv[i]);
        }
    }
    return code != 0 || o->help ? code : check(o);
}
