/*
 * kvs_pmi1.c - PMI-1 on the socket PMI_FD: one line asked, one line answered.
 *
 *   we                                           the launcher
 *   cmd=init pmi_version=1 pmi_subversion=1      cmd=response_to_init rc=0 ...      once per process
 *   cmd=get_my_kvsname                           cmd=my_kvsname kvsname=NAME
 *   cmd=put kvsname=NAME key=KEY value=VALUE     cmd=put_result rc=0 ...            rank 0
 *   cmd=barrier_in                               cmd=barrier_out                    when all came
 *   cmd=get kvsname=NAME key=KEY                 cmd=get_result rc=0 value=VALUE ...
 *   cmd=finalize                                 cmd=finalize_ack                   when we exit
 *
 * The socket is the MPI library's as well as ours. So between exchanges it is left as MPI expects it:
 * nothing read ahead, nothing unanswered, not closed. The launcher closes it after finalize, which
 * therefore is said when the process exits, and only if MPI_Finalize did not: hydra takes a process
 * that spoke and ends without it for crashed, and kills the others. Hydra lets both of us say init;
 * Slurm (srun --mpi=pmi2) does not answer the second one, so there a program cannot use MPI as well.
 */
#include "group/kvs.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/sys.h"

enum {
    LINE_MAX_BYTES = 1024, /* what PMI-1 allows a line */
    NAME_MAX_BYTES = 257,  /* of a key-value space, with its NUL */
    SHOWN_MAX = 48,        /* of a reply, in an error text */
};

struct pmi1 {
    int fd; /* the launcher's socket: inherited, shared with MPI, never closed by us */
};

struct reply {
    char line[LINE_MAX_BYTES + 1];
    size_t nbytes;
};

/* To which socket init was said; written by who has the launcher open. MPI may close it, and its number may
 * then be anybody's: so it is known by its inode. A forked child has it too, and is not who said it. */
static struct {
    bool said_init;
    int fd;
    dev_t dev;
    ino_t ino;
    pid_t pid;
} the_socket;

static bool is_the_socket(int fd, const struct stat *st)
{
    return the_socket.said_init && the_socket.pid == getpid() && the_socket.fd == fd &&
           the_socket.dev == st->st_dev && the_socket.ino == st->st_ino;
}

static bool pmi1_present(void)
{
    return getenv("PMI_FD") != NULL;
}

static choir_status number_from(const char *variable, int *value_out)
{
    const char *text = getenv(variable);
    char *end;
    long value;

    if (text == NULL)
        return ch_fail(CHOIR_ERR_PROTO, "PMI_FD is set, but %s is not", variable);
    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 0 || value > INT32_MAX)
        return ch_fail(CHOIR_ERR_PROTO, "%s is '%s', not a number", variable, text);
    *value_out = (int)value;
    return CHOIR_OK;
}

static choir_status pmi1_open(void *self, const struct ch_patience *patience, int *rank_out,
                              int *size_out)
{
    struct pmi1 *pmi = self;
    struct stat st;
    choir_status rc = number_from("PMI_FD", &pmi->fd);

    (void)patience;
    if (rc == CHOIR_OK)
        rc = number_from("PMI_RANK", rank_out);
    if (rc == CHOIR_OK)
        rc = number_from("PMI_SIZE", size_out);
    if (rc != CHOIR_OK)
        return rc;
    if (ch_sys_fstat(pmi->fd, &st) != 0)
        return ch_fail_errno(
            "the launcher's socket, descriptor %d by PMI_FD (MPI_Finalize closes it)", pmi->fd);
    if (!S_ISSOCK(st.st_mode))
        return ch_fail(CHOIR_ERR_PROTO,
                       "PMI_FD is %d, which in this process is not a socket of the launcher's",
                       pmi->fd);
    return CHOIR_OK;
}

static void pmi1_close(void *self)
{
    (void)self; /* what was opened is the launcher's and stays open, for MPI */
}

/* --- lines -------------------------------------------------------------------------------------- */

static choir_status send_line(const struct pmi1 *pmi, const char *line, size_t nbytes,
                              const struct ch_patience *patience)
{
    while (nbytes > 0) {
        struct iovec iov = { .iov_base = (char *)line, .iov_len = nbytes };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
        ssize_t n = ch_sys_sendmsg(pmi->fd, &msg);
        choir_status rc = CHOIR_OK;

        if (n >= 0) {
            line += n;
            nbytes -= (size_t)n;
        } else if (errno == EAGAIN) {
            rc = ch_patience_wait(patience, pmi->fd, POLLOUT, "the launcher to read");
        } else {
            rc = ch_fail_errno("send to the launcher");
        }
        if (rc != CHOIR_OK)
            return rc;
    }
    return CHOIR_OK;
}

/* CHOIR_IN_PROGRESS if there is nothing to read now. */
static choir_status recv_some(const struct pmi1 *pmi, struct reply *reply)
{
    struct iovec iov = { .iov_base = reply->line + reply->nbytes,
                         .iov_len = LINE_MAX_BYTES - reply->nbytes };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t n;

    if (iov.iov_len == 0)
        return ch_fail(CHOIR_ERR_PROTO, "the launcher's reply does not end after %d bytes",
                       LINE_MAX_BYTES);
    n = ch_sys_recvmsg(pmi->fd, &msg);
    if (n > 0) {
        reply->nbytes += (size_t)n;
        return CHOIR_OK;
    }
    if (n == 0)
        return ch_fail(CHOIR_ERR_NETWORK, "the launcher closed its socket");
    return errno == EAGAIN ? CHOIR_IN_PROGRESS : ch_fail_errno("receive from the launcher");
}

/* One whole line and not a byte more: there is one reply to one question. */
static choir_status recv_line(const struct pmi1 *pmi, struct reply *reply, const char *what,
                              const struct ch_patience *patience)
{
    char *end;

    reply->nbytes = 0;
    do {
        choir_status rc = recv_some(pmi, reply);

        if (rc == CHOIR_IN_PROGRESS)
            rc = ch_patience_wait(patience, pmi->fd, POLLIN, what);
        if (rc != CHOIR_OK)
            return rc;
        end = memchr(reply->line, '\n', reply->nbytes);
    } while (end == NULL);
    if (end != reply->line + reply->nbytes - 1)
        return ch_fail(CHOIR_ERR_PROTO, "the launcher sent %zu bytes more than one reply",
                       reply->nbytes - (size_t)(end + 1 - reply->line));
    *end = '\0';
    return CHOIR_OK;
}

/* --- fields ------------------------------------------------------------------------------------- */

/* The value of `name` in "a=1 name=VALUE b=2"; false if it is not there or does not fit. */
static bool field(const struct reply *reply, const char *name, char *value_out, size_t room)
{
    size_t name_len = strlen(name);
    const char *word = reply->line + strspn(reply->line, " ");

    while (*word != '\0') {
        size_t len = strcspn(word, " ");

        if (len > name_len && word[name_len] == '=' && memcmp(word, name, name_len) == 0) {
            size_t value_len = len - name_len - 1;

            if (value_len >= room)
                return false;
            memcpy(value_out, word + name_len + 1, value_len);
            value_out[value_len] = '\0';
            return true;
        }
        word += len;
        word += strspn(word, " ");
    }
    return false;
}

/* A field for an error text: what is not printable, or not there, is '?'. Never the value: it may be a
 * token. */
static const char *shown(const struct reply *reply, const char *name, char text[SHOWN_MAX])
{
    if (!field(reply, name, text, SHOWN_MAX))
        return "?";
    for (char *c = text; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
    return text;
}

/* Ask `question` (with its newline) and take the reply, which must be `wanted` and well. */
static choir_status ask(const struct pmi1 *pmi, const char *question, const char *wanted,
                        const char *what, struct reply *reply, const struct ch_patience *patience)
{
    char cmd[SHOWN_MAX], code[SHOWN_MAX], why[SHOWN_MAX];
    choir_status rc = send_line(pmi, question, strlen(question), patience);

    if (rc == CHOIR_OK)
        rc = recv_line(pmi, reply, what, patience);
    if (rc != CHOIR_OK)
        return rc;
    if (!field(reply, "cmd", cmd, sizeof(cmd)) || strcmp(cmd, wanted) != 0)
        return ch_fail(CHOIR_ERR_PROTO, "%s: the launcher replied cmd=%s, expected cmd=%s", what,
                       shown(reply, "cmd", cmd), wanted);
    if (field(reply, "rc", code, sizeof(code)) && strcmp(code, "0") != 0)
        return ch_fail(CHOIR_ERR_PROTO, "%s: the launcher refused: rc=%s msg=%s", what,
                       shown(reply, "rc", code), shown(reply, "msg", why));
    return CHOIR_OK;
}

/* --- the exchange ------------------------------------------------------------------------------- */

/* Nobody waits long for an answer at exit, and nobody is told if there is none. */
static void finalize_at_exit(void)
{
    enum { AT_MOST_MS = 2000 };
    struct ch_bell_word word = { 0 };
    struct ch_waiter waiter;
    struct ch_patience patience = { .waiter = &waiter, .until = ch_deadline_ms(AT_MOST_MS) };
    struct pmi1 pmi = { .fd = the_socket.fd };
    struct reply reply;
    struct stat st;

    if (ch_sys_fstat(pmi.fd, &st) != 0 || !is_the_socket(pmi.fd, &st) ||
        ch_waiter_init(&waiter, &word) != CHOIR_OK)
        return;
    (void)ask(&pmi, "cmd=finalize\n", "finalize_ack", "the launcher to let us go", &reply,
              &patience);
    ch_waiter_fini(&waiter);
}

/* What must be undone at exit is arranged before it is done. */
static choir_status arrange_exit(const struct pmi1 *pmi, const struct stat *st)
{
    bool is_arranged = the_socket.pid == getpid();

    if (!is_arranged && atexit(finalize_at_exit) != 0)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for a handler at exit");
    the_socket.fd = pmi->fd;
    the_socket.dev = st->st_dev;
    the_socket.ino = st->st_ino;
    the_socket.pid = getpid();
    the_socket.said_init = false;
    return CHOIR_OK;
}

static choir_status greet(const struct pmi1 *pmi, const struct ch_patience *patience)
{
    struct reply reply;
    struct stat st;
    choir_status rc;

    if (ch_sys_fstat(pmi->fd, &st) != 0)
        return ch_fail_errno("the launcher's socket");
    if (is_the_socket(pmi->fd, &st))
        return CHOIR_OK;
    rc = arrange_exit(pmi, &st);
    if (rc != CHOIR_OK)
        return rc;
    the_socket.said_init = true; /* whatever the answer: it was said */
    rc = ask(pmi, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init",
             "the launcher to accept PMI-1", &reply, patience);
    if (rc != CHOIR_OK)
        ch_error_prefix("(if this program uses MPI as well, start it with srun --mpi=pmix) ");
    return rc;
}

static choir_status find_name(const struct pmi1 *pmi, char *name_out,
                              const struct ch_patience *patience)
{
    const char *what = "the name of the launcher's key-value space";
    struct reply reply;
    choir_status rc = ask(pmi, "cmd=get_my_kvsname\n", "my_kvsname", what, &reply, patience);

    if (rc == CHOIR_OK && !field(&reply, "kvsname", name_out, NAME_MAX_BYTES))
        rc = ch_fail(CHOIR_ERR_PROTO, "%s: none in the reply, or a too long one", what);
    return rc;
}

static choir_status put(const struct pmi1 *pmi, const char *name, const char *key,
                        const char *value, const struct ch_patience *patience)
{
    char line[LINE_MAX_BYTES];
    struct reply reply;

    snprintf(line, sizeof(line), "cmd=put kvsname=%s key=%s value=%s\n", name, key, value);
    return ask(pmi, line, "put_result", "the launcher to store a value", &reply, patience);
}

static choir_status get(const struct pmi1 *pmi, const char *name, const char *key, char *text_out,
                        const struct ch_patience *patience)
{
    const char *what = "the value that rank 0 put";
    char line[LINE_MAX_BYTES];
    struct reply reply;
    choir_status rc;

    snprintf(line, sizeof(line), "cmd=get kvsname=%s key=%s\n", name, key);
    rc = ask(pmi, line, "get_result", what, &reply, patience);
    if (rc == CHOIR_OK && !field(&reply, "value", text_out, CH_KVS_VALUE_TEXT_MAX))
        rc = ch_fail(CHOIR_ERR_PROTO, "%s: none in the reply, or a too long one", what);
    return rc;
}

static choir_status pmi1_share(void *self, const char *key, const char *value, char *text_out,
                               const struct ch_patience *patience)
{
    const struct pmi1 *pmi = self;
    char name[NAME_MAX_BYTES];
    struct reply reply;
    choir_status rc = greet(pmi, patience);

    if (rc == CHOIR_OK)
        rc = find_name(pmi, name, patience);
    if (rc == CHOIR_OK && value != NULL)
        rc = put(pmi, name, key, value, patience);
    if (rc == CHOIR_OK)
        rc = ask(pmi, "cmd=barrier_in\n", "barrier_out",
                 "all ranks to meet at the launcher's barrier", &reply, patience);
    if (rc == CHOIR_OK)
        rc = get(pmi, name, key, text_out, patience);
    return rc;
}

/* The longest line that can be asked fits. */
_Static_assert(sizeof("cmd=put kvsname= key= value=\n") + NAME_MAX_BYTES + CH_KVS_KEY_TEXT_MAX +
                       CH_KVS_VALUE_TEXT_MAX <
                   LINE_MAX_BYTES,
               "a put fits into a line of PMI-1");

const struct ch_kvs_ops ch_kvs_pmi1 = {
    .name = "pmi1",
    .self_size = sizeof(struct pmi1),
    .present = pmi1_present,
    .open = pmi1_open,
    .share = pmi1_share,
    .close = pmi1_close,
};
