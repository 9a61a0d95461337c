/*
 * store_wait_test.c - what every kind of store promises of calls that wait: who wakes them, when they give up.
 */
#include "store/store_test.h"

#include "base/clock.h"

/* --- waiting ------------------------------------------------------------------------------------- */

/* The same handle: one thread waits, another goes on. */
static void a_waiting_get_holds_nobody_up(struct scene *scene)
{
    struct waiting_call call = { .store = scene->store, .key = "late" };
    pthread_t thread = start(get_in_thread, &call);
    int64_t sum = 0;

    until_asleep(scene->store);
    for (int i = 1; i <= 20; i++) {
        set(scene->store, "other", "x");
        check_value(scene->store, K("other"), K("x"));
        CHOIR_CHECK_OK(choir_store_add(scene->store, K("n"), 1, &sum));
        CHOIR_CHECK_EQ(sum, i);
    }
    set(scene->store, "late", "at last");
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(call.rc);
    check_blob(call.value, K("at last"));
}

CHOIR_TEST(a_waiting_get_holds_nobody_up)
{
    for_all(a_waiting_get_holds_nobody_up);
}

/* Whatever touches a key wakes who waits for it. */
static void every_writing_call_wakes(struct scene *scene)
{
    choir_store *other = another(scene);
    choir_bytes key = K("k");
    choir_blob value;

    for (int how = 0; how < 6; how++) {
        struct waiting_call call = { .store = scene->store, .key = "k" };
        pthread_t thread = start(get_in_thread, &call);

        CHOIR_ROW("%s%s: writing call %d", scene->row->name, scene->prefixed ? " prefix" : "", how);
        until_asleep(scene->store);
        if (how == 0)
            CHOIR_CHECK_OK(choir_store_set(other, key, key));
        else if (how == 1)
            CHOIR_CHECK_OK(choir_store_add(other, key, 0, NULL));
        else if (how == 2)
            CHOIR_CHECK_OK(choir_store_append(other, key, K("")));
        else if (how == 3)
            CHOIR_CHECK_OK(choir_store_multi_set(other, &key, &key, 1));
        else if (how == 4)
            CHOIR_CHECK_OK(choir_store_queue_push(other, key, key));
        else
            CHOIR_CHECK_OK(choir_store_compare_set(other, key, K(""), key, &value));
        pthread_join(thread, NULL);
        CHOIR_CHECK_OK(call.rc);
        check_blob(call.value, how == 1 ? K("0") : how == 2 || how == 4 ? K("") : key);
        if (how == 4) {
            CHOIR_CHECK_OK(choir_store_queue_try_pop(other, key, &value));
            choir_blob_free(&value);
        } else {
            CHOIR_CHECK(removed(other, "k"));
        }
        if (how == 5)
            choir_blob_free(&value);
    }
    choir_store_close(other);
}

CHOIR_TEST(every_writing_call_wakes)
{
    for_all(every_writing_call_wakes);
}

static void a_wait_ends_with_its_last_key(struct scene *scene)
{
    struct waiting_call call = { .store = scene->store, .key = "one" };
    choir_store *other = another(scene);
    pthread_t thread;

    set(scene->store, "two", "there before");
    thread = start(wait_in_thread, &call);
    until_asleep(scene->store);
    set(other, "three", "");
    CHOIR_CHECK_OK(choir_store_add(other, K("one"), 1, NULL));
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(call.rc);
    CHOIR_CHECK(exists(scene->store, "three"));
    choir_store_close(other);
}

CHOIR_TEST(a_wait_ends_with_its_last_key)
{
    for_all(a_wait_ends_with_its_last_key);
}

enum { TURNS = 30 };

static void *answer_every_turn(void *arg)
{
    choir_store *store = arg;

    for (int i = 0; i < TURNS; i++) {
        char ping[16], pong[16];

        snprintf(ping, sizeof(ping), "ping%d", i);
        snprintf(pong, sizeof(pong), "pong%d", i);
        check_value(store, K(ping), K("?"));
        set(store, pong, "!");
    }
    return NULL;
}

/* Nobody is woken by his time-out: thirty turns of two waits each, in much less than one of them. */
static void waking_takes_no_time(struct scene *scene)
{
    choir_store *other = another(scene);
    pthread_t thread = start(answer_every_turn, other);
    uint64_t began = ch_now();

    for (int i = 0; i < TURNS; i++) {
        char ping[16], pong[16];

        snprintf(ping, sizeof(ping), "ping%d", i);
        snprintf(pong, sizeof(pong), "pong%d", i);
        set(scene->store, ping, "?");
        check_value(scene->store, K(pong), K("!"));
    }
    pthread_join(thread, NULL);
    CHOIR_CHECK_LT((int64_t)((ch_now() - began) / CH_MS), slow(5000));
    choir_store_close(other);
}

CHOIR_TEST(waking_takes_no_time)
{
    for_all(waking_takes_no_time);
}

/* --- deadlines and interrupts -------------------------------------------------------------------- */

enum { PATIENCE_MS = 60 };

static void in_time(uint64_t began, choir_status rc, const char *call)
{
    uint64_t ms = (ch_now() - began) / CH_MS;

    CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_HAS(choir_last_error(), call);
    CHOIR_CHECK_LE(PATIENCE_MS, ms);
    CHOIR_CHECK_LT(ms, (uint64_t)slow(3000));
}

static void deadlines_hold(struct scene *scene)
{
    choir_bytes keys[] = { K("there"), K("not") };
    choir_blob value, *values;
    uint64_t began;

    set(scene->store, "there", "");
    began = ch_now();
    in_time(began, choir_store_get(scene->store, K("not"), PATIENCE_MS, &value), "get \"");
    CHOIR_CHECK_HAS(choir_last_error(), scene->prefixed ? "\"some/prefix/not\"" : "\"not\"");
    began = ch_now();
    in_time(began, choir_store_wait(scene->store, keys, 2, PATIENCE_MS), " and 1 more");
    began = ch_now();
    in_time(began, choir_store_multi_get(scene->store, keys, 2, PATIENCE_MS, &values), "multi_get");
    began = ch_now();
    in_time(began, choir_store_queue_pop(scene->store, K("not"), PATIENCE_MS, &value), "queue_pop");
    began = ch_now();
    in_time(began, choir_store_barrier(scene->store, K("b"), 2, PATIENCE_MS), "barrier");
    /* The handle's own, and that nothing is left of all that. */
    CHOIR_CHECK_OK(choir_store_set_timeout(scene->store, PATIENCE_MS));
    CHOIR_CHECK_EQ(choir_store_timeout(scene->store), PATIENCE_MS);
    began = ch_now();
    in_time(began, choir_store_get(scene->store, K("not"), 0, &value), "get");
    CHOIR_CHECK_OK(choir_store_set_timeout(scene->store, -1)); /* too short for a busy machine */
    set(scene->store, "not", "now");
    check_value(scene->store, K("not"), K("now"));
    CHOIR_CHECK_STATUS(choir_store_set_timeout(scene->store, 0), CHOIR_ERR_INVALID);
}

CHOIR_TEST(deadlines_hold)
{
    for_all(deadlines_hold);
}

static void an_interrupt_reaches_one_handle(struct scene *scene)
{
    struct waiting_call first = { .key = "k" }, second = { .key = "k" };
    pthread_t threads[2];
    choir_blob value;

    CHOIR_CHECK_OK(choir_store_clone(scene->store, &second.store));
    first.store = scene->store;
    threads[0] = start(get_in_thread, &first);
    threads[1] = start(get_in_thread, &second);
    until_asleep(first.store);
    until_asleep(second.store);
    choir_store_interrupt(first.store);
    pthread_join(threads[0], NULL);
    CHOIR_CHECK_STATUS(first.rc, CHOIR_ERR_INTERRUPTED);
    CHOIR_CHECK_HAS(first.error, "get");
    /* The next wait as well, but not what need not wait. */
    CHOIR_CHECK_STATUS(choir_store_queue_pop(first.store, K("q"), 0, &value),
                       CHOIR_ERR_INTERRUPTED);
    choir_store_resume(first.store);
    set(first.store, "k", "v");
    check_value(first.store, K("k"), K("v"));
    pthread_join(threads[1], NULL);
    CHOIR_CHECK_OK(second.rc);
    check_blob(second.value, K("v"));
    choir_store_close(second.store);
}

CHOIR_TEST(an_interrupt_reaches_one_handle)
{
    for_all(an_interrupt_reaches_one_handle);
}

struct nuisance {
    choir_store *store;
    _Atomic bool stop;
};

static void *interrupt_again_and_again(void *arg)
{
    struct nuisance *nuisance = arg;

    while (!nuisance->stop) {
        choir_store_interrupt(nuisance->store);
        usleep(50);
        choir_store_resume(nuisance->store);
        usleep(50);
    }
    return NULL;
}

/* Who is interrupted has either taken an element, and then gets it, or it is still there. */
static void an_interrupt_loses_no_element(struct scene *scene)
{
    enum { PUSHED = 200 };
    struct nuisance nuisance = { .store = scene->store };
    int64_t left, popped = 0;
    pthread_t thread;
    choir_blob value;

    for (int i = 0; i < PUSHED; i++)
        CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), K("element")));
    thread = start(interrupt_again_and_again, &nuisance);
    for (int i = 0; i < PUSHED; i++) {
        choir_status rc = i % 2 == 0 ? choir_store_queue_try_pop(scene->store, K("q"), &value)
                                     : choir_store_queue_pop(scene->store, K("q"), 0, &value);

        popped += rc == CHOIR_OK;
        if (rc == CHOIR_OK)
            choir_blob_free(&value);
        else
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_INTERRUPTED);
    }
    nuisance.stop = true;
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(choir_store_queue_length(scene->store, K("q"), &left));
    CHOIR_CHECK_EQ(popped + left, PUSHED);
}

CHOIR_TEST(an_interrupt_loses_no_element)
{
    for_all(an_interrupt_loses_no_element);
}

static void clones_are_independent(struct scene *scene)
{
    choir_store *clone;

    CHOIR_CHECK_OK(choir_store_set_timeout(scene->store, 12345));
    CHOIR_CHECK_OK(choir_store_clone(scene->store, &clone));
    CHOIR_CHECK_EQ(choir_store_timeout(clone), 12345);
    CHOIR_CHECK_OK(choir_store_set_timeout(clone, -1));
    CHOIR_CHECK_EQ(choir_store_timeout(scene->store), 12345);
    set(scene->store, "k", "v");
    choir_store_close(scene->store);
    check_value(clone, K("k"), K("v"));
    scene->store = clone;
}

CHOIR_TEST(clones_are_independent)
{
    for_all(clones_are_independent);
}

/* --- barrier ------------------------------------------------------------------------------------- */

enum { GUESTS = 8 };

struct arrival {
    choir_store *store;
    _Atomic int *arrived;
    int saw;
    choir_status rc;
};

static void *arrive(void *arg)
{
    struct arrival *arrival = arg;

    atomic_fetch_add(arrival->arrived, 1);
    arrival->rc = choir_store_barrier(arrival->store, K("b"), GUESTS, 0);
    arrival->saw = atomic_load(arrival->arrived);
    return NULL;
}

static void a_barrier_lets_all_go_together(struct scene *scene)
{
    struct arrival arrivals[GUESTS];
    pthread_t threads[GUESTS];
    choir_store *other = another(scene);
    _Atomic int arrived = 0;

    for (int i = 0; i < GUESTS; i++) {
        arrivals[i] = (struct arrival){ .store = i % 2 == 0 ? scene->store : other,
                                        .arrived = &arrived };
        threads[i] = start(arrive, &arrivals[i]);
    }
    for (int i = 0; i < GUESTS; i++) {
        pthread_join(threads[i], NULL);
        CHOIR_CHECK_OK(arrivals[i].rc);
        CHOIR_CHECK_EQ(arrivals[i].saw, GUESTS); /* nobody left before all had come */
    }
    CHOIR_CHECK_OK(choir_store_barrier(scene->store, K("b"), GUESTS, 0)); /* late: passes */
    CHOIR_CHECK_OK(choir_store_barrier(scene->store, K("alone"), 1, 0));
    CHOIR_CHECK_STATUS(choir_store_barrier(scene->store, K("c"), 0, 0), CHOIR_ERR_INVALID);
    choir_store_close(other);
}

CHOIR_TEST(a_barrier_lets_all_go_together)
{
    for_all(a_barrier_lets_all_go_together);
}
