/*
 * store_torch.c - a client of PyTorch's TCPStore: tcp://host:port?protocol=torch
 *
 * That protocol answers one request at a time, and a wait blocks its connection. So there are two
 * kinds of connection:
 *
 *   main   one. Every request that is answered at once, and those that have no answer, in the order in
 *          which they were made: who sets a key and then looks for it finds it.
 *   lanes  as many as threads wait at this moment: WAIT and BARRIER. What was awaited is then
 *          fetched through main. A few are kept for the next wait.
 *
 * PyTorch has two servers, with habits of their own; what is done about them is said where it is
 * done. Keys get a "/" in front, as PyTorch's client does it.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/sys.h"
#include "store/bytes.h"
#include "store/store.h"
#include "store/torch_link.h"

enum {
    LANES_KEPT = 8,
    SMALL_REQUEST = 512,
    /* A list is sent in parts of about this size: the server looks at all of it anew whenever a
     * piece of it arrives. */
    LIST_PART_NBYTES = 1 << 20,
    /* How often a wait looks by itself: the older server tells nobody about a compare_set. */
    LOOK_AGAIN_NS = 1000 * CH_MS,
    FIRST_PAUSE_NS = 10 * CH_MS,
    LONGEST_PAUSE_NS = 500 * CH_MS,
    FIRST_POP_PAUSE_NS = 100 * CH_US,
    LONGEST_POP_PAUSE_NS = 20 * CH_MS,
    FETCH_TRIES = 3,
};

/* Commands that came later than the others; what a server knows is asked when it is first needed. */
enum feature { QUEUES, LISTING, BARRIERS, NFEATURES };
enum knowledge { NOT_ASKED, KNOWN, UNKNOWN };

struct lane {
    struct ch_list in_idle;
    struct ch_torch_link link;
};

struct torch {
    char *where;
    bool has_lock;
    struct ch_lock lock; /* guards the next four */
    bool main_is_taken;
    struct ch_list claims; /* who waits for main, in turn */
    struct ch_list idle;   /* lanes */
    int nidle;
    struct ch_torch_link main;       /* of whoever has taken it */
    _Atomic int features[NFEATURES]; /* enum knowledge; relaxed: it is only ever set to the truth */
};

/* --- requests as bytes -------------------------------------------------------------------------- */

struct message {
    unsigned char *bytes;
    size_t nbytes;
    unsigned char small[SMALL_REQUEST];
};

static choir_status message_init(struct message *message, size_t nbytes)
{
    message->nbytes = nbytes;
    message->bytes = nbytes <= sizeof(message->small) ? message->small : ch_alloc(nbytes);
    if (message->bytes == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "torch: no memory for a request of %zu bytes", nbytes);
    return CHOIR_OK;
}

static void message_fini(struct message *message)
{
    if (message->bytes != message->small)
        ch_free(message->bytes);
}

static choir_status check_value(choir_bytes value)
{
    if (value.nbytes > CH_TORCH_VALUE_MAX)
        return ch_fail(CHOIR_ERR_INVALID, "a value of %zu bytes, PyTorch's servers take at most %d",
                       value.nbytes, CH_TORCH_VALUE_MAX);
    return CHOIR_OK;
}

/* "/" and the key, in `buf` of CH_TORCH_KEY_MAX. */
static choir_status slashed(choir_bytes key, char *buf, choir_bytes *key_out)
{
    if (key.nbytes > CH_TORCH_KEY_MAX - 1)
        return ch_fail(CHOIR_ERR_INVALID, "a key of %zu bytes, PyTorch's servers take at most %d",
                       key.nbytes, CH_TORCH_KEY_MAX - 1);
    buf[0] = '/';
    if (key.nbytes > 0)
        memcpy(buf + 1, key.data, key.nbytes);
    *key_out = (choir_bytes){ buf, key.nbytes + 1 };
    return CHOIR_OK;
}

static choir_status build_raw(const struct ch_torch_request *request, struct message *out)
{
    choir_status rc = message_init(out, ch_torch_size(request));

    if (rc == CHOIR_OK)
        ch_torch_put(out->bytes, request);
    return rc;
}

static choir_status build(const struct ch_torch_request *request, struct message *out)
{
    struct ch_torch_request with_slash = *request;
    char key[CH_TORCH_KEY_MAX];
    choir_status rc = slashed(request->key, key, &with_slash.key);

    if (rc == CHOIR_OK)
        rc = check_value(request->value);
    if (rc == CHOIR_OK)
        rc = check_value(request->desired);
    return rc == CHOIR_OK ? build_raw(&with_slash, out) : rc;
}

/* Some keys of a list, and values for them or NULL. */
struct items {
    const choir_bytes *keys, *values;
    size_t count;
};

static choir_bytes value_of(const struct items *items, size_t i)
{
    return items->values != NULL ? items->values[i] : (choir_bytes){ NULL, 0 };
}

static size_t item_size(enum ch_torch_command command, const struct items *items, size_t i)
{
    const struct ch_torch_request item = { .command = command,
                                           .key = items->keys[i],
                                           .value = value_of(items, i) };

    return 1 + ch_torch_item_size(&item); /* the "/" */
}

/* As many of the items, from the front, as go into one request. */
static struct items first_part(enum ch_torch_command command, const struct items *items)
{
    struct items part = *items;
    size_t nbytes = 0;

    for (part.count = 0; part.count < items->count && part.count < CH_TORCH_COUNT_MAX;
         part.count++) {
        nbytes += item_size(command, items, part.count);
        if (nbytes > LIST_PART_NBYTES && part.count > 0)
            break;
    }
    return part;
}

static void drop_part(struct items *items, size_t count)
{
    items->keys += count;
    items->values = items->values != NULL ? items->values + count : NULL;
    items->count -= count;
}

static choir_status check_items(const struct items *items)
{
    char key[CH_TORCH_KEY_MAX];
    choir_bytes ignored;
    choir_status rc = CHOIR_OK;

    for (size_t i = 0; i < items->count && rc == CHOIR_OK; i++) {
        rc = check_value(value_of(items, i));
        if (rc == CHOIR_OK && items->keys[i].nbytes >= CH_TORCH_KEY_MAX)
            rc = slashed(items->keys[i], key, &ignored);
    }
    return rc;
}

static choir_status build_list(enum ch_torch_command command, const struct items *items,
                               struct message *out)
{
    const struct ch_torch_request head = { .command = command, .number = (int64_t)items->count };
    size_t nbytes = ch_torch_size(&head);
    char key[CH_TORCH_KEY_MAX];
    unsigned char *at;
    choir_status rc = check_items(items);

    for (size_t i = 0; i < items->count && rc == CHOIR_OK; i++)
        nbytes += item_size(command, items, i);
    if (rc == CHOIR_OK)
        rc = message_init(out, nbytes);
    if (rc != CHOIR_OK)
        return rc;
    at = ch_torch_put(out->bytes, &head);
    for (size_t i = 0; i < items->count && rc == CHOIR_OK; i++) {
        struct ch_torch_request item = { .command = command, .value = value_of(items, i) };

        rc = slashed(items->keys[i], key, &item.key);
        if (rc == CHOIR_OK)
            at = ch_torch_put_item(at, &item);
    }
    return rc;
}

/* --- time ----------------------------------------------------------------------------------------- */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* CHOIR_OK: the pause is over and there is time left. */
static choir_status pause_for(uint64_t ns, const struct ch_patience *patience)
{
    const uint64_t end = ch_now() + ns;
    const struct ch_wait wait = { .waiter = patience->waiter,
                                  .ready = never,
                                  .until = end < patience->until ? end : patience->until,
                                  .poison = patience->poison,
                                  .what = "the next try" };
    choir_status rc = ch_wait(&wait);

    return rc == CHOIR_ERR_TIMEOUT && !ch_deadline_passed(patience->until) ? CHOIR_OK : rc;
}

/* --- main ----------------------------------------------------------------------------------------- */

struct claim {
    struct ch_list link;
    _Atomic uint64_t granted;
    const struct ch_bell *bell;
};

/* The lock is held while posting, so that a claim that gives up is not gone under our hands. */
static void give_main(struct torch *torch)
{
    ch_lock(&torch->lock);
    if (ch_list_empty(&torch->claims)) {
        torch->main_is_taken = false;
    } else {
        struct claim *next = CH_CONTAINER(ch_list_pop_front(&torch->claims), struct claim, link);

        ch_post(next->bell, &next->granted, 1);
    }
    ch_unlock(&torch->lock);
}

static choir_status wait_for_main(struct torch *torch, struct claim *claim,
                                  const struct ch_patience *patience)
{
    const struct ch_wait wait = { .waiter = patience->waiter,
                                  .until = patience->until,
                                  .poison = patience->poison,
                                  .what = "other threads' requests" };
    choir_status rc = ch_wait_flag(&wait, &claim->granted, 1);
    bool granted;

    if (rc == CHOIR_OK)
        return CHOIR_OK;
    ch_lock(&torch->lock);
    granted = ch_flag_reached(&claim->granted, 1);
    if (!granted)
        ch_list_remove(&claim->link);
    ch_unlock(&torch->lock);
    if (granted)
        give_main(torch);
    return rc;
}

static choir_status take_main(struct torch *torch, const struct ch_patience *patience)
{
    struct claim claim = { .bell = &patience->waiter->bell };
    bool wait;

    ch_lock(&torch->lock);
    wait = torch->main_is_taken;
    torch->main_is_taken = true;
    if (wait)
        ch_list_push_back(&torch->claims, &claim.link);
    ch_unlock(&torch->lock);
    return wait ? wait_for_main(torch, &claim, patience) : CHOIR_OK;
}

/* Once something failed without anybody being told, the next call tells. */
static choir_status report_lost(struct ch_torch_link *link)
{
    uint64_t lost = link->lost;

    link->lost = 0;
    if (lost == 0)
        return CHOIR_OK;
    return ch_fail(CHOIR_ERR_NETWORK,
                   "the connection broke, and %llu earlier requests without a reply may be lost",
                   (unsigned long long)lost);
}

/* Take main and see that it is open and quiet. A server that has gone is not waited for: whoever was
 * connected to it should hear of it. */
static choir_status begin(struct torch *torch, const struct ch_patience *patience)
{
    choir_status rc = take_main(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = report_lost(&torch->main);
    if (rc == CHOIR_OK)
        rc = torch->main.fd < 0 ? ch_torch_link_open(&torch->main, torch->where, patience)
                                : ch_torch_link_settle(&torch->main, patience);
    if (rc != CHOIR_OK)
        give_main(torch);
    return rc;
}

/* An interrupt that has come before is obeyed before something is asked whose answer would be lost. */
static choir_status check_interrupt(const struct ch_patience *patience)
{
    /* Acquire, pairs with ch_waiter_interrupt(). */
    if (atomic_load_explicit(&patience->waiter->interrupted, memory_order_acquire) != 0)
        return ch_fail(CHOIR_ERR_INTERRUPTED, "interrupted");
    return CHOIR_OK;
}

/* Send a built request and wait for its reply. */
static choir_status ask_message(struct ch_torch_link *link, const struct message *message,
                                enum ch_torch_reply form, size_t count,
                                const struct ch_patience *patience, choir_bytes *reply_out)
{
    choir_status rc = check_interrupt(patience);

    if (rc == CHOIR_OK)
        rc = ch_torch_link_send(link, message->bytes, message->nbytes, form, count, patience);
    if (rc == CHOIR_OK)
        rc = ch_torch_link_receive(link, patience, reply_out);
    return rc;
}

static choir_status ask_on(struct ch_torch_link *link, const struct ch_torch_request *request,
                           enum ch_torch_reply form, const struct ch_patience *patience,
                           choir_bytes *reply_out)
{
    struct message message;
    choir_status rc = build(request, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = ask_message(link, &message, form, 1, patience, reply_out);
    message_fini(&message);
    return rc;
}

/* Take main and ask. If that goes well the caller reads the reply and then gives main back. */
static choir_status ask(struct torch *torch, const struct ch_torch_request *request,
                        enum ch_torch_reply form, const struct ch_patience *patience,
                        choir_bytes *reply_out)
{
    choir_status rc = begin(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ask_on(&torch->main, request, form, patience, reply_out);
    if (rc != CHOIR_OK)
        give_main(torch);
    return rc;
}

static choir_status ask_number(struct torch *torch, const struct ch_torch_request *request,
                               int64_t *number_out, const struct ch_patience *patience)
{
    choir_bytes reply;
    choir_status rc = ask(torch, request, CH_TORCH_REPLY_NUMBER, patience, &reply);

    if (rc != CHOIR_OK)
        return rc;
    *number_out = ch_torch_number(reply.data);
    give_main(torch);
    return CHOIR_OK;
}

/* A request without a reply. */
static choir_status tell_message(struct torch *torch, const struct message *message,
                                 const struct ch_patience *patience)
{
    choir_status rc = begin(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_link_send(&torch->main, message->bytes, message->nbytes, CH_TORCH_REPLY_NONE, 0,
                            patience);
    give_main(torch);
    return rc;
}

static choir_status tell(struct torch *torch, const struct ch_torch_request *request,
                         const struct ch_patience *patience)
{
    struct message message;
    choir_status rc = build(request, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = tell_message(torch, &message, patience);
    message_fini(&message);
    return rc;
}

/* --- lanes ---------------------------------------------------------------------------------------- */

static struct lane *idle_lane(struct torch *torch)
{
    struct lane *lane = NULL;

    ch_lock(&torch->lock);
    if (!ch_list_empty(&torch->idle)) {
        lane = CH_CONTAINER(ch_list_pop_front(&torch->idle), struct lane, in_idle);
        torch->nidle--;
    }
    ch_unlock(&torch->lock);
    return lane;
}

static void drop_lane(struct lane *lane)
{
    ch_torch_link_close(&lane->link);
    ch_free(lane);
}

/* Back to the others, if it is still good and they are not too many. */
static void give_lane(struct torch *torch, struct lane *lane)
{
    bool keep = false;

    ch_lock(&torch->lock);
    if (lane->link.fd >= 0 && torch->nidle < LANES_KEPT) {
        ch_list_push_front(&torch->idle, &lane->in_idle);
        torch->nidle++;
        keep = true;
    }
    ch_unlock(&torch->lock);
    if (!keep)
        drop_lane(lane);
}

static choir_status new_lane(struct torch *torch, const struct ch_patience *patience,
                             struct lane **lane_out)
{
    struct lane *lane = ch_zalloc(sizeof(*lane));
    choir_status rc;

    if (lane == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "torch: no memory for another connection");
    ch_torch_link_init(&lane->link);
    rc = ch_torch_link_open(&lane->link, torch->where, patience);
    if (rc != CHOIR_OK) {
        drop_lane(lane);
        return rc;
    }
    *lane_out = lane;
    return CHOIR_OK;
}

/* One that was closed while idle is no loss. */
static choir_status take_lane(struct torch *torch, const struct ch_patience *patience,
                              struct lane **lane_out)
{
    struct lane *lane;

    while ((lane = idle_lane(torch)) != NULL) {
        choir_status rc = ch_torch_link_settle(&lane->link, patience);

        if (rc == CHOIR_OK) {
            *lane_out = lane;
            return CHOIR_OK;
        }
        give_lane(torch, lane); /* if it only was slow it stays */
        if (ch_torch_gave_up(rc))
            return rc;
    }
    return new_lane(torch, patience, lane_out);
}

/* --- looking and waiting -------------------------------------------------------------------------- */

/* CHECK on main, which the caller has taken; in parts, if there are very many keys. */
static choir_status check_on_main(struct torch *torch, struct items items,
                                  const struct ch_patience *patience, bool *all_out)
{
    bool all = true;

    while (items.count > 0 && all) {
        struct items part = first_part(CH_TORCH_CHECK, &items);
        struct message message;
        choir_bytes reply;
        choir_status rc = build_list(CH_TORCH_CHECK, &part, &message);

        if (rc != CHOIR_OK)
            return rc;
        rc = ask_message(&torch->main, &message, CH_TORCH_REPLY_BYTE, 1, patience, &reply);
        message_fini(&message);
        if (rc != CHOIR_OK)
            return rc;
        all = *(const unsigned char *)reply.data == CH_TORCH_READY;
        drop_part(&items, part.count);
    }
    *all_out = all;
    return CHOIR_OK;
}

static choir_status check_items_exist(struct torch *torch, const struct items *items,
                                      const struct ch_patience *patience, bool *all_out)
{
    choir_status rc = begin(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = check_on_main(torch, *items, patience, all_out);
    give_main(torch);
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
static choir_status await_reply(struct torch *torch, struct lane *lane, const struct items *items,
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
static choir_status await(struct torch *torch, const struct items *items,
                          const struct ch_patience *patience)
{
    struct items part = first_part(CH_TORCH_WAIT, items);
    struct message message;
    struct lane *lane;
    choir_status rc = build_list(CH_TORCH_WAIT, &part, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = take_lane(torch, patience, &lane);
    if (rc == CHOIR_OK) {
        rc = ch_torch_link_send(&lane->link, message.bytes, message.nbytes, CH_TORCH_REPLY_BYTE, 1,
                                patience);
        if (rc == CHOIR_OK)
            rc = await_reply(torch, lane, &part, patience);
        /* Also after it was served: the newer server keeps a wait for a queue registered. */
        ch_torch_link_cancel(&lane->link);
        give_lane(torch, lane);
    }
    message_fini(&message);
    if (rc == CHOIR_ERR_TIMEOUT)
        rc = ch_fail(CHOIR_ERR_TIMEOUT, "wait timeout: nobody had set it before the deadline");
    return rc;
}

static choir_status wait_until_all_exist(struct torch *torch, struct items items,
                                         const struct ch_patience *patience)
{
    while (items.count > 0) {
        struct items part = first_part(CH_TORCH_WAIT, &items);
        bool all = false;
        choir_status rc = check_items_exist(torch, &part, patience, &all);

        if (rc == CHOIR_OK && !all)
            rc = await(torch, &part, patience);
        if (rc != CHOIR_OK)
            return rc;
        if (all)
            drop_part(&items, part.count);
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

static choir_status build_fetch(const struct items *items, struct message *out)
{
    const struct ch_torch_request get = { .command = CH_TORCH_GET, .key = items->keys[0] };

    return items->count == 1 ? build(&get, out) : build_list(CH_TORCH_MULTI_GET, items, out);
}

/* The values, if all are there: *all_out. They were a moment ago; if one was deleted since, the
 * newer server says that it is empty, and the older one closes the connection. (One that is set again
 * by the time we look cannot be told from an empty one.) */
static choir_status fetch_on_main(struct torch *torch, const struct items *items,
                                  const struct ch_patience *patience, choir_blob *values_out,
                                  bool *all_out)
{
    struct message message;
    bool some_empty = false;
    choir_bytes reply;
    choir_status rc = build_fetch(items, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = ask_message(&torch->main, &message, CH_TORCH_REPLY_VALUES, items->count, patience, &reply);
    message_fini(&message);
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

static choir_status try_fetch(struct torch *torch, const struct items *items,
                              const struct ch_patience *patience, choir_blob *values_out,
                              bool *all_out, int *tries_io)
{
    choir_status rc = begin(torch, patience);

    *all_out = false;
    if (rc != CHOIR_OK)
        return rc;
    rc = check_on_main(torch, *items, patience, all_out);
    if (rc == CHOIR_OK && *all_out) {
        rc = fetch_on_main(torch, items, patience, values_out, all_out);
        if (rc == CHOIR_ERR_NETWORK && --*tries_io > 0)
            rc = CHOIR_OK; /* not there any more; or gone, then the next try says so */
    }
    give_main(torch);
    return rc;
}

static choir_status fetch(struct torch *torch, const struct items *items,
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

/* --- what the server knows ------------------------------------------------------------------------ */

/* Without "/": PyTorch's clients do not list it. */
static const char probe_key[] = "choir-probe";

static const struct {
    enum ch_torch_command command;
    enum ch_torch_reply form;
    const char *name, *since;
} probes[NFEATURES] = {
    [QUEUES] = { CH_TORCH_QUEUE_LENGTH, CH_TORCH_REPLY_NUMBER, "queues",
                 "the server of PyTorch 2.8 does, unless made with use_libuv=False" },
    [LISTING] = { CH_TORCH_LIST, CH_TORCH_REPLY_LIST, "listing keys", "PyTorch 2.10 does" },
    [BARRIERS] = { CH_TORCH_BARRIER, CH_TORCH_REPLY_BYTE, "barriers", "PyTorch 2.12 does" },
};

static choir_status ask_raw(struct ch_torch_link *link, enum ch_torch_command command,
                            enum ch_torch_reply form, const struct ch_patience *patience)
{
    const struct ch_torch_request request = { .command = command, .key = choir_str(probe_key) };
    struct message message;
    choir_bytes reply;
    choir_status rc = build_raw(&request, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = ask_message(link, &message, form, 1, patience, &reply);
    message_fini(&message);
    return rc;
}

/* A server closes the connection at a command that it does not know: so on one made for that. A
 * barrier of nobody is complete at once, and leaves a key, which goes again. */
static choir_status probe(struct torch *torch, enum feature feature,
                          const struct ch_patience *patience, enum knowledge *knowledge_out)
{
    struct ch_torch_link link;
    choir_status rc;

    ch_torch_link_init(&link);
    rc = ch_torch_link_open(&link, torch->where, patience);
    if (rc != CHOIR_OK)
        return rc;
    rc = ask_raw(&link, probes[feature].command, probes[feature].form, patience);
    *knowledge_out = rc == CHOIR_OK ? KNOWN : UNKNOWN;
    if (rc == CHOIR_OK && feature == BARRIERS)
        rc = ask_raw(&link, CH_TORCH_DELETE, CH_TORCH_REPLY_NUMBER, patience);
    else if (rc == CHOIR_ERR_NETWORK)
        rc = CHOIR_OK; /* it answered a PING just before: so it is the command */
    ch_torch_link_close(&link);
    return rc;
}

static choir_status knows(struct torch *torch, enum feature feature,
                          const struct ch_patience *patience, bool *knows_out)
{
    enum knowledge known = (enum knowledge)atomic_load_explicit(&torch->features[feature],
                                                                memory_order_relaxed);

    if (known == NOT_ASKED) {
        choir_status rc = probe(torch, feature, patience, &known);

        if (rc != CHOIR_OK)
            return rc;
        atomic_store_explicit(&torch->features[feature], known, memory_order_relaxed);
    }
    *knows_out = known == KNOWN;
    return CHOIR_OK;
}

static choir_status need(struct torch *torch, enum feature feature,
                         const struct ch_patience *patience)
{
    bool known;
    choir_status rc = knows(torch, feature, patience, &known);

    if (rc == CHOIR_OK && !known)
        rc = ch_fail(CHOIR_ERR_UNSUPPORTED, "this server does not know %s; %s",
                     probes[feature].name, probes[feature].since);
    return rc;
}

/* --- operations: values --------------------------------------------------------------------------- */

static choir_status torch_set(void *self, choir_bytes key, choir_bytes value,
                              const struct ch_patience *patience)
{
    const struct ch_torch_request set = { .command = CH_TORCH_SET, .key = key, .value = value };

    return tell(self, &set, patience);
}

static choir_status torch_append(void *self, choir_bytes key, choir_bytes more,
                                 const struct ch_patience *patience)
{
    const struct ch_torch_request append = { .command = CH_TORCH_APPEND,
                                             .key = key,
                                             .value = more };

    return tell(self, &append, patience);
}

static choir_status torch_get(void *self, choir_bytes key, choir_blob *value_out,
                              const struct ch_patience *patience)
{
    const struct items items = { &key, NULL, 1 };

    return fetch(self, &items, patience, value_out);
}

static choir_status torch_add(void *self, choir_bytes key, int64_t delta, int64_t *sum_out,
                              const struct ch_patience *patience)
{
    const struct ch_torch_request add = { .command = CH_TORCH_ADD, .key = key, .number = delta };
    choir_status rc = ask_number(self, &add, sum_out, patience);

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
    choir_status rc = ask(self, &compare, CH_TORCH_REPLY_VALUES, patience, &reply);

    if (rc == CHOIR_OK) {
        rc = copy_values(reply, 1, value_out, &some_empty);
        give_main(self);
    }
    return rc;
}

static choir_status torch_remove(void *self, choir_bytes key, bool *removed_out,
                                 const struct ch_patience *patience)
{
    const struct ch_torch_request delete = { .command = CH_TORCH_DELETE, .key = key };
    int64_t removed;
    choir_status rc = ask_number(self, &delete, &removed, patience);

    if (rc == CHOIR_OK)
        *removed_out = removed > 0;
    return rc;
}

static choir_status torch_multi_get(void *self, const choir_bytes *keys, size_t count,
                                    choir_blob *values_out, const struct ch_patience *patience)
{
    struct items items = { keys, NULL, count };
    size_t done = 0;
    choir_status rc = CHOIR_OK;

    while (items.count > 0 && rc == CHOIR_OK) {
        struct items part = first_part(CH_TORCH_MULTI_GET, &items);

        rc = fetch(self, &part, patience, values_out + done);
        if (rc == CHOIR_OK)
            done += part.count;
        drop_part(&items, part.count);
    }
    while (rc != CHOIR_OK && done > 0)
        choir_blob_free(&values_out[--done]);
    return rc;
}

static choir_status torch_multi_set(void *self, const choir_bytes *keys, const choir_bytes *values,
                                    size_t count, const struct ch_patience *patience)
{
    struct items items = { keys, values, count };
    choir_status rc = check_items(&items);

    while (items.count > 0 && rc == CHOIR_OK) {
        struct items part = first_part(CH_TORCH_MULTI_SET, &items);
        struct message message;

        rc = build_list(CH_TORCH_MULTI_SET, &part, &message);
        if (rc == CHOIR_OK) {
            rc = tell_message(self, &message, patience);
            message_fini(&message);
        }
        drop_part(&items, part.count);
    }
    return rc;
}

static choir_status torch_check(void *self, const choir_bytes *keys, size_t count, bool *all_out,
                                const struct ch_patience *patience)
{
    const struct items items = { keys, NULL, count };

    return check_items_exist(self, &items, patience, all_out);
}

static choir_status torch_wait(void *self, const choir_bytes *keys, size_t count,
                               const struct ch_patience *patience)
{
    const struct items items = { keys, NULL, count };

    return wait_until_all_exist(self, items, patience);
}

static choir_status torch_count(void *self, int64_t *count_out, const struct ch_patience *patience)
{
    const struct ch_torch_request count = { .command = CH_TORCH_COUNT };

    return ask_number(self, &count, count_out, patience);
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
    choir_status rc = need(self, LISTING, patience);

    if (rc == CHOIR_OK)
        rc = ask(self, &list, CH_TORCH_REPLY_LIST, patience, &reply);
    if (rc == CHOIR_OK) {
        rc = copy_keys(reply, keys_out, count_out);
        give_main(self);
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
    choir_status rc = need(self, QUEUES, patience);

    if (rc == CHOIR_OK)
        rc = tell(self, &push, patience);
    return rc;
}

static choir_status try_pop(struct torch *torch, choir_bytes key, choir_blob *value_out,
                            const struct ch_patience *patience)
{
    const struct ch_torch_request pop = { .command = CH_TORCH_QUEUE_POP, .key = key };
    choir_bytes reply, value;
    const unsigned char *at;
    choir_status rc = need(torch, QUEUES, patience);

    if (rc == CHOIR_OK)
        rc = ask(torch, &pop, CH_TORCH_REPLY_POPPED, patience, &reply);
    if (rc != CHOIR_OK)
        return rc;
    at = (const unsigned char *)reply.data + 8;
    if (reply.nbytes == 8) {
        rc = ch_fail(CHOIR_ERR_QUEUE_EMPTY, "queue is empty");
    } else {
        value = ch_torch_next_value(&at);
        rc = ch_blob_init(value_out, value.data, value.nbytes);
    }
    give_main(torch);
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
    const struct items items = { &key, NULL, 1 };
    uint64_t pause = 0;
    choir_status rc;

    while ((rc = try_pop(self, key, value_out, patience)) == CHOIR_ERR_QUEUE_EMPTY) {
        rc = pause == 0 ? CHOIR_OK : pause_for(pause, patience);
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
    choir_status rc = need(self, QUEUES, patience);

    if (rc == CHOIR_OK)
        rc = ask_number(self, &length, length_out, patience);
    return rc;
}

/* --- operations: barrier -------------------------------------------------------------------------- */

/* What was set before the barrier must be there when others have passed it, and the barrier goes
 * another way. */
static choir_status sync_main(struct torch *torch, const struct ch_patience *patience)
{
    const struct ch_torch_request ping = { .command = CH_TORCH_PING };
    choir_bytes reply;
    choir_status rc = begin(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    if (torch->main.unanswered > 0)
        rc = ask_on(&torch->main, &ping, CH_TORCH_REPLY_NONCE, patience, &reply);
    give_main(torch);
    return rc;
}

static choir_status barrier_on(struct ch_torch_link *link, const struct message *message,
                               const struct ch_patience *patience)
{
    choir_bytes reply;
    choir_status rc = ask_message(link, message, CH_TORCH_REPLY_BYTE, 1, patience, &reply);

    if (rc == CHOIR_OK)
        return check_stopped(reply);
    if (ch_torch_gave_up(rc))
        ch_torch_link_cancel(link);
    return rc;
}

static choir_status barrier_by_command(struct torch *torch, choir_bytes key, int64_t nranks,
                                       const struct ch_patience *patience)
{
    const struct ch_torch_request barrier = { .command = CH_TORCH_BARRIER,
                                              .key = key,
                                              .number = nranks };
    struct message message;
    struct lane *lane;
    choir_status rc = build(&barrier, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = sync_main(torch, patience);
    if (rc == CHOIR_OK)
        rc = take_lane(torch, patience, &lane);
    if (rc == CHOIR_OK) {
        rc = barrier_on(&lane->link, &message, patience);
        give_lane(torch, lane);
    }
    message_fini(&message);
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
static choir_status barrier_by_counting(struct torch *torch, choir_bytes key, int64_t nranks,
                                        const struct ch_patience *patience)
{
    char members_buf[CH_TORCH_KEY_MAX], last_buf[CH_TORCH_KEY_MAX];
    struct ch_torch_request add = { .command = CH_TORCH_ADD, .number = 1 };
    struct ch_torch_request set = { .command = CH_TORCH_SET, .value = choir_str("1") };
    struct items last = { &set.key, NULL, 1 };
    int64_t arrived = 0;
    choir_status rc = join(key, "/num_members", members_buf, &add.key);

    if (rc == CHOIR_OK)
        rc = join(key, "/last_member", last_buf, &set.key);
    if (rc == CHOIR_OK)
        rc = ask_number(torch, &add, &arrived, patience);
    if (rc == CHOIR_OK && arrived >= nranks)
        rc = tell(torch, &set, patience);
    if (rc == CHOIR_OK)
        rc = wait_until_all_exist(torch, last, patience);
    return rc;
}

static choir_status torch_barrier(void *self, choir_bytes key, int64_t nranks,
                                  const struct ch_patience *patience)
{
    bool by_command;
    choir_status rc = knows(self, BARRIERS, patience, &by_command);

    if (rc == CHOIR_OK)
        rc = by_command ? barrier_by_command(self, key, nranks, patience)
                        : barrier_by_counting(self, key, nranks, patience);
    return rc;
}

/* --- opening and closing -------------------------------------------------------------------------- */

/* The server may not be there yet: try until the deadline, and then say what the last try saw. */
static choir_status connect_main(struct torch *torch, const struct ch_patience *patience)
{
    uint64_t pause = FIRST_PAUSE_NS;

    for (int tries = 1;; tries++) {
        choir_status rc = ch_torch_link_open(&torch->main, torch->where, patience), slept;
        choir_error why;

        if (rc != CHOIR_ERR_NETWORK && rc != CHOIR_ERR_TIMEOUT)
            return rc;
        ch_error_save(&why);
        slept = pause_for(pause, patience);
        if (slept != CHOIR_OK && slept != CHOIR_ERR_TIMEOUT)
            return slept;
        if (slept == CHOIR_ERR_TIMEOUT)
            return ch_fail(CHOIR_ERR_TIMEOUT,
                           "tried %d times until the deadline, the last time: %s", tries, why.text);
        pause = pause * 3 / 2 < LONGEST_PAUSE_NS ? pause * 3 / 2 : LONGEST_PAUSE_NS;
    }
}

static choir_status torch_open(void *self, const struct ch_store_place *place,
                               const struct ch_patience *patience)
{
    struct torch *torch = self;
    choir_status rc;

    ch_lock_init(&torch->lock, CH_LOCK_STORE);
    ch_list_init(&torch->claims);
    ch_list_init(&torch->idle);
    ch_torch_link_init(&torch->main);
    torch->has_lock = true;
    torch->where = ch_strdup(place->where);
    if (torch->where == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "store: no memory for the address %s", place->url);
    if (place->token != NULL)
        return ch_fail(CHOIR_ERR_UNSUPPORTED,
                       "store %s: PyTorch's protocol has no token: nobody would check it",
                       place->url);
    rc = connect_main(torch, patience);
    if (rc != CHOIR_OK)
        ch_error_prefix("store %s: ", place->url);
    return rc;
}

static void torch_close(void *self)
{
    struct torch *torch = self;
    struct lane *lane;

    if (torch->has_lock) {
        while ((lane = idle_lane(torch)) != NULL)
            drop_lane(lane);
        ch_torch_link_close(&torch->main);
        ch_lock_fini(&torch->lock);
    }
    ch_free(torch->where);
}

const struct ch_store_ops ch_store_torch = {
    .scheme = "tcp",
    .protocol = "torch",
    .help = "a server that speaks PyTorch's TCPStore protocol",
    .self_size = sizeof(struct torch),
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
