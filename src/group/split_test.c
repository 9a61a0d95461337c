/* split_test.c - groups from groups: who is in which, their names, and that they go on by themselves. */
#include "choir_test.h"

#include <string.h>

#include <choir/choir.h>

#include "base/sys.h"

static int32_t sum_of_ones(choir_group *group)
{
    int32_t one = 1;

    CHOIR_CHECK_OK(choir_allreduce(
        group, (choir_buf){ .data = &one, .count = 1, .type = CHOIR_I32 }, NULL, NULL));
    return one;
}

static choir_status halves(choir_group *world, void *arg)
{
    static const int low[] = { 0, 1, 2 }, high[] = { 3, 4 };
    int me = choir_group_rank(world);
    choir_group *half, *again, *found;
    choir_work *work;
    int32_t one = 1;

    (void)arg;
    CHOIR_CHECK_OK(choir_group_split(world, me < 3 ? low : high, me < 3 ? 3 : 2, NULL, &half));
    CHOIR_CHECK_EQ(choir_group_size(half), me < 3 ? 3 : 2);
    CHOIR_CHECK_EQ(choir_group_rank(half), me % 3);
    CHOIR_CHECK_EQ(choir_group_global_rank(half, choir_group_rank(half)), me);
    CHOIR_CHECK_EQ(choir_group_global_rank(half, 5), CHOIR_NO_RANK);
    CHOIR_CHECK_STR(choir_group_name(half),
                    me < 3 ? "world:split:[0, 1, 2]" : "world:split:[3, 4]");
    CHOIR_CHECK_HAS(choir_group_description(half), ":split:1");
    CHOIR_CHECK_EQ(sum_of_ones(half), me < 3 ? 3 : 2);
    CHOIR_CHECK_OK(choir_group_find(choir_group_name(half), &found));
    CHOIR_CHECK(found == half);

    /* Once more, with the first still there: another name. A different number of operations in each is fine. */
    CHOIR_CHECK_OK(choir_group_split(world, me < 3 ? low : high, me < 3 ? 3 : 2, NULL, &again));
    CHOIR_CHECK_HAS(choir_group_name(again), "#2");
    for (int i = 0; i < (me < 3 ? 5 : 1); i++)
        CHOIR_CHECK_EQ(sum_of_ones(half), me < 3 ? 3 : 2);

    /* The parent goes first, while something of its child is under way. */
    CHOIR_CHECK_OK(choir_allreduce(half, (choir_buf){ .data = &one, .count = 1, .type = CHOIR_I32 },
                                   NULL, &work));
    choir_group_destroy(again);
    CHOIR_CHECK_OK(choir_work_wait(work, 0));
    CHOIR_CHECK_EQ(one, me < 3 ? 3 : 2);
    choir_work_unref(work);
    choir_group_destroy(half);
    CHOIR_CHECK_STATUS(choir_group_find("world:split:[9]", &found), CHOIR_ERR_INVALID);
    return CHOIR_OK;
}

CHOIR_TEST(two_halves)
{
    choir_group *found;

    CHOIR_CHECK_OK(choir_run_threads(5, halves, NULL));
    CHOIR_CHECK_STATUS(choir_group_find("world:split:[3, 4]", &found), CHOIR_ERR_STATE);
}

static choir_status overlapping(choir_group *world, void *arg)
{
    int me = choir_group_rank(world);
    choir_group *a = NULL, *b = NULL;
    int n;

    (void)arg;
    CHOIR_CHECK_OK(choir_group_split(world, (int[]){ 0, 1 }, me < 2 ? 2 : 0,
                                     CHOIR_OPTS(group_split, .name = "a", .timeout_ms = 5000), &a));
    CHOIR_CHECK_OK(choir_group_split(world, (int[]){ 1, 2 }, me > 0 && me < 3 ? 2 : 0,
                                     CHOIR_OPTS(group_split, .name = "b"), &b));
    CHOIR_CHECK_EQ(a != NULL, me < 2);
    CHOIR_CHECK_EQ(b != NULL, me > 0 && me < 3);
    for (int i = 0; i < 10; i++) {
        n = a != NULL ? sum_of_ones(a) : 2;
        CHOIR_CHECK_EQ(n, 2);
        n = b != NULL ? sum_of_ones(b) : 2;
        CHOIR_CHECK_EQ(n, 2);
        CHOIR_CHECK_EQ(sum_of_ones(world), 4);
    }
    if (a != NULL)
        CHOIR_CHECK_EQ(choir_group_timeout(a), 5000);
    choir_group_destroy(me % 2 == 0 ? a : b);
    choir_group_destroy(me % 2 == 0 ? b : a);
    return CHOIR_OK;
}

CHOIR_TEST(groups_may_overlap_and_leave_ranks_out)
{
    CHOIR_CHECK_OK(choir_run_threads(4, overlapping, NULL));
}

static choir_status disagree(choir_group *world, void *arg)
{
    int me = choir_group_rank(world);
    choir_group *child = NULL;

    (void)arg;
    /* Rank 2 thinks it is with 1, which knows nothing of it: told to all, also to who is not concerned. */
    CHOIR_CHECK_STATUS(choir_group_split(world, me == 2 ? (int[]){ 1, 2 } : (int[]){ 0, 1 },
                                         me == 3 ? 0 : 2, NULL, &child),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(),
                    "rank 2 gave a list (and name) of 2 ranks, which 1 of them");
    CHOIR_CHECK_EQ(sum_of_ones(world), 4); /* and nothing is broken by it */
    CHOIR_CHECK_STATUS(choir_group_split(world, (int[]){ (me + 1) % 4 }, 1, NULL, &child),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "does not contain the caller's rank");
    CHOIR_CHECK_STATUS(choir_group_split(world, (int[]){ 1, 0 }, 2, NULL, &child),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_HAS(choir_last_error(), "expected a rising list");
    CHOIR_CHECK_STATUS(choir_group_split(world, (int[]){ 0, 4 }, 2, NULL, &child),
                       CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ(sum_of_ones(world), 4);
    return CHOIR_OK;
}

/* Who does something else is told what the others do in the words of their call. */
static choir_status only_one(choir_group *world, void *arg)
{
    choir_group *child = NULL;

    (void)arg;
    if (choir_group_rank(world) == 0)
        CHOIR_CHECK_STATUS(choir_group_split(world, (int[]){ 0, 1 }, 2, NULL, &child),
                           CHOIR_ERR_MISMATCH);
    else
        CHOIR_CHECK_STATUS(choir_barrier(world, NULL, NULL), CHOIR_ERR_MISMATCH);
    CHOIR_CHECK_HAS(choir_last_error(), "rank 0: split; rank 1: barrier");
    return CHOIR_OK;
}

CHOIR_TEST(a_split_is_called_a_split)
{
    CHOIR_CHECK_OK(choir_run_threads(2, only_one, NULL));
    CHOIR_CHECK_STR(choir_optype_name(CHOIR_OP_SPLIT), "split");
    CHOIR_CHECK(choir_optype_name(CHOIR_OP_UNKNOWN) == NULL);
}

CHOIR_TEST(who_disagrees_is_named)
{
    CHOIR_CHECK_OK(choir_run_threads(4, disagree, NULL));
}

static choir_status many(choir_group *world, void *arg)
{
    int all[] = { 0, 1, 2 };

    (void)arg;
    for (int i = 0; i < 300; i++) {
        choir_group *child;

        CHOIR_CHECK_OK(choir_group_split(world, all, 3, NULL, &child));
        if (i % 10 == 0)
            CHOIR_CHECK_EQ(sum_of_ones(child), 3);
        choir_group_destroy(child);
    }
    return CHOIR_OK;
}

CHOIR_TEST(places_are_given_back)
{
    CHOIR_CHECK_OK(choir_run_threads(3, many, NULL));
}

static choir_status nested(choir_group *world, void *arg)
{
    int me = choir_group_rank(world);
    choir_group *odd = NULL, *last = NULL;

    (void)arg;
    CHOIR_CHECK_OK(
        choir_group_split(world, (int[]){ 1, 3, 4 }, me == 1 || me > 2 ? 3 : 0, NULL, &odd));
    if (odd != NULL) {
        int rank = choir_group_rank(odd);

        CHOIR_CHECK_OK(choir_group_split(odd, (int[]){ 1, 2 }, rank > 0 ? 2 : 0, NULL, &last));
        choir_group_destroy(odd);
    }
    if (last != NULL) {
        CHOIR_CHECK_EQ(choir_group_global_rank(last, 0), 3);
        CHOIR_CHECK_EQ(choir_group_global_rank(last, 1), 4);
        CHOIR_CHECK_STR(choir_group_name(last), "world:split:[1, 3, 4]:split:[1, 2]");
        CHOIR_CHECK_EQ(sum_of_ones(last), 2);
        CHOIR_CHECK(choir_group_store(last) != NULL);
        CHOIR_CHECK_OK(choir_store_set(choir_group_store(last), choir_str("k"), choir_str("v")));
        choir_group_destroy(last);
    }
    return CHOIR_OK;
}

CHOIR_TEST(a_split_of_a_split)
{
    CHOIR_CHECK_OK(choir_run_threads(5, nested, NULL));
}
