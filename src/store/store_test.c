/*
 * store_test.c - what every kind of store promises (choir/store.h) of values, keys and prefixes.
 */
#include "store/store_test.h"

/* --- values -------------------------------------------------------------------------------------- */

static void values_come_and_go(struct scene *scene)
{
    choir_store *store = scene->store;

    CHOIR_CHECK(!exists(store, "k"));
    CHOIR_CHECK(!removed(store, "k"));
    set(store, "k", "v");
    CHOIR_CHECK(exists(store, "k"));
    check_value(store, K("k"), K("v"));
    set(store, "k", "another, longer");
    check_value(store, K("k"), K("another, longer"));
    CHOIR_CHECK_EQ(count(store), 1);
    CHOIR_CHECK(removed(store, "k"));
    CHOIR_CHECK(!exists(store, "k"));
    CHOIR_CHECK_OK(choir_store_delete(store, K("k"), NULL));
    CHOIR_CHECK_EQ(count(store), 0);
}

CHOIR_TEST(values_come_and_go)
{
    for_all(values_come_and_go);
}

static void any_bytes_do(struct scene *scene)
{
    const struct {
        choir_bytes key, value;
        const char *why;
    } pairs[] = {
        { { NULL, 0 }, { "v", 1 }, "the empty key" },
        { { "k", 1 }, { NULL, 0 }, "the empty value" },
        { { "\0", 1 }, { "\0\0", 2 }, "NUL bytes" },
        { { "\0\0", 2 }, { "x\0y", 3 }, "more of them" },
        { { "/", 1 }, { "/", 1 }, "a slash" },
        { { "\xff\xfe\n\"%s", 6 }, { "\xc3\x28\r\n%n", 6 }, "neither text nor a format" },
    };

    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < CH_ARRAY_LEN(pairs); i++) {
            CHOIR_ROW("%s: %s", scene->row->name, pairs[i].why);
            if (round == 0)
                CHOIR_CHECK_OK(choir_store_set(scene->store, pairs[i].key, pairs[i].value));
            else
                check_value(scene->store, pairs[i].key, pairs[i].value);
        }
    }
    CHOIR_CHECK_EQ(count(scene->store), (int64_t)CH_ARRAY_LEN(pairs));
}

CHOIR_TEST(any_bytes_do)
{
    for_all(any_bytes_do);
}

static void big_values(struct scene *scene)
{
    size_t nbytes = scene->row->big / choir_test_slowness();
    char *data = malloc(nbytes);
    choir_store *other = another(scene);

    CHOIR_CHECK(data != NULL);
    for (size_t i = 0; i < nbytes; i++)
        data[i] = (char)(i * 2654435761u >> 24);
    CHOIR_CHECK_OK(choir_store_set(scene->store, K("big"), bytes(data, nbytes)));
    check_value(other, K("big"), bytes(data, nbytes));
    CHOIR_CHECK_OK(choir_store_set(scene->store, K("big"), bytes(data, nbytes - 1)));
    check_value(scene->store, K("big"), bytes(data, nbytes - 1));
    choir_store_close(other);
    free(data);
}

CHOIR_TEST(big_values)
{
    for_all(big_values);
}

static void numbers(struct scene *scene)
{
    static const struct {
        const char *before;
        int64_t delta, sum;
        const char *why;
    } sums[] = {
        { NULL, 5, 5, "a missing value counts as 0" },
        { "7", -9, -2, "below zero" },
        { " \t+12 monkeys", 1, 13, "blanks and a sign before, anything behind" },
        { "-3", 0, -3, "0 reads" },
        { "9223372036854775807", 1, INT64_MIN, "the sum wraps" },
    };
    int64_t sum;

    for (size_t i = 0; i < CH_ARRAY_LEN(sums); i++) {
        CHOIR_ROW("%s: %s", scene->row->name, sums[i].why);
        removed(scene->store, "n");
        if (sums[i].before != NULL)
            set(scene->store, "n", sums[i].before);
        CHOIR_CHECK_OK(choir_store_add(scene->store, K("n"), sums[i].delta, &sum));
        CHOIR_CHECK_EQ(sum, sums[i].sum);
    }
    check_value(scene->store, K("n"), K("-9223372036854775808"));
    CHOIR_CHECK_OK(choir_store_add(scene->store, K("touched"), 0, NULL));
    CHOIR_CHECK(exists(scene->store, "touched"));
    if (scene->row->not_a_number == CHOIR_OK)
        return;
    set(scene->store, "n", "");
    CHOIR_CHECK_OK(choir_store_add(scene->store, K("n"), 1, &sum));
    CHOIR_CHECK_EQ(sum, 1);
    for (int i = 0; i < 2; i++) {
        set(scene->store, "n", i == 0 ? "x1" : "9223372036854775808");
        CHOIR_CHECK_STATUS(choir_store_add(scene->store, K("n"), 1, &sum),
                           scene->row->not_a_number);
        CHOIR_CHECK_HAS(choir_last_error(), i == 0 ? "x1" : "9223372036854775808");
    }
}

CHOIR_TEST(numbers)
{
    for_all(numbers);
}

static void compare_set(struct scene *scene)
{
    static const struct {
        const char *before, *expected, *desired, *returned, *after, *why;
    } turns[] = {
        { NULL, "", "d", "d", "d", "missing, expected empty" },
        { NULL, "e", "d", "e", NULL, "missing, expected something: nothing is stored" },
        { "e", "e", "d", "d", "d", "as expected" },
        { "c", "e", "d", "c", "c", "not as expected" },
        { "", "", "d", "d", "d", "an empty value equals an empty expected" },
        { "c", "", "d", "c", "c", "there, expected empty" },
        { "c", "c", "", "", "", "to empty" },
    };

    for (size_t i = 0; i < CH_ARRAY_LEN(turns); i++) {
        choir_blob value;

        CHOIR_ROW("%s: %s", scene->row->name, turns[i].why);
        removed(scene->store, "k");
        if (turns[i].before != NULL)
            set(scene->store, "k", turns[i].before);
        CHOIR_CHECK_OK(choir_store_compare_set(scene->store, K("k"), K(turns[i].expected),
                                               K(turns[i].desired), &value));
        check_blob(value, K(turns[i].returned));
        CHOIR_CHECK_EQ(exists(scene->store, "k"), turns[i].after != NULL);
        if (turns[i].after != NULL)
            check_value(scene->store, K("k"), K(turns[i].after));
    }
}

CHOIR_TEST(compare_set)
{
    for_all(compare_set);
}

static void append(struct scene *scene)
{
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("a"), K("")));
    CHOIR_CHECK(exists(scene->store, "a"));
    check_value(scene->store, K("a"), K(""));
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("a"), K("one ")));
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("a"), K("two")));
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("a"), bytes("\0", 1)));
    check_value(scene->store, K("a"), bytes("one two\0", 8));
    CHOIR_CHECK_OK(choir_store_append(scene->store, K("b"), K("first")));
    check_value(scene->store, K("b"), K("first"));
}

CHOIR_TEST(append)
{
    for_all(append);
}

static void several_keys_at_once(struct scene *scene)
{
    choir_bytes keys[] = { K("a"), K("b"), K(""), K("a") };
    choir_bytes values[] = { K("1"), K(""), K("3"), K("4") };
    choir_blob *got;
    bool all;

    CHOIR_CHECK_OK(choir_store_check(scene->store, NULL, 0, &all));
    CHOIR_CHECK(all);
    CHOIR_CHECK_OK(choir_store_wait(scene->store, NULL, 0, 1));
    CHOIR_CHECK_OK(choir_store_multi_set(scene->store, NULL, NULL, 0));
    CHOIR_CHECK_OK(choir_store_multi_get(scene->store, NULL, 0, 1, &got));
    choir_blob_free_list(got, 0);

    CHOIR_CHECK_OK(choir_store_multi_set(scene->store, keys, values, 2));
    CHOIR_CHECK_OK(choir_store_check(scene->store, keys, 2, &all));
    CHOIR_CHECK(all);
    CHOIR_CHECK_OK(choir_store_check(scene->store, keys, 3, &all));
    CHOIR_CHECK(!all);
    CHOIR_CHECK_STATUS(choir_store_multi_get(scene->store, keys, 3, 20, &got), CHOIR_ERR_TIMEOUT);
    CHOIR_CHECK_OK(choir_store_multi_set(scene->store, keys, values, 4));
    CHOIR_CHECK_OK(choir_store_wait(scene->store, keys, 4, 0));
    CHOIR_CHECK_OK(choir_store_multi_get(scene->store, keys, 4, 0, &got));
    for (int i = 0; i < 4; i++) {
        check_blob(got[i], i == 0 ? values[3] : values[i]);
        got[i] = (choir_blob){ NULL, 0 };
    }
    choir_blob_free_list(got, 4);
}

CHOIR_TEST(several_keys_at_once)
{
    for_all(several_keys_at_once);
}

/* --- keys and prefixes --------------------------------------------------------------------------- */

static void keys_are_listed(struct scene *scene)
{
    char text[256];

    listed(scene->store, text, sizeof(text));
    CHOIR_CHECK_STR(text, "");
    set(scene->store, "one", "1");
    set(scene->store, "two", "2");
    set(scene->store, "", "empty");
    listed(scene->store, text, sizeof(text));
    CHOIR_CHECK_STR(text, ",one,two,");
}

CHOIR_TEST(keys_are_listed)
{
    for_all(keys_are_listed);
}

static void prefixes_nest(struct scene *scene)
{
    choir_store *p, *pq, *bare;
    char text[256];

    CHOIR_CHECK_OK(choir_store_prefix(scene->store, K("P"), &p));
    CHOIR_CHECK_OK(choir_store_prefix(p, K("Q"), &pq));
    set(pq, "k", "deep");
    set(p, "k", "shallow");
    set(scene->store, "Px", "not below P");
    set(scene->store, "PQ/k", "neither");
    set(scene->store, "P", "nor this");
    check_value(scene->store, K("P/Q/k"), K("deep"));
    check_value(p, K("k"), K("shallow"));
    listed(p, text, sizeof(text));
    CHOIR_CHECK_STR(text, "Q/k,k,");
    listed(pq, text, sizeof(text));
    CHOIR_CHECK_STR(text, "k,");
    CHOIR_CHECK_EQ(count(pq), 5); /* of all */

    CHOIR_CHECK_OK(choir_store_unprefixed(pq, &bare));
    check_value(bare, scene->prefixed ? K("some/prefix/P/Q/k") : K("P/Q/k"), K("deep"));
    choir_store_close(bare);
    choir_store_close(p); /* before the one made from it */
    check_value(pq, K("k"), K("deep"));
    choir_store_close(pq);
}

CHOIR_TEST(prefixes_nest)
{
    for_all(prefixes_nest);
}

/* Longer than what fits without an allocation, with NUL bytes, empty, and many keys at once. */
static void prefixes_are_bytes(struct scene *scene)
{
    char prefix[300], key[300];
    choir_bytes keys[3] = { bytes(key, sizeof(key)), K(""), K("x") };
    choir_store *p, *empty;
    bool all;

    memset(prefix, 0, sizeof(prefix));
    memset(key, '/', sizeof(key));
    CHOIR_CHECK_OK(choir_store_prefix(scene->store, bytes(prefix, sizeof(prefix)), &p));
    CHOIR_CHECK_OK(choir_store_prefix(scene->store, K(""), &empty));
    CHOIR_CHECK_OK(choir_store_multi_set(p, keys, keys, 3));
    CHOIR_CHECK_OK(choir_store_check(p, keys, 3, &all));
    CHOIR_CHECK(all);
    check_value(p, keys[0], keys[0]);
    set(empty, "k", "v");
    check_value(scene->store, K("/k"), K("v"));
    choir_store_close(p);
    choir_store_close(empty);
}

CHOIR_TEST(prefixes_are_bytes)
{
    for_all(prefixes_are_bytes);
}
