/*
 * turns_bench.c - the least that an operation of more ranks than processors can take: processes that raise a flag and look at all
 * others', yield, and do nothing else.
 *
 *   build/bin/bench/turns [RANKS]...          3, 4 and 8 if none is named
 *
 * A round is that of bench/compare: a barrier, then what all take part in, timed from leaving the barrier by each, of which the slowest
 * counts. Of the ranks of one processor the first to leave the barrier needs the flag of the last, who gets the processor from it and
 * then has to give it back: two switches, whoever it is. Threads, as the contender "limit" has them, switch faster than processes.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "stats.h"

enum { RANKS_MOST = 64, ROUNDS = 20000, COLD = 1000, LOOK_EVERY = 4096 };

struct flag {
    _Alignas(CH_CACHE_UNIT) _Atomic uint64_t value;
};

struct shared {
    struct flag barrier[RANKS_MOST], operation[RANKS_MOST];
    double us[RANKS_MOST][ROUNDS];
};

/* For rank 0: a child that has ended would be waited for without end. Not so one that is through, which nobody waits for. */
static void look_for_dead(void)
{
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);

    if (pid <= 0 || status == 0)
        return;
    fprintf(stderr, "turns: process %d, a rank, has ended in mid-run (%s %d)\n", (int)pid,
            WIFSIGNALED(status) ? "signal" : "code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    exit(1); /* which ends the others */
}

/* Acquire and release, though nothing else is handed over: as ranks do it. */
static void meet(struct flag *flags, int me, int nranks, uint64_t round)
{
    atomic_store_explicit(&flags[me].value, round, memory_order_release);
    for (int who = 0; who < nranks; who++) {
        unsigned yields = 0;

        while (atomic_load_explicit(&flags[who].value, memory_order_acquire) < round) {
            sched_yield();
            if (++yields % LOOK_EVERY == 0 && me == 0)
                look_for_dead();
        }
    }
}

static void be_rank(struct shared *shared, int me, int nranks)
{
    pin(me);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t began;

        meet(shared->barrier, me, nranks, round);
        began = ch_now();
        meet(shared->operation, me, nranks, round);
        shared->us[me][round - 1] = (double)(ch_now() - began) / 1000;
    }
}

/* Whoever is left when one could not be started has nobody to wait for: all end with us. */
static void start(struct shared *shared, int nranks)
{
    pid_t parent = getpid();

    for (int me = 1; me < nranks; me++) {
        pid_t pid = fork();

        if (pid < 0) {
            perror("turns: fork");
            exit(1);
        }
        if (pid > 0)
            continue;
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(1);
        be_rank(shared, me, nranks);
        _exit(0);
    }
    be_rank(shared, 0, nranks);
    while (wait(NULL) > 0)
        ;
}

static void report(struct shared *shared, int nranks)
{
    struct spread spread;

    for (int round = COLD; round < ROUNDS; round++) {
        double *slowest = &shared->us[0][round];

        for (int who = 1; who < nranks; who++) {
            if (shared->us[who][round] > *slowest)
                *slowest = shared->us[who][round];
        }
    }
    spread = spread_of(&shared->us[0][COLD], ROUNDS - COLD);
    printf("%d ranks: %.2f us [%.2f-%.2f]\n", nranks, spread.p50, spread.p10, spread.p90);
    fflush(stdout);
}

static int run(int nranks)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED) {
        perror("turns: memory");
        return 1;
    }
    start(shared, nranks);
    report(shared, nranks);
    munmap(shared, sizeof(*shared));
    return 0;
}

int main(int argc, char **argv)
{
    static const int usual[] = { 3, 4, 8 };
    int code = 0;

    note_processors();
    for (int i = 1; i < argc; i++) {
        if (atoi(argv[i]) < 2 || atoi(argv[i]) > RANKS_MOST) {
            fprintf(stderr, "usage: turns [RANKS]..., each from 2 to %d\n", RANKS_MOST);
            return 2;
        }
    }
    for (int i = 1; i < argc && code == 0; i++)
        code = run(atoi(argv[i]));
    for (size_t i = 0; argc < 2 && i < CH_ARRAY_LEN(usual) && code == 0; i++)
        code = run(usual[i]);
    return code;
}
