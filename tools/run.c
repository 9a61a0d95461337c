/*
 * run.c - `choir run`: start ranks, print what they print, end with them. run.h has the picture.
 */
#include "run.h"
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/choir.h>

/* --- before anything ----------------------------------------------------------------------------------- */

/* Descriptors 0 to 2 exist, so that nothing of ours gets their numbers. */
static void occupy_streams(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

/* The keeper writes its name over the original. One block, for one free(). */
static char **copy_words(int argc, char **argv)
{
    size_t nbytes = ((size_t)argc + 1) * sizeof(char *), used = nbytes;
    char **copy;

    for (int i = 0; i < argc; i++)
        nbytes += strlen(argv[i]) + 1;
    copy = malloc(nbytes);
    if (copy == NULL)
        return NULL;
    for (int i = 0; i < argc; i++) {
        copy[i] = (char *)copy + used;
        used += strlen(strcpy(copy[i], argv[i])) + 1;
    }
    copy[argc] = NULL;
    return copy;
}

/* Strings one behind the other, as argv, with a first word that is not one of them. */
static char **split_words(char *words, size_t nbytes, int *argc_out)
{
    static char name[] = "run";
    char **argv = calloc(nbytes + 2, sizeof(*argv));
    int argc = 0;

    if (argv == NULL)
        return NULL;
    argv[argc++] = name;
    for (char *word = words; word < words + nbytes; word += strlen(word) + 1)
        argv[argc++] = word;
    *argc_out = argc;
    return argv;
}

/* --- preparing -------------------------------------------------------------------------------------------- */

static void raise_file_limit(struct run *run)
{
    struct rlimit most;

    getrlimit(RLIMIT_NOFILE, &run->job.files);
    most = run->job.files;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

static void init_feed(struct run *run, int index, bool is_err)
{
    struct run_feed *feed = &run->feeds[2 * index + is_err];
    const struct run_options *o = &run->options;

    *feed = (struct run_feed){ .fd = -1,
                               .local = index,
                               .rank = index,
                               .sink = is_err ? &run->err : &run->out,
                               .style = &run->style,
                               .file = -1,
                               .suffix = is_err ? "err" : "out" };
    feed->shown = o->output == NULL || o->has_ranks || !run->job.are_ranks;
    if (is_err)
        feed->tail = malloc(RUN_TAIL);
    if (!run->job.are_ranks && index == 0 && !is_err) {
        feed->filter = choir_run_hosts_line;
        feed->filter_arg = run;
    }
}

static bool make_pipe(int *ours_out, int *theirs_out)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fcntl(ends[0], F_SETFL, O_NONBLOCK); /* the rank's end is a description of its own: it blocks */
    *ours_out = ends[0];
    *theirs_out = ends[1];
    return true;
}

/* Reading a terminal from the background would take the shell's input away. */
static bool may_read_stdin(void)
{
    return isatty(STDIN_FILENO) != 1 || tcgetpgrp(STDIN_FILENO) == getpgrp();
}

/* Rank 0 of the run gets our standard input itself; under another launcher, what that sends us. */
static bool make_input(struct run *run)
{
    struct run_child *child = &run->job.children[0];
    int ends[2];

    if (run->options.node > 0 || (!run->options.controlled && !may_read_stdin()))
        return true;
    if (!run->options.controlled) {
        child->in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
        return child->in >= 0;
    }
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    child->in = ends[0];
    run->input.fd = ends[1];
    return true;
}

static bool make_children(struct run *run)
{
    struct run_job *job = &run->job;

    job->are_ranks = run->options.hosts == NULL;
    job->count = job->are_ranks ? run->options.nproc : run->options.nhosts;
    job->options = &run->options;
    job->children = calloc((size_t)job->count, sizeof(*job->children));
    run->feeds = calloc(2 * (size_t)job->count, sizeof(*run->feeds));
    if (!job->are_ranks)
        run->controls = calloc((size_t)job->count, sizeof(*run->controls));
    if (job->children == NULL || run->feeds == NULL || (!job->are_ranks && run->controls == NULL))
        return false;
    for (int i = 0; i < job->count; i++) {
        struct run_child *child = &job->children[i];

        *child = (struct run_child){ .argv = run->options.program, .in = -1, .out = -1, .err = -1 };
        init_feed(run, i, false);
        init_feed(run, i, true);
    }
    for (int i = 0; i < job->count; i++) {
        struct run_child *child = &job->children[i];

        if (!make_pipe(&run->feeds[2 * i].fd, &child->out) ||
            !make_pipe(&run->feeds[2 * i + 1].fd, &child->err))
            return false;
    }
    if (!job->are_ranks)
        return choir_run_hosts_children(run);
    job->token_fd = choir_run_token_file();
    return job->token_fd >= 0 && make_input(run) && choir_run_bind(run);
}

static void make_sinks(struct run *run)
{
    const struct run_options *o = &run->options;
    struct run_sink *sinks[] = { &run->out, &run->err };

    choir_run_sink_init(&run->out, STDOUT_FILENO, o->color);
    choir_run_sink_init(&run->err, STDERR_FILENO, o->color);
    run->style.prefix = !o->no_prefix && o->hosts == NULL;
    run->style.node = o->nnodes > 1 ? o->node : -1;
    for (int i = 0; i < 2; i++) {
        bool fold = o->fold == RUN_YES || (o->fold == RUN_AUTO && sinks[i]->terminal);

        if (fold && run->style.prefix && o->nproc > 1)
            sinks[i]->fold = choir_run_fold_create(o->nproc);
    }
}

/* The keeper has them now. */
static void close_child_ends(struct run *run)
{
    for (int i = 0; i < run->job.count; i++) {
        struct run_child *child = &run->job.children[i];

        if (child->in >= 0)
            close(child->in);
        close(child->out);
        close(child->err);
    }
}

/* --- starting ---------------------------------------------------------------------------------------------- */

static int broken(struct run *run, const char *what, const char *why)
{
    choir_run_say(run, "%s: %s", what, why);
    run->code = EXIT_FAILURE;
    return EXIT_FAILURE;
}

static choir_status get_token(struct run *run)
{
    if (run->options.controlled)
        return CHOIR_OK; /* it came with the first frames */
    if (run->options.token_file != NULL)
        return choir_token_read(run->options.token_file, &run->token);
    return choir_token_make(&run->token);
}

void choir_run_join(struct run *run, const char *address, size_t nbytes)
{
    char url[RUN_ADDRESS_MAX];
    const char *torch = run->server != NULL ? choir_store_server_torch_address(run->server) : NULL;

    snprintf(url, sizeof(url), "tcp://%.*s", (int)nbytes, address);
    run->link = choir_run_link_start(&run->options, url, torch, &run->token, &run->bell);
    if (run->link == NULL)
        choir_run_break(run, "cannot start the thread that talks to the other hosts");
}

/* The torch listener of several hosts is beside the store's, on a port that the kernel picks. */
static void torch_beside(const char *address, char *out, size_t size)
{
    snprintf(out, size, "%.*s:0", (int)(strrchr(address, ':') - address), address);
}

/* For the launcher that started us: where the store is, and that we are under way. */
static void announce(struct run *run)
{
    const char *address = choir_store_server_address(run->server);

    if (!run->options.controlled)
        return;
    choir_run_sink_put(&run->out, RUN_ANNOUNCEMENT, strlen(RUN_ANNOUNCEMENT));
    choir_run_sink_put(&run->out, address, strlen(address));
    choir_run_sink_put(&run->out, "\n", 1);
}

/* One of several launchers: node 0 serves, all join. */
static int start_node(struct run *run)
{
    const struct run_options *o = &run->options;
    char torch[RUN_ADDRESS_MAX], numbers[RUN_ADDRESS_MAX];
    const char *address = o->rdzv, *wrong = NULL;

    if (o->rdzv != NULL) {
        wrong = choir_run_resolve(o->rdzv, numbers, sizeof(numbers));
        address = numbers;
    }
    if (wrong != NULL) {
        choir_run_say(run, "where node 0 serves the store, \"%s\": %s", o->rdzv, wrong);
        return EXIT_FAILURE;
    }
    if (o->node == 0) {
        torch_beside(address, torch, sizeof(torch));
        if (choir_run_store_open(run, address, o->no_torch_store ? NULL : torch) != CHOIR_OK)
            return broken(run, "cannot serve the store", choir_last_error());
        address = choir_store_server_address(run->server);
        if (o->verbose)
            choir_run_say(
                run, "serving the store at %s, and PyTorch's protocol, to anybody, at %s", address,
                o->no_torch_store ? "no address" : choir_store_server_torch_address(run->server));
        announce(run);
    }
    if (address != NULL)
        choir_run_join(run, address, strlen(address));
    return 0;
}

/* The only launcher: everything on loopback. */
static int start_alone(struct run *run)
{
    const struct run_options *o = &run->options;
    struct run_world *world = &run->world;

    if (choir_run_store_open(run, NULL, o->no_torch_store ? NULL : "127.0.0.1:0") != CHOIR_OK)
        return broken(run, "cannot serve the store", choir_last_error());
    *world = (struct run_world){ .nranks = o->nproc, .nnodes = 1 };
    snprintf(world->store, sizeof(world->store), "tcp://%s",
             choir_store_server_address(run->server));
    choir_run_set_torch(world, choir_store_server_torch_address(run->server));
    choir_run_make_id(world->run_id, sizeof(world->run_id));
    if (o->verbose)
        choir_run_say(run, "%d %s, store at %s, PyTorch's protocol at %s", o->nproc,
                      o->nproc > 1 ? "ranks" : "rank", world->store,
                      o->no_torch_store ? "no address"
                                        : choir_store_server_torch_address(run->server));
    announce(run);
    choir_run_go(run);
    return 0;
}

static int start_hosts(struct run *run)
{
    choir_run_hosts_begin(run);
    run->stdin_fd = STDIN_FILENO;
    if (!may_read_stdin()) {
        run->stdin_fd = -1;
        choir_run_queue_frame(&run->controls[0], RUN_FRAME_INPUT, NULL, 0);
    }
    choir_run_go(run);
    return 0;
}

static int start(struct run *run)
{
    if (get_token(run) != CHOIR_OK)
        return broken(run, "the job token", choir_last_error());
    if (!run->job.are_ranks)
        return start_hosts(run);
    if (choir_run_token_fill(run->job.token_fd, &run->token) != 0)
        return broken(run, "the job token, as a file for ranks", strerror(errno));
    if (run->options.controlled)
        run->control.fd = STDIN_FILENO;
    return run->options.nnodes > 1 ? start_node(run) : start_alone(run);
}

/* --- all of it --------------------------------------------------------------------------------------------- */

static int prepare(struct run *run)
{
    const struct run_options *o = &run->options;

    run->signals = choir_run_signals_open(&run->job);
    if (run->signals < 0)
        return broken(run, "cannot watch signals", strerror(errno));
    raise_file_limit(run);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (o->output != NULL && o->hosts == NULL && !choir_run_files_open(o->output)) {
        choir_run_say(run, "cannot make folder \"%s\": %s", o->output, strerror(errno));
        return EXIT_FAILURE;
    }
    if (!make_children(run))
        return broken(run, "cannot prepare so many ranks", strerror(errno));
    run->keeper = choir_run_keeper_start(&run->job, &run->keeper_pid);
    if (run->keeper < 0)
        return broken(run, "cannot start the keeper of the ranks", strerror(errno));
    close_child_ends(run);
    return 0;
}

static void free_children(struct run *run)
{
    for (int i = 0; run->job.children != NULL && i < run->job.count; i++) {
        if (!run->job.are_ranks)
            choir_run_hosts_free(run->job.children[i].argv);
        CPU_FREE(run->job.children[i].cpus);
    }
    for (int i = 0; run->feeds != NULL && i < 2 * run->job.count; i++)
        choir_run_feed_fini(&run->feeds[i]);
    for (int i = 0; run->controls != NULL && i < run->job.count; i++)
        choir_run_queue_close(&run->controls[i]);
    free(run->job.children);
    free(run->feeds);
    free(run->controls);
}

/* Closing the keeper's socket makes it kill what there is; it is gone when this returns. */
static void clean_up(struct run *run)
{
    if (run->keeper >= 0)
        close(run->keeper);
    if (run->keeper_pid > 0)
        waitpid(run->keeper_pid, NULL, 0);
    choir_run_link_stop(run->link);
    choir_store_server_destroy(run->server);
    free_children(run);
    choir_run_queue_close(&run->input);
    run->control.fd = -1; /* standard input is not ours to close */
    choir_run_queue_close(&run->control);
    choir_run_sink_fini(&run->out);
    choir_run_sink_fini(&run->err);
}

static int run_with(struct run *run, char **original)
{
    int rc;

    run->job.argv = original;
    run->job.token_fd = run->keeper = run->bell = run->stdin_fd = run->input.fd = run->control.fd =
        -1;
    make_sinks(run);
    run->started_at = choir_run_now();
    if (run->options.timeout_ms > 0)
        run->timeout_at = run->started_at + run->options.timeout_ms;
    rc = prepare(run);
    if (rc == 0)
        rc = start(run);
    if (rc == 0) {
        choir_run_loop(run);
        rc = run->code;
    }
    clean_up(run);
    return rc;
}

/* Options of a controlled launcher come as the first frame. */
static int parse_frame(struct run *run, char **words_out, char ***argv_out)
{
    size_t nbytes = 0;
    int argc;

    if (choir_run_control_begin(words_out, &nbytes, &run->token) != 0)
        return EXIT_FAILURE;
    *argv_out = split_words(*words_out, nbytes, &argc);
    if (*argv_out == NULL)
        return EXIT_FAILURE;
    return choir_run_parse(argc, *argv_out, true, &run->options);
}

int choir_cmd_run(int argc, char **argv)
{
    struct run run = { 0 };
    char **copy, *words = NULL, **framed = NULL;
    int rc;

    occupy_streams();
    copy = copy_words(argc, argv);
    if (copy == NULL)
        return EXIT_FAILURE;
    rc = choir_run_parse(argc, copy, false, &run.options);
    if (rc == 0 && run.options.help)
        choir_run_help();
    else if (rc == 0 && run.options.controlled)
        rc = parse_frame(&run, &words, &framed);
    if (rc == 0 && !run.options.help)
        rc = run_with(&run, argv);
    choir_run_options_fini(&run.options);
    free(framed);
    free(words);
    free(copy);
    return rc;
}
