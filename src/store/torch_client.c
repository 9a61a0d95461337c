/* torch_client.c - see torch_client.h. */
#include "store/torch_client.h"

#include "base/error.h"
#include "base/mem.h"

enum {
    LANES_KEPT = 8,
    FIRST_PAUSE_NS = 10 * CH_MS,
    LONGEST_PAUSE_NS = 500 * CH_MS,
};

enum knowledge { NOT_ASKED, KNOWN, UNKNOWN };

/* --- time ----------------------------------------------------------------------------------------- */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

choir_status ch_torch_pause(uint64_t ns, const struct ch_patience *patience)
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
void ch_torch_end(struct ch_torch_client *torch)
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

static choir_status wait_for_main(struct ch_torch_client *torch, struct claim *claim,
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
        ch_torch_end(torch);
    return rc;
}

static choir_status take_main(struct ch_torch_client *torch, const struct ch_patience *patience)
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

choir_status ch_torch_begin(struct ch_torch_client *torch, const struct ch_patience *patience)
{
    choir_status rc = take_main(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = report_lost(&torch->main);
    if (rc == CHOIR_OK)
        rc = torch->main.fd < 0 ? ch_torch_link_open(&torch->main, torch->where, patience)
                                : ch_torch_link_settle(&torch->main, patience);
    if (rc != CHOIR_OK)
        ch_torch_end(torch);
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

choir_status ch_torch_ask_message(struct ch_torch_link *link,
                                  const struct ch_torch_message *message, enum ch_torch_reply form,
                                  size_t count, const struct ch_patience *patience,
                                  choir_bytes *reply_out)
{
    choir_status rc = check_interrupt(patience);

    if (rc == CHOIR_OK)
        rc = ch_torch_link_send(link, message->bytes, message->nbytes, form, count, patience);
    if (rc == CHOIR_OK)
        rc = ch_torch_link_receive(link, patience, reply_out);
    return rc;
}

choir_status ch_torch_ask_on(struct ch_torch_link *link, const struct ch_torch_request *request,
                             enum ch_torch_reply form, const struct ch_patience *patience,
                             choir_bytes *reply_out)
{
    struct ch_torch_message message;
    choir_status rc = ch_torch_build(request, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_ask_message(link, &message, form, 1, patience, reply_out);
    ch_torch_message_fini(&message);
    return rc;
}

choir_status ch_torch_ask(struct ch_torch_client *torch, const struct ch_torch_request *request,
                          enum ch_torch_reply form, const struct ch_patience *patience,
                          choir_bytes *reply_out)
{
    choir_status rc = ch_torch_begin(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_ask_on(&torch->main, request, form, patience, reply_out);
    if (rc != CHOIR_OK)
        ch_torch_end(torch);
    return rc;
}

choir_status ch_torch_ask_number(struct ch_torch_client *torch,
                                 const struct ch_torch_request *request, int64_t *number_out,
                                 const struct ch_patience *patience)
{
    choir_bytes reply;
    choir_status rc = ch_torch_ask(torch, request, CH_TORCH_REPLY_NUMBER, patience, &reply);

    if (rc != CHOIR_OK)
        return rc;
    *number_out = ch_torch_number(reply.data);
    ch_torch_end(torch);
    return CHOIR_OK;
}

choir_status ch_torch_tell_message(struct ch_torch_client *torch,
                                   const struct ch_torch_message *message,
                                   const struct ch_patience *patience)
{
    choir_status rc = ch_torch_begin(torch, patience);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_link_send(&torch->main, message->bytes, message->nbytes, CH_TORCH_REPLY_NONE, 0,
                            patience);
    ch_torch_end(torch);
    return rc;
}

choir_status ch_torch_tell(struct ch_torch_client *torch, const struct ch_torch_request *request,
                           const struct ch_patience *patience)
{
    struct ch_torch_message message;
    choir_status rc = ch_torch_build(request, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_tell_message(torch, &message, patience);
    ch_torch_message_fini(&message);
    return rc;
}

/* --- lanes ---------------------------------------------------------------------------------------- */

static struct ch_torch_lane *idle_lane(struct ch_torch_client *torch)
{
    struct ch_torch_lane *lane = NULL;

    ch_lock(&torch->lock);
    if (!ch_list_empty(&torch->idle)) {
        lane = CH_CONTAINER(ch_list_pop_front(&torch->idle), struct ch_torch_lane, in_idle);
        torch->nidle--;
    }
    ch_unlock(&torch->lock);
    return lane;
}

static void drop_lane(struct ch_torch_lane *lane)
{
    ch_torch_link_close(&lane->link);
    ch_free(lane);
}

/* Back to the others, if it is still good and they are not too many. */
void ch_torch_give_lane(struct ch_torch_client *torch, struct ch_torch_lane *lane)
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

static choir_status new_lane(struct ch_torch_client *torch, const struct ch_patience *patience,
                             struct ch_torch_lane **lane_out)
{
    struct ch_torch_lane *lane = ch_zalloc(sizeof(*lane));
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
choir_status ch_torch_take_lane(struct ch_torch_client *torch, const struct ch_patience *patience,
                                struct ch_torch_lane **lane_out)
{
    struct ch_torch_lane *lane;

    while ((lane = idle_lane(torch)) != NULL) {
        choir_status rc = ch_torch_link_settle(&lane->link, patience);

        if (rc == CHOIR_OK) {
            *lane_out = lane;
            return CHOIR_OK;
        }
        ch_torch_give_lane(torch, lane); /* if it only was slow it stays */
        if (ch_torch_gave_up(rc))
            return rc;
    }
    return new_lane(torch, patience, lane_out);
}

/* --- what the server knows ------------------------------------------------------------------------ */

/* Without "/": PyTorch's clients do not list it. */
static const char probe_key[] = "choir-probe";

static const struct {
    enum ch_torch_command command;
    enum ch_torch_reply form;
    const char *name, *since;
} probes[CH_TORCH_NFEATURES] = {
    [CH_TORCH_QUEUES] = { CH_TORCH_QUEUE_LENGTH, CH_TORCH_REPLY_NUMBER, "queues",
                          "the server of PyTorch 2.8 does, unless made with use_libuv=False" },
    [CH_TORCH_LISTING] = { CH_TORCH_LIST, CH_TORCH_REPLY_LIST, "listing keys",
                           "PyTorch 2.10 does" },
    [CH_TORCH_BARRIERS] = { CH_TORCH_BARRIER, CH_TORCH_REPLY_BYTE, "barriers",
                            "PyTorch 2.12 does" },
};

static choir_status ask_raw(struct ch_torch_link *link, enum ch_torch_command command,
                            enum ch_torch_reply form, const struct ch_patience *patience)
{
    const struct ch_torch_request request = { .command = command, .key = choir_str(probe_key) };
    struct ch_torch_message message;
    choir_bytes reply;
    choir_status rc = ch_torch_build_raw(&request, &message);

    if (rc != CHOIR_OK)
        return rc;
    rc = ch_torch_ask_message(link, &message, form, 1, patience, &reply);
    ch_torch_message_fini(&message);
    return rc;
}

/* A server closes the connection at a command that it does not know: so on one made for that. A
 * barrier of nobody is complete at once, and leaves a key, which goes again. */
static choir_status probe(struct ch_torch_client *torch, enum ch_torch_feature feature,
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
    if (rc == CHOIR_OK && feature == CH_TORCH_BARRIERS)
        rc = ask_raw(&link, CH_TORCH_DELETE, CH_TORCH_REPLY_NUMBER, patience);
    else if (rc == CHOIR_ERR_NETWORK)
        rc = CHOIR_OK; /* it answered a PING just before: so it is the command */
    ch_torch_link_close(&link);
    return rc;
}

choir_status ch_torch_knows(struct ch_torch_client *torch, enum ch_torch_feature feature,
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

choir_status ch_torch_need(struct ch_torch_client *torch, enum ch_torch_feature feature,
                           const struct ch_patience *patience)
{
    bool known;
    choir_status rc = ch_torch_knows(torch, feature, patience, &known);

    if (rc == CHOIR_OK && !known)
        rc = ch_fail(CHOIR_ERR_UNSUPPORTED, "this server does not know %s; %s",
                     probes[feature].name, probes[feature].since);
    return rc;
}

/* --- opening and closing -------------------------------------------------------------------------- */

/* The server may not be there yet: try until the deadline, and then say what the last try saw. */
static choir_status connect_main(struct ch_torch_client *torch, const struct ch_patience *patience)
{
    uint64_t pause = FIRST_PAUSE_NS;

    for (int tries = 1;; tries++) {
        choir_status rc = ch_torch_link_open(&torch->main, torch->where, patience), slept;
        choir_error why;

        if (rc != CHOIR_ERR_NETWORK && rc != CHOIR_ERR_TIMEOUT)
            return rc;
        ch_error_save(&why);
        slept = ch_torch_pause(pause, patience);
        if (slept != CHOIR_OK && slept != CHOIR_ERR_TIMEOUT)
            return slept;
        if (slept == CHOIR_ERR_TIMEOUT)
            return ch_fail(CHOIR_ERR_TIMEOUT,
                           "tried %d times until the deadline, the last time: %s", tries, why.text);
        pause = pause * 3 / 2 < LONGEST_PAUSE_NS ? pause * 3 / 2 : LONGEST_PAUSE_NS;
    }
}

choir_status ch_torch_client_open(struct ch_torch_client *torch, const char *where,
                                  const struct ch_patience *patience)
{
    torch->where = ch_strdup(where);
    if (torch->where == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "torch: no memory for the address %s", where);
    ch_lock_init(&torch->lock, CH_LOCK_STORE);
    ch_list_init(&torch->claims);
    ch_list_init(&torch->idle);
    ch_torch_link_init(&torch->main);
    return connect_main(torch, patience);
}

void ch_torch_client_close(struct ch_torch_client *torch)
{
    struct ch_torch_lane *lane;

    if (torch->where == NULL)
        return;
    while ((lane = idle_lane(torch)) != NULL)
        drop_lane(lane);
    ch_torch_link_close(&torch->main);
    ch_lock_fini(&torch->lock);
    ch_free(torch->where);
    torch->where = NULL;
}
