/*
 * leftover.c - a process that holds one of everything, for leftover_test.py to kill.
 *
 *   leftover CHILDREN
 *
 * Starts that many copies of itself by exec. Each of them holds a segment, an abstract listener with
 * a connection to it and a message in flight, TCP listeners of both families with a connection, a
 * service thread with a timer and a waiter; the first child also holds its parent's segment, passed
 * to it. Each prints one line of what it holds and sleeps until it is killed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "io/fdpass.h"
#include "io/segment.h"
#include "io/service.h"
#include "io/sock.h"

static void need(choir_status rc, const char *what)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "leftover: %s: %s\n", what, choir_last_error());
    exit(EXIT_FAILURE);
}

/* A listener on the loopback and a connection to it; returns its port, 0 without that family. */
static unsigned hold_tcp(int family, const struct ch_patience *patience)
{
    struct ch_addr addr = ch_addr_loopback(family, 0);
    int listener, client, server;

    if (ch_sock_listen(&addr, &listener) != CHOIR_OK)
        return 0;
    need(ch_sock_local_addr(listener, &addr), "local address");
    need(ch_sock_connect_addr(&addr, patience, &client), "connect");
    need(ch_sock_accept(listener, patience, &server), "accept");
    need(ch_sock_send_all(client, "unread", 6, patience), "send");
    return ch_addr_port(&addr);
}

static void hold_descriptors(struct ch_fdpass_listener *listener, struct ch_seg *seg,
                             const struct ch_patience *patience)
{
    int client, server, fd = ch_seg_fd(seg);

    need(ch_fdpass_listen(listener), "listen");
    need(ch_fdpass_connect(listener->name, patience, &client), "connect by name");
    need(ch_fdpass_accept(listener, patience, &server), "accept by name");
    need(ch_fdpass_send(client, NULL, 0, &fd, 1, patience), "pass a segment");
}

/* The parent's end waits on its listener; `name` finds it. */
static void take_from(const char *name, const struct ch_patience *patience)
{
    struct ch_seg *seg;
    size_t nbytes;
    int sock, fd;

    need(ch_fdpass_connect(name, patience, &sock), "connect to the parent");
    need(ch_fdpass_recv(sock, NULL, 0, &nbytes, &fd, 1, patience), "receive a segment");
    need(ch_seg_attach(fd, 1, &seg), "attach it");
}

static void give_to_child(const struct ch_fdpass_listener *listener, struct ch_seg *seg,
                          const struct ch_patience *patience)
{
    int sock, fd = ch_seg_fd(seg);

    need(ch_fdpass_accept(listener, patience, &sock), "accept a child");
    need(ch_fdpass_send(sock, NULL, 0, &fd, 1, patience), "pass a segment to it");
}

struct heart {
    struct ch_task task;
    struct ch_timer timer;
    struct ch_service *service;
};

static void beat(struct ch_timer *timer)
{
    struct heart *heart = CH_CONTAINER(timer, struct heart, timer);

    ch_timer_start(ch_loop_timers(ch_service_loop(heart->service)), timer, ch_now() + CH_S);
}

static void start_heart(struct ch_task *task)
{
    beat(&CH_CONTAINER(task, struct heart, task)->timer);
}

static void start_child(const char *self, const char *name)
{
    pid_t pid = fork();

    if (pid == 0) {
        execl(self, self, "0", name, (char *)NULL);
        _exit(127);
    }
    if (pid < 0) {
        fprintf(stderr, "leftover: fork: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
}

int main(int argc, char **argv)
{
    static struct ch_bell_word word;
    static struct heart heart = { .task = { .run = start_heart }, .timer = { .fire = beat } };
    struct ch_waiter waiter;
    struct ch_fdpass_listener listener;
    struct ch_patience patience = { .waiter = &waiter };
    struct ch_seg *seg;
    unsigned v4, v6;
    int children = argc > 1 ? atoi(argv[1]) : 0;

    need(ch_waiter_init(&waiter, &word), "waiter");
    patience.until = ch_deadline_ms(20000);
    need(ch_service_ref(&heart.service), "service thread");
    need(ch_service_post(heart.service, &heart.task), "post to it");
    need(ch_seg_create("choir-leftover", (size_t)4 << 20, &seg), "segment");
    memset(ch_seg_base(seg), 1, ch_seg_nbytes(seg));
    hold_descriptors(&listener, seg, &patience);
    v4 = hold_tcp(AF_INET, &patience);
    v6 = hold_tcp(AF_INET6, &patience);
    if (argc > 2)
        take_from(argv[2], &patience);
    for (int i = 0; i < children; i++) {
        start_child(argv[0], listener.name);
        give_to_child(&listener, seg, &patience);
    }
    printf("pid %d name %s tcp4 %u tcp6 %u\n", (int)getpid(), listener.name, v4, v6);
    fflush(stdout);
    for (;;)
        pause();
}
