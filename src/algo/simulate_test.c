/*
 * simulate_test.c - one rank played for all takes as long as all of them, times are those of the textbook, nothing is below the
 * bound.
 */
#include "algo/simulate.h"

#include <math.h>
#include <string.h>

#include "algo/machine.h"
#include "algo/messages.h"
#include "base/mem.h"
#include "choir_test.h"

/* Round figures: a message takes 10 us and 1 us for 1000 bytes; moving bytes costs next to nothing. */
static choir_machine plain(void)
{
    choir_machine m;

    choir_machine_init(&m);
    m.ranks_per_host = 1;
    m.call_us = m.message_us = 0;
    m.net_us = 10;
    m.net_gbs = m.host_gbs = 1;
    m.host_us = 1;
    m.wait_us = 5;
    m.npoints = 1;
    m.points[0] = (choir_machine_point){ 1, 1e9, 1e9 };
    return m;
}

static choir_simulated play(const struct ch_algo *algo, const choir_machine *m, uint32_t nranks,
                            uint64_t nbytes, bool all_ranks)
{
    struct ch_scene scene = { .algo = algo,
                              .machine = m,
                              .nranks = nranks,
                              .nbytes = nbytes,
                              .widening = 1,
                              .all_ranks = all_ranks };
    choir_simulated out = { 0 };

    CHOIR_CHECK_OK(ch_simulate(&scene, &out));
    return out;
}

static const struct {
    enum ch_coll coll;
    const char *algo;
    uint32_t nranks;
    uint64_t nbytes;
    double us, messages, sent;
} known[] = {
    /* 6 steps of 10 us and a quarter of 4000 bytes */
    { CH_ALLREDUCE, "ring", 4, 4000, 66, 6, 6000 },
    /* 2 steps of all of it */
    { CH_ALLREDUCE, "recursive-doubling", 4, 4000, 28, 2, 8000 },
    /* a half, a quarter, and back */
    { CH_ALLREDUCE, "halving-doubling", 4, 4000, 46, 4, 6000 },
    /* the last to get it has it from the root by way of one other; the root sends the farther half first */
    { CH_BROADCAST, "binomial", 4, 4000, 28, 2, 8000 },
    { CH_ALLGATHER, "bruck", 8, 8000, 37, 3, 7000 },
    { CH_BARRIER, "dissemination", 8, 0, 30, 3, 0 },
    /* the root's messages come in one after the other */
    { CH_GATHER, "linear", 5, 5000, 14, 4, 4000 },
    { CH_SCATTER, "linear", 5, 5000, 14, 4, 4000 },
    { CH_ALLTOALL, "bruck", 4, 4000, 24, 2, 4000 },
    /* flags only */
    { CH_BARRIER, "flags", 4, 0, 5, 0, 0 },
    { CH_ALLREDUCE, "two-shot", 4, 4096, 10, 0, 0 },
};

CHOIR_TEST(times_are_those_of_the_textbook)
{
    choir_machine m = plain();

    for (size_t i = 0; i < CH_ARRAY_LEN(known); i++) {
        const struct ch_algo *algo = ch_algo_find(known[i].coll, known[i].algo);
        choir_simulated out = play(algo, &m, known[i].nranks, known[i].nbytes, false);

        CHOIR_ROW("%s %s: %g us, %g messages, %g bytes", ch_coll_name(known[i].coll), known[i].algo,
                  out.us, out.messages, out.sent);
        CHOIR_CHECK(fabs(out.us - known[i].us) < 0.01);
        CHOIR_CHECK(out.messages == known[i].messages && fabs(out.sent - known[i].sent) < 0.01);
    }
}

/* Pairwise exchange has every rank idle in another step: then all take up to one step longer than one. */
CHOIR_TEST(one_for_all_takes_as_long_as_all)
{
    choir_machine m = plain();

    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        const struct ch_algo *algo = ch_algos[i];

        for (uint32_t n = 257; n <= 264 && algo->alike != CH_DIFFERENT; n++) {
            uint32_t ranks = algo->alike == CH_ALIKE_POW2 ? 512 : n;
            choir_simulated one = play(algo, &m, ranks, 1000 * ranks, false);
            choir_simulated all = play(algo, &m, ranks, 1000 * ranks, true);
            double step = algo->coll == CH_ALLTOALL ? all.us / (ranks - 1) * 1.01 : 1e-6;

            CHOIR_ROW("%s %s of %u ranks: one %g us, all %g us", ch_coll_name(algo->coll),
                      algo->name, ranks, one.us, all.us);
            CHOIR_CHECK(strcmp(one.how, "one for all") == 0 && strcmp(all.how, "all ranks") == 0);
            CHOIR_CHECK(fabs(one.us - all.us) <= step);
            CHOIR_CHECK(one.messages == all.messages && fabs(one.sent - all.sent) < 1e-6);
            n = algo->alike == CH_ALIKE_POW2 ? 264 : n;
        }
    }
}

CHOIR_TEST(nothing_is_below_the_bound)
{
    choir_machine m;

    choir_machine_init(&m);
    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        const struct ch_algo *algo = ch_algos[i];

        for (uint32_t n = 2; n <= 40 && !algo->uses_memory; n++) {
            m.ranks_per_host = n % 3 == 0 ? 4 : 1;
            for (uint64_t nbytes = 8; nbytes <= 8 << 20 && ch_algo_fits(algo, n); nbytes *= 128) {
                /* of whole blocks, as a bound of bytes knows nothing of rounding up */
                uint64_t whole = nbytes * n;
                choir_simulate_bound bound = ch_simulate_bound(algo->coll, n, whole, &m);
                choir_simulated out = play(algo, &m, n, whole, false);

                CHOIR_ROW("%s %s of %u ranks, %llu bytes: %g us, bound %g; %g messages, bound %g; "
                          "%g bytes, bound %g",
                          ch_coll_name(algo->coll), algo->name, n, (unsigned long long)whole,
                          out.us, bound.us, out.messages, bound.messages, out.sent, bound.sent);
                CHOIR_CHECK(out.us >= bound.us * 0.999999);
                CHOIR_CHECK(out.messages >= bound.messages && out.sent >= bound.sent * 0.999999);
            }
        }
    }
}

CHOIR_TEST(hosts_make_a_difference)
{
    const struct ch_algo *ring = ch_algo_find(CH_ALLREDUCE, "ring");
    choir_machine m = plain();
    double apart = play(ring, &m, 8, 8000, false).us, half, together;

    m.ranks_per_host = 4;
    half = play(ring, &m, 8, 8000, false).us;
    m.ranks_per_host = 8;
    together = play(ring, &m, 8, 8000, false).us;
    CHOIR_CHECK(together < half && half <= apart);
}

/* Rounds overlap only as far as the stage's two halves allow; without a second round there is nothing to overlap. The root has
 * one buffer, and nothing to copy to itself. */
CHOIR_TEST(long_operations_are_rounds)
{
    const struct ch_algo *algo = ch_algo_find(CH_BROADCAST, "staged");
    choir_machine m = plain();
    struct ch_scene scene = {
        .algo = algo, .machine = &m, .nranks = 2, .nbytes = 1 << 20, .widening = 1
    };
    choir_simulated whole, parts;

    m.wait_us = 0;
    m.points[0] = (choir_machine_point){ 1, 1, 1 };
    CHOIR_CHECK_OK(ch_simulate(&scene, &whole));
    scene.window = 1 << 14;
    CHOIR_CHECK_OK(ch_simulate(&scene, &parts));
    CHOIR_CHECK(fabs(parts.moved - whole.moved) < 1 && fabs(parts.moved - (2 << 20)) < 1);
    /* one after the other, or both at once but for the first and the last round */
    CHOIR_CHECK(fabs(whole.us / (whole.moved * 1e-3) - 2) < 0.01);
    CHOIR_CHECK(fabs(parts.us / (parts.moved * 1e-3) - 1) < 0.02);
}

/* As many rounds as there are, up to the longest operation that can be asked for. */
CHOIR_TEST(the_longest_takes_longest)
{
    const uint64_t sizes[] = { 1ull << 40, 1ull << 63, UINT64_MAX - (1 << 14), UINT64_MAX };
    choir_machine m = plain();

    for (size_t i = 0; ch_algos[i] != NULL; i++) {
        struct ch_scene scene = {
            .algo = ch_algos[i], .machine = &m, .nranks = 4, .widening = 1, .window = 1 << 14
        };
        double before = 0;

        if (!scene.algo->uses_memory || scene.algo->in_line || scene.algo->coll == CH_BARRIER)
            continue;
        for (size_t k = 0; k < CH_ARRAY_LEN(sizes); k++) {
            choir_simulated out;

            scene.nbytes = sizes[k];
            CHOIR_CHECK_OK(ch_simulate(&scene, &out));
            CHOIR_ROW("%s %s of %llu bytes: %g us, before %g", ch_coll_name(scene.algo->coll),
                      scene.algo->name, (unsigned long long)sizes[k], out.us, before);
            CHOIR_CHECK(out.us >= before && out.us > 0 && out.moved > 0);
            before = out.us;
        }
    }
}

/* What bytes cost goes by how large a rank's buffers are: up to 1000 bytes of an all-reduce are cheap here. */
CHOIR_TEST(caches_hold_buffers_not_operations)
{
    static const struct {
        enum ch_coll coll;
        const char *algo;
        uint64_t nbytes, in_place_nbytes; /* of an operation that just fits */
    } fits[] = {
        { CH_ALLREDUCE, "one-shot", 1000, 2000 },
        { CH_ALLTOALL, "staged", 1000, 2000 },
        { CH_BROADCAST, "staged", 2000, 2000 },
        { CH_ALLGATHER, "staged", 1600, 2000 }, /* 4 ranks: in a quarter, out all */
        { CH_REDUCE_SCATTER, "one-shot", 1600, 2000 },
    };
    choir_machine m = plain();

    m.wait_us = 0;
    m.npoints = 2;
    m.points[0] = (choir_machine_point){ 1000, 10, 10 };
    m.points[1] = (choir_machine_point){ 1001, 1, 1 };
    for (size_t i = 0; i < 2 * CH_ARRAY_LEN(fits); i++) {
        bool in_place = i >= CH_ARRAY_LEN(fits);
        size_t k = i % CH_ARRAY_LEN(fits);
        struct ch_scene scene = { .algo = ch_algo_find(fits[k].coll, fits[k].algo),
                                  .machine = &m,
                                  .nranks = 4,
                                  .nbytes = in_place ? fits[k].in_place_nbytes : fits[k].nbytes,
                                  .widening = 1,
                                  .in_place = in_place };
        choir_simulated good, bad;

        CHOIR_CHECK_OK(ch_simulate(&scene, &good));
        scene.nbytes += 8;
        CHOIR_CHECK_OK(ch_simulate(&scene, &bad));
        CHOIR_ROW("%s%s: %g us, %g us", ch_coll_name(fits[k].coll), in_place ? " in place" : "",
                  good.us, bad.us);
        CHOIR_CHECK(bad.us > good.us * 9);
    }
}

/* --- machine files ------------------------------------------------------------------------------------- */

static const struct {
    const char *text, *complaint;
} refused[] = {
    { "wait_us", "line 1: \"wait_us\"" },
    { "wait_us x", "\"x\": expected a number" },
    { "\n\nwat_us 1", "line 3: there is no figure \"wat_us\"" },
    { "wait_us -1", "wait_us is -1" },
    { "net_gbs 0", "net_gbs is 0" },
    { "ranks_per_host -3", "\"-3\"" },
    { "point 8 1", "two rates" },
    { "point 8 1 1 1", "two rates" },
    { "point 8 1 1\npoint 8 1 1", "rising" },
    { "point 8 0 1", "rates above 0" },
    { "wait_us nan", "wait_us is" },
};

CHOIR_TEST(machines_that_make_no_sense_are_refused)
{
    choir_machine m = { .size = 1 };

    for (size_t i = 0; i < CH_ARRAY_LEN(refused); i++) {
        CHOIR_ROW("%s", refused[i].text);
        CHOIR_CHECK_STATUS(choir_machine_parse(refused[i].text, &m), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), refused[i].complaint);
        CHOIR_CHECK_EQ(m.size, 1u);
    }
    CHOIR_CHECK_STATUS(choir_machine_parse(NULL, &m), CHOIR_ERR_INVALID);
}

CHOIR_TEST(machines_are_read_as_they_were_written)
{
    choir_machine a, b;
    char *text;

    CHOIR_CHECK_OK(choir_machine_parse("# mine\n cpu Some Model 3 \nwait_us 0.25 # short\r\n"
                                       "ranks_per_host 0\npoint 4096 12.5 8\npoint 65536 9 7\n",
                                       &a));
    CHOIR_CHECK(strcmp(a.cpu, "Some Model 3") == 0 && a.wait_us == 0.25 && a.npoints == 2);
    CHOIR_CHECK_OK(ch_machine_text(&a, &text));
    CHOIR_CHECK_OK(choir_machine_parse(text, &b));
    CHOIR_CHECK(memcmp(&a, &b, sizeof(a)) == 0);
    ch_free(text);
}

static choir_status simulate_and_print(void *arg)
{
    choir_machine m = plain();
    choir_simulated out;
    struct ch_scene scene = { .algo = ch_algo_find(CH_BROADCAST, "binomial"),
                              .machine = &m,
                              .nranks = 5,
                              .nbytes = 100,
                              .widening = 1 };
    char *text;
    choir_status rc = ch_simulate(&scene, &out);

    (void)arg;
    if (rc == CHOIR_OK)
        rc = ch_machine_text(&m, &text);
    if (rc == CHOIR_OK)
        ch_free(text);
    return rc;
}

CHOIR_TEST(faults_leave_nothing_behind)
{
    choir_test_all_faults(simulate_and_print, NULL);
}
