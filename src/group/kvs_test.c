/* kvs_test.c - the launcher's lines (PMI-1) from an honest launcher, a broken one, a silent one; keys and values. */
#include "group/kvs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/io_test.h"

/* --- a launcher ------------------------------------------------------------------------------------ */

/* Answers lines on its end of PMI_FD, in a thread. */
struct launcher {
    pthread_t thread;
    int fds[2];          /* ours, the rank's */
    const char *instead; /* the reply to `to`; NULL: silence */
    const char *to;      /* which command is answered otherwise; NULL: none */
    bool closes;         /* hangs up instead of replying to `to` */
    char value[1100];    /* what was put */
    char seen[400];      /* commands, in order */
};

static void reply(struct launcher *l, const char *text)
{
    size_t len = strlen(text);

    /* In two pieces: a line need not arrive whole. */
    (void)!send(l->fds[0], text, len / 2, MSG_NOSIGNAL);
    (void)!send(l->fds[0], text + len / 2, len - len / 2, MSG_NOSIGNAL);
}

static void answer_honestly(struct launcher *l, const char *cmd, const char *line)
{
    char text[1200];

    if (strcmp(cmd, "init") == 0)
        reply(l, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    if (strcmp(cmd, "get_my_kvsname") == 0)
        reply(l, "cmd=my_kvsname kvsname=kvs_1_0\n");
    if (strcmp(cmd, "put") == 0) {
        snprintf(l->value, sizeof(l->value), "%.1099s", strstr(line, "value=") + strlen("value="));
        reply(l, "cmd=put_result rc=0 msg=success\n");
    }
    if (strcmp(cmd, "barrier_in") == 0)
        reply(l, "cmd=barrier_out\n");
    if (strcmp(cmd, "get") == 0) {
        snprintf(text, sizeof(text), "cmd=get_result rc=0 msg=success value=%s\n", l->value);
        reply(l, text);
    }
    if (strcmp(cmd, "finalize") == 0)
        reply(l, "cmd=finalize_ack\n");
}

/* False when the launcher has hung up. */
static bool answer(struct launcher *l, const char *line)
{
    char cmd[32] = "";

    sscanf(line, "cmd=%31s", cmd);
    snprintf(l->seen + strlen(l->seen), sizeof(l->seen) - strlen(l->seen), "%s ", cmd);
    if (l->to == NULL || strcmp(cmd, l->to) != 0) {
        answer_honestly(l, cmd, line);
        return true;
    }
    if (l->closes)
        shutdown(l->fds[0], SHUT_RDWR);
    else if (l->instead != NULL)
        reply(l, l->instead);
    return !l->closes;
}

static void *serve(void *arg)
{
    struct launcher *l = arg;
    char line[2048];
    size_t nbytes = 0;

    for (;;) {
        char *end;
        ssize_t n = read(l->fds[0], line + nbytes, sizeof(line) - 1 - nbytes);

        if (n <= 0)
            return NULL;
        nbytes += (size_t)n;
        line[nbytes] = '\0';
        end = strchr(line, '\n');
        if (end == NULL)
            continue;
        *end = '\0';
        nbytes = 0; /* one question at a time */
        if (!answer(l, line))
            return NULL;
    }
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

/* Plain calls: a fault is for the library, not for its launcher. */
static void launcher_open(struct launcher *l, int rank, int size)
{
    CHOIR_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, l->fds), 0);
    unsetenv("PMIX_NAMESPACE");
    set_number("PMI_FD", l->fds[1]);
    set_number("PMI_RANK", rank);
    set_number("PMI_SIZE", size);
}

static void launcher_serve(struct launcher *l)
{
    CHOIR_CHECK_EQ(pthread_create(&l->thread, NULL, serve, l), 0);
}

static void launcher_start(struct launcher *l, int rank, int size)
{
    launcher_open(l, rank, size);
    launcher_serve(l);
}

static void launcher_stop(struct launcher *l)
{
    shutdown(l->fds[0], SHUT_RDWR);
    pthread_join(l->thread, NULL);
    close(l->fds[0]);
    close(l->fds[1]);
}

/* --- honest ----------------------------------------------------------------------------------------- */

static const char *const values[] = {
    "127.0.0.1:4711 0123456789abcdef",
    "",
    "a=b;c d\ne\t%s [::1]:1 \x01\xff\"'\\",
};

CHOIR_TEST(rank_0_gets_back_what_it_put)
{
    struct launcher l = { 0 };
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs;
    char got[CH_KVS_VALUE_MAX];

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    launcher_start(&l, 0, 1);
    CHOIR_CHECK_STR(ch_kvs_available(), "pmi1");
    CHOIR_CHECK_OK(ch_kvs_open(NULL, &patience, &kvs));
    CHOIR_CHECK_EQ(ch_kvs_rank(kvs), 0);
    CHOIR_CHECK_EQ(ch_kvs_size(kvs), 1);
    for (size_t i = 0; i < CH_ARRAY_LEN(values); i++) {
        CHOIR_ROW("value %zu", i);
        CHOIR_CHECK_OK(ch_kvs_share(kvs, "test", values[i], got, sizeof(got), &patience));
        CHOIR_CHECK_STR(got, values[i]);
    }
    ch_kvs_close(kvs);
    CHOIR_CHECK_STR(l.seen,
                    "init get_my_kvsname put barrier_in get get_my_kvsname put barrier_in get "
                    "get_my_kvsname put barrier_in get ");
    launcher_stop(&l);
    rig_fini(&rig);
}

CHOIR_TEST(others_put_nothing)
{
    struct launcher l = { .value = "68616c6c6f" };
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs;
    char got[CH_KVS_VALUE_MAX];

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    launcher_start(&l, 3, 4);
    CHOIR_CHECK_OK(ch_kvs_open("pmi1", &patience, &kvs));
    CHOIR_CHECK_OK(ch_kvs_share(kvs, "test", NULL, got, sizeof(got), &patience));
    CHOIR_CHECK_STR(got, "hallo");
    CHOIR_CHECK_STR(l.seen, "init get_my_kvsname barrier_in get ");
    ch_kvs_close(kvs);
    launcher_stop(&l);
    rig_fini(&rig);
}

CHOIR_TEST(bad_arguments_change_nothing)
{
    struct launcher l = { 0 };
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs, *other;
    char got[CH_KVS_VALUE_MAX], longest[CH_KVS_VALUE_MAX + 1];

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    launcher_start(&l, 0, 1);
    CHOIR_CHECK_STATUS(ch_kvs_open("pmix", &patience, &kvs), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_OK(ch_kvs_open(NULL, &patience, &kvs));
    CHOIR_CHECK_STATUS(ch_kvs_open(NULL, &patience, &other), CHOIR_ERR_STATE);
    memset(longest, 'v', sizeof(longest));
    longest[CH_KVS_VALUE_MAX] = '\0';
    CHOIR_CHECK_STATUS(ch_kvs_share(kvs, "test", longest, got, sizeof(got), &patience),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(ch_kvs_share(kvs, "test", NULL, got, sizeof(got), &patience),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(ch_kvs_share(kvs, longest, "v", got, sizeof(got), &patience),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STR(l.seen, "");
    longest[CH_KVS_VALUE_MAX - 1] = '\0';
    CHOIR_CHECK_OK(ch_kvs_share(kvs, "test", longest, got, sizeof(got), &patience));
    CHOIR_CHECK_STR(got, longest);
    ch_kvs_close(kvs);
    ch_kvs_close(NULL);
    launcher_stop(&l);
    rig_fini(&rig);
}

/* --- broken ---------------------------------------------------------------------------------------- */

static char endless[1200];

static const struct {
    const char *to, *instead;
    choir_status status;
    const char *text, *why;
} broken[] = {
    { "init", "cmd=response_to_init rc=-1\n", CHOIR_ERR_PROTO, "refused: rc=-1",
      "refuses the version" },
    { "init", "cmd=response_to_init rc=0 pmi_version=1\ncmd=barrier_out\n", CHOIR_ERR_PROTO,
      "16 bytes more", "two replies at once" },
    { "init", "\n", CHOIR_ERR_PROTO, "replied cmd=?", "an empty line" },
    { "init", "cmd\n", CHOIR_ERR_PROTO, "replied cmd=?", "no value" },
    { "init", "   cmd=\x01\x80 =  \n", CHOIR_ERR_PROTO, "replied cmd=??,", "noise" },
    { "init", endless, CHOIR_ERR_PROTO, "does not end after 1024", "a line without end" },
    { "get_my_kvsname", "cmd=my_kvsname\n", CHOIR_ERR_PROTO, "none in the reply", "no name" },
    { "get_my_kvsname", "cmd=my_kvsname kvsname\n", CHOIR_ERR_PROTO, "none in the reply",
      "cut short" },
    { "put", "cmd=put_result rc=1 msg=duplicate_key\n", CHOIR_ERR_PROTO, "msg=duplicate_key",
      "refuses a key" },
    { "put", "cmd=barrier_out\n", CHOIR_ERR_PROTO, "expected cmd=put_result", "another's answer" },
    { "barrier_in", "cmd=barrier_out rc=-1\n", CHOIR_ERR_PROTO, "refused",
      "a barrier that failed" },
    { "get", "cmd=get_result rc=-1 msg=key_not_found value=unknown\n", CHOIR_ERR_PROTO,
      "key_not_found", "no such key" },
    { "get", "cmd=get_result rc=0\n", CHOIR_ERR_PROTO, "none in the reply", "no value" },
    { "get", "cmd=get_result rc=0 value=7\n", CHOIR_ERR_PROTO, "not what a rank 0", "half a byte" },
    { "get", "cmd=get_result rc=0 value=0g\n", CHOIR_ERR_PROTO, "not what a rank 0", "no digit" },
    { "get", "cmd=get_result rc=0 value=4100\n", CHOIR_ERR_PROTO, "not what a rank 0",
      "a NUL inside" },
};

static void share_once(struct launcher *l, choir_status status, const char *text, int64_t ms)
{
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs;
    char got[CH_KVS_VALUE_MAX] = "untouched";

    CHOIR_CHECK_OK(rig_init(&rig));
    launcher_start(l, 0, 2);
    patience = patience_ms(&rig, ms);
    CHOIR_CHECK_OK(ch_kvs_open(NULL, &patience, &kvs));
    CHOIR_CHECK_STATUS(ch_kvs_share(kvs, "test", "value", got, sizeof(got), &patience), status);
    CHOIR_CHECK_HAS(choir_last_error(), "share test through the launcher (pmi1) as rank 0 of 2: ");
    CHOIR_CHECK_HAS(choir_last_error(), text);
    CHOIR_CHECK(strstr(choir_last_error(), "76616c7565") == NULL); /* the value is secret */
    CHOIR_CHECK_STR(got, "untouched");
    CHOIR_CHECK_STATUS(ch_kvs_share(kvs, "test", "value", got, sizeof(got), &patience),
                       CHOIR_ERR_STATE);
    ch_kvs_close(kvs);
    CHOIR_CHECK_STATUS(ch_kvs_open(NULL, &patience, &kvs), CHOIR_ERR_STATE);
    launcher_stop(l);
    rig_fini(&rig);
}

/* Each in a process of its own: a failed exchange closes the door for good. */
static void one_broken(void *arg)
{
    size_t i = *(const size_t *)arg;
    struct launcher l = { .to = broken[i].to, .instead = broken[i].instead };

    CHOIR_ROW("%s", broken[i].why);
    share_once(&l, broken[i].status, broken[i].text, 10000 * (int64_t)choir_test_slowness());
}

CHOIR_TEST(a_broken_launcher_is_an_error)
{
    memset(endless, 'x', sizeof(endless) - 1);
    for (size_t i = 0; i < CH_ARRAY_LEN(broken); i++) {
        CHOIR_ROW("%s", broken[i].why);
        choir_test_join(choir_test_fork(one_broken, &i));
    }
}

static const char *const commands[] = { "init", "get_my_kvsname", "put", "barrier_in", "get" };

static void one_closed(void *arg)
{
    struct launcher l = { .to = commands[*(const size_t *)arg], .closes = true };

    share_once(&l, CHOIR_ERR_NETWORK, "the launcher closed its socket",
               10000 * (int64_t)choir_test_slowness());
}

CHOIR_TEST(a_launcher_that_hangs_up_is_an_error)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(commands); i++) {
        CHOIR_ROW("at %s", commands[i]);
        choir_test_join(choir_test_fork(one_closed, &i));
    }
}

static void one_silent(void *arg)
{
    enum { SOON_MS = 100 };
    struct launcher l = { .to = commands[*(const size_t *)arg] };
    uint64_t began = ch_now();

    share_once(&l, CHOIR_ERR_TIMEOUT, "the deadline passed",
               SOON_MS * (int64_t)choir_test_slowness());
    check_took_about(began, SOON_MS * (int64_t)choir_test_slowness());
}

CHOIR_TEST(silence_ends_at_the_deadline)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(commands); i++) {
        CHOIR_ROW("at %s", commands[i]);
        choir_test_join(choir_test_fork(one_silent, &i));
    }
}

/* --- the environment -------------------------------------------------------------------------------- */

static const struct {
    const char *fd, *rank, *size;
    choir_status status;
    const char *text, *why;
} environments[] = {
    { NULL, "0", "1", CHOIR_ERR_UNSUPPORTED, "no key-value space", "nobody started us" },
    { "x", "0", "1", CHOIR_ERR_PROTO, "PMI_FD is 'x'", "not a number" },
    { "", "0", "1", CHOIR_ERR_PROTO, "PMI_FD is ''", "empty" },
    { "3 ", "0", "1", CHOIR_ERR_PROTO, "PMI_FD is '3 '", "something behind it" },
    { "-1", "0", "1", CHOIR_ERR_PROTO, "PMI_FD is '-1'", "negative" },
    { "99999999999999999999", "0", "1", CHOIR_ERR_PROTO, "not a number", "too large" },
    { "12345", "0", "1", CHOIR_ERR_SYSTEM, "MPI_Finalize closes it", "closed" },
    { "0", "0", "1", CHOIR_ERR_PROTO, "not a socket", "somebody else's by now" },
    { "0", NULL, "1", CHOIR_ERR_PROTO, "PMI_RANK is not", "half an environment" },
    { "0", "0", NULL, CHOIR_ERR_PROTO, "PMI_SIZE is not", "half an environment" },
};

static void set_or_unset(const char *name, const char *value)
{
    if (value != NULL)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

CHOIR_TEST(a_strange_environment_is_an_error)
{
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_EQ(dup2(null, 0), 0);
    close(null);
    unsetenv("PMIX_NAMESPACE");
    for (size_t i = 0; i < CH_ARRAY_LEN(environments); i++) {
        CHOIR_ROW("%s", environments[i].why);
        set_or_unset("PMI_FD", environments[i].fd);
        set_or_unset("PMI_RANK", environments[i].rank);
        set_or_unset("PMI_SIZE", environments[i].size);
        CHOIR_CHECK_STATUS(ch_kvs_open(NULL, &patience, &kvs), environments[i].status);
        CHOIR_CHECK_HAS(choir_last_error(), environments[i].text);
    }
    rig_fini(&rig);
}

CHOIR_TEST(a_rank_outside_the_job_is_an_error)
{
    struct launcher l = { 0 };
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    launcher_start(&l, 2, 2);
    CHOIR_CHECK_STATUS(ch_kvs_open(NULL, &patience, &kvs), CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), "rank 2 of 2");
    CHOIR_CHECK_STATUS(ch_kvs_open(NULL, &patience, &kvs), CHOIR_ERR_PROTO); /* and not spoiled */
    launcher_stop(&l);
    rig_fini(&rig);
}

/* --- the end ---------------------------------------------------------------------------------------- */

/* A process that shared, and then: exits; closed the socket and has another by its number; forked. */
enum end { EXITS, CLOSED_BEFORE, FORKED };

static void run_and_exit(struct launcher *l, enum end end)
{
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs;
    char got[CH_KVS_VALUE_MAX];
    int other[2], status;

    if (rig_init(&rig) != CHOIR_OK)
        _exit(1);
    patience = ample(&rig);
    if (ch_kvs_open(NULL, &patience, &kvs) != CHOIR_OK ||
        ch_kvs_share(kvs, "test", "value", got, sizeof(got), &patience) != CHOIR_OK)
        _exit(2);
    ch_kvs_close(kvs);
    rig_fini(&rig);
    if (end == CLOSED_BEFORE &&
        (socketpair(AF_UNIX, SOCK_STREAM, 0, other) != 0 || dup2(other[0], l->fds[1]) < 0))
        _exit(3);
    if (end == FORKED) {
        pid_t child = fork();

        if (child == 0)
            exit(0); /* its handlers run, and must say nothing */
        if (waitpid(child, &status, 0) != child || status != 0)
            _exit(4);
        _exit(0);
    }
    exit(0);
}

static void check_end(enum end end, const char *seen)
{
    struct launcher l = { 0 };
    int status;
    pid_t pid;

    launcher_open(&l, 0, 1);
    pid =
        fork(); /* before there is a thread: a sanitizer's lock that it had would stay taken in the child */
    if (pid == 0)
        run_and_exit(&l, end);
    launcher_serve(&l);
    CHOIR_CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHOIR_CHECK_EQ(status, 0);
    launcher_stop(&l);
    CHOIR_CHECK_STR(l.seen, seen);
}

CHOIR_TEST(goodbye_is_said_at_exit_and_by_nobody_else)
{
    const char *shared = "init get_my_kvsname put barrier_in get ";

    CHOIR_ROW("exits");
    check_end(EXITS, "init get_my_kvsname put barrier_in get finalize ");
    CHOIR_ROW("the socket is another by now");
    check_end(CLOSED_BEFORE, shared);
    CHOIR_ROW("only its fork exits");
    check_end(FORKED, shared);
}

/* --- faults ------------------------------------------------------------------------------------------ */

/* Below the core, which would close the door after the first. */
static choir_status share_by_hand(void *arg)
{
    struct launcher l = { 0 };
    struct rig rig;
    struct ch_patience patience;
    char self[64] = { 0 }, text[CH_KVS_VALUE_TEXT_MAX];
    int rank, size;
    choir_status rc = rig_init(&rig);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    CHOIR_CHECK_LE(ch_kvs_pmi1.self_size, sizeof(self));
    patience = patience_ms(&rig, 10000 * (int64_t)choir_test_slowness());
    launcher_start(&l, 0, 1);
    rc = ch_kvs_pmi1.open(self, &patience, &rank, &size);
    if (rc == CHOIR_OK)
        rc = ch_kvs_pmi1.share(self, "key", "76", text, &patience);
    if (rc == CHOIR_OK && strcmp(text, "76") != 0)
        rc = CHOIR_ERR_PROTO;
    ch_kvs_pmi1.close(self);
    launcher_stop(&l);
    rig_fini(&rig);
    return rc;
}

CHOIR_TEST(every_failing_call_is_an_error)
{
    choir_test_all_faults(share_by_hand, NULL);
}

static choir_status open_and_close(void *arg)
{
    struct launcher l = { 0 };
    struct rig rig;
    struct ch_patience patience;
    struct ch_kvs *kvs;
    choir_status rc = rig_init(&rig);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    patience = ample(&rig);
    launcher_start(&l, 0, 1);
    rc = ch_kvs_open(NULL, &patience, &kvs);
    if (rc == CHOIR_OK)
        ch_kvs_close(kvs);
    launcher_stop(&l);
    rig_fini(&rig);
    return rc;
}

CHOIR_TEST(every_failing_call_of_open_is_an_error)
{
    choir_test_all_faults(open_and_close, NULL);
}
