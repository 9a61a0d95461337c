/* scenario.c - cases are made here: which operation, form, algorithm, type, reduction, counts. */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

#include "algo/select.h"
#include "engine/control.h"

/* Elements that all ranks together may have to make up for one call. */
enum { ELEMENTS_MAX = 2 * 1000 * 1000 };

/* Payload of the flag's own line, for algorithms that are asked for by name. */
enum { LINE_BYTES = CH_LINE_NBYTES };

uint64_t roll(struct dice *d, uint64_t sides)
{
    uint64_t x = d->state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % sides;
}

bool chance(struct dice *d, int percent)
{
    return roll(d, 100) < (uint64_t)percent;
}

int seed_nranks(uint64_t seed)
{
    return 1 + (int)(seed % RANKS_MAX);
}

void slot_members(int nranks, enum group_slot slot, struct members *out)
{
    out->nranks = 0;
    for (int r = 0; r < nranks; r++) {
        if ((slot == EVENS && r % 2 != 0) || (slot == ODDS && r % 2 != 1) ||
            (slot == LOWER && r > nranks / 2))
            continue;
        out->ranks[out->nranks++] = r;
    }
}

/* --- counts ------------------------------------------------------------------------------------------- */

static size_t pick_count(struct dice *d, size_t most)
{
    static const size_t primes[] = { 2, 3, 5, 7, 13, 31, 61, 127, 251, 1021 };
    static const size_t below[] = { 20, 40, 120, 1000, 1000, 5000, 30000, 2000000 };
    size_t count;

    switch (roll(d, 8)) {
    case 0:
        count = chance(d, 50) ? 0 : 1;
        break;
    case 1:
    case 2:
        count = primes[roll(d, sizeof(primes) / sizeof(primes[0]))];
        break;
    default:
        count = 1 + roll(d, below[roll(d, sizeof(below) / sizeof(below[0]))]);
        break;
    }
    return count <= most ? count : 1 + count % most;
}

/* Every rank makes up the elements of all ranks. */
static size_t most_elements(const struct call *c)
{
    size_t copies = (size_t)c->nranks * (size_t)c->nranks;

    switch (c->form) {
    case ALLTOALL:
    case ALLTOALL_BASE:
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_FROM:
        copies *= (size_t)c->nranks;
        break;
    case ALLGATHER_INTO_COALESCED:
    case ALLGATHER_COALESCED:
    case ALLREDUCE_COALESCED:
        copies *= (size_t)c->k;
        break;
    case REDUCE_SCATTER_COALESCED:
        copies *= (size_t)(c->k * c->nranks);
        break;
    default:
        break;
    }
    return 1 + ELEMENTS_MAX / copies;
}

static bool may_be_uneven(enum form form)
{
    return form == ALLGATHER || form == GATHER || form == SCATTER || form == REDUCE_SCATTER ||
           form == ALLTOALL || form == ALLTOALL_BASE || form == SEND_RECV;
}

/* Several lists, each as long on every rank; or, uneven, all different, many of them empty. */
static bool pick_counts(struct dice *d, struct call *c)
{
    bool uneven = may_be_uneven(c->form) && c->nranks > 1 && chance(d, 50);
    bool to_all = c->form == ALLTOALL || c->form == ALLTOALL_BASE;
    size_t most = most_elements(c), even = pick_count(d, most);

    for (int j = 0; j < RANKS_MAX; j++) {
        size_t len = j == 0 || to_all ? even : pick_count(d, most);

        for (int i = 0; i < RANKS_MAX; i++)
            c->lens[i][j] = !uneven ? len : chance(d, 20) ? 0 : roll(d, 1 + 2 * even);
    }
    return uneven;
}

/* --- algorithm ------------------------------------------------------------------------------------------ */

static bool coll_of(enum form form, enum ch_coll *out)
{
    switch (form) {
    case ALLREDUCE:
    case ALLREDUCE_COALESCED:
        *out = CH_ALLREDUCE;
        return true;
    case BROADCAST:
        *out = CH_BROADCAST;
        return true;
    case REDUCE:
        *out = CH_REDUCE;
        return true;
    case ALLGATHER:
    case ALLGATHER_INTO:
    case ALLGATHER_COALESCED:
    case ALLGATHER_INTO_COALESCED:
        *out = CH_ALLGATHER;
        return true;
    case GATHER:
        *out = CH_GATHER;
        return true;
    case SCATTER:
        *out = CH_SCATTER;
        return true;
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_FROM:
    case REDUCE_SCATTER_COALESCED:
        *out = CH_REDUCE_SCATTER;
        return true;
    case ALLTOALL:
    case ALLTOALL_BASE:
        *out = CH_ALLTOALL;
        return true;
    case BARRIER:
        *out = CH_BARRIER;
        return true;
    case ALLREDUCE_SPARSE:
    case MONITORED_BARRIER:
    case SEND_RECV:
    case RECV_ANY:
    case NFORMS:
        break;
    }
    return false;
}

/* The larger of input and output of the rank that has most. */
static uint64_t largest_nbytes(const struct call *c)
{
    size_t most = 0;

    for (int r = 0; r < c->nranks; r++) {
        size_t in = 0, out = 0;

        for (int i = 0; i < naive_nins(c, r); i++)
            in += naive_in_count(c, r, i);
        for (int i = 0; i < naive_nouts(c, r); i++)
            out += naive_out_count(c, r, i);
        most = in > most ? in : most;
        most = out > most ? out : most;
    }
    return most * choir_type_size(c->type);
}

/* One by name, of those that can do it; or none, for the library to choose. */
static void pick_algo(struct dice *d, struct call *c, bool uneven)
{
    const struct ch_algo *fitting[64];
    struct ch_situation situation = { .nranks = (uint32_t)c->nranks,
                                      .nbytes = largest_nbytes(c),
                                      .line_bytes = LINE_BYTES,
                                      .shared = true,
                                      .uneven = uneven };
    size_t n = 0;

    if (!coll_of(c->form, &situation.coll) || chance(d, 40))
        return;
    for (int i = 0; ch_algos[i] != NULL; i++) {
        if (ch_algos[i]->coll == situation.coll &&
            ch_algo_objection(ch_algos[i], &situation) == NULL)
            fitting[n++] = ch_algos[i];
    }
    if (n == 0)
        return;
    n = roll(d, n);
    c->algo = fitting[n]->name;
    c->exact = fitting[n]->any_order || fitting[n]->partial;
}

/* --- the case ------------------------------------------------------------------------------------------- */

static choir_redop pick_redop(struct dice *d, choir_type type)
{
    choir_redop op;

    do
        op = (choir_redop)roll(d, CHOIR_NREDOPS);
    while (choir_redop_check(op, type) != CHOIR_OK);
    return op;
}

static enum form pick_form(struct dice *d, enum manner manner)
{
    for (;;) {
        enum form form = (enum form)roll(d, NFORMS);

        /* The first waits for others on the spot; of the second, what comes is the library's. */
        if (manner != IN_ORDER && (form == MONITORED_BARRIER || form == ALLREDUCE_SPARSE))
            continue;
        if (manner == BATCHED && form == RECV_ANY) /* a batch has no handle to ask for the source */
            continue;
        return form;
    }
}

static void make_call(struct dice *d, const struct scenario *s, int group, int calls_before,
                      struct call *c)
{
    static const double factors[] = { 1, 2, 0.5, -1 };
    struct members members;
    bool uneven;

    memset(c, 0, sizeof(*c));
    slot_members(s->nranks, (enum group_slot)group, &members);
    c->seed = roll(d, UINT64_MAX);
    c->form = pick_form(d, s->manner);
    c->group = group;
    c->nranks = members.nranks;
    c->type = (choir_type)roll(d, CHOIR_NTYPES);
    if (naive_reduces(c))
        c->op = pick_redop(d, c->type);
    for (int r = 0; r < RANKS_MAX; r++)
        c->factors[r] = factors[roll(d, 4)];
    c->root = (int)roll(d, (uint64_t)c->nranks);
    c->shift = (int)roll(d, (uint64_t)c->nranks);
    c->k = 1 + (int)roll(d, LISTS_MAX);
    c->tag = (int)(s->seed / RANKS_MAX % 100000) * CALLS_MAX + calls_before;
    uneven = pick_counts(d, c);
    pick_algo(d, c, uneven);
}

void scenario_make(uint64_t seed, struct scenario *s)
{
    struct dice d = { .state = seed };
    int slots = 0, group;
    struct members members;

    memset(s, 0, sizeof(*s));
    s->seed = seed;
    s->nranks = seed_nranks(seed);
    s->manner = chance(&d, 60) ? IN_ORDER : chance(&d, 60) ? SHUFFLED : BATCHED;
    s->ncalls = s->manner == IN_ORDER && chance(&d, 60) ? 1 : 1 + (int)roll(&d, CALLS_MAX);
    do
        slot_members(s->nranks, (enum group_slot)(slots = (int)roll(&d, NSLOTS)), &members);
    while (members.nranks == 0);
    for (int i = 0; i < s->ncalls; i++) {
        group = slots;
        if (s->manner != BATCHED && i > 0) {
            do
                slot_members(s->nranks, (enum group_slot)(group = (int)roll(&d, NSLOTS)), &members);
            while (members.nranks == 0);
        }
        make_call(&d, s, group, i, &s->calls[i]);
    }
}

/* --- for people ----------------------------------------------------------------------------------------- */

const char *scenario_text(const struct scenario *s, char *buf, size_t size)
{
    static const char *const manners[NMANNERS] = { "in order", "shuffled", "batched" };
    static const char *const slots[NSLOTS] = { "world", "all again", "evens", "odds", "lower" };
    size_t used = 0;

    used += (size_t)snprintf(buf, size, "seed %llu: %d ranks, %d calls %s\n",
                             (unsigned long long)s->seed, s->nranks, s->ncalls, manners[s->manner]);
    for (int i = 0; i < s->ncalls && used < size; i++) {
        const struct call *c = &s->calls[i];

        used += (size_t)snprintf(
            buf + used, size - used,
            "  call %d: %s on %s (%d ranks) %s%s%s algo %s%s root %d shift %d k %d lengths %zu %zu ...\n",
            i, form_names[c->form], slots[c->group], c->nranks, choir_type_name(c->type),
            naive_reduces(c) ? " " : "", naive_reduces(c) ? choir_redop_name(c->op) : "",
            c->algo != NULL ? c->algo : "chosen", c->exact ? " (exact elements)" : "", c->root,
            c->shift, c->k, c->lens[0][0], c->nranks > 1 ? c->lens[1][0] : c->lens[0][1]);
    }
    return buf;
}
