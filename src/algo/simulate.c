/*
 * simulate.c - see simulate.h.
 *
 * Time is a number for each rank. A step that moves bytes takes as long as they do; a message is there its latency and
 * its bytes after it was begun, and its sender goes on when its bytes are out; a flag is seen a wait after it was
 * raised. A rank's messages come in one after the other, and go out so; beyond that links are not shared: a machine on which
 * they are must be described by what is left for each.
 *
 * Long operations on shared memory are rounds that overlap (sched.h). Three are played; each further one takes as
 * long as the third made it longer.
 */
#include "algo/simulate.h"

#include "algo/select.h"
#include "base/error.h"
#include "base/mem.h"
#include "sched/builder.h"

enum { ROUNDS_PLAYED = 3, FLAGS_MOST = 8, NOBODY = -1 };
enum { STEPS_KEPT_MOST = 6 << 20, ALL_PLAYED_UP_TO = 256 };

/* A message on its way, in its receiver's list. */
struct message {
    uint32_t from;
    int32_t next;
    double arrives;
};

/* Messages of a rank in one direction. */
struct traffic {
    double messages, nbytes;
};

struct actor {
    struct ch_tally tally;
    uint32_t step, round;
    double now, sending_until, receiving_until;
    bool sent;                                /* the step at hand is a SENDRECV, half done */
    int32_t first, last;                      /* messages to it */
    double raised[ROUNDS_PLAYED][FLAGS_MOST]; /* when it raised each flag; negative: not yet */
    double through[ROUNDS_PLAYED];
    struct traffic out, in;
    double moved;
};

struct stage {
    const struct ch_scene *scene;
    struct actor *actors;
    uint32_t nactors; /* all ranks, or one for all */
    uint32_t rounds;
    double block;              /* bytes of a block in a round */
    double copy_us, reduce_us; /* of a byte */
    struct message *messages;
    uint32_t nmessages, room;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Nearly the logarithm to base 2, of 1 and more: exact for powers of two, straight in between. The library does not need libm. */
static double log2_of(double x)
{
    double whole = 0;

    for (; x >= 2; x /= 2)
        whole++;
    return whole + x - 1;
}

/* --- the model --------------------------------------------------------------------------------------- */

/*
 * How many bytes an all-reduce would have whose buffers take as much of the caches: half of what the rank with most of them
 * has in its input and its output together.
 */
static double cached_nbytes(const struct ch_scene *scene)
{
    double nbytes = (double)scene->nbytes;

    if (scene->in_place)
        return nbytes / 2;
    switch (scene->algo->coll) {
    case CH_BROADCAST:
        return nbytes / 2;
    case CH_ALLGATHER:
    case CH_REDUCE_SCATTER:
    case CH_GATHER:
    case CH_SCATTER:
        return (nbytes + nbytes / scene->nranks) / 2;
    case CH_ALLREDUCE:
    case CH_REDUCE:
    case CH_ALLTOALL:
    case CH_BARRIER:
    case CH_NCOLLS:
        break;
    }
    return nbytes;
}

/* Microseconds of a byte, between the points by the logarithm of the size. */
static double byte_us(const choir_machine *m, double nbytes, bool reduces)
{
    const choir_machine_point *p = m->points;
    int i = 0;
    double low, high, part;

    while (i + 2 < m->npoints && p[i + 1].nbytes < nbytes)
        i++;
    low = 1e-3 / (reduces ? p[i].reduce_gbs : p[i].copy_gbs);
    if (m->npoints < 2 || nbytes <= p[i].nbytes)
        return low;
    high = 1e-3 / (reduces ? p[i + 1].reduce_gbs : p[i + 1].copy_gbs);
    if (nbytes >= p[i + 1].nbytes)
        return high;
    part = log2_of(nbytes / p[i].nbytes) / log2_of(p[i + 1].nbytes / p[i].nbytes);
    return low + (high - low) * part;
}

static uint32_t host_of(const choir_machine *m, uint32_t rank)
{
    return m->ranks_per_host > 0 ? rank / (uint32_t)m->ranks_per_host : 0;
}

/* Whether a message leaves its host. One rank that stands for all stands for the one that has it worst. */
static bool goes_out(const struct stage *s, uint32_t from, uint32_t to)
{
    const struct ch_scene *scene = s->scene;

    if (s->nactors > 1 || scene->algo->alike == CH_ALIKE_POW2)
        return host_of(scene->machine, from) != host_of(scene->machine, to);
    return host_of(scene->machine, scene->nranks - 1) > 0;
}

static double latency(const struct stage *s, bool out)
{
    return out ? s->scene->machine->net_us : s->scene->machine->host_us;
}

static double transfer_us(const struct stage *s, bool out, double nbytes)
{
    return nbytes * 1e-3 / (out ? s->scene->machine->net_gbs : s->scene->machine->host_gbs);
}

/* --- messages ---------------------------------------------------------------------------------------- */

static bool post_message(struct stage *s, uint32_t from, uint32_t to, double arrives)
{
    struct actor *a = &s->actors[to];

    if (s->nmessages == s->room) {
        uint32_t room = s->room == 0 ? 1024 : s->room * 2;
        struct message *grown = ch_regrow(s->messages, room, sizeof(*grown));

        if (grown == NULL)
            return false;
        s->messages = grown;
        s->room = room;
    }
    s->messages[s->nmessages] = (struct message){ .from = from,
                                                  .next = NOBODY,
                                                  .arrives = arrives };
    if (a->last != NOBODY)
        s->messages[a->last].next = (int32_t)s->nmessages;
    else
        a->first = (int32_t)s->nmessages;
    a->last = (int32_t)s->nmessages++;
    return true;
}

/* The oldest message from that rank, taken out of the list. */
static bool take_message(struct stage *s, uint32_t rank, uint32_t from, double *arrives_out)
{
    struct actor *a = &s->actors[rank];
    int32_t before = NOBODY;

    for (int32_t i = a->first; i != NOBODY; before = i, i = s->messages[i].next) {
        struct message *m = &s->messages[i];

        if (m->from != from)
            continue;
        if (before != NOBODY)
            s->messages[before].next = m->next;
        else
            a->first = m->next;
        if (a->last == i)
            a->last = before;
        *arrives_out = m->arrives;
        return true;
    }
    return false;
}

/* --- steps ------------------------------------------------------------------------------------------- */

enum outcome { GOES_ON, WAITS, NO_MEMORY };

static enum outcome begin_send(struct stage *s, uint32_t rank, const struct ch_tally_step *t)
{
    struct actor *a = &s->actors[rank];
    bool out = goes_out(s, rank, t->peer);
    double took = transfer_us(s, out, t->out * s->block);

    a->out.messages++;
    a->out.nbytes += t->out * s->block;
    a->now += s->scene->machine->message_us;
    a->sending_until = a->now + took;
    if (s->nactors > 1 && !post_message(s, rank, t->peer, a->now + latency(s, out) + took))
        return NO_MEMORY;
    return GOES_ON;
}

/* `from`: whom it comes from. One for all: they sent when we began. */
static enum outcome receive(struct stage *s, uint32_t rank, uint32_t from,
                            const struct ch_tally_step *t)
{
    struct actor *a = &s->actors[rank];
    bool out = goes_out(s, from, rank);
    double took = transfer_us(s, out, t->in * s->block);
    double arrives = a->now + latency(s, out) + took;

    if (s->nactors > 1 && !take_message(s, rank, from, &arrives))
        return WAITS;
    a->in.messages++;
    a->in.nbytes += t->in * s->block;
    a->receiving_until = larger(arrives, a->receiving_until + took);
    a->now = larger(a->now, a->receiving_until) + s->scene->machine->message_us;
    return GOES_ON;
}

static enum outcome exchange(struct stage *s, uint32_t rank, const struct ch_tally_step *t)
{
    struct actor *a = &s->actors[rank];
    enum outcome outcome = GOES_ON;

    if (!a->sent)
        outcome = begin_send(s, rank, t);
    a->sent = true;
    if (outcome == GOES_ON)
        outcome = receive(s, rank, t->flag, t);
    if (outcome == GOES_ON && a->sending_until > a->now)
        a->now = a->sending_until;
    return outcome;
}

static enum outcome await(struct stage *s, uint32_t rank, const struct ch_tally_step *t)
{
    struct actor *a = &s->actors[rank];
    const struct actor *peer = &s->actors[s->nactors > 1 ? t->peer : rank];
    double raised = peer->raised[a->round][t->flag];

    if (raised < 0)
        return WAITS;
    /* Who comes later finds it there. */
    if (a->now < raised + s->scene->machine->wait_us)
        a->now = raised + s->scene->machine->wait_us;
    return GOES_ON;
}

/* Every rank is through with the round before the last. */
static enum outcome gate(struct stage *s, uint32_t rank)
{
    struct actor *a = &s->actors[rank];

    for (uint32_t r = 0; a->round >= 2 && r < s->nactors; r++) {
        double through = s->actors[r].through[a->round - 2];

        if (through < 0)
            return WAITS;
        if (through > a->now)
            a->now = through;
    }
    return GOES_ON;
}

static enum outcome do_step(struct stage *s, uint32_t rank, const struct ch_tally_step *t)
{
    struct actor *a = &s->actors[rank];
    double moved = t->out * s->block;
    enum outcome outcome;

    switch ((enum ch_step_kind)t->kind) {
    case CH_COPY:
    case CH_REDUCE_ALL:
    case CH_COMBINE:
    case CH_FINISH:
        a->moved += moved;
        a->now += moved * (t->kind == CH_COPY ? s->copy_us : s->reduce_us);
        return GOES_ON;
    case CH_POST:
        /* Flags rise: who has raised this one has raised those below it. */
        for (uint32_t flag = 0; flag <= t->flag; flag++) {
            if (a->raised[a->round][flag] < 0)
                a->raised[a->round][flag] = a->now;
        }
        return GOES_ON;
    case CH_AWAIT:
        return await(s, rank, t);
    case CH_GATE:
        return gate(s, rank);
    case CH_SEND:
        outcome = begin_send(s, rank, t);
        a->now = a->sending_until;
        return outcome;
    case CH_RECV:
        return receive(s, rank, t->peer, t);
    case CH_SENDRECV:
        return exchange(s, rank, t);
    case CH_NSTEPS:
        break;
    }
    return GOES_ON;
}

/* As far as it goes. */
static enum outcome act(struct stage *s, uint32_t rank, bool *moved)
{
    struct actor *a = &s->actors[rank];

    while (a->round < s->rounds) {
        while (a->step < a->tally.nsteps) {
            enum outcome outcome = do_step(s, rank, &a->tally.steps[a->step]);

            if (outcome != GOES_ON)
                return outcome;
            a->sent = false;
            a->step++;
            *moved = true;
        }
        a->through[a->round] = a->now;
        a->step = 0;
        a->round++;
        *moved = true;
    }
    return GOES_ON;
}

static choir_status act_all(struct stage *s)
{
    bool moved = true, waits = true;

    while (moved && waits) {
        moved = waits = false;
        for (uint32_t r = 0; r < s->nactors; r++) {
            enum outcome outcome = act(s, r, &moved);

            if (outcome == NO_MEMORY)
                return ch_fail(CHOIR_ERR_NOMEM, "no memory for %u messages", s->room);
            waits = waits || outcome == WAITS;
        }
    }
    if (waits)
        return ch_fail(CHOIR_ERR_STATE, "%s %s: the ranks wait for each other for ever",
                       ch_coll_name(s->scene->algo->coll), s->scene->algo->name);
    return CHOIR_OK;
}

/* --- the stage --------------------------------------------------------------------------------------- */

static bool are_alike(const struct ch_scene *scene)
{
    bool pow2 = (scene->nranks & (scene->nranks - 1)) == 0;

    return scene->algo->alike == CH_ALIKE || (scene->algo->alike == CH_ALIKE_POW2 && pow2);
}

static choir_status bring_in(struct stage *s, uint32_t rank)
{
    const struct ch_scene *scene = s->scene;
    struct actor *a = &s->actors[rank];
    struct ch_shape shape = ch_shape_of(scene->algo->coll, rank, scene->nranks, scene->root,
                                        scene->in_place);

    a->first = a->last = NOBODY;
    for (int round = 0; round < ROUNDS_PLAYED; round++) {
        a->through[round] = -1;
        for (int flag = 0; flag < FLAGS_MOST; flag++)
            a->raised[round][flag] = -1;
    }
    return ch_algo_tally(scene->algo, &shape, scene->widening, &a->tally);
}

static choir_status too_many(void)
{
    return ch_fail(CHOIR_ERR_UNSUPPORTED, "too many steps, and ranks differ");
}

/* From the ranks in the middle, before all are brought in in vain: a root is not like the others. */
static choir_status check_room(const struct stage *s)
{
    const struct ch_scene *scene = s->scene;
    struct ch_shape shape = ch_shape_of(scene->algo->coll,
                                        (scene->root + scene->nranks / 2) % scene->nranks,
                                        scene->nranks, scene->root, scene->in_place);
    struct ch_tally tally;
    uint64_t nsteps;
    choir_status rc = ch_algo_tally(scene->algo, &shape, scene->widening, &tally);

    if (rc != CHOIR_OK)
        return rc;
    nsteps = (uint64_t)tally.nsteps * s->nactors;
    ch_free(tally.steps);
    return nsteps > STEPS_KEPT_MOST ? too_many() : CHOIR_OK;
}

static choir_status bring_all_in(struct stage *s)
{
    uint64_t nsteps = 0;

    if (s->nactors > 1) {
        choir_status rc = check_room(s);

        if (rc != CHOIR_OK)
            return rc;
    }
    s->actors = ch_zalloc_array(s->nactors, sizeof(*s->actors));
    if (s->actors == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "no memory for %u ranks", s->nactors);
    for (uint32_t r = 0; r < s->nactors; r++) {
        choir_status rc = bring_in(s, r);

        if (rc != CHOIR_OK)
            return rc;
        nsteps += s->actors[r].tally.nsteps;
        if (nsteps > STEPS_KEPT_MOST)
            return too_many();
        for (uint32_t i = 0; i < s->actors[r].tally.nsteps; i++) {
            const struct ch_tally_step *t = &s->actors[r].tally.steps[i];

            if ((t->kind == CH_POST || t->kind == CH_AWAIT) && t->flag >= FLAGS_MOST)
                return ch_fail(CHOIR_ERR_UNSUPPORTED, "it raises more than %d flags", FLAGS_MOST);
        }
    }
    return CHOIR_OK;
}

static void clear(struct stage *s)
{
    for (uint32_t r = 0; s->actors != NULL && r < s->nactors; r++)
        ch_free(s->actors[r].tally.steps);
    ch_free(s->actors);
    ch_free(s->messages);
}

static double latest(const struct stage *s, uint32_t round)
{
    double last = 0;

    for (uint32_t r = 0; r < s->nactors; r++)
        last = larger(last, s->actors[r].through[round]);
    return last;
}

static void sum_up(const struct stage *s, uint64_t all_rounds, choir_simulated *out)
{
    double factor = (double)all_rounds / s->rounds;

    out->us = s->scene->machine->call_us + latest(s, s->rounds - 1);
    if (all_rounds > s->rounds)
        out->us += (double)(all_rounds - s->rounds) *
                   (latest(s, s->rounds - 1) - latest(s, s->rounds - 2));
    out->messages = out->sent = out->moved = 0;
    for (uint32_t r = 0; r < s->nactors; r++) {
        const struct actor *a = &s->actors[r];

        /* As the bound has it: what passes a rank in one direction. */
        out->messages = larger(out->messages, larger(a->out.messages, a->in.messages) * factor);
        out->sent = larger(out->sent, larger(a->out.nbytes, a->in.nbytes) * factor);
        out->moved = larger(out->moved, a->moved * factor);
    }
}

choir_status ch_simulate(const struct ch_scene *scene, choir_simulated *out)
{
    uint64_t block = ch_block_nbytes(scene->algo->coll, scene->nranks, scene->nbytes), rounds = 1;
    bool one = are_alike(scene) && scene->nranks > ALL_PLAYED_UP_TO && !scene->all_ranks;
    struct stage s = { .scene = scene, .nactors = one ? 1 : scene->nranks, .rounds = 1 };
    choir_status rc;

    if (scene->window > 0 && block > scene->window) {
        rounds = (block - 1) / scene->window + 1;
        s.rounds = rounds < ROUNDS_PLAYED ? (uint32_t)rounds : ROUNDS_PLAYED;
    }
    s.block = (double)block / (double)rounds;
    s.copy_us = byte_us(scene->machine, cached_nbytes(scene), false);
    s.reduce_us = byte_us(scene->machine, cached_nbytes(scene), true);
    rc = bring_all_in(&s);
    if (rc == CHOIR_OK)
        rc = act_all(&s);
    if (rc == CHOIR_OK) {
        out->how = one ? "one for all" : "all ranks";
        sum_up(&s, rounds, out);
    }
    clear(&s);
    return rc;
}

/* --- the bound --------------------------------------------------------------------------------------- */

static double levels(uint32_t n)
{
    double count = 0;

    for (uint64_t reach = 1; reach < n; reach *= 2)
        count++;
    return count;
}

/* Bytes that some rank must send, or receive. */
static double least_sent(enum ch_coll coll, uint32_t nranks, double nbytes)
{
    double others = (double)(nranks - 1) / nranks;

    switch (coll) {
    case CH_ALLREDUCE:
        return 2 * others * nbytes;
    case CH_BROADCAST:
    case CH_REDUCE:
        return nbytes;
    case CH_ALLGATHER:
    case CH_REDUCE_SCATTER:
    case CH_GATHER:
    case CH_SCATTER:
    case CH_ALLTOALL:
        return others * nbytes;
    case CH_BARRIER:
    case CH_NCOLLS:
        break;
    }
    return 0;
}

/*
 * The least time in which something that one rank knows can reach all of them, if a message takes `message` from end to end
 * and a rank can begin one every `gap`: those who know after t are those who did after t - gap, and as many
 * again as did after t - message. (Karp and others, "Optimal broadcast and summation in the LogP model", 1993.)
 */
static double least_spread(uint32_t nranks, double message, double gap)
{
    enum { MOST = 256 };
    double know[MOST];
    uint32_t lag = gap > 0 && message / gap < MOST ? (uint32_t)(message / gap) : 0;

    if (nranks < 2 || lag == 0)
        return nranks < 2 ? 0 : message;
    for (uint32_t i = 0; i < lag; i++)
        know[i] = 1;
    for (uint32_t k = lag;; k++) {
        double before = know[(k - 1) % lag], now = before + know[k % lag];

        if (now >= nranks)
            return larger(message, k * gap);
        know[k % lag] = now;
    }
}

choir_simulate_bound ch_simulate_bound(enum ch_coll coll, uint32_t nranks, uint64_t nbytes,
                                       const choir_machine *m)
{
    bool leaves = host_of(m, nranks - 1) > 0, stays = m->ranks_per_host != 1;
    double least_us = stays && (!leaves || m->host_us < m->net_us) ? m->host_us : m->net_us;
    double most_gbs = stays && (!leaves || m->host_gbs > m->net_gbs) ? m->host_gbs : m->net_gbs;
    double sent = least_sent(coll, nranks, (double)nbytes), us;

    us = larger(least_spread(nranks, least_us + 2 * m->message_us, m->message_us),
                sent * 1e-3 / most_gbs);
    if (leaves)
        us = larger(us, m->net_us + 2 * m->message_us);
    return (
        choir_simulate_bound){ .us = m->call_us + us, .messages = levels(nranks), .sent = sent };
}
