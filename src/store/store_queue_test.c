/*
 * store_queue_test.c - what every kind of store promises of queues: no element is lost, none is got twice.
 */
#include "store/store_test.h"

/* --- queues -------------------------------------------------------------------------------------- */

static int64_t length(choir_store *store, const char *key)
{
    int64_t n;

    CHOIR_CHECK_OK(choir_store_queue_length(store, K(key), &n));
    return n;
}

static void queues(struct scene *scene)
{
    choir_store *store = scene->store;
    choir_blob value;
    char text[64];

    CHOIR_CHECK_EQ(length(store, "q"), 0);
    CHOIR_CHECK_STATUS(choir_store_queue_try_pop(store, K("q"), &value), CHOIR_ERR_QUEUE_EMPTY);
    CHOIR_CHECK_HAS(choir_last_error(), "queue is empty");
    CHOIR_CHECK_OK(choir_store_queue_push(store, K("q"), K("first")));
    CHOIR_CHECK_OK(choir_store_queue_push(store, K("q"), K("")));
    CHOIR_CHECK_OK(choir_store_queue_push(store, K("q"), bytes("\0third", 6)));
    CHOIR_CHECK_EQ(length(store, "q"), 3);
    /* A name space of its own; but it exists. */
    CHOIR_CHECK(exists(store, "q"));
    CHOIR_CHECK_EQ(count(store), 0);
    listed(store, text, sizeof(text));
    CHOIR_CHECK_STR(text, "");
    CHOIR_CHECK(!removed(store, "q"));
    check_value(store, K("q"), K(""));
    set(store, "q", "a value");
    CHOIR_CHECK(removed(store, "q"));
    CHOIR_CHECK_EQ(length(store, "q"), 3);

    CHOIR_CHECK_OK(choir_store_queue_pop(store, K("q"), 0, &value));
    check_blob(value, K("first"));
    CHOIR_CHECK_OK(choir_store_queue_try_pop(store, K("q"), &value));
    check_blob(value, K(""));
    CHOIR_CHECK_OK(choir_store_queue_pop(store, K("q"), 0, &value));
    check_blob(value, bytes("\0third", 6));
    CHOIR_CHECK(!exists(store, "q"));
}

CHOIR_TEST(queues)
{
    for_all(queues);
}

/* A value of the same name must neither end a pop nor keep it busy. */
static void a_pop_waits_for_an_element(struct scene *scene)
{
    struct waiting_call call = { .store = scene->store, .key = "q" };
    pthread_t thread;

    if (!scene->row->own_queues)
        return;
    set(scene->store, "q", "a value");
    thread = start(pop_in_thread, &call);
    until_asleep(scene->store);
    set(scene->store, "q", "another");
    CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), K("an element")));
    pthread_join(thread, NULL);
    CHOIR_CHECK_OK(call.rc);
    check_blob(call.value, K("an element"));
}

CHOIR_TEST(a_pop_waits_for_an_element)
{
    for_all(a_pop_waits_for_an_element);
}

enum { POPPERS = 6 };

/* As many elements as poppers: each of them gets one, none is lost, none comes twice. */
static void every_popper_gets_one(struct scene *scene)
{
    struct waiting_call calls[POPPERS];
    pthread_t threads[POPPERS];
    choir_store *other = another(scene);
    bool seen[POPPERS] = { false };

    for (int i = 0; i < POPPERS; i++) {
        calls[i] = (struct waiting_call){ .store = i % 2 == 0 ? scene->store : other, .key = "q" };
        threads[i] = start(pop_in_thread, &calls[i]);
    }
    until_asleep(scene->store);
    for (int i = 0; i < POPPERS; i++) {
        char element = (char)i;

        CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), bytes(&element, 1)));
    }
    for (int i = 0; i < POPPERS; i++) {
        pthread_join(threads[i], NULL);
        CHOIR_CHECK_OK(calls[i].rc);
        CHOIR_CHECK_EQ(calls[i].value.nbytes, 1);
        CHOIR_CHECK(!seen[(int)calls[i].value.data[0]]);
        seen[(int)calls[i].value.data[0]] = true;
        choir_blob_free(&calls[i].value);
    }
    CHOIR_CHECK_EQ(length(scene->store, "q"), 0);
    choir_store_close(other);
}

CHOIR_TEST(every_popper_gets_one)
{
    for_all(every_popper_gets_one);
}

/* Of those who wait, the one who has waited longest is served. */
static void poppers_are_served_in_turn(struct scene *scene)
{
    struct waiting_call calls[POPPERS];
    pthread_t threads[POPPERS];

    if (!scene->row->own_queues || scene->row->polls)
        return;
    for (int i = 0; i < POPPERS; i++) {
        calls[i] = (struct waiting_call){ .key = "q" };
        CHOIR_CHECK_OK(choir_store_clone(scene->store, &calls[i].store));
        threads[i] = start(pop_in_thread, &calls[i]);
        until_asleep(calls[i].store);
    }
    for (int i = 0; i < POPPERS; i++) {
        char element = (char)('a' + i);

        CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), bytes(&element, 1)));
    }
    for (int i = 0; i < POPPERS; i++) {
        char element = (char)('a' + i);

        pthread_join(threads[i], NULL);
        CHOIR_CHECK_OK(calls[i].rc);
        check_blob(calls[i].value, bytes(&element, 1));
        choir_store_close(calls[i].store);
    }
}

CHOIR_TEST(poppers_are_served_in_turn)
{
    for_all(poppers_are_served_in_turn);
}

enum { ELEMENTS = 60 };

struct impatient {
    choir_store *store;
    _Atomic bool stop;
    int got;
};

static void *pop_impatiently(void *arg)
{
    struct impatient *popper = arg;

    while (!atomic_load(&popper->stop)) {
        choir_blob value;
        choir_status rc = choir_store_queue_pop(popper->store, K("q"), 1, &value);

        if (rc == CHOIR_OK) {
            popper->got++;
            choir_blob_free(&value);
        } else {
            CHOIR_CHECK_STATUS(rc, CHOIR_ERR_TIMEOUT);
        }
    }
    return NULL;
}

/* A pop whose time is up just as an element comes: it takes the element, or leaves it there. */
static void no_element_is_lost_to_a_deadline(struct scene *scene)
{
    struct impatient popper = { .store = NULL };
    choir_blob value;
    pthread_t thread;

    popper.store = another(scene);
    thread = start(pop_impatiently, &popper);
    for (int i = 0; i < ELEMENTS; i++) {
        CHOIR_CHECK_OK(choir_store_queue_push(scene->store, K("q"), K("x")));
        /* Some milliseconds apart, and never the same. */
        CHOIR_CHECK_STATUS(choir_store_get(scene->store, K("missing"), 1 + i % 2, &value),
                           CHOIR_ERR_TIMEOUT);
    }
    atomic_store(&popper.stop, true);
    pthread_join(thread, NULL);
    CHOIR_CHECK_EQ(popper.got + length(scene->store, "q"), ELEMENTS);
    choir_store_close(popper.store);
}

CHOIR_TEST(no_element_is_lost_to_a_deadline)
{
    for_all(no_element_is_lost_to_a_deadline);
}

/* One element ends the waits of all who only want to know, and one pop. */
static void an_element_is_seen_by_all(struct scene *scene)
{
    struct waiting_call calls[4];
    pthread_t threads[4];
    choir_store *other;
    choir_blob value;

    if (!scene->row->own_queues || scene->row->polls)
        return;
    other = another(scene);
    CHOIR_CHECK_OK(choir_store_queue_push(other, K("q"), K("x")));
    CHOIR_CHECK_OK(choir_store_queue_pop(other, K("q"), 0, &value));
    choir_blob_free(&value);
    for (int i = 0; i < 4; i++) {
        choir_store *store;

        CHOIR_CHECK_OK(choir_store_clone(scene->store, &store));
        calls[i] = (struct waiting_call){ .store = store, .key = "q" };
        threads[i] = start(i < 2 ? wait_in_thread : pop_in_thread, &calls[i]);
        until_asleep(store);
    }
    for (int i = 0; i < 2; i++)
        CHOIR_CHECK_OK(choir_store_queue_push(other, K("q"), K("y")));
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHOIR_CHECK_OK(calls[i].rc);
        choir_blob_free(&calls[i].value);
        choir_store_close(calls[i].store);
    }
    choir_store_close(other);
}

CHOIR_TEST(an_element_is_seen_by_all)
{
    for_all(an_element_is_seen_by_all);
}
