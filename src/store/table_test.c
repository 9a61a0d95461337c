/* table_test.c - the dictionary: values, numbers, queues, waits, limits. */
#include "choir_test.h"

#include <string.h>

#include "store/table.h"

static struct ch_table *new_table(void)
{
    struct ch_table *table;

    CHOIR_CHECK_OK(ch_table_create(&ch_table_default_limits, &table));
    return table;
}

static void set(struct ch_table *table, const char *key, const char *value)
{
    CHOIR_CHECK_OK(ch_table_set(table, choir_str(key), choir_str(value)));
}

static void check_value(const struct ch_table *table, const char *key, const char *want)
{
    choir_bytes got;

    CHOIR_CHECK(ch_table_get(table, choir_str(key), &got));
    CHOIR_CHECK_EQ(got.nbytes, strlen(want));
    CHOIR_CHECK(got.nbytes == 0 || memcmp(got.data, want, got.nbytes) == 0);
}

CHOIR_TEST(values_come_and_go)
{
    struct ch_table *table = new_table();
    choir_bytes nul = { "a\0b", 3 }, got;

    CHOIR_CHECK(!ch_table_get(table, choir_str("k"), &got));
    set(table, "k", "one");
    set(table, "k", "two, longer than before");
    check_value(table, "k", "two, longer than before");
    set(table, "", ""); /* the empty key, the empty value */
    check_value(table, "", "");
    CHOIR_CHECK_OK(ch_table_set(table, nul, nul));
    CHOIR_CHECK(!ch_table_exists(table, choir_str("a")));
    CHOIR_CHECK_OK(ch_table_append(table, choir_str("log"), choir_str("ab")));
    CHOIR_CHECK_OK(ch_table_append(table, choir_str("log"), choir_str("")));
    CHOIR_CHECK_OK(ch_table_append(table, choir_str("log"), choir_str("c")));
    check_value(table, "log", "abc");
    CHOIR_CHECK_EQ(ch_table_count(table), 4);
    CHOIR_CHECK(ch_table_remove(table, choir_str("k")));
    CHOIR_CHECK(!ch_table_remove(table, choir_str("k")));
    CHOIR_CHECK_EQ(ch_table_count(table), 3);
    ch_table_destroy(table);
}

static void count_key(void *arg, choir_bytes key)
{
    CHOIR_CHECK_LE(1, key.nbytes);
    ++*(int *)arg;
}

CHOIR_TEST(many_keys)
{
    enum { KEYS = 5000 };
    struct ch_table *table = new_table();
    char key[32];
    int seen = 0;

    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "rank/%d", i);
        set(table, key, key);
    }
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "rank/%d", i);
        check_value(table, key, key);
    }
    ch_table_each(table, count_key, &seen);
    CHOIR_CHECK_EQ(seen, KEYS);
    ch_table_destroy(table);
}

static const struct {
    const char *before;
    int64_t delta;
    bool fits;
    const char *after, *why;
} sums[] = {
    { NULL, 5, true, "5", "a missing key counts as 0" },
    { "", 5, true, "5", "and so does an empty one" },
    { "5", -7, true, "-2", "below zero" },
    { " +12 apples", 1, true, "13", "blanks, a sign, digits; the rest is ignored" },
    { "9223372036854775807", 1, true, "-9223372036854775808", "the sum wraps" },
    { "apples", 1, false, "apples", "not a number" },
    { "9223372036854775808", 1, false, "9223372036854775808", "beyond 64 bits" },
    { "-9223372036854775808", 1, true, "-9223372036854775807", "the least number" },
    { "-9223372036854775809", 1, false, "-9223372036854775809", "beyond 64 bits, below" },
    { "0000000000000000000000000000000000000005", 1, true, "6", "many zeros are no large number" },
    { "- 5", 1, false, "- 5", "a sign belongs to its digits" },
    { " ", 1, false, " ", "blanks are not empty" },
};

CHOIR_TEST(numbers)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(sums); i++) {
        struct ch_table *table = new_table();
        int64_t sum = 77;

        CHOIR_ROW("%s", sums[i].why);
        if (sums[i].before != NULL)
            set(table, "n", sums[i].before);
        CHOIR_CHECK_STATUS(ch_table_add(table, choir_str("n"), sums[i].delta, &sum),
                           sums[i].fits ? CHOIR_OK : CHOIR_ERR_INVALID);
        check_value(table, "n", sums[i].after);
        CHOIR_CHECK_EQ(sum == 77, !sums[i].fits);
        ch_table_destroy(table);
    }
}

static const struct {
    const char *before, *expected, *desired, *returned, *after, *why;
} compares[] = {
    { NULL, "", "x", "x", "x", "missing, nothing expected: stored" },
    { NULL, "a", "x", "a", NULL, "missing, something expected: nothing stored" },
    { "a", "a", "x", "x", "x", "as expected: stored" },
    { "", "", "x", "x", "x", "empty, as expected: stored" },
    { "b", "a", "x", "b", "b", "different: as it was" },
};

CHOIR_TEST(compare_and_set)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(compares); i++) {
        struct ch_table *table = new_table();
        choir_bytes got;

        CHOIR_ROW("%s", compares[i].why);
        if (compares[i].before != NULL)
            set(table, "k", compares[i].before);
        CHOIR_CHECK_OK(ch_table_compare_set(table, choir_str("k"), choir_str(compares[i].expected),
                                            choir_str(compares[i].desired), &got));
        CHOIR_CHECK_EQ(got.nbytes, strlen(compares[i].returned));
        CHOIR_CHECK(memcmp(got.data, compares[i].returned, got.nbytes) == 0);
        CHOIR_CHECK_EQ(ch_table_exists(table, choir_str("k")), compares[i].after != NULL);
        if (compares[i].after != NULL)
            check_value(table, "k", compares[i].after);
        ch_table_destroy(table);
    }
}

CHOIR_TEST(queues_are_a_name_space_of_their_own)
{
    struct ch_table *table = new_table();
    choir_bytes key = choir_str("q"), value;
    choir_blob out;

    CHOIR_CHECK_STATUS(ch_table_queue_pop(table, key, &out), CHOIR_ERR_QUEUE_EMPTY);
    CHOIR_CHECK_OK(ch_table_queue_push(table, key, choir_str("first")));
    CHOIR_CHECK_OK(ch_table_queue_push(table, key, choir_str("")));
    CHOIR_CHECK_EQ(ch_table_queue_length(table, key), 2);
    CHOIR_CHECK(ch_table_exists(table, key));
    CHOIR_CHECK(!ch_table_get(table, key, &value));
    CHOIR_CHECK_EQ(ch_table_count(table), 0);
    set(table, "q", "a value");
    CHOIR_CHECK(ch_table_remove(table, key)); /* the queue stays */
    CHOIR_CHECK_OK(ch_table_queue_pop(table, key, &out));
    CHOIR_CHECK_STR(out.data, "first");
    choir_blob_free(&out);
    CHOIR_CHECK_OK(ch_table_queue_pop(table, key, &out));
    CHOIR_CHECK_EQ(out.nbytes, 0);
    choir_blob_free(&out);
    CHOIR_CHECK(!ch_table_exists(table, key));
    ch_table_destroy(table);
}

/* --- waits -------------------------------------------------------------------------------------- */

static int ndone;

static void note_done(struct ch_table_wait *wait)
{
    (void)wait;
    ndone++;
}

CHOIR_TEST(a_wait_ends_with_its_last_key)
{
    struct ch_table *table = new_table();
    choir_bytes keys[] = { choir_str("a"), choir_str("b"), choir_str("b") };
    struct ch_table_wait wait;

    CHOIR_CHECK_STATUS(ch_table_wait(table, &wait, keys, 0, note_done), CHOIR_OK);
    CHOIR_CHECK_STATUS(ch_table_wait(table, &wait, keys, 3, note_done), CHOIR_IN_PROGRESS);
    set(table, "a", "1");
    CHOIR_CHECK(ch_table_remove(table, keys[0])); /* it came: that counts */
    CHOIR_CHECK_EQ(ndone, 0);
    set(table, "b", "1"); /* named twice, comes twice */
    CHOIR_CHECK_EQ(ndone, 1);
    CHOIR_CHECK_STATUS(ch_table_wait(table, &wait, keys + 1, 2, note_done), CHOIR_OK);
    ch_table_wait_cancel(table, &wait); /* of one that is not registered */
    ch_table_destroy(table);
}

CHOIR_TEST(a_cancelled_wait_is_not_called_and_leaves_no_key)
{
    struct ch_table *table = new_table();
    choir_bytes key = choir_str("never");
    struct ch_table_wait wait, zeroed = { .missing = 0 };

    CHOIR_CHECK_STATUS(ch_table_wait(table, &wait, &key, 1, note_done), CHOIR_IN_PROGRESS);
    CHOIR_CHECK(!ch_table_exists(table, key));
    ch_table_wait_cancel(table, &wait);
    ch_table_wait_cancel(table, &wait);
    ch_table_wait_cancel(table, &zeroed);
    set(table, "never", "after all");
    CHOIR_CHECK_EQ(ndone, 0);
    ch_table_destroy(table);
}

CHOIR_TEST(one_push_ends_one_wait)
{
    struct ch_table *table = new_table();
    choir_bytes key = choir_str("q");
    struct ch_table_wait waits[3];

    for (int i = 0; i < 3; i++)
        CHOIR_CHECK_STATUS(ch_table_wait(table, &waits[i], &key, 1, note_done), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_OK(ch_table_queue_push(table, key, choir_str("x")));
    CHOIR_CHECK_EQ(ndone, 1);
    CHOIR_CHECK_OK(ch_table_queue_push(table, key, choir_str("y")));
    CHOIR_CHECK_EQ(ndone, 2);
    ch_table_destroy(table); /* with one still waiting */
}

CHOIR_TEST(keys_may_be_added_to_a_wait_one_by_one)
{
    struct ch_table *table = new_table();
    struct ch_table_wait wait;

    set(table, "here", "");
    ch_table_wait_begin(&wait, note_done);
    CHOIR_CHECK_OK(ch_table_wait_add(table, &wait, choir_str("here")));
    CHOIR_CHECK_OK(ch_table_wait_add(table, &wait, choir_str("a")));
    set(table, "a", "comes before the list is complete");
    CHOIR_CHECK_EQ(ndone, 0);
    CHOIR_CHECK_OK(ch_table_wait_add(table, &wait, choir_str("b")));
    CHOIR_CHECK_STATUS(ch_table_wait_end(&wait), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_EQ(ndone, 0);
    set(table, "b", "");
    CHOIR_CHECK_EQ(ndone, 1);
    ch_table_wait_begin(&wait, note_done);
    CHOIR_CHECK_OK(ch_table_wait_end(&wait));
    ch_table_destroy(table);
}

CHOIR_TEST(a_barrier_counts_and_lets_all_go_at_once)
{
    struct ch_table *table = new_table();
    choir_bytes key = choir_str("b");
    struct ch_table_wait before, first, second, last;

    CHOIR_CHECK_STATUS(ch_table_wait(table, &before, &key, 1, note_done), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_STATUS(ch_table_barrier(table, &first, key, 3, note_done), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_STATUS(ch_table_barrier(table, &second, key, 3, note_done), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_EQ(ndone, 0); /* not even the one that waited for the key before it was there */
    check_value(table, "b", "2");
    CHOIR_CHECK_OK(ch_table_barrier(table, &last, key, 3, note_done));
    CHOIR_CHECK_EQ(ndone, 3);
    CHOIR_CHECK_OK(ch_table_barrier(table, &last, key, 3, note_done)); /* late ones pass */
    check_value(table, "b", "4");
    CHOIR_CHECK_OK(ch_table_barrier(table, &last, choir_str("none"), 0, note_done));
    CHOIR_CHECK_OK(ch_table_barrier(table, &last, choir_str("less"), -1, note_done));
    ch_table_destroy(table);
}

CHOIR_TEST(a_barrier_is_left_by_cancel_and_by_any_writing)
{
    struct ch_table *table = new_table();
    choir_bytes key = choir_str("b");
    struct ch_table_wait gone, stays;

    CHOIR_CHECK_STATUS(ch_table_barrier(table, &gone, key, 9, note_done), CHOIR_IN_PROGRESS);
    CHOIR_CHECK_STATUS(ch_table_barrier(table, &stays, key, 9, note_done), CHOIR_IN_PROGRESS);
    ch_table_wait_cancel(table, &gone);
    check_value(table, "b", "2"); /* an arrival is not taken back */
    set(table, "b", "anything");
    CHOIR_CHECK_EQ(ndone, 1);
    CHOIR_CHECK_STATUS(ch_table_barrier(table, &gone, key, 9, note_done), CHOIR_ERR_INVALID);
    check_value(table, "b", "anything");
    ch_table_destroy(table);
}

/* A served wait may use the table at once: cancel its neighbour, wait again, remove the key. */
static struct {
    struct ch_table *table;
    struct ch_table_wait first, second, again;
} scene;

static void meddle(struct ch_table_wait *wait)
{
    choir_bytes key = choir_str("k"), other = choir_str("other");

    CHOIR_CHECK(wait == &scene.first);
    ch_table_wait_cancel(scene.table, &scene.second);
    CHOIR_CHECK(ch_table_remove(scene.table, key));
    CHOIR_CHECK_STATUS(ch_table_wait(scene.table, &scene.again, &key, 1, note_done),
                       CHOIR_IN_PROGRESS);
    CHOIR_CHECK_OK(ch_table_set(scene.table, other, other));
}

CHOIR_TEST(a_served_wait_may_use_the_table)
{
    choir_bytes key = choir_str("k");

    scene.table = new_table();
    CHOIR_CHECK_STATUS(ch_table_wait(scene.table, &scene.first, &key, 1, meddle),
                       CHOIR_IN_PROGRESS);
    CHOIR_CHECK_STATUS(ch_table_wait(scene.table, &scene.second, &key, 1, note_done),
                       CHOIR_IN_PROGRESS);
    set(scene.table, "k", "v");
    CHOIR_CHECK_EQ(ndone, 0); /* the second was cancelled, the new one waits for the next */
    set(scene.table, "k", "v");
    CHOIR_CHECK_EQ(ndone, 1);
    ch_table_destroy(scene.table);
}

/* --- limits and faults --------------------------------------------------------------------------- */

CHOIR_TEST(limits_refuse_and_change_nothing)
{
    const struct ch_table_limits small = { .key_nbytes = 8,
                                           .value_nbytes = 16,
                                           .total_nbytes = 1024 };
    struct ch_table *table;
    char key[16];
    int kept = 0;

    CHOIR_CHECK_OK(ch_table_create(&small, &table));
    CHOIR_CHECK_STATUS(ch_table_set(table, choir_str("a key too long"), choir_str("")),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(ch_table_set(table, choir_str("k"), choir_str("a value much too long")),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(
        ch_table_queue_push(table, choir_str("k"), choir_str("a value much too long")),
        CHOIR_ERR_INVALID);
    CHOIR_CHECK(!ch_table_exists(table, choir_str("k")));
    for (; kept < 100; kept++) {
        snprintf(key, sizeof(key), "%d", kept);
        if (ch_table_set(table, choir_str(key), choir_str("sixteen bytes ok")) != CHOIR_OK)
            break;
    }
    CHOIR_CHECK_LT(kept, 100); /* full at some point */
    CHOIR_CHECK_HAS(choir_last_error(), "full");
    CHOIR_CHECK_EQ(ch_table_count(table), kept);
    CHOIR_CHECK(ch_table_remove(table, choir_str("0")));
    set(table, key, "fits again");
    ch_table_destroy(table);
}

static choir_status use_everything(void *arg)
{
    choir_bytes keys[] = { choir_str("a"), choir_str("b") };
    struct ch_table_wait wait;
    struct ch_table *table;
    choir_blob out = { NULL, 0 };
    choir_status rc = ch_table_create(&ch_table_default_limits, &table);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    rc = ch_table_wait(table, &wait, keys, 2, note_done);
    if (rc >= 0)
        rc = ch_table_set(table, keys[0], keys[0]);
    if (rc == CHOIR_OK)
        rc = ch_table_append(table, keys[0], choir_str("more than there is room for"));
    if (rc == CHOIR_OK)
        rc = ch_table_queue_push(table, keys[1], keys[1]);
    if (rc == CHOIR_OK)
        rc = ch_table_queue_pop(table, keys[1], &out);
    if (rc == CHOIR_OK)
        rc = ch_table_barrier(table, &wait, choir_str("barrier"), 2, note_done);
    choir_blob_free(&out);
    ch_table_destroy(table);
    return rc == CHOIR_IN_PROGRESS ? CHOIR_OK : rc;
}

CHOIR_TEST(every_failing_call_is_an_error)
{
    choir_test_all_faults(use_everything, NULL);
}
