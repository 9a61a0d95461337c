/*
 * flight_dumps.c - jobs that never were: writes the flight records of made-up ranks, for scripts to read.
 *
 *     flight_dumps SCENARIO FOLDER       FOLDER/rank_N.json and FOLDER/pickle_N for each rank
 *     flight_dumps time                  what recording one operation costs, in ns
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trace/flight.h"
#include "trace/flight_dump.h"
#include "trace/flight_file.h"

enum { NRANKS = 4, NGROUPS = 2 };

static struct rank {
    struct ch_flight *flight;
    struct ch_flight_group *groups[NGROUPS]; /* all; ranks 0, 1 or 2, 3 */
    uint64_t seq[NGROUPS], p2p[NGROUPS], op_id;
} ranks[NRANKS];

static void must(choir_status rc)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "flight_dumps: %s\n", choir_last_error());
    exit(1);
}

static void begin_job(void)
{
    static const int halves[2][2] = { { 0, 1 }, { 2, 3 } };

    for (int r = 0; r < NRANKS; r++) {
        must(ch_flight_create(r, &ranks[r].flight));
        must(ch_flight_group_open(ranks[r].flight, "world", "default_pg", NULL, NRANKS, r,
                                  &ranks[r].groups[0]));
        must(ch_flight_group_open(ranks[r].flight, "half", "two by two", halves[r / 2], 2, r % 2,
                                  &ranks[r].groups[1]));
    }
}

static void end_job(const char *folder)
{
    uint64_t which = 0;
    int rank;

    while ((which = ch_flight_next(which, &rank)) != 0) {
        for (choir_trace_format format = CHOIR_TRACE_JSON; format <= CHOIR_TRACE_PICKLE; format++) {
            choir_blob blob;
            char path[4096];

            snprintf(path, sizeof(path),
                     format == CHOIR_TRACE_JSON ? "%s/rank_%d.json" : "%s/pickle_%d", folder, rank);
            must(ch_flight_dump(which, format, "a test", &blob));
            must(ch_flight_write_file(path, &blob));
            ch_free(blob.data);
        }
    }
    for (int r = 0; r < NRANKS; r++) {
        for (int g = 0; g < NGROUPS; g++)
            ch_flight_group_close(ranks[r].groups[g]);
        ch_flight_destroy(ranks[r].flight);
    }
}

/* --- operations ---------------------------------------------------------------------------------- */

enum fate { COMPLETES, WAITS, TIMES_OUT };

static void run(int r, int g, struct ch_flight_info *info, enum fate fate)
{
    static const uint64_t wait_ns = 12300 * (uint64_t)CH_MS;
    uint64_t now = ch_now() - (fate == COMPLETES ? 2 * wait_ns : wait_ns), record;

    info->collective_seq = info->is_p2p ? ranks[r].seq[g] : ++ranks[r].seq[g];
    info->p2p_seq = info->is_p2p ? ++ranks[r].p2p[g] : ranks[r].p2p[g];
    info->op_id = ++ranks[r].op_id;
    info->timeout_ms = 1800000;
    record = ch_flight_issue(ranks[r].groups[g], info, now);
    ch_flight_started(ranks[r].groups[g], record, now + 5);
    if (fate == COMPLETES)
        ch_flight_done(ranks[r].groups[g], record, now + 1000, CHOIR_OK, -1);
    else if (fate == TIMES_OUT)
        ch_flight_done(ranks[r].groups[g], record, now + wait_ns / 2, CHOIR_ERR_TIMEOUT, -1);
}

static void allreduce(int r, int g, size_t count, choir_type type, enum fate fate)
{
    choir_buf buf = { .count = count, .type = type };
    struct ch_flight_info info = {
        .op = CHOIR_OP_ALLREDUCE, .reduces = true, .ins = &buf, .nins = 1
    };

    run(r, g, &info, fate);
}

static void broadcast(int r, size_t count, int root, enum fate fate)
{
    choir_buf buf = { .count = count, .type = CHOIR_F32 };
    struct ch_flight_info info = {
        .op = CHOIR_OP_BROADCAST, .has_root = true, .root = root, .ins = &buf, .nins = 1
    };

    run(r, 0, &info, fate);
}

static void transfer(int r, bool send, int peer, int tag, size_t count, enum fate fate)
{
    choir_buf buf = { .count = count, .type = CHOIR_F32 };
    struct ch_flight_info info = {
        .op = send ? CHOIR_OP_SEND : CHOIR_OP_RECV, .is_p2p = true, .peer = peer, .tag = tag
    };

    *(send ? &info.ins : &info.outs) = &buf;
    *(send ? &info.nins : &info.nouts) = 1;
    run(r, 0, &info, fate);
}

/* Every form once. */
static void everything(int r)
{
    choir_buf one = { .count = 6, .type = CHOIR_BF16 }, four = { .count = 24, .type = CHOIR_BF16 };
    choir_buf list[NRANKS] = { one, one, one, one };
    struct ch_flight_info infos[] = {
        { .op = CHOIR_OP_ALLREDUCE, .reduces = true, .ins = &one, .nins = 1 },
        { .op = CHOIR_OP_ALLREDUCE_COALESCED, .reduces = true, .ins = list, .nins = 3 },
        { .op = CHOIR_OP_ALLREDUCE_SPARSE, .reduces = true, .ins = &one, .nins = 1 },
        { .op = CHOIR_OP_BROADCAST, .has_root = true, .root = 1, .ins = &one, .nins = 1 },
        { .op = CHOIR_OP_REDUCE, .has_root = true, .reduces = true, .ins = &one, .nins = 1 },
        { .op = CHOIR_OP_ALLGATHER, .ins = &one, .nins = 1, .outs = list, .nouts = NRANKS },
        { .op = CHOIR_OP_ALLGATHER_INTO, .ins = &one, .nins = 1, .outs = &four, .nouts = 1 },
        { .op = CHOIR_OP_ALLGATHER_COALESCED, .ins = &one, .nins = 1, .outs = list, .nouts = 4 },
        { .op = CHOIR_OP_GATHER,
          .has_root = true,
          .ins = &one,
          .nins = 1,
          .outs = r == 0 ? list : NULL,
          .nouts = r == 0 ? NRANKS : 0 },
        { .op = CHOIR_OP_SCATTER,
          .has_root = true,
          .ins = r == 0 ? list : NULL,
          .nins = r == 0 ? NRANKS : 0,
          .outs = &one,
          .nouts = 1 },
        { .op = CHOIR_OP_REDUCE_SCATTER,
          .reduces = true,
          .ins = list,
          .nins = NRANKS,
          .outs = &one,
          .nouts = 1 },
        { .op = CHOIR_OP_REDUCE_SCATTER_FROM,
          .reduces = true,
          .ins = &four,
          .nins = 1,
          .outs = &one,
          .nouts = 1 },
        { .op = CHOIR_OP_REDUCE_SCATTER_COALESCED,
          .reduces = true,
          .ins = &four,
          .nins = 1,
          .outs = &one,
          .nouts = 1 },
        { .op = CHOIR_OP_ALLTOALL, .ins = list, .nins = NRANKS, .outs = list, .nouts = NRANKS },
        { .op = CHOIR_OP_ALLTOALL_BASE, .ins = &four, .nins = 1, .outs = &four, .nouts = 1 },
        { .op = CHOIR_OP_BARRIER },
    };

    for (size_t i = 0; i < sizeof(infos) / sizeof(infos[0]); i++)
        run(r, 0, &infos[i], COMPLETES);
}

/* --- jobs ------------------------------------------------------------------------------------------ */

static void train(int r, int steps)
{
    for (int i = 0; i < steps; i++) {
        allreduce(r, 0, 1024, CHOIR_F32, COMPLETES);
        allreduce(r, 1, 10, CHOIR_BF16, COMPLETES);
    }
}

/* Names that neither JSON nor a pickle takes as they are. */
static void open_odd_names(int r)
{
    static const char *const names[] = { "\"quoted\"\n\\",
                                         "gr\xc3\xbc\xc3\x9f \xe2\x99\xab \xf0\x9f\x8e\xb5",
                                         "a\xff\x62", "" };

    ch_flight_group_close(ranks[r].groups[0]);
    ch_flight_group_close(ranks[r].groups[1]);
    ranks[r].groups[0] = ranks[r].groups[1] = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct ch_flight_group *group;

        must(ch_flight_group_open(ranks[r].flight, names[i], NULL, NULL, NRANKS, r, &group));
        if (ranks[r].groups[0] == NULL)
            ranks[r].groups[0] = group;
    }
}

static void play(const char *job, int r)
{
    bool odd = r == 2;

    if (strcmp(job, "names") == 0) {
        open_odd_names(r);
        return;
    }
    if (strcmp(job, "everything") == 0) {
        everything(r);
        train(r, 3);
        return;
    }
    train(r, 16);
    if (strcmp(job, "skipped") == 0) {
        if (!odd)
            allreduce(r, 0, 1024, CHOIR_F32, WAITS);
    } else if (strcmp(job, "skipped-and-on") == 0) {
        if (!odd)
            allreduce(r, 0, 1024, CHOIR_F32, TIMES_OUT);
        else
            broadcast(r, 5, 0, TIMES_OUT);
    } else if (strcmp(job, "skipped-long-ago") == 0) {
        if (!odd)
            allreduce(r, 0, 77, CHOIR_F32, COMPLETES);
        broadcast(r, 5, 0, COMPLETES);
        allreduce(r, 0, 1024, CHOIR_F32, odd ? COMPLETES : WAITS);
    } else if (strcmp(job, "size") == 0) {
        allreduce(r, 0, odd ? 1000 : 1024, CHOIR_F32, TIMES_OUT);
    } else if (strcmp(job, "type") == 0) {
        allreduce(r, 0, 1024, odd ? CHOIR_BF16 : CHOIR_F32, TIMES_OUT);
    } else if (strcmp(job, "root") == 0) {
        broadcast(r, 5, odd ? 3 : 0, WAITS);
    } else if (strcmp(job, "operation") == 0) {
        if (odd)
            broadcast(r, 1024, 0, WAITS);
        else
            allreduce(r, 0, 1024, CHOIR_F32, WAITS);
    } else if (strcmp(job, "failed") == 0) {
        allreduce(r, 0, 1024, CHOIR_F32, TIMES_OUT);
    } else if (strcmp(job, "chain") == 0) { /* 2 waits for 3, all others for 2 */
        if (odd)
            allreduce(r, 1, 10, CHOIR_BF16, WAITS);
        else if (r != 3)
            allreduce(r, 0, 1024, CHOIR_F32, WAITS);
    } else if (strcmp(job, "unsent") == 0) {
        if (r == 1)
            transfer(r, false, 2, 9, 64, WAITS);
    } else if (strcmp(job, "unreceived") == 0) {
        if (r == 1)
            transfer(r, true, 2, 9, 64, WAITS);
    } else if (strcmp(job, "transfer-size") == 0) {
        if (r == 1 || r == 2)
            transfer(r, r == 1, 3 - r, 9, r == 1 ? 64 : 60, WAITS);
    } else if (strcmp(job, "lost-ring") ==
               0) { /* 2 stopped long before what the others still have */
        for (int i = 0; i < 3000 && !odd; i++)
            allreduce(r, 0, 1024, CHOIR_F32, i < 2999 ? COMPLETES : WAITS);
    } else if (strcmp(job, "well") != 0) {
        fprintf(stderr, "flight_dumps: there is no scenario %s\n", job);
        exit(2);
    }
}

static double batch_ns(struct ch_flight_group *group)
{
    enum { N = 10000 };
    choir_buf buf = { .count = 1024, .type = CHOIR_F32 };
    struct ch_flight_info info = {
        .op = CHOIR_OP_ALLREDUCE, .reduces = true, .ins = &buf, .nins = 1
    };
    uint64_t begin = ch_now();

    for (uint64_t i = 0; i < N; i++) {
        uint64_t record;

        info.collective_seq = info.op_id = i;
        record = ch_flight_issue(group, &info, begin + i);
        ch_flight_started(group, record, begin + i);
        ch_flight_done(group, record, begin + i, CHOIR_OK, -1);
    }
    return (double)(ch_now() - begin) / N;
}

/* The best of many: others may be busy on this machine. */
static void measure(void)
{
    struct ch_flight_group *group = NULL;
    struct ch_flight *flight = NULL;
    double best = 1e9;

    must(ch_flight_create(0, &flight));
    must(ch_flight_group_open(flight, "g", NULL, NULL, 2, 0, &group));
    for (int i = 0; i < 200; i++) {
        double ns = batch_ns(group);

        best = ns < best ? ns : best;
    }
    printf("%.1f\n", best);
    ch_flight_group_close(group);
    ch_flight_destroy(flight);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "time") == 0) {
        measure();
        return 0;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: flight_dumps SCENARIO FOLDER | time\n");
        return 2;
    }
    begin_job();
    for (int r = 0; r < NRANKS; r++)
        play(argv[1], r);
    end_job(argv[2]);
    return 0;
}
