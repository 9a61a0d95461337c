/*
 * run.h - what the files of `choir run` share.
 *
 * Three kinds of process:
 *
 *   launcher --socket pair--> keeper --fork, exec--> ranks, and what they start
 *      ^                                              |
 *      +------------- pipes: what they print ---------+
 *
 * The launcher (run.c, run_loop.c) hosts the store, prints what ranks print and decides when the run is
 * over. The keeper (run_keeper.c) is the parent of all ranks and the reaper of their orphans: it reports
 * how ranks end, hands signals on, and kills whatever is left as soon as the launcher is gone, however
 * that died. Should the keeper be killed, ranks die by their parent-death signal, and the launcher, a
 * reaper too, kills what they leave.
 *
 * With --hosts the "ranks" of the first launcher are launchers, one for each host, which it talks to
 * through their standard input (run_control.c). Launchers of several hosts find each other through the
 * store that node 0 serves (run_nodes.c).
 *
 * All state hangs on struct run. Times are milliseconds of the monotonic clock.
 */
#ifndef CHOIR_RUN_H
#define CHOIR_RUN_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <choir/store.h>

enum {
    EXIT_TIMED_OUT = 124,
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL_BASE = 128,
    RUN_RANKS_MAX = 65536,
    RUN_ADDRESS_MAX = 300
};

enum run_bind { RUN_BIND_AUTO, RUN_BIND_CORE, RUN_BIND_NONE };
enum run_choice { RUN_AUTO, RUN_YES, RUN_NO };

/* --- numbers such as "0,2-5" ---------------------------------------------------------------------- */

struct run_ranges {
    int count; /* 0: everything is in it */
    struct {
        int first, last;
    } of[64];
};

/* --- options (run_options.c) ---------------------------------------------------------------------- */

struct run_host {
    char *name;
    int nproc;
};

struct run_options {
    int nproc;
    char **program; /* and its arguments, ended by NULL; points into argv */
    enum run_bind bind;
    int64_t timeout_ms; /* 0: none */
    int64_t grace_ms;
    struct run_ranges shown;
    bool has_ranks;     /* --ranks was given */
    const char *output; /* a folder, or NULL */
    bool no_prefix, verbose, no_torch_store, help;
    enum run_choice fold, color;
    char **env; /* "NAME=VALUE", as given */
    int nenv;
    int nnodes, node; /* 0: not given; -1: not given */
    const char *rdzv, *token_file;
    struct run_host *hosts;
    int nhosts;
    const char *rsh, *remote_choir;
    bool controlled; /* another choir run talks to us through standard input */
};

/* 0, or EXIT_USAGE after one line that says what is wrong. Strings stay where they are in argv.
 * `controlled`: these are the arguments that another launcher sent us. */
int choir_run_parse(int argc, char **argv, bool controlled, struct run_options *out);
void choir_run_options_fini(struct run_options *options);
void choir_run_help(void);

bool choir_run_in(const struct run_ranges *ranges, int number);

/* --- what every rank is told about the run -------------------------------------------------------- */

struct run_world {
    int first_rank, nranks; /* rank of this host's first, ranks in all */
    int node, nnodes;
    char store[RUN_ADDRESS_MAX]; /* URL */
    char torch_host[RUN_ADDRESS_MAX];
    char torch_port[8]; /* "": no such listener */
    char run_id[40];
};

/* --- the children the keeper starts ----------------------------------------------------------------- */

struct run_child {
    /* What to start: set before the keeper is forked. */
    char **argv;
    int in, out, err; /* the child's ends; the keeper closes them once it is started */
    bool pinned;
    cpu_set_t *cpus;
    size_t cpus_size;

    /* How it went. */
    int pid; /* 0 before it is started and, in the keeper, after it was reaped */
    bool ended;
    int status; /* as wait() says, if ended */
    int64_t ended_at;
};

/* Everything a rank needs that is the same for all. Copied by fork(). */
struct run_job {
    struct run_child *children;
    int count;
    bool are_ranks; /* else launchers, which get our environment as it is */
    const struct run_options *options;
    int token_fd;        /* inherited by ranks; -1: none */
    struct rlimit files; /* these three as the launcher found them */
    sigset_t mask;
    bool pipe_ignored;
    char **argv; /* the launcher's own, which the keeper writes its name over */
};

/* --- launcher and keeper (run_keeper.c) ------------------------------------------------------------- */

enum run_event_kind {
    RUN_STARTED,     /* value: pid */
    RUN_NOT_STARTED, /* value: errno; no others are started after this */
    RUN_ENDED,       /* value: as wait() says */
    RUN_OVER         /* no process is left; value: how many had to be ended after the ranks */
};

struct run_event {
    enum run_event_kind kind;
    int child, value;
};

enum run_order_kind {
    RUN_GO,  /* start the children, telling them about `world` */
    RUN_ASK, /* ask them to end: SIGTERM to each one's process group */
    RUN_KILL /* kill everything */
};

struct run_order {
    enum run_order_kind kind;
    struct run_world world;
};

/* Fork the keeper. Returns our end of the socket pair, or -1 with errno. */
int choir_run_keeper_start(struct run_job *job, int *pid_out);

/* In the keeper's child: become the rank. Writes errno to `report` and exits if that fails. */
_Noreturn void choir_run_become(const struct run_job *job, int index, const struct run_world *world,
                                int report);

/* The environment of one rank (run_env.c); NULL without memory. */
char **choir_run_environment(const struct run_job *job, int index, const struct run_world *world);

/* Send `sig` to every process that descends from this one (run_family.c). Returns how many there
 * were, -1 if they cannot be found. */
int choir_run_signal_family(int sig);

/* Kill and reap all descendants, for as long as it takes, but no longer than `limit_ms`. */
bool choir_run_end_family(int64_t limit_ms);

/* --- where things are printed (run_output.c, run_lines.c, run_fold.c) ----------------------------------- */

struct run_fold;
struct run_feed;

/* Our standard output or error: a bounded queue in front of a descriptor that is never waited on. */
struct run_sink {
    int fd;
    bool is_socket, owns_fd;
    bool terminal, color;
    bool closed; /* nothing can be written any more; */
    int error;   /* for this reason: EPIPE is a reader who left */
    char *bytes;
    size_t head, used, size;
    struct run_feed *open; /* whose line stands there without its end */
    struct run_fold *fold; /* NULL: lines go out as they come */
};

enum { RUN_SINK_FULL = 256 * 1024, RUN_TAIL = 2048 };

void choir_run_sink_init(struct run_sink *sink, int fd, enum run_choice color);
void choir_run_sink_fini(struct run_sink *sink);
void choir_run_sink_put(struct run_sink *sink, const void *bytes, size_t nbytes);
void choir_run_sink_flush(struct run_sink *sink); /* writes what can be written now */

/* How lines are marked. */
struct run_style {
    bool prefix;
    int node; /* -1: the rank alone */
};

/* What one child prints on one stream. */
struct run_feed {
    int fd;          /* -1: ended */
    int rank, local; /* as ranks are numbered: in the run, on this host */
    bool shown;
    struct run_sink *sink;
    const struct run_style *style;
    char *line; /* the beginning of a line whose end has not come */
    size_t used, size;
    /* Told of every whole line first; true: it was not meant to be printed. May be NULL. */
    bool (*filter)(struct run_feed *feed, const char *line, size_t nbytes);
    void *filter_arg;
    int64_t last_ms;    /* when something came */
    int file;           /* --output; -1: not opened yet */
    const char *suffix; /* of that file's name */
    char *tail;         /* the last RUN_TAIL bytes, for the summary; NULL: not kept */
    size_t tail_used;
};

/* Take what a child printed: to be printed here, and remembered for the summary. */
void choir_run_feed_take(struct run_feed *feed, const char *bytes, size_t nbytes, int64_t now);
void choir_run_feed_tail(struct run_feed *feed, const char *bytes, size_t nbytes);
/* No more will come. */
void choir_run_feed_end(struct run_feed *feed);
/* Whether it may be read now: not while another's long line stands open. */
bool choir_run_feed_ready(const struct run_feed *feed, int64_t now);
/* Print a beginning that has waited long enough, on terminals. */
void choir_run_feed_tick(struct run_feed *feed, int64_t now);
/* When that, or the end of others' waiting, is due; INT64_MAX: never. */
int64_t choir_run_feed_due(const struct run_feed *feed, int64_t now);
void choir_run_feed_fini(struct run_feed *feed);

/* End an open line of somebody, so that another can follow. */
void choir_run_sink_break(struct run_sink *sink);
/* Print "PREFIX: ", coloured where that is wanted. `ranks` is text such as "0-3". */
void choir_run_sink_prefix(struct run_sink *sink, const struct run_style *style, const char *ranks,
                           int color_of);

struct run_fold *choir_run_fold_create(int nranks);
void choir_run_fold_destroy(struct run_fold *fold);
/* Takes a whole line, without its end. False without memory: print it as it is. */
bool choir_run_fold_add(struct run_sink *sink, const struct run_feed *feed, const char *line,
                        size_t nbytes, int64_t now);
/* Print what is complete or has waited long enough; all of it with `everything`. */
void choir_run_fold_flush(struct run_sink *sink, const struct run_style *style, int64_t now,
                          bool everything);
int64_t choir_run_fold_due(const struct run_fold *fold);
/* This rank will print nothing more: do not wait for it. */
void choir_run_fold_leave(struct run_fold *fold, int local);

/* --- several hosts (run_nodes.c, run_control.c, run_hosts.c) ------------------------------------------- */

struct run_link;

/* What the thread that talks to the store has learnt. */
enum run_news { RUN_NEWS_NONE, RUN_NEWS_WORLD, RUN_NEWS_END, RUN_NEWS_LOST };

/* Start the thread: join the run at `url`, then watch it. *bell_out becomes readable with news. */
struct run_link *choir_run_link_start(const struct run_options *options, const char *url,
                                      const char *torch, const choir_token *token, int *bell_out);
/* The next piece of news. For WORLD fills `world`; for END and LOST `code` and `text`. */
enum run_news choir_run_link_news(struct run_link *link, struct run_world *world, int *code,
                                  char *text, size_t size);
/* This host's ranks have all ended well; or the run has to end, and why. */
void choir_run_link_done(struct run_link *link);
void choir_run_link_fail(struct run_link *link, int code, const char *text);
/* Leave the run and end the thread. */
void choir_run_link_stop(struct run_link *link);

enum run_frame_kind {
    RUN_FRAME_FOLDER = 'D',
    RUN_FRAME_TOKEN = 'T',
    RUN_FRAME_ARGS = 'A', /* the last of the first three */
    RUN_FRAME_RDZV = 'R',
    RUN_FRAME_INPUT = 'I', /* empty: its end */
    RUN_FRAME_ASK = 'S',
    RUN_FRAME_KILL = 'K'
};

enum { RUN_FRAME_HEAD = 5, RUN_FRAME_MAX = 4 * 1024 * 1024 };

void choir_run_frame_head(unsigned char head[RUN_FRAME_HEAD], enum run_frame_kind kind,
                          size_t nbytes);
size_t choir_run_frame_size(const unsigned char head[RUN_FRAME_HEAD]);

/* Bytes to be sent to, or taken from, a descriptor that is not waited on. */
struct run_queue {
    int fd; /* -1: none */
    char *bytes;
    size_t head, used, size;
};

bool choir_run_queue_put(struct run_queue *queue, const void *bytes, size_t nbytes);
bool choir_run_queue_frame(struct run_queue *queue, enum run_frame_kind kind, const void *bytes,
                           size_t nbytes);
void choir_run_queue_send(struct run_queue *queue); /* closes it when nobody reads */
void choir_run_queue_close(struct run_queue *queue);

/* Read the three frames a controlled launcher starts with, waiting for them, and change to the folder.
 * 0, or -1 after a line. The arguments are strings, one behind the other; free them. */
int choir_run_control_begin(char **args_out, size_t *args_nbytes_out, choir_token *token_out);

/* --- the launcher -------------------------------------------------------------------------------- */

enum run_cause {
    RUN_FINE,
    RUN_CHILD_FAILED,
    RUN_CHILD_NOT_STARTED,
    RUN_SIGNALLED,
    RUN_TIMED_OUT,
    RUN_OUTPUT_CLOSED,
    RUN_ENDED_ELSEWHERE, /* another host's failure, or the other host is lost */
    RUN_BROKEN           /* the keeper is gone, a file cannot be written, ... */
};

struct run {
    struct run_options options;
    struct run_job job;
    struct run_world world;
    struct run_feed *feeds; /* two for each child: output, errors */
    struct run_sink out, err;
    struct run_style style;
    int keeper, keeper_pid;
    int signals;                             /* a signalfd */
    int64_t started_at, timeout_at, kill_at; /* 0: never */
    int64_t taken_at;                        /* when a reader last took something */

    /* Why the run ends; the first cause stays. */
    enum run_cause cause;
    int code, culprit, value; /* value: errno or the signal's number */
    char elsewhere[512];
    bool killed;
    int nstarted, nended, ended_by_us;
    bool going;    /* ranks were started */
    bool over;     /* the keeper says that no process is left */
    bool given_up; /* do not wait for output to be taken */

    choir_store_server *server;
    choir_token token;

    struct run_link *link;
    int bell;
    bool settled; /* the other hosts know that we are done, or the run ended there */

    struct run_queue *controls; /* --hosts: one for each launcher */
    bool announced;             /* --hosts: node 0 has said where its store is */
    struct run_queue input;     /* to rank 0, when its input comes through us */
    bool input_ended;
    int stdin_fd;             /* what we hand on; -1: nothing, or not through us */
    struct run_queue control; /* controlled: what came and is not whole yet */
};

int64_t choir_run_now(void);

/* Say a line on standard error, in order with what ranks print there. */
void choir_run_say(struct run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* End the run: the first cause is kept. `value` as in struct run. */
void choir_run_stop(struct run *run, enum run_cause cause, int code, int culprit, int value);
/* The same for RUN_BROKEN: what went wrong, in words. */
void choir_run_break(struct run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void choir_run_kill(struct run *run);
/* Start the ranks: run->world is known. */
void choir_run_go(struct run *run);
/* Join the run whose store is at this address. */
void choir_run_join(struct run *run, const char *address, size_t nbytes);
/* A random name for a run. */
void choir_run_make_id(char *out, size_t size);

/* Run until everything is over; then run->cause and run->code say how it went. */
void choir_run_loop(struct run *run);

/* Watch our signals through a descriptor, and ignore SIGPIPE; notes in `job` how they were
 * (run_signals.c). */
int choir_run_signals_open(struct run_job *job);

/* What went wrong, as the last lines of the run (run_summary.c). */
void choir_run_summary(struct run *run);
void choir_run_describe(const struct run *run, char *out, size_t size);

/* Host the store (run_store.c). */
choir_status choir_run_store_open(struct run *run, const char *bind, const char *torch_bind);
/* "host:port" in numbers, as the library wants addresses; NULL, or what is wrong with it. */
const char *choir_run_resolve(const char *address, char *out, size_t size);
/* Where torch's protocol is spoken: "host:port", or NULL. False if it is not such an address. */
bool choir_run_set_torch(struct run_world *world, const char *address);
/* The token as an unnamed file that ranks inherit; -1 with errno. */
int choir_run_token_file(void);
int choir_run_token_fill(int fd, const choir_token *token);

/* Which processors each rank gets (run_bind.c). False after a line. */
bool choir_run_bind(struct run *run);

/* --output (run_files.c). */
bool choir_run_files_open(const char *folder);
bool choir_run_files_write(const char *folder, struct run_feed *feed, const char *bytes,
                           size_t nbytes);

/* --hosts (run_hosts.c): the launchers as children, and talking to them. */
bool choir_run_hosts_children(struct run *run);
void choir_run_hosts_free(char **argv);
void choir_run_hosts_begin(struct run *run);
/* Whether this line of node 0's was meant for us. */
bool choir_run_hosts_line(struct run_feed *feed, const char *line, size_t nbytes);
void choir_run_hosts_tell(struct run *run, enum run_frame_kind kind, int sig);

/* How node 0 says where its store is. */
#define RUN_ANNOUNCEMENT "choir-run-store "

#endif
