/* list_test.c - the intrusive list. */
#include "choir_test.h"

#include "base/list.h"

struct thing {
    int number;
    struct ch_list link;
};

static int number_of(const struct ch_list *link)
{
    return CH_CONTAINER(link, struct thing, link)->number;
}

CHOIR_TEST(order_and_removal)
{
    struct ch_list list = CH_LIST_INIT(list);
    struct thing things[5];
    int want = 0;

    CHOIR_CHECK(ch_list_empty(&list));
    CHOIR_CHECK_EQ((void *)ch_list_pop_front(&list), NULL);
    for (int i = 0; i < 5; i++) {
        things[i].number = i;
        ch_list_init(&things[i].link);
    }
    for (int i = 1; i < 5; i++)
        ch_list_push_back(&list, &things[i].link);
    ch_list_push_front(&list, &things[0].link);
    CH_LIST_EACH (link, &list)
        CHOIR_CHECK_EQ(number_of(link), want++);
    CHOIR_CHECK_EQ(want, 5);

    ch_list_remove(&things[2].link);
    ch_list_remove(&things[2].link); /* twice does no harm */
    CH_LIST_EACH (link, &list)
        ch_list_remove(link); /* what is being looked at may go */
    CHOIR_CHECK(ch_list_empty(&list));
}
