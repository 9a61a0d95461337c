/*
 * store_file.c - file:///path: a log of changes in a file that all processes see. What is done inside;
 * file.h says how it works, file_log.h what is in the file.
 */
#include "store/store.h"

#include <fcntl.h>
#include <string.h>

#include "base/error.h"
#include "store/bytes.h"
#include "store/file.h"

/* A change that needs no look at what is there. */
static choir_status plain_change(void *self, enum ch_log_kind kind, choir_bytes key,
                                 choir_bytes value, const struct ch_patience *patience)
{
    struct ch_file *file = self;
    choir_status rc = ch_file_enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_file_change(file, kind, key, value);
    ch_file_leave(file);
    return rc;
}

static choir_status file_set(void *self, choir_bytes key, choir_bytes value,
                             const struct ch_patience *patience)
{
    return plain_change(self, CH_LOG_SET, key, value, patience);
}

static choir_status file_append(void *self, choir_bytes key, choir_bytes more,
                                const struct ch_patience *patience)
{
    return plain_change(self, CH_LOG_APPEND, key, more, patience);
}

static choir_status file_queue_push(void *self, choir_bytes key, choir_bytes value,
                                    const struct ch_patience *patience)
{
    return plain_change(self, CH_LOG_PUSH, key, value, patience);
}

struct several {
    const choir_bytes *keys;
    size_t count;
};

static bool all_exist(struct ch_file *file, void *arg)
{
    const struct several *several = arg;

    for (size_t i = 0; i < several->count; i++) {
        if (!ch_table_exists(file->table, several->keys[i]))
            return false;
    }
    return true;
}

static choir_status file_wait(void *self, const choir_bytes *keys, size_t count,
                              const struct ch_patience *patience)
{
    struct several several = { keys, count };
    choir_status rc = ch_file_enter_when(self, F_RDLCK, all_exist, &several, patience, "the key");

    if (rc == CHOIR_OK)
        ch_file_leave(self);
    return rc;
}

/* A key that is only a queue has an empty value. */
static choir_status fetch(const struct ch_file *file, choir_bytes key, choir_blob *value_out)
{
    choir_bytes value = { NULL, 0 };

    (void)ch_table_get(file->table, key, &value);
    return ch_blob_init(value_out, value.data, value.nbytes);
}

static choir_status file_get(void *self, choir_bytes key, choir_blob *value_out,
                             const struct ch_patience *patience)
{
    struct several several = { &key, 1 };
    choir_status rc = ch_file_enter_when(self, F_RDLCK, all_exist, &several, patience, "the key");

    if (rc != CHOIR_OK)
        return rc;
    rc = fetch(self, key, value_out);
    ch_file_leave(self);
    return rc;
}

static choir_status file_multi_get(void *self, const choir_bytes *keys, size_t count,
                                   choir_blob *values_out, const struct ch_patience *patience)
{
    struct several several = { keys, count };
    choir_status rc = ch_file_enter_when(self, F_RDLCK, all_exist, &several, patience, "the keys");
    size_t got = 0;

    if (rc != CHOIR_OK)
        return rc;
    while (rc == CHOIR_OK && got < count) {
        rc = fetch(self, keys[got], &values_out[got]);
        got += rc == CHOIR_OK;
    }
    ch_file_leave(self);
    while (rc != CHOIR_OK && got > 0)
        choir_blob_free(&values_out[--got]);
    return rc;
}

static choir_status file_multi_set(void *self, const choir_bytes *keys, const choir_bytes *values,
                                   size_t count, const struct ch_patience *patience)
{
    struct ch_file *file = self;
    choir_status rc = ch_file_enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    for (size_t i = 0; i < count && rc == CHOIR_OK; i++)
        rc = ch_file_change(file, CH_LOG_SET, keys[i], values[i]);
    ch_file_leave(file);
    return rc;
}

static choir_status file_add(void *self, choir_bytes key, int64_t delta, int64_t *sum_out,
                             const struct ch_patience *patience)
{
    char text[CH_TABLE_SUM_NBYTES];
    struct ch_file *file = self;
    int64_t sum;
    choir_status rc = ch_file_enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_table_sum(file->table, key, delta, &sum, text);
    if (rc == CHOIR_OK)
        rc = ch_file_change(file, CH_LOG_SET, key, choir_str(text));
    if (rc == CHOIR_OK)
        *sum_out = sum;
    ch_file_leave(file);
    return rc;
}

/* Whether compare_set stores, and what it answers. */
static bool compares(const struct ch_file *file, choir_bytes key, choir_bytes expected,
                     choir_bytes desired, choir_bytes *answer_out)
{
    choir_bytes current;
    bool there = ch_table_get(file->table, key, &current), same = expected.nbytes == 0;

    if (there)
        same = current.nbytes == expected.nbytes &&
               (current.nbytes == 0 || memcmp(current.data, expected.data, current.nbytes) == 0);
    *answer_out = same ? desired : there ? current : expected;
    return same;
}

static choir_status file_compare_set(void *self, choir_bytes key, choir_bytes expected,
                                     choir_bytes desired, choir_blob *value_out,
                                     const struct ch_patience *patience)
{
    struct ch_file *file = self;
    choir_bytes answer;
    choir_blob copy;
    bool store;
    choir_status rc = ch_file_enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    store = compares(file, key, expected, desired, &answer);
    rc = ch_blob_init(&copy, answer.data, answer.nbytes);
    if (rc == CHOIR_OK && store) {
        rc = ch_file_change(file, CH_LOG_SET, key, desired);
        if (rc != CHOIR_OK)
            choir_blob_free(&copy);
    }
    if (rc == CHOIR_OK)
        *value_out = copy;
    ch_file_leave(file);
    return rc;
}

static choir_status file_remove(void *self, choir_bytes key, bool *removed_out,
                                const struct ch_patience *patience)
{
    struct ch_file *file = self;
    choir_bytes value;
    bool there;
    choir_status rc = ch_file_enter(file, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    there = ch_table_get(file->table, key, &value);
    if (there)
        rc = ch_file_change(file, CH_LOG_REMOVE, key, (choir_bytes){ NULL, 0 });
    if (rc == CHOIR_OK && removed_out != NULL)
        *removed_out = there;
    ch_file_leave(file);
    return rc;
}

static choir_status file_check(void *self, const choir_bytes *keys, size_t count, bool *all_out,
                               const struct ch_patience *patience)
{
    struct several several = { keys, count };
    choir_status rc = ch_file_enter(self, F_RDLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    *all_out = all_exist(self, &several);
    ch_file_leave(self);
    return CHOIR_OK;
}

static choir_status file_count(void *self, int64_t *count_out, const struct ch_patience *patience)
{
    struct ch_file *file = self;
    choir_status rc = ch_file_enter(file, F_RDLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    *count_out = (int64_t)ch_table_count(file->table);
    ch_file_leave(file);
    return CHOIR_OK;
}

static choir_status file_list(void *self, choir_blob **keys_out, size_t *count_out,
                              const struct ch_patience *patience)
{
    struct ch_file *file = self;
    choir_status rc = ch_file_enter(file, F_RDLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_table_list(file->table, keys_out, count_out);
    ch_file_leave(file);
    return rc;
}

static bool has_element(struct ch_file *file, void *arg)
{
    return ch_table_queue_length(file->table, *(const choir_bytes *)arg) > 0;
}

static choir_status pop_inside(struct ch_file *file, choir_bytes key, choir_blob *value_out)
{
    choir_bytes front;
    choir_blob copy;
    choir_status rc;

    if (!ch_table_queue_front(file->table, key, &front))
        return ch_fail(CHOIR_ERR_QUEUE_EMPTY, "queue is empty");
    rc = ch_blob_init(&copy, front.data, front.nbytes);
    if (rc != CHOIR_OK)
        return rc;
    rc = ch_file_change(file, CH_LOG_POP, key, (choir_bytes){ NULL, 0 });
    if (rc == CHOIR_OK)
        *value_out = copy;
    else
        choir_blob_free(&copy);
    return rc;
}

static choir_status file_queue_pop(void *self, choir_bytes key, choir_blob *value_out,
                                   const struct ch_patience *patience)
{
    choir_status rc = ch_file_enter_when(self, F_WRLCK, has_element, &key, patience, "an element");

    if (rc != CHOIR_OK)
        return rc;
    rc = pop_inside(self, key, value_out);
    ch_file_leave(self);
    return rc;
}

static choir_status file_queue_try_pop(void *self, choir_bytes key, choir_blob *value_out,
                                       const struct ch_patience *patience)
{
    choir_status rc = ch_file_enter(self, F_WRLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = pop_inside(self, key, value_out);
    ch_file_leave(self);
    return rc;
}

static choir_status file_queue_length(void *self, choir_bytes key, int64_t *length_out,
                                      const struct ch_patience *patience)
{
    struct ch_file *file = self;
    choir_status rc = ch_file_enter(file, F_RDLCK, patience);

    if (rc != CHOIR_OK)
        return rc;
    *length_out = (int64_t)ch_table_queue_length(file->table, key);
    ch_file_leave(file);
    return CHOIR_OK;
}

const struct ch_store_ops ch_store_file = {
    .scheme = "file",
    .help = "a file that all processes see",
    .self_size = sizeof(struct ch_file),
    .open = ch_file_open,
    .close = ch_file_close,
    .set = file_set,
    .get = file_get,
    .add = file_add,
    .compare_set = file_compare_set,
    .append = file_append,
    .remove = file_remove,
    .multi_get = file_multi_get,
    .multi_set = file_multi_set,
    .check = file_check,
    .wait = file_wait,
    .count = file_count,
    .list = file_list,
    .queue_push = file_queue_push,
    .queue_pop = file_queue_pop,
    .queue_try_pop = file_queue_try_pop,
    .queue_length = file_queue_length,
};
