/*
 * run_hosts.c - --hosts: this launcher's children are launchers, started by ssh or --rsh.
 *
 * What is started on a host is "RSH HOST PATH run --controlled", nothing a shell could misread; the rest
 * goes through standard input (run_control.c). Node 0 answers with one line on its standard output that
 * says where it serves the store, which the others are then told.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the command for a host ----------------------------------------------------------------------------- */

static char *own_path(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (n <= 0)
        return NULL;
    path[n] = '\0';
    return strdup(path);
}

void choir_run_hosts_free(char **argv)
{
    for (int i = 0; argv != NULL && argv[i] != NULL; i++)
        free(argv[i]);
    free(argv);
}

/* The words of --rsh, then the host, our path, and two words more. */
static char **make_argv(const struct run_options *o, const char *host, const char *choir)
{
    const char *words = o->rsh != NULL ? o->rsh : "ssh";
    char **argv = calloc(strlen(words) + 6, sizeof(*argv));
    int n = 0;

    if (argv == NULL)
        return NULL;
    for (;;) {
        size_t length;

        words += strspn(words, " \t");
        length = strcspn(words, " \t");
        if (length == 0)
            break;
        argv[n++] = strndup(words, length);
        words += length;
    }
    argv[n++] = strdup(host);
    argv[n++] = strdup(choir);
    argv[n++] = strdup("run");
    argv[n++] = strdup("--controlled");
    return argv;
}

bool choir_run_hosts_children(struct run *run)
{
    const struct run_options *o = &run->options;
    char *choir = o->remote_choir != NULL ? strdup(o->remote_choir) : own_path();
    int ends[2];

    if (choir == NULL)
        return false;
    for (int i = 0; i < run->job.count; i++)
        run->controls[i].fd = -1;
    for (int i = 0; i < run->job.count; i++) {
        run->job.children[i].argv = make_argv(o, o->hosts[i].name, choir);
        if (run->job.children[i].argv == NULL || pipe2(ends, O_CLOEXEC) != 0)
            break;
        run->job.children[i].in = ends[0];
        run->controls[i].fd = ends[1];
        fcntl(ends[1], F_SETFL, O_NONBLOCK); /* the other end is another description: it blocks */
    }
    free(choir);
    return run->controls[run->job.count - 1].fd >= 0;
}

/* --- the first frames -------------------------------------------------------------------------------------- */

static void add(struct run_queue *args, const char *word)
{
    choir_run_queue_put(args, word, strlen(word) + 1);
}

__attribute__((format(printf, 3, 4))) static void add_value(struct run_queue *args,
                                                            const char *option, const char *fmt,
                                                            ...)
{
    char value[64];
    va_list list;

    va_start(list, fmt);
    vsnprintf(value, sizeof(value), fmt, list);
    va_end(list);
    add(args, option);
    add(args, value);
}

static bool has_port(const char *address)
{
    const char *colon = strrchr(address, ':'), *bracket = strrchr(address, ']');

    return colon != NULL && (bracket == NULL || colon > bracket);
}

/* Where node 0 is to serve: what --rdzv says, else the name by which we reach it. */
static void add_rdzv(struct run_queue *args, const struct run_options *o)
{
    const char *at = strchr(o->hosts[0].name, '@');
    char address[RUN_ADDRESS_MAX];

    snprintf(address, sizeof(address), "%s",
             o->rdzv != NULL ? o->rdzv : (at != NULL ? at + 1 : o->hosts[0].name));
    if (!has_port(address) && strlen(address) + 3 < sizeof(address))
        strcat(address, ":0");
    add(args, "--rdzv");
    add(args, address);
}

static void add_ranges(struct run_queue *args, const struct run_ranges *ranges)
{
    char text[2048] = "";
    size_t used = 0;

    for (int i = 0; i < ranges->count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d-%d", i > 0 ? "," : "",
                                 ranges->of[i].first, ranges->of[i].last);
    add(args, "--ranks");
    add(args, text);
}

static void add_output(struct run_queue *args, const struct run *run)
{
    const struct run_options *o = &run->options;

    if (o->has_ranks)
        add_ranges(args, &o->shown);
    if (o->output != NULL) {
        add(args, "--output");
        add(args, o->output);
    }
    if (o->no_prefix)
        add(args, "--no-prefix");
    add(args,
        o->fold == RUN_YES || (o->fold == RUN_AUTO && run->out.terminal) ? "--fold" : "--no-fold");
    add(args, "--color");
    add(args, run->out.color ? "always" : "never");
}

static void add_args(struct run_queue *args, const struct run *run, int node)
{
    const struct run_options *o = &run->options;

    add_value(args, "--nproc", "%d", o->hosts[node].nproc > 0 ? o->hosts[node].nproc : o->nproc);
    add_value(args, "--nnodes", "%d", o->nhosts);
    add_value(args, "--node-rank", "%d", node);
    add_value(args, "--grace", "%.3f", (double)o->grace_ms / 1000);
    if (o->bind != RUN_BIND_AUTO)
        add_value(args, "--bind", "%s", o->bind == RUN_BIND_CORE ? "core" : "none");
    add_output(args, run);
    for (int i = 0; i < o->nenv; i++) {
        add(args, "--env");
        add(args, o->env[i]);
    }
    if (o->no_torch_store)
        add(args, "--no-torch-store");
    if (o->verbose)
        add(args, "--verbose");
    if (node == 0)
        add_rdzv(args, o);
    add(args, "--");
    for (char **word = o->program; *word != NULL; word++)
        add(args, *word);
}

void choir_run_hosts_begin(struct run *run)
{
    char folder[4096];

    if (getcwd(folder, sizeof(folder)) == NULL)
        strcpy(folder, "/");
    for (int i = 0; i < run->job.count; i++) {
        struct run_queue *control = &run->controls[i], args = { .fd = -1 };

        add_args(&args, run, i);
        choir_run_queue_frame(control, RUN_FRAME_FOLDER, folder, strlen(folder));
        choir_run_queue_frame(control, RUN_FRAME_TOKEN, run->token.bytes, sizeof(run->token.bytes));
        choir_run_queue_frame(control, RUN_FRAME_ARGS, args.bytes, args.used);
        choir_run_queue_close(&args);
    }
}

/* --- later ------------------------------------------------------------------------------------------------- */

bool choir_run_hosts_line(struct run_feed *feed, const char *line, size_t nbytes)
{
    struct run *run = feed->filter_arg;
    size_t n = strlen(RUN_ANNOUNCEMENT);

    if (run->announced || nbytes <= n || memcmp(line, RUN_ANNOUNCEMENT, n) != 0)
        return false;
    run->announced = true;
    for (int i = 1; i < run->job.count; i++)
        choir_run_queue_frame(&run->controls[i], RUN_FRAME_RDZV, line + n, nbytes - n);
    return true;
}

void choir_run_hosts_tell(struct run *run, enum run_frame_kind kind, int sig)
{
    unsigned char byte = (unsigned char)sig;

    for (int i = 0; i < run->job.count; i++) {
        if (run->controls[i].fd >= 0) {
            choir_run_queue_frame(&run->controls[i], kind, &byte, 1);
            choir_run_queue_send(&run->controls[i]);
        }
    }
}
