/*
 * contender.c - see contender.h.
 */
#include "contender.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "perf_manner.h"
#include "perf_values.h"

enum { LINE_MAX_NBYTES = 256 };

struct order {
    enum perf_op op;
    size_t nbytes;
    bool fresh; /* inputs are rewritten before every round */
    bool whole; /* the barrier that a round starts with is part of its time */
    int rounds, warm;
};

struct server {
    struct contender *c;
    int go, told;
    struct perf_shape shape;
    size_t nbytes; /* that the buffers are for */
    float *memory[2], *in, *out;
    double *us;
    int us_size;
    int written;    /* the round whose input is there */
    uint64_t wrong; /* of this operation and size, on this rank */
    float tile[PERF_TILE], result[PERF_TILE];
};

static void die(const struct contender *c, const char *what)
{
    fprintf(stderr, "%s rank %d: %s: %s\n", c->name, c->rank, what, strerror(errno));
    exit(1);
}

/* --- orders ------------------------------------------------------------------------------------------- */

/* Byte by byte, so that the next order stays in the pipe; false at its end. */
static bool read_line(const struct server *s, char line[LINE_MAX_NBYTES])
{
    size_t n = 0;

    while (n + 1 < LINE_MAX_NBYTES) {
        ssize_t got = read(s->go, line + n, 1);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (line[n] == '\n')
            break;
        n++;
    }
    line[n] = '\0';
    return true;
}

static bool next_order(const struct server *s, struct order *out)
{
    char line[LINE_MAX_NBYTES], name[32];
    int fresh, whole;

    if (!read_line(s, line))
        return false;
    errno = EINVAL;
    if (sscanf(line, "%31s %zu %d %d %d %d", name, &out->nbytes, &fresh, &whole, &out->rounds,
               &out->warm) != 6 ||
        (out->op = perf_op_find(name)) == PERF_NOPS || out->rounds < 1 || out->warm < 0)
        die(s->c, line);
    out->fresh = fresh != 0;
    out->whole = whole != 0;
    return true;
}

static void tell(const struct server *s, const struct order *o, struct perf_times t, double wall,
                 uint64_t wrong)
{
    char line[LINE_MAX_NBYTES];
    int n = snprintf(line, sizeof(line), "%s %zu %.3f %.3f %.3f %.1f %" PRIu64 "\n",
                     perf_op_name(o->op), o->nbytes, t.p50, t.min, t.p99, wall, wrong);

    if (write(s->told, line, (size_t)n) != n)
        die(s->c, "telling the result");
}

/* --- buffers ------------------------------------------------------------------------------------------ */

static void release(struct server *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->memory[i] != NULL && s->c->release != NULL)
            s->c->release(s->c->self, s->memory[i], s->nbytes);
        else
            free(s->memory[i]);
        s->memory[i] = NULL;
    }
}

static void allocate(struct server *s, size_t nbytes)
{
    release(s);
    s->nbytes = nbytes;
    for (int i = 0; i < 2; i++) {
        s->memory[i] = (float *)(s->c->memory != NULL ? s->c->memory(s->c->self, i, nbytes)
                                                      : perf_memory(nbytes));
        if (s->memory[i] == NULL)
            die(s->c, "memory");
    }
}

/* --- rounds ------------------------------------------------------------------------------------------- */

static void write_input(struct server *s, int round)
{
    s->written = round;
    perf_fill(s->in, perf_in_count(&s->shape), perf_shift(s->shape.rank, round), sizeof(float),
              s->tile);
}

static double play_round(struct server *s, bool whole)
{
    double began = whole ? perf_now_us() : 0;

    s->c->barrier(s->c->self);
    if (!whole)
        began = perf_now_us();
    s->c->call(s->c->self, &s->shape, s->in, s->out);
    return perf_now_us() - began;
}

static void verify(struct server *s)
{
    float *at = s->out;

    for (int i = 0; i < perf_npieces(&s->shape); i++) {
        struct perf_piece piece = perf_piece_of(&s->shape, i);

        s->wrong += perf_differ(at, piece.count,
                                piece.pos + perf_shift(piece.reduced ? 0 : piece.rank, s->written),
                                sizeof(float), piece.reduced ? s->result : s->tile);
        at += piece.count;
    }
}

static void set_variant(const struct server *s, int variant)
{
    if (s->c->set_variant != NULL)
        s->c->set_variant(s->c->self, variant);
}

/* Another operation or size: buffers for it, and a round whose results are verified. */
static void turn_to(struct server *s, const struct order *o)
{
    struct perf_shape shape = perf_shape_of(o->op, s->c->rank, s->c->nranks, 0, o->nbytes,
                                            sizeof(float));

    if (shape.op == s->shape.op && shape.count == s->shape.count && s->memory[0] != NULL)
        return;
    s->shape = shape;
    allocate(s, shape.count * sizeof(float) + sizeof(float));
    s->out = s->memory[1];
    s->in = o->op == PERF_BROADCAST ? s->out : s->memory[0];
    s->wrong = 0;
    for (int variant = 0; variant < s->c->nvariants; variant++) {
        set_variant(s, variant);
        memset(s->out, 0xa5, perf_out_count(&s->shape) * sizeof(float));
        write_input(s, variant);
        play_round(s, false);
        verify(s);
    }
    write_input(s, 0);
}

static void play_variant(struct server *s, const struct order *o, double *us)
{
    for (int k = -o->warm; k < o->rounds; k++) {
        double took;

        if (o->fresh)
            write_input(s, k);
        took = play_round(s, o->whole);
        if (k >= 0)
            us[k] = took;
    }
    s->c->largest(s->c->self, us, o->rounds);
}

static void play_block(struct server *s, const struct order *o)
{
    struct perf_times best = { 0, 0, 0, 0 };
    double began = perf_now_us(), wrong;

    turn_to(s, o);
    if (o->rounds > s->us_size) {
        free(s->us);
        s->us = (double *)calloc((size_t)o->rounds, sizeof(*s->us));
        s->us_size = o->rounds;
        if (s->us == NULL)
            die(s->c, "memory for times");
    }
    for (int variant = 0; variant < s->c->nvariants; variant++) {
        struct perf_times t;

        set_variant(s, variant);
        play_variant(s, o, s->us);
        verify(s);
        t = perf_times_of(s->us, o->rounds);
        if (variant == 0 || t.p50 < best.p50)
            best = t;
    }
    wrong = (double)s->wrong;
    s->c->largest(s->c->self, &wrong, 1);
    if (s->c->rank == 0)
        tell(s, o, best, perf_now_us() - began, (uint64_t)wrong);
}

/* --- all of it ---------------------------------------------------------------------------------------- */

void contender_bind(const char *how, int rank)
{
    if (strcmp(how, "bound") == 0 && !perf_bind(rank))
        fprintf(stderr, "rank %d cannot be bound to a processor: %s\n", rank, strerror(errno));
}

static int open_pipe(const struct contender *c, const char *folder, const char *name, int flags)
{
    char path[4096];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        die(c, path);
    return fd;
}

int contender_serve(struct contender *c, const char *folder)
{
    struct server *s = (struct server *)calloc(1, sizeof(*s));
    struct order order;
    char name[32];

    if (s == NULL)
        die(c, "memory");
    s->c = c;
    s->shape.op = PERF_NOPS;
    perf_tile_f32(s->tile);
    perf_tile_f32_sum(s->result, c->nranks);
    snprintf(name, sizeof(name), "go.%d", c->rank);
    s->go = open_pipe(c, folder, name, O_RDONLY);
    s->told = c->rank == 0 ? open_pipe(c, folder, "told", O_WRONLY) : -1;
    if (c->rank == 0 && write(s->told, "ready\n", 6) != 6)
        die(c, "saying that we are ready");
    while (next_order(s, &order))
        play_block(s, &order);
    release(s);
    free(s->us);
    free(s);
    return 0;
}
