/*
 * store_torch.c - a client of PyTorch's TCPStore: tcp://host:port?protocol=torch
 *
 * The calls of a store as requests of that protocol. torch_client.c has the connections,
 * torch_message.c the requests, torch_wire.c their bytes. PyTorch has two servers, with habits of their
 * own; what is done about them is said where it is done.
 */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "store/bytes.h"
#include "store/store.h"
#include "store/torch_client.h"

enum {
    /* How often a wait looks by itself: the older server tells nobody about a compare_set. */
    LOOK_AGAIN_NS = 1000 * CH_MS,
    FIRST_POP_PAUSE_NS = 100 * CH_US,
    LONGEST_POP_PAUSE_NS = 20 * CH_MS,
    FETCH_TRIES = 3,
};

/* --- looking and waiting -------------------------------------------------------------------------- */

/* CHECK on main, which the caller has taken; in parts, if there are very many keys. */
static choir_status check_on_main(struct ch_torch_client *torch, struct ch_torch_items items,
                                  const struct ch_patience *patience, bool *all_out)
{
    bool all = true;

    while (items.count > 0 && all) {
        struct ch_torch_items part = ch_torch_first_part(CH_TORCH_CHECK, &items);
        struct ch_torch_message message;
        choir_bytes reply;
        choir_status rc = ch_torch_build_list(CH_TORCH_CHECK, &part, &message);

        if (rc != CHOIR_OK)
            return rc;
        rc = ch_torch_ask_message(&torch->main, &message, CH_TORCH_REPLY_BYTE, 1, patience, &reply);
        ch_torch_message_fini(&message);
        if (rc != CHOIR_OK)
            return rc;
        all = *(const unsigned char *)reply.data == CH_TORCH_READY;
        ch_torch_drop_part(&items, part.count);
    }
    *all_out = all;
    return CHOIR_OK;
}

static choir_status check_items_exist(struct ch_torch_client *torch,
                                      const struct ch_torch_items *items,
                                      const struct ch_patience *patience, bool *all_out)
{
    choir_status rc = ch_torch_begin(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = check_on_main(torch, *items, patience, all_out);
    ch_torch_end(torch);
    return rc;
}

static choir_status check_stopped(choir_bytes reply)
{
    unsigned char byte = *(const unsigned char *)reply.data;

    if (byte == CH_TORCH_STOP_WAITING)
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_PROTO, "torch: 0x%02x as the end of a wait", byte);
}

/* The reply to a WAIT. The older server does not tell those who wait for a key that compare_set
 * creates, and the newer one counts a queue that is not empty as missing if another key is: so from
 * time to time we look ourselves. */
static choir_status await_reply(struct ch_torch_client *torch, struct ch_torch_lane *lane,
                                const struct ch_torch_items *items,
                                const struct ch_patience *patience)
{
    for (;;) {
        struct ch_patience slice = *patience;
        uint64_t again = ch_now() + LOOK_AGAIN_NS;
        choir_bytes reply;
        bool all = false;
        choir_status rc;

        slice.until = patience->until < again ? patience->until : again;
        rc = ch_torch_link_receive(&lane->link, &slice, &reply);
        if (rc == CHOIR_OK)
            return check_stopped(reply);
        if (rc != CHOIR_ERR_TIMEOUT || ch_deadline_passed(patience->until))
            return rc;
        rc = check_items_exist(torch, items, patience, &all);
        if (rc != CHOIR_OK || all)
            return rc;
    }
}

/* Wait on a lane until the server says that `items` have come. Whether they are there still, the
 * caller has to see: the newer server also ends waits when a compare_set has changed nothing. */
static choir_status await(struct ch_torch_client *torch, const struct ch_torch_items *items,
                          const struct ch_patience *patience)
{
    struct ch_torch_items part = ch_torch_first_part(CH_TORCH_WAIT, items);
    struct ch_torch_message message;
    struct ch_torch_lane *lane;
    choir_status rc = ch_torch_build_list(CH_TORCH_WAIT, &part, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_take_lane(torch, patience, &lane);
    if (rc == CHOIR_OK) {
        rc = ch_torch_link_send(&lane->link, message.bytes, message.nbytes, CH_TORCH_REPLY_BYTE, 1,
                                patience);
        if (rc == CHOIR_OK)
            rc = await_reply(torch, lane, &part, patience);
        /* Also after it was served: the newer server keeps a wait for a queue registered. */
        ch_torch_link_cancel(&lane->link);
        ch_torch_give_lane(torch, lane);
    }
    ch_torch_message_fini(&message);
    if (rc == CHOIR_ERR_TIMEOUT)
        rc = ch_fail(CHOIR_ERR_TIMEOUT, "wait timeout: nobody had set it before the deadline");
    return rc;
}

static choir_status wait_until_all_exist(struct ch_torch_client *torch, struct ch_torch_items items,
                                         const struct ch_patience *patience)
{
    while (items.count > 0) {
        struct ch_torch_items part = ch_torch_first_part(CH_TORCH_WAIT, &items);
        bool all = false;
        choir_status rc = check_items_exist(torch, &part, patience, &all);

        if (rc == CHOIR_OK && !all)
            rc = await(torch, &part, patience);
        if (rc != CHOIR_OK)
            return rc;
        if (all)
            ch_torch_drop_part(&items, part.count);
    }
    return CHOIR_OK;
}

/* --- fetching ------------------------------------------------------------------------------------- */

static choir_status copy_values(choir_bytes reply, size_t count, choir_blob *values_out,
                                bool *some_empty_out)
{
    const unsigned char *at = reply.data;

    *some_empty_out = false;
    for (size_t i = 0; i < count; i++) {
        choir_bytes value = ch_torch_next_value(&at);
        choir_status rc = ch_blob_init(&values_out[i], value.data, value.nbytes);

        if (rc != CHOIR_OK) {
            while (i-- > 0)
                choir_blob_free(&values_out[i]);
            return rc;
        }
        *some_empty_out |= value.nbytes == 0;
    }
    return CHOIR_OK;
}

static choir_status build_fetch(const struct ch_torch_items *items, struct ch_torch_message *out)
{
    const struct ch_torch_request get = { .command = CH_TORCH_GET, .key = items->keys[0] };

    return items->count == 1 ? ch_torch_build(&get, out)
                             : ch_torch_build_list(CH_TORCH_MULTI_GET, items, out);
}

/* The values, if all are there: *all_out. They were a moment ago; if one was deleted since, the
 * newer server says that it is empty, and the older one closes the connection. (One that is set again
 * by the time we look cannot be told from an empty one.) */
static choir_status fetch_on_main(struct ch_torch_client *torch, const struct ch_torch_items *items,
                                  const struct ch_patience *patience, choir_blob *values_out,
                                  bool *all_out)
{
    struct ch_torch_message message;
    bool some_empty = false;
    choir_bytes reply;
    choir_status rc = build_fetch(items, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_ask_message(&torch->main, &message, CH_TORCH_REPLY_VALUES, items->count, patience,
                              &reply);
    ch_torch_message_fini(&message);
    if (rc == CHOIR_OK)
        rc = copy_values(reply, items->count, values_out, &some_empty);
    *all_out = rc == CHOIR_OK;
    if (rc != CHOIR_OK || !some_empty)
        return rc;
    rc = check_on_main(torch, *items, patience, all_out);
    for (size_t i = 0; i < items->count && (rc != CHOIR_OK || !*all_out); i++)
        choir_blob_free(&values_out[i]);
    return rc;
}

static choir_status try_fetch(struct ch_torch_client *torch, const struct ch_torch_items *items,
                              const struct ch_patience *patience, choir_blob *values_out,
                              bool *all_out, int *tries_io)
{
    choir_status rc = ch_torch_begin(torch, patience);

    *all_out = false;
    if (rc != CHOIR_OK)
        return rc;
    rc = check_on_main(torch, *items, patience, all_out);
    if (rc == CHOIR_OK && *all_out) {
        rc = fetch_on_main(torch, items, patience, values_out, all_out);
        if (rc == CHOIR_ERR_NETWORK && --*tries_io > 0)
            rc = CHOIR_OK; /* not there any more; or gone, then the next try says so */
    }
    ch_torch_end(torch);
    return rc;
}

static choir_status fetch(struct ch_torch_client *torch, const struct ch_torch_items *items,
                          const struct ch_patience *patience, choir_blob *values_out)
{
    int tries = FETCH_TRIES;

    for (;;) {
        bool all;
        choir_status rc = try_fetch(torch, items, patience, values_out, &all, &tries);

        if (rc != CHOIR_OK || all)
            return rc;
        rc = await(torch, items, patience);
        if (rc != CHOIR_OK)
            return rc;
    }
}

/* --- operations: values --------------------------------------------------------------------------- */

static choir_status torch_set(void *self, choir_bytes key, choir_bytes value,
                              const struct ch_patience *patience)
{
    const struct ch_torch_request set = { .command = CH_TORCH_SET, .key = key, .value = value };

    return ch_torch_tell(self, &set, patience);
}

static choir_status torch_append(void *self, choir_bytes key, choir_bytes more,
                                 const struct ch_patience *patience)
{
    const struct ch_torch_request append = { .command = CH_TORCH_APPEND,
                                             .key = key,
                                             .value = more };

    return ch_torch_tell(self, &append, patience);
}

static choir_status torch_get(void *self, choir_bytes key, choir_blob *value_out,
                              const struct ch_patience *patience)
{
    const struct ch_torch_items items = { &key, NULL, 1 };

    return fetch(self, &items, patience, value_out);
}

static choir_status torch_add(void *self, choir_bytes key, int64_t delta, int64_t *sum_out,
                              const struct ch_patience *patience)
{
    const struct ch_torch_request add = { .command = CH_TORCH_ADD, .key = key, .number = delta };
    choir_status rc = ch_torch_ask_number(self, &add, sum_out, patience);

    if (rc == CHOIR_ERR_NETWORK)
        ch_error_prefix("(the server closes if the value is not a number) ");
    return rc;
}

static choir_status torch_compare_set(void *self, choir_bytes key, choir_bytes expected,
                                      choir_bytes desired, choir_blob *value_out,
                                      const struct ch_patience *patience)
{
    const struct ch_torch_request compare = {
        .command = CH_TORCH_COMPARE_SET, .key = key, .value = expected, .desired = desired
    };
    choir_bytes reply;
    bool some_empty;
    choir_status rc = ch_torch_ask(self, &compare, CH_TORCH_REPLY_VALUES, patience, &reply);

    if (rc == CHOIR_OK) {
        rc = copy_values(reply, 1, value_out, &some_empty);
        ch_torch_end(self);
    }
    return rc;
}

static choir_status torch_remove(void *self, choir_bytes key, bool *removed_out,
                                 const struct ch_patience *patience)
{
    const struct ch_torch_request delete = { .command = CH_TORCH_DELETE, .key = key };
    int64_t removed;
    choir_status rc = ch_torch_ask_number(self, &delete, &removed, patience);

    if (rc == CHOIR_OK && removed_out != NULL)
        *removed_out = removed > 0;
    return rc;
}

static choir_status torch_multi_get(void *self, const choir_bytes *keys, size_t count,
                                    choir_blob *values_out, const struct ch_patience *patience)
{
    struct ch_torch_items items = { keys, NULL, count };
    size_t done = 0;
    choir_status rc = CHOIR_OK;

    while (items.count > 0 && rc == CHOIR_OK) {
        struct ch_torch_items part = ch_torch_first_part(CH_TORCH_MULTI_GET, &items);

        rc = fetch(self, &part, patience, values_out + done);
        if (rc == CHOIR_OK)
            done += part.count;
        ch_torch_drop_part(&items, part.count);
    }
    while (rc != CHOIR_OK && done > 0)
        choir_blob_free(&values_out[--done]);
    return rc;
}

static choir_status torch_multi_set(void *self, const choir_bytes *keys, const choir_bytes *values,
                                    size_t count, const struct ch_patience *patience)
{
    struct ch_torch_items items = { keys, values, count };
    choir_status rc = ch_torch_check_items(&items);

    while (items.count > 0 && rc == CHOIR_OK) {
        struct ch_torch_items part = ch_torch_first_part(CH_TORCH_MULTI_SET, &items);
        struct ch_torch_message message;

        rc = ch_torch_build_list(CH_TORCH_MULTI_SET, &part, &message);
        if (rc == CHOIR_OK) {
            rc = ch_torch_tell_message(self, &message, patience);
            ch_torch_message_fini(&message);
        }
        ch_torch_drop_part(&items, part.count);
    }
    return rc;
}

static choir_status torch_check(void *self, const choir_bytes *keys, size_t count, bool *all_out,
                                const struct ch_patience *patience)
{
    const struct ch_torch_items items = { keys, NULL, count };

    return check_items_exist(self, &items, patience, all_out);
}

static choir_status torch_wait(void *self, const choir_bytes *keys, size_t count,
                               const struct ch_patience *patience)
{
    const struct ch_torch_items items = { keys, NULL, count };

    return wait_until_all_exist(self, items, patience);
}

static choir_status torch_count(void *self, int64_t *count_out, const struct ch_patience *patience)
{
    const struct ch_torch_request count = { .command = CH_TORCH_COUNT };

    return ch_torch_ask_number(self, &count, count_out, patience);
}

/* --- operations: listing -------------------------------------------------------------------------- */

static bool is_users(choir_bytes key)
{
    return key.nbytes > 0 && *(const char *)key.data == '/';
}

/* The keys that begin with "/", without it. */
static choir_status copy_keys(choir_bytes reply, choir_blob **keys_out, size_t *count_out)
{
    size_t total = (size_t)ch_torch_number(reply.data), count = 0;
    const unsigned char *at = (const unsigned char *)reply.data + 8;
    choir_blob *keys = ch_zalloc_array(total + 1, sizeof(*keys));

    if (keys == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "torch: no memory for a list of %zu keys", total);
    for (size_t i = 0; i < total; i++) {
        choir_bytes key = ch_torch_next_value(&at);
        choir_status rc;

        if (!is_users(key))
            continue;
        rc = ch_blob_init(&keys[count], (const char *)key.data + 1, key.nbytes - 1);
        if (rc != CHOIR_OK) {
            choir_blob_free_list(keys, count);
            return rc;
        }
        count++;
    }
    *keys_out = keys;
    *count_out = count;
    return CHOIR_OK;
}

static choir_status torch_list(void *self, choir_blob **keys_out, size_t *count_out,
                               const struct ch_patience *patience)
{
    const struct ch_torch_request list = { .command = CH_TORCH_LIST };
    choir_bytes reply;
    choir_status rc = ch_torch_need(self, CH_TORCH_LISTING, patience);

    if (rc == CHOIR_OK)
        rc = ch_torch_ask(self, &list, CH_TORCH_REPLY_LIST, patience, &reply);
    if (rc == CHOIR_OK) {
        rc = copy_keys(reply, keys_out, count_out);
        ch_torch_end(self);
    }
    return rc;
}

/* --- operations: queues --------------------------------------------------------------------------- */

static choir_status torch_queue_push(void *self, choir_bytes key, choir_bytes value,
                                     const struct ch_patience *patience)
{
    const struct ch_torch_request push = { .command = CH_TORCH_QUEUE_PUSH,
                                           .key = key,
                                           .value = value };
    choir_status rc = ch_torch_need(self, CH_TORCH_QUEUES, patience);

    if (rc == CHOIR_OK)
        rc = ch_torch_tell(self, &push, patience);
    return rc;
}

/* How long a pop that was given up waits for the answer, which a server gives at once. */
enum { LAST_WORD_MS = 2000 };

/* What the server pops is ours alone: once asked, neither a deadline nor an interrupt must lose it.
 * Hence another waiter, that nobody interrupts. */
static choir_status hear_last_word(struct ch_torch_link *link, choir_bytes *reply_out)
{
    struct ch_bell_word word = { 0 };
    struct ch_waiter waiter;
    struct ch_patience patience = { .waiter = &waiter, .until = ch_deadline_ms(LAST_WORD_MS) };
    choir_status rc = ch_waiter_init(&waiter, &word);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_link_receive(link, &patience, reply_out);
    ch_waiter_fini(&waiter);
    return rc;
}

/* QUEUE_POP on main, which the caller has taken. */
static choir_status ask_for_element(struct ch_torch_client *torch, choir_bytes key,
                                    choir_bytes *reply_out, const struct ch_patience *patience)
{
    const struct ch_torch_request pop = { .command = CH_TORCH_QUEUE_POP, .key = key };
    choir_status rc = ch_torch_ask_on(&torch->main, &pop, CH_TORCH_REPLY_POPPED, patience,
                                      reply_out);
    choir_error why;

    if (!ch_torch_gave_up(rc) || torch->main.owed.form != CH_TORCH_REPLY_POPPED)
        return rc;
    ch_error_save(&why);
    rc = hear_last_word(&torch->main, reply_out);
    return rc == CHOIR_OK ? CHOIR_OK : ch_error_load(&why);
}

static choir_status copy_element(choir_bytes reply, choir_blob *value_out)
{
    const unsigned char *at = (const unsigned char *)reply.data + 8;
    choir_bytes value;

    if (reply.nbytes == 8)
        return ch_fail(CHOIR_ERR_QUEUE_EMPTY, "queue is empty");
    value = ch_torch_next_value(&at);
    return ch_blob_init(value_out, value.data, value.nbytes);
}

static choir_status try_pop(struct ch_torch_client *torch, choir_bytes key, choir_blob *value_out,
                            const struct ch_patience *patience)
{
    choir_bytes reply;
    choir_status rc = ch_torch_need(torch, CH_TORCH_QUEUES, patience);

    if (rc == CHOIR_OK)
        rc = ch_torch_begin(torch, patience);
    if (rc != CHOIR_OK)
        return rc;
    rc = ask_for_element(torch, key, &reply, patience);
    if (rc == CHOIR_OK)
        rc = copy_element(reply, value_out);
    ch_torch_end(torch);
    return rc;
}

static choir_status torch_queue_try_pop(void *self, choir_bytes key, choir_blob *value_out,
                                        const struct ch_patience *patience)
{
    return try_pop(self, key, value_out, patience);
}

/* Somebody else may take what we were woken for: then once more. If there is a value of that name,
 * the server has nothing to wait for and says so at once: then we look from time to time. */
static choir_status torch_queue_pop(void *self, choir_bytes key, choir_blob *value_out,
                                    const struct ch_patience *patience)
{
    const struct ch_torch_items items = { &key, NULL, 1 };
    uint64_t pause = 0;
    choir_status rc;

    while ((rc = try_pop(self, key, value_out, patience)) == CHOIR_ERR_QUEUE_EMPTY) {
        rc = pause == 0 ? CHOIR_OK : ch_torch_pause(pause, patience);
        if (rc == CHOIR_OK)
            rc = await(self, &items, patience);
        if (rc != CHOIR_OK)
            break;
        pause = pause == 0 ? FIRST_POP_PAUSE_NS : pause < LONGEST_POP_PAUSE_NS ? 2 * pause : pause;
    }
    return rc;
}

static choir_status torch_queue_length(void *self, choir_bytes key, int64_t *length_out,
                                       const struct ch_patience *patience)
{
    const struct ch_torch_request length = { .command = CH_TORCH_QUEUE_LENGTH, .key = key };
    choir_status rc = ch_torch_need(self, CH_TORCH_QUEUES, patience);

    if (rc == CHOIR_OK)
        rc = ch_torch_ask_number(self, &length, length_out, patience);
    return rc;
}

/* --- operations: barrier -------------------------------------------------------------------------- */

/* What was set before the barrier must be there when others have passed it, and the barrier goes
 * another way. */
static choir_status sync_main(struct ch_torch_client *torch, const struct ch_patience *patience)
{
    const struct ch_torch_request ping = { .command = CH_TORCH_PING };
    choir_bytes reply;
    choir_status rc = ch_torch_begin(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    if (torch->main.unanswered > 0)
        rc = ch_torch_ask_on(&torch->main, &ping, CH_TORCH_REPLY_NONCE, patience, &reply);
    ch_torch_end(torch);
    return rc;
}

static choir_status barrier_on(struct ch_torch_link *link, const struct ch_torch_message *message,
                               const struct ch_patience *patience)
{
    choir_bytes reply;
    choir_status rc = ch_torch_ask_message(link, message, CH_TORCH_REPLY_BYTE, 1, patience, &reply);

    if (rc == CHOIR_OK)
        return check_stopped(reply);
    if (ch_torch_gave_up(rc))
        ch_torch_link_cancel(link);
    return rc;
}

static choir_status barrier_by_command(struct ch_torch_client *torch, choir_bytes key,
                                       int64_t nranks, const struct ch_patience *patience)
{
    const struct ch_torch_request barrier = { .command = CH_TORCH_BARRIER,
                                              .key = key,
                                              .number = nranks };
    struct ch_torch_message message;
    struct ch_torch_lane *lane;
    choir_status rc = ch_torch_build(&barrier, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = sync_main(torch, patience);
    if (rc == CHOIR_OK)
        rc = ch_torch_take_lane(torch, patience, &lane);
    if (rc == CHOIR_OK) {
        rc = barrier_on(&lane->link, &message, patience);
        ch_torch_give_lane(torch, lane);
    }
    ch_torch_message_fini(&message);
    return rc;
}

/* `key` and `end` in `buf` of CH_TORCH_KEY_MAX. */
static choir_status join(choir_bytes key, const char *end, char *buf, choir_bytes *key_out)
{
    size_t length = strlen(end);

    if (key.nbytes > CH_TORCH_KEY_MAX - 1 - length)
        return ch_fail(CHOIR_ERR_INVALID, "a barrier's key of %zu bytes, at most %zu are allowed",
                       key.nbytes, CH_TORCH_KEY_MAX - 1 - length);
    if (key.nbytes > 0)
        memcpy(buf, key.data, key.nbytes);
    memcpy(buf + key.nbytes, end, length);
    *key_out = (choir_bytes){ buf, key.nbytes + length };
    return CHOIR_OK;
}

/* The way, and the keys, of PyTorch's clients before there was a command for it. */
static choir_status barrier_by_counting(struct ch_torch_client *torch, choir_bytes key,
                                        int64_t nranks, const struct ch_patience *patience)
{
    char members_buf[CH_TORCH_KEY_MAX], last_buf[CH_TORCH_KEY_MAX];
    struct ch_torch_request add = { .command = CH_TORCH_ADD, .number = 1 };
    struct ch_torch_request set = { .command = CH_TORCH_SET, .value = choir_str("1") };
    struct ch_torch_items last = { &set.key, NULL, 1 };
    int64_t arrived = 0;
    choir_status rc = join(key, "/num_members", members_buf, &add.key);

    if (rc == CHOIR_OK)
        rc = join(key, "/last_member", last_buf, &set.key);
    if (rc == CHOIR_OK)
        rc = ch_torch_ask_number(torch, &add, &arrived, patience);
    if (rc == CHOIR_OK && arrived >= nranks)
        rc = ch_torch_tell(torch, &set, patience);
    if (rc == CHOIR_OK)
        rc = wait_until_all_exist(torch, last, patience);
    return rc;
}

static choir_status torch_barrier(void *self, choir_bytes key, int64_t nranks,
                                  const struct ch_patience *patience)
{
    bool by_command;
    choir_status rc = ch_torch_knows(self, CH_TORCH_BARRIERS, patience, &by_command);

    if (rc == CHOIR_OK)
        rc = by_command ? barrier_by_command(self, key, nranks, patience)
                        : barrier_by_counting(self, key, nranks, patience);
    return rc;
}

/* --- opening and closing -------------------------------------------------------------------------- */

static choir_status torch_open(void *self, const struct ch_store_place *place,
                               const struct ch_patience *patience)
{
    choir_status rc;

    if (place->token != NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "store %s: PyTorch's protocol has no token: nobody would check it",
                       place->url);
    rc = ch_torch_client_open(self, place->where, patience);
    if (rc != CHOIR_OK)
        ch_error_prefix("store %s: ", place->url);
    return rc;
}

static void torch_close(void *self)
{
    ch_torch_client_close(self);
}

const struct ch_store_ops ch_store_torch = {
    .scheme = "tcp",
    .protocol = "torch",
    .help = "a server that speaks PyTorch's TCPStore protocol",
    .self_size = sizeof(struct ch_torch_client),
    .open = torch_open,
    .close = torch_close,
    .set = torch_set,
    .get = torch_get,
    .add = torch_add,
    .compare_set = torch_compare_set,
    .append = torch_append,
    .remove = torch_remove,
    .multi_get = torch_multi_get,
    .multi_set = torch_multi_set,
    .check = torch_check,
    .wait = torch_wait,
    .count = torch_count,
    .list = torch_list,
    .queue_push = torch_queue_push,
    .queue_pop = torch_queue_pop,
    .queue_try_pop = torch_queue_try_pop,
    .queue_length = torch_queue_length,
    .barrier = torch_barrier,
};
