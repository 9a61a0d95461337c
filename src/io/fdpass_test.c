/* fdpass_test.c - descriptors between honest processes, and from rogue ones. */
#include "io/fdpass.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/io_test.h"
#include "io/segment.h"

/* Every descriptor of the process, whoever opened it: what a leak cannot hide from. */
static int open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    CHOIR_CHECK(dir != NULL);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void close_fds(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        ch_sys_close(fds[i]);
}

static bool is_same_file(int a, int b)
{
    struct stat x, y;

    CHOIR_CHECK_EQ(fstat(a, &x), 0);
    CHOIR_CHECK_EQ(fstat(b, &y), 0);
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* --- among friends ------------------------------------------------------------------------------ */

static const struct {
    size_t nbytes;
    int nfds;
    const char *why;
} messages[] = {
    { 0, 0, "an empty message is a message" },
    { 5, 0, "no descriptor" },
    { 0, 1, "nothing but a descriptor" },
    { 100, 3, "segment, doorbell, pidfd" },
    { CH_FDPASS_BYTES_MAX, CH_FDPASS_FDS_MAX, "as much as goes" },
};

CHOIR_TEST(bytes_and_descriptors_arrive)
{
    static char out[CH_FDPASS_BYTES_MAX], in[CH_FDPASS_BYTES_MAX];
    int files[CH_FDPASS_FDS_MAX], pair[2];
    struct rig rig;
    struct ch_patience patience;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_fdpass_pair(pair));
    for (int i = 0; i < CH_FDPASS_FDS_MAX; i++)
        files[i] = ch_sys_memfd("test");
    memset(out, 'o', sizeof(out));
    for (size_t i = 0; i < CH_ARRAY_LEN(messages); i++) {
        int got[CH_FDPASS_FDS_MAX];
        size_t nbytes = 12345;

        CHOIR_ROW("%zu bytes, %d descriptors: %s", messages[i].nbytes, messages[i].nfds,
                  messages[i].why);
        memset(in, 0, sizeof(in));
        CHOIR_CHECK_OK(
            ch_fdpass_send(pair[0], out, messages[i].nbytes, files, messages[i].nfds, &patience));
        CHOIR_CHECK_OK(
            ch_fdpass_recv(pair[1], in, sizeof(in), &nbytes, got, messages[i].nfds, &patience));
        CHOIR_CHECK_EQ(nbytes, messages[i].nbytes);
        CHOIR_CHECK_EQ(memcmp(in, out, nbytes), 0);
        for (int f = 0; f < messages[i].nfds; f++) {
            CHOIR_CHECK(is_same_file(got[f], files[f]));
            CHOIR_CHECK_EQ(fcntl(got[f], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        }
        close_fds(got, messages[i].nfds);
    }
    CHOIR_CHECK_STATUS(ch_fdpass_send(pair[0], out, CH_FDPASS_BYTES_MAX + 1, NULL, 0, &patience),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(ch_fdpass_send(pair[0], out, 0, files, CH_FDPASS_FDS_MAX + 1, &patience),
                       CHOIR_ERR_INVALID);
    close_fds(files, CH_FDPASS_FDS_MAX);
    close_fds(pair, 2);
    rig_fini(&rig);
}

static _Atomic int last_words_fd = -1; /* -2: no more */

static void *say_last_words(void *arg)
{
    struct rig rig;
    struct ch_patience patience;
    int sock;

    (void)arg;
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    while ((sock = atomic_exchange(&last_words_fd, -1)) != -2) {
        if (sock < 0) {
            sched_yield();
            continue;
        }
        CHOIR_CHECK_OK(ch_fdpass_send(sock, NULL, 0, NULL, 0, &patience));
        ch_sys_close(sock);
    }
    rig_fini(&rig);
    return NULL;
}

/* However the kernel's two looks, for a message and for the end, fall between the peer's sending and closing. */
CHOIR_TEST_TIMED(a_last_message_is_not_taken_for_the_end, 120)
{
    struct rig rig;
    pthread_t thread;

    CHOIR_CHECK_OK(rig_init(&rig));
    CHOIR_CHECK_EQ(pthread_create(&thread, NULL, say_last_words, NULL), 0);
    for (int i = 0; i < (choir_test_long() ? 100000 : 2000); i++) {
        struct ch_patience patience = ample(&rig);
        size_t nbytes;
        int pair[2];

        CHOIR_CHECK_OK(ch_fdpass_pair(pair));
        atomic_store(&last_words_fd, pair[1]);
        CHOIR_CHECK_OK(ch_fdpass_recv(pair[0], NULL, 0, &nbytes, NULL, 0, &patience));
        ch_sys_close(pair[0]);
    }
    atomic_store(&last_words_fd, -2);
    pthread_join(thread, NULL);
    rig_fini(&rig);
}

CHOIR_TEST(strangers_meet_by_a_random_name)
{
    struct ch_fdpass_listener listener, other;
    struct rig rig;
    struct ch_patience patience;
    int client, server, file, got;
    size_t nbytes;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_fdpass_listen(&listener));
    CHOIR_CHECK_OK(ch_fdpass_listen(&other));
    CHOIR_CHECK(strcmp(listener.name, other.name) != 0);
    CHOIR_CHECK_EQ(strlen(listener.name), (size_t)CH_FDPASS_NAME_MAX - 1);
    CHOIR_CHECK_OK(ch_fdpass_connect(listener.name, &patience, &client));
    CHOIR_CHECK_OK(ch_fdpass_accept(&listener, &patience, &server));
    file = ch_sys_memfd("test");
    CHOIR_CHECK_OK(ch_fdpass_send(client, NULL, 0, &file, 1, &patience));
    CHOIR_CHECK_OK(ch_fdpass_recv(server, NULL, 0, &nbytes, &got, 1, &patience));
    CHOIR_CHECK(is_same_file(file, got));
    close_fds((int[]){ client, server, file, got }, 4);
    ch_fdpass_unlisten(&listener);
    ch_fdpass_unlisten(&listener); /* harmless */
    CHOIR_CHECK_STATUS(ch_fdpass_connect(listener.name, &patience, &client), CHOIR_ERR_NETWORK);
    ch_fdpass_unlisten(&other);
    rig_fini(&rig);
}

static const struct {
    const char *name, *why;
} names[] = {
    { "", "nothing" },
    { "choir-", "no digits" },
    { "choir-0123456789abcdef0123456789abcde", "a digit short" },
    { "choir-0123456789abcdef0123456789abcdef0", "a digit more" },
    { "choir-0123456789ABCDEF0123456789abcdef", "we do not write capitals" },
    { "chair-0123456789abcdef0123456789abcdef", "somebody else's" },
    { "/tmp/.X11-unix/X0/////////////////////////////////////////////////////////////////////////"
      "//////////////////////////////////////////////////",
      "longer than an address" },
};

CHOIR_TEST(a_name_that_is_not_ours_is_refused)
{
    struct ch_patience patience = { .until = 0 };
    int fd;

    for (size_t i = 0; i < CH_ARRAY_LEN(names); i++) {
        CHOIR_ROW("\"%s\": %s", names[i].name, names[i].why);
        CHOIR_CHECK_STATUS(ch_fdpass_connect(names[i].name, &patience, &fd), CHOIR_ERR_INVALID);
    }
}

/* --- rogues ------------------------------------------------------------------------------------- */

/* Send what a rogue likes, through the kernel's own call. */
static void raw_send(int sock, const void *bytes, size_t nbytes, int nfds)
{
    char control[CMSG_SPACE(sizeof(int) * 64)];
    struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = nbytes };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    memset(control, 0, sizeof(control));
    if (nfds > 0) {
        struct cmsghdr *cmsg;

        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
        memset(CMSG_DATA(cmsg), 0, sizeof(int) * (size_t)nfds); /* its standard input, often */
    }
    CHOIR_CHECK_EQ(sendmsg(sock, &msg, MSG_NOSIGNAL), (ssize_t)nbytes);
}

static const struct {
    struct ch_fdpass_header header;
    size_t nbytes;    /* sent in all, header included */
    int nfds;         /* sent */
    const char *says; /* in the error's text; NULL: it is no error */
    const char *why;
} rogues[] = {
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 }, 20, 2, NULL, "an honest peer" },
    { { CH_FDPASS_MAGIC, 1, 0, 4, 0 }, 20, 0, "0 descriptors came", "no descriptor" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 }, 20, 0, "0 descriptors came", "none, but two announced" },
    { { CH_FDPASS_MAGIC, 1, 1, 4, 0 }, 20, 1, "1 descriptors came", "too few" },
    { { CH_FDPASS_MAGIC, 1, 3, 4, 0 }, 20, 3, "3 descriptors came", "too many" },
    { { CH_FDPASS_MAGIC, 1, 3, 4, 0 }, 20, 2, "3 announced", "as many as expected, by mistake" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 },
      20,
      CH_FDPASS_FDS_MAX,
      "48 descriptors came",
      "as many as fit" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 },
      20,
      CH_FDPASS_FDS_MAX + 1,
      "not all",
      "one over the cap: cut by the kernel" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 }, 20, 64, "not all", "far over the cap" },
    { { 0x20544547, 1, 2, 4, 0 }, 20, 2, "magic", "\"GET \"" },
    { { CH_FDPASS_MAGIC, 2, 2, 4, 0 }, 20, 2, "version 2", "a later version" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 7 }, 20, 2, "version", "the rest is not zero" },
    { { CH_FDPASS_MAGIC, 1, 2, 5, 0 }, 20, 2, "5 announced", "fewer bytes than it says" },
    { { CH_FDPASS_MAGIC, 1, 2, 3, 0 }, 20, 2, "3 announced", "more bytes than it says" },
    { { CH_FDPASS_MAGIC, 1, 2, 99, 0 }, 115, 2, "at most 64", "more than we have room for" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 }, 115, 2, "at most 64", "the same, in secret" },
    { { CH_FDPASS_MAGIC, 1, 2, 0xffffffff, 0 }, 16, 2, "at most 64", "a huge length" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 }, 15, 2, "15 bytes", "most of a header" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 }, 1, 0, "1 bytes", "a byte" },
    { { CH_FDPASS_MAGIC, 1, 2, 4, 0 }, 0, 2, "0 bytes", "descriptors alone" },
};

CHOIR_TEST(a_rogue_message_is_an_error_and_leaks_nothing)
{
    struct rig rig;
    struct ch_patience patience;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    for (size_t i = 0; i < CH_ARRAY_LEN(rogues); i++) {
        char message[128] = { 0 }, bytes[64];
        int pair[2], before, got[2] = { -7, -7 };
        size_t nbytes = 12345;

        CHOIR_ROW("%zu: %s", i, rogues[i].why);
        CHOIR_CHECK_OK(ch_fdpass_pair(pair));
        before = open_fds();
        memcpy(message, &rogues[i].header, sizeof(rogues[i].header));
        raw_send(pair[0], message, rogues[i].nbytes, rogues[i].nfds);
        CHOIR_CHECK_STATUS(
            ch_fdpass_recv(pair[1], bytes, sizeof(bytes), &nbytes, got, 2, &patience),
            rogues[i].says == NULL ? CHOIR_OK : CHOIR_ERR_PROTO);
        if (rogues[i].says == NULL) {
            CHOIR_CHECK_EQ(nbytes, 4u);
            close_fds(got, 2);
        } else {
            CHOIR_CHECK_HAS(choir_last_error(), rogues[i].says);
            CHOIR_CHECK_HAS(choir_last_error(), "from process");
            CHOIR_CHECK_EQ(nbytes, 12345u);
            CHOIR_CHECK_EQ(got[0], -7);
        }
        CHOIR_CHECK_EQ(open_fds(), before);
        close_fds(pair, 2);
    }
    rig_fini(&rig);
}

CHOIR_TEST(a_peer_that_closes_or_says_nothing_is_an_error_in_time)
{
    struct rig rig;
    struct ch_patience patience;
    struct ch_fdpass_listener listener;
    _Atomic uint32_t poison = 1;
    int pair[2], fd, got;
    size_t nbytes;
    uint64_t began;

    CHOIR_CHECK_OK(rig_init(&rig));
    CHOIR_CHECK_OK(ch_fdpass_pair(pair));
    CHOIR_CHECK_OK(ch_fdpass_listen(&listener));

    began = ch_now();
    patience = patience_ms(&rig, 50);
    CHOIR_CHECK_STATUS(ch_fdpass_recv(pair[1], NULL, 0, &nbytes, &got, 1, &patience),
                       CHOIR_ERR_TIMEOUT);
    check_took_about(began, 50);
    CHOIR_CHECK_HAS(choir_last_error(), "from process");
    began = ch_now();
    patience = patience_ms(&rig, 50);
    CHOIR_CHECK_STATUS(ch_fdpass_accept(&listener, &patience, &fd), CHOIR_ERR_TIMEOUT);
    check_took_about(began, 50);
    CHOIR_CHECK_HAS(choir_last_error(), listener.name);

    patience = ample(&rig);
    patience.poison = &poison;
    CHOIR_CHECK_STATUS(ch_fdpass_recv(pair[1], NULL, 0, &nbytes, &got, 1, &patience),
                       CHOIR_ERR_REMOTE);
    patience.poison = NULL;
    ch_sys_close(pair[0]);
    CHOIR_CHECK_STATUS(ch_fdpass_recv(pair[1], NULL, 0, &nbytes, &got, 1, &patience),
                       CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "closed by the peer");
    CHOIR_CHECK_STATUS(ch_fdpass_send(pair[1], NULL, 0, NULL, 0, &patience), CHOIR_ERR_NETWORK);
    ch_sys_close(pair[1]);
    ch_fdpass_unlisten(&listener);
    rig_fini(&rig);
}

/* A peer that never reads fills its queue. */
CHOIR_TEST(a_peer_that_does_not_read_is_an_error_in_time)
{
    struct rig rig;
    struct ch_patience patience;
    int pair[2];
    uint64_t began;
    choir_status rc;

    CHOIR_CHECK_OK(rig_init(&rig));
    CHOIR_CHECK_OK(ch_fdpass_pair(pair));
    do {
        began = ch_now();
        patience = patience_ms(&rig, 50);
        rc = ch_fdpass_send(pair[0], "x", 1, NULL, 0, &patience);
    } while (rc == CHOIR_OK);
    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
    check_took_about(began, 50);
    close_fds(pair, 2);
    rig_fini(&rig);
}

static void fill_address(struct sockaddr_un *un, socklen_t *len, const char *name)
{
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path + 1, name, strlen(name));
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static int raw_listen(const char *name, int backlog)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un un;
    socklen_t len;

    fill_address(&un, &len, name);
    CHOIR_CHECK(fd >= 0);
    CHOIR_CHECK_EQ(bind(fd, (struct sockaddr *)&un, len), 0);
    CHOIR_CHECK_EQ(listen(fd, backlog), 0);
    return fd;
}

static void random_name(char *name)
{
    struct ch_fdpass_listener listener;

    CHOIR_CHECK_OK(ch_fdpass_listen(&listener));
    memcpy(name, listener.name, sizeof(listener.name));
    ch_fdpass_unlisten(&listener);
}

CHOIR_TEST(a_full_queue_is_waited_for_until_the_deadline)
{
    enum { MANY = 8 };
    char name[CH_FDPASS_NAME_MAX];
    struct rig rig;
    struct ch_patience patience;
    int listener, fds[MANY], count = 0;
    uint64_t began;
    choir_status rc;

    CHOIR_CHECK_OK(rig_init(&rig));
    random_name(name);
    listener = raw_listen(name, 0);
    do {
        began = ch_now();
        patience = patience_ms(&rig, 50);
        rc = ch_fdpass_connect(name, &patience, &fds[count]);
        count += rc == CHOIR_OK;
    } while (rc == CHOIR_OK && count < MANY);
    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
    check_took_about(began, 50);
    CHOIR_CHECK_HAS(choir_last_error(), name);
    close_fds(fds, count);
    close(listener);
    rig_fini(&rig);
}

/* valgrind keeps the limit to itself: its own descriptors lie above. */
static bool kernel_limits_fds_to(rlim_t most)
{
    FILE *file = fopen("/proc/self/limits", "r");
    unsigned long long limit = 0;
    char line[256];

    if (file == NULL)
        return false;
    while (fgets(line, sizeof(line), file) != NULL)
        sscanf(line, "Max open files %llu", &limit);
    fclose(file);
    return limit == most;
}

CHOIR_TEST(no_free_descriptor_is_an_error)
{
    struct rlimit limit;
    struct rig rig;
    struct ch_patience patience;
    int pair[2], files[2], got[2], before, next;
    size_t nbytes;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_fdpass_pair(pair));
    files[0] = files[1] = pair[0];
    CHOIR_CHECK_OK(ch_fdpass_send(pair[0], NULL, 0, files, 2, &patience));
    before = open_fds();
    next = dup(0);
    close(next);
    CHOIR_CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)next + 1; /* room for one of the two */
    CHOIR_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (!kernel_limits_fds_to(limit.rlim_cur))
        CHOIR_SKIP("the kernel was not told of the limit, as under valgrind");
    CHOIR_CHECK_STATUS(ch_fdpass_recv(pair[1], NULL, 0, &nbytes, got, 2, &patience),
                       CHOIR_ERR_PROTO);
    CHOIR_CHECK_HAS(choir_last_error(), "no number free");
    limit.rlim_cur = limit.rlim_max;
    CHOIR_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHOIR_CHECK_EQ(open_fds(), before);
    close_fds(pair, 2);
    rig_fini(&rig);
}

/* --- other processes ---------------------------------------------------------------------------- */

/* A child and its parent, forked before either opened anything, with a pipe each way. */
struct pipes {
    int to_child[2], to_parent[2];
};

static void open_pipes(struct pipes *pipes)
{
    CHOIR_CHECK_EQ(pipe2(pipes->to_child, O_CLOEXEC), 0);
    CHOIR_CHECK_EQ(pipe2(pipes->to_parent, O_CLOEXEC), 0);
}

static void tell(int fd, const void *what, size_t nbytes)
{
    CHOIR_CHECK_EQ(write(fd, what, nbytes), (ssize_t)nbytes);
}

static void hear(int fd, void *what, size_t nbytes)
{
    CHOIR_CHECK_EQ(read(fd, what, nbytes), (ssize_t)nbytes);
}

static void child_attaches(void *arg)
{
    struct pipes *pipes = arg;
    struct rig rig;
    struct ch_patience patience;
    struct ch_seg *seg;
    char name[CH_FDPASS_NAME_MAX];
    size_t promised = 0, nbytes;
    int sock, fd;

    hear(pipes->to_child[0], name, sizeof(name));
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_fdpass_connect(name, &patience, &sock));
    CHOIR_CHECK_OK(ch_fdpass_recv(sock, &promised, sizeof(promised), &nbytes, &fd, 1, &patience));
    CHOIR_CHECK_EQ(nbytes, sizeof(promised));
    CHOIR_CHECK_OK(ch_seg_attach(fd, promised, &seg));
    CHOIR_CHECK_STR(ch_seg_base(seg), "from the parent");
    snprintf(ch_seg_base(seg), promised, "from the child");
    CHOIR_CHECK_OK(ch_fdpass_send(sock, NULL, 0, NULL, 0, &patience));
    ch_seg_detach(seg);
    ch_sys_close(sock);
    rig_fini(&rig);
    CHOIR_CHECK_EQ(ch_sys_fd_count(), 0);
}

CHOIR_TEST(a_segment_is_shared_with_another_process)
{
    struct pipes pipes;
    struct rig rig;
    struct ch_patience patience;
    struct ch_fdpass_listener listener;
    struct ch_seg *seg;
    size_t promised = 8192, nbytes;
    int pid, sock, fd;

    open_pipes(&pipes);
    pid = choir_test_fork(child_attaches, &pipes);
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_seg_create("test", promised, &seg));
    snprintf(ch_seg_base(seg), promised, "from the parent");
    CHOIR_CHECK_OK(ch_fdpass_listen(&listener));
    tell(pipes.to_child[1], listener.name, sizeof(listener.name));
    CHOIR_CHECK_OK(ch_fdpass_accept(&listener, &patience, &sock));
    fd = ch_seg_fd(seg);
    CHOIR_CHECK_OK(ch_fdpass_send(sock, &promised, sizeof(promised), &fd, 1, &patience));
    CHOIR_CHECK_OK(ch_fdpass_recv(sock, NULL, 0, &nbytes, NULL, 0, &patience));
    CHOIR_CHECK_STR(ch_seg_base(seg), "from the child");
    choir_test_join(pid);
    ch_sys_close(sock);
    ch_fdpass_unlisten(&listener);
    ch_seg_detach(seg);
    rig_fini(&rig);
}

enum { NOBODY = 65534 };

/* Another user, who somehow knows the name: connects, then listens itself under a good name. */
static void other_user(void *arg)
{
    struct pipes *pipes = arg;
    struct sockaddr_un un;
    socklen_t len;
    char name[CH_FDPASS_NAME_MAX], byte;
    int sock, listener;

    CHOIR_CHECK_EQ(setresuid(NOBODY, NOBODY, NOBODY), 0);
    hear(pipes->to_child[0], name, sizeof(name));
    sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    fill_address(&un, &len, name);
    CHOIR_CHECK_EQ(connect(sock, (struct sockaddr *)&un, len), 0);
    CHOIR_CHECK_EQ(read(sock, &byte, 1), 0); /* shown the door */
    hear(pipes->to_child[0], name, sizeof(name));
    listener = raw_listen(name, 1);
    tell(pipes->to_parent[1], "l", 1);
    hear(pipes->to_child[0], &byte, 1);
    close(sock);
    close(listener);
}

CHOIR_TEST(another_user_is_turned_away_on_both_sides)
{
    struct pipes pipes;
    struct rig rig;
    struct ch_patience patience;
    struct ch_fdpass_listener listener;
    char name[CH_FDPASS_NAME_MAX], byte;
    int pid, fd = -7, before;

    if (geteuid() != 0)
        CHOIR_SKIP("only root can start a process of another user");
    open_pipes(&pipes);
    pid = choir_test_fork(other_user, &pipes);
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_fdpass_listen(&listener));
    before = open_fds();
    tell(pipes.to_child[1], listener.name, sizeof(listener.name));
    CHOIR_CHECK_STATUS(ch_fdpass_accept(&listener, &patience, &fd), CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_HAS(choir_last_error(), "user 65534");

    random_name(name);
    tell(pipes.to_child[1], name, sizeof(name));
    hear(pipes.to_parent[0], &byte, 1);
    CHOIR_CHECK_STATUS(ch_fdpass_connect(name, &patience, &fd), CHOIR_ERR_PERMISSION);
    CHOIR_CHECK_EQ(fd, -7);
    CHOIR_CHECK_EQ(open_fds(), before);
    tell(pipes.to_child[1], "e", 1);
    choir_test_join(pid);
    ch_fdpass_unlisten(&listener);
    rig_fini(&rig);
}

static void use_in_child(void *arg)
{
    struct ch_fdpass_listener *listener = arg, other;
    struct rig rig;
    struct ch_patience patience = { .waiter = &rig.waiter, .until = ch_deadline_ms(1000) };
    size_t nbytes;
    int fd, fds[2];

    CHOIR_CHECK_STATUS(rig_init(&rig), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_fdpass_listen(&other), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_fdpass_pair(fds), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_fdpass_connect(listener->name, &patience, &fd), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_fdpass_accept(listener, &patience, &fd), CHOIR_ERR_FORKED);
    CHOIR_CHECK_STATUS(ch_fdpass_recv(listener->fd, NULL, 0, &nbytes, &fd, 1, &patience),
                       CHOIR_ERR_FORKED);
    ch_fdpass_unlisten(listener);
}

CHOIR_TEST(a_forked_child_cannot_pass_anything)
{
    struct ch_fdpass_listener listener;

    CHOIR_CHECK_OK(ch_fdpass_listen(&listener));
    choir_test_join(choir_test_fork(use_in_child, &listener));
    ch_fdpass_unlisten(&listener);
}

/* --- faults ------------------------------------------------------------------------------------- */

static choir_status pass_two(const struct ch_patience *patience,
                             const struct ch_fdpass_listener *listener)
{
    int client = -1, server = -1, pair[2] = { -1, -1 }, got[2];
    char bytes[8];
    size_t nbytes;
    choir_status rc = ch_fdpass_connect(listener->name, patience, &client);

    if (rc == CHOIR_OK)
        rc = ch_fdpass_accept(listener, patience, &server);
    if (rc == CHOIR_OK)
        rc = ch_fdpass_pair(pair);
    if (rc == CHOIR_OK)
        rc = ch_fdpass_send(client, "bytes", 6, pair, 2, patience);
    if (rc == CHOIR_OK)
        rc = ch_fdpass_recv(server, bytes, sizeof(bytes), &nbytes, got, 2, patience);
    if (rc == CHOIR_OK)
        close_fds(got, 2);
    close_fds(pair, 2);
    close_fds((int[]){ client, server }, 2);
    return rc;
}

static choir_status whole_life(void *arg)
{
    struct rig rig;
    struct ch_patience patience;
    struct ch_fdpass_listener listener;
    choir_status rc = rig_init(&rig);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    patience = patience_ms(&rig, 1000 * (int64_t)choir_test_slowness());
    rc = ch_fdpass_listen(&listener);
    if (rc == CHOIR_OK) {
        rc = pass_two(&patience, &listener);
        ch_fdpass_unlisten(&listener);
    }
    rig_fini(&rig);
    return rc;
}

CHOIR_TEST(every_failure_is_an_error_and_leaks_nothing)
{
    int before = open_fds();

    choir_test_all_faults(whole_life, NULL);
    CHOIR_CHECK_EQ(open_fds(), before);
}

static const struct {
    enum ch_fault_point point;
    int err;
    const char *why;
} hiccups[] = {
    { CH_FAULT_connect, EINTR, "a signal" },
    { CH_FAULT_connect, EAGAIN, "the listener's queue is full for a moment" },
    { CH_FAULT_accept, EINTR, "a signal" },
    { CH_FAULT_accept, EAGAIN, "nobody there yet" },
    { CH_FAULT_sendmsg, EINTR, "a signal" },
    { CH_FAULT_sendmsg, EAGAIN, "the peer's queue is full for a moment" },
    { CH_FAULT_recvmsg, EINTR, "a signal" },
    { CH_FAULT_recvmsg, EAGAIN, "a spurious readiness" },
    { CH_FAULT_poll, EINTR, "a signal while asleep" },
};

CHOIR_TEST(hiccups_are_no_errors)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(hiccups); i++)
        check_copes_with(hiccups[i].point, hiccups[i].err, whole_life, NULL);
}
