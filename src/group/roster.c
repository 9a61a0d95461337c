/*
 * roster.c - see roster.h.
 */
#include "group/roster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/params.h"

enum {
    KEY_MAX = 32,
    WHO_LISTED = 8,
    LINGER_MS = 2000,
    FIRST_CAUSE_MS = 200,
    LOOK_MS = 50, /* how often to look, while others are waited for, whether they live */
};

/* What the store is asked with: one deadline for all. */
struct meeting {
    choir_store *store;
    const struct ch_record *mine;
    ch_deadline began, until;
};

static int64_t left_ms(const struct meeting *meeting)
{
    int64_t left = ch_deadline_left_ns(meeting->until);

    /* A store takes 0 for "its own": what is left of the last millisecond is a millisecond. */
    return left < 0 ? -1 : left / (int64_t)CH_MS + 1;
}

static const char *rank_key(unsigned rank, char *key)
{
    snprintf(key, KEY_MAX, "rank/%u", rank);
    return key;
}

/* How many ranks the first who came below `scope` was told. */
static choir_status agreed_size(choir_store *store, const char *scope, int nranks, int64_t *out)
{
    char key[96], mine[16];
    choir_blob present = { NULL, 0 };
    choir_status rc;

    snprintf(key, sizeof(key), "%s/size", scope);
    snprintf(mine, sizeof(mine), "%d", nranks);
    rc = choir_store_compare_set(store, choir_str(key), choir_str(""), choir_str(mine), &present);
    if (rc == CHOIR_OK && (!ch_parse_int(present.data, out) || *out < 1))
        rc = ch_fail(CHOIR_ERR_PROTO, "%s in the store is \"%.20s\", expected a number of ranks",
                     key, present.data);
    choir_blob_free(&present);
    return rc;
}

choir_status ch_roster_round(choir_store *store, const char *scope, const char *attempt, int nranks,
                             choir_store **round_out)
{
    char prefix[64], key[96];
    int64_t size, arrived = 1;
    choir_status rc;

    snprintf(prefix, sizeof(prefix), "choir/%.20s/%.20s", scope, attempt);
    snprintf(key, sizeof(key), "%s/arrived", prefix);
    rc = agreed_size(store, prefix, nranks, &size);
    /* Who was told another number goes where it is sure to meet one who was told this, and is not counted: the
     * round of those who agree would not be the first. */
    if (rc == CHOIR_OK && size == nranks)
        rc = choir_store_add(store, choir_str(key), 1, &arrived);
    if (rc != CHOIR_OK)
        return rc;
    snprintf(key, sizeof(key), "%s/%lld", prefix, (long long)((arrived - 1) / size));
    return choir_store_prefix(store, choir_str(key), round_out);
}

/* --- verdicts ----------------------------------------------------------------------------------- */

/*
 * As stored: one byte, 'y' or 'n'. Behind 'y' what the phase has to tell. Behind 'n' the code as a
 * decimal number, a blank, the culprit likewise, a blank, and the text. *verdict_out is what then is there.
 */
static choir_status publish(const struct meeting *meeting, const char *key, const void *bytes,
                            size_t nbytes, choir_blob *verdict_out)
{
    return choir_store_compare_set(meeting->store, choir_str(key), choir_str(""),
                                   (choir_bytes){ bytes, nbytes }, verdict_out);
}

/* Tell everybody what went wrong here: this thread's last error. Returns its code. */
static choir_status publish_failure(const struct meeting *meeting, const char *key)
{
    choir_error why;
    choir_blob verdict = { NULL, 0 };
    char text[sizeof(why.text) + 64];
    int length;

    ch_error_save(&why);
    length = snprintf(text, sizeof(text), "n%d %d %s", (int)why.code, why.culprit, why.text);
    /* Best effort: a store that does not answer any more is the others' error soon enough. */
    (void)publish(meeting, key, text, (size_t)length, &verdict);
    choir_blob_free(&verdict);
    return ch_error_load(&why);
}

/* The status that a verdict of failure tells. */
static choir_status failure_of(const choir_blob *verdict)
{
    char *at = verdict->data + 1;
    long code = strtol(at, &at, 10), culprit = strtol(at, &at, 10);

    if (code >= 0 || code < -1000 || *at != ' ')
        return ch_fail(CHOIR_ERR_PROTO, "the verdict of the rendezvous makes no sense: \"%.60s\"",
                       verdict->data);
    return ch_fail_rank((choir_status)code, (int)culprit, "choir_init", "%s", at + 1);
}

/* Wait for the verdict, unless who published it (*verdict, to be freed) knows it already. */
static choir_status hear(const struct meeting *meeting, const char *key, choir_blob *verdict)
{
    choir_status rc = CHOIR_OK;

    if (verdict->data == NULL)
        rc = choir_store_get(meeting->store, choir_str(key), left_ms(meeting), verdict);
    if (rc == CHOIR_OK && (verdict->nbytes == 0 || verdict->data[0] != 'y'))
        rc = failure_of(verdict);
    return rc;
}

/*
 * What broke our exchange may be another's failure: who loses a connection, or waits in vain, knows less
 * than the rank at the other end. So that one gets a moment to speak first, and what it says is our error. Who
 * found a rank gone knows more than those who lost their connection by that, and waits for less long.
 */
static choir_status settle_failure(const struct meeting *meeting)
{
    choir_blob verdict = { NULL, 0 };
    choir_error why;
    choir_status rc;

    ch_error_save(&why);
    if (why.code == CHOIR_ERR_DEAD || why.code == CHOIR_ERR_NETWORK ||
        (why.culprit < 0 && why.code == CHOIR_ERR_TIMEOUT))
        (void)choir_store_get(meeting->store, choir_str("done"),
                              why.code == CHOIR_ERR_DEAD ? FIRST_CAUSE_MS / 4 : FIRST_CAUSE_MS,
                              &verdict);
    if (verdict.nbytes > 0 && verdict.data[0] == 'n') {
        rc = failure_of(&verdict);
        choir_blob_free(&verdict);
        return rc;
    }
    choir_blob_free(&verdict);
    ch_error_load(&why);
    return publish_failure(meeting, "done");
}

/* --- who is missing ----------------------------------------------------------------------------- */

/* Append "0-3, 7" for the ranks whose `there` is `wanted`. */
static void list_ranks(const bool *there, unsigned nranks, bool wanted, char *out, size_t size)
{
    size_t at = 0;

    out[0] = '\0';
    for (unsigned r = 0; r < nranks && at + 32 < size; r++) {
        unsigned last = r;

        if (there[r] != wanted)
            continue;
        while (last + 1 < nranks && there[last + 1] == wanted)
            last++;
        at += (size_t)snprintf(out + at, size - at, last > r ? "%s%u-%u" : "%s%u",
                               at > 0 ? ", " : "", r, last);
        r = last;
    }
}

/* Mark the ranks whose records are in the store. */
static choir_status find_joined(const struct meeting *meeting, bool *there)
{
    choir_blob *keys;
    size_t count;
    choir_status rc = choir_store_list(meeting->store, &keys, &count);

    if (rc != CHOIR_OK)
        return rc;
    for (size_t i = 0; i < count; i++) {
        unsigned rank;
        char rest;

        if (sscanf(keys[i].data, "rank/%u%c", &rank, &rest) == 1 && rank < meeting->mine->nranks)
            there[rank] = true;
    }
    choir_blob_free_list(keys, count);
    return CHOIR_OK;
}

/* Where the first few of those who joined are, for the error text. */
static void list_places(const struct meeting *meeting, const bool *there, char *out, size_t size)
{
    size_t at = 0;
    unsigned listed = 0;

    out[0] = '\0';
    for (unsigned r = 0; r < meeting->mine->nranks && listed < WHO_LISTED; r++) {
        choir_blob blob;
        struct ch_record record;
        char key[KEY_MAX], who[CH_RECORD_WHO_MAX];

        if (!there[r] ||
            choir_store_get(meeting->store, choir_str(rank_key(r, key)), 1000, &blob) != CHOIR_OK)
            continue;
        if (ch_record_read(blob.data, blob.nbytes, &record) == CHOIR_OK && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s",
                                   listed++ > 0 ? ", " : "; joined: ", ch_record_who(&record, who));
        choir_blob_free(&blob);
    }
}

/* The time is up: say who joined and who did not, to ourselves and to the others. */
static choir_status give_up(const struct meeting *meeting, const char *key)
{
    unsigned nranks = meeting->mine->nranks;
    bool *there = ch_zalloc_array(nranks, sizeof(*there));
    char missing[200], places[700], who[CH_RECORD_WHO_MAX];
    double waited = (double)(ch_now() - meeting->began) / 1e9;
    unsigned joined = 0, culprit = 0;
    choir_error why;

    ch_error_save(&why);
    if (there == NULL || find_joined(meeting, there) != CHOIR_OK) {
        ch_free(there);
        return ch_error_load(&why);
    }
    for (unsigned r = 0; r < nranks; r++)
        joined += there[r];
    while (culprit < nranks && there[culprit])
        culprit++;
    list_ranks(there, nranks, false, missing, sizeof(missing));
    list_places(meeting, there, places, sizeof(places));
    ch_free(there);
    if (joined == nranks)
        ch_fail(CHOIR_ERR_TIMEOUT,
                "%s waited %.1f s: all %u ranks have joined, not all have gone on",
                ch_record_who(meeting->mine, who), waited, nranks);
    else
        ch_fail_rank(CHOIR_ERR_TIMEOUT, (int)culprit, "choir_init",
                     "%s waited %.1f s: %u of %u ranks have joined, missing: %s%s",
                     ch_record_who(meeting->mine, who), waited, joined, nranks, missing, places);
    return publish_failure(meeting, key);
}

/* --- joining ------------------------------------------------------------------------------------ */

/* A record as the store holds it, compared and set: *present_out is what is there afterwards. */
static choir_status claim(const struct meeting *meeting, const char *key,
                          struct ch_record *present_out)
{
    unsigned char bytes[sizeof(struct ch_record)];
    choir_blob present = { NULL, 0 };
    choir_status rc;

    ch_record_write(meeting->mine, bytes);
    rc = choir_store_compare_set(meeting->store, choir_str(key), choir_str(""),
                                 (choir_bytes){ bytes, sizeof(bytes) }, &present);
    if (rc != CHOIR_OK)
        return rc;
    rc = ch_record_read(present.data, present.nbytes, present_out);
    choir_blob_free(&present);
    return rc;
}

/* Does another rank's record fit ours? */
static choir_status compare(const struct ch_record *mine, const struct ch_record *other)
{
    static const char *const orders[] = { "unknown", "little", "big" };
    char me[CH_RECORD_WHO_MAX], them[CH_RECORD_WHO_MAX];

    ch_record_who(mine, me);
    ch_record_who(other, them);
    if (strcmp(mine->version, other->version) != 0 || mine->format != other->format)
        return ch_fail_rank(CHOIR_ERR_PROTO, (int)other->rank, "choir_init",
                            "versions differ: %s has Choir %s (format %u), %s has %s (format %u)",
                            me, mine->version, mine->format, them, other->version, other->format);
    if (mine->byte_order != other->byte_order)
        return ch_fail_rank(CHOIR_ERR_PROTO, (int)other->rank, "choir_init",
                            "byte orders differ: %s is %s-endian, %s is %s-endian", me,
                            orders[mine->byte_order % 3], them, orders[other->byte_order % 3]);
    if (mine->nranks != other->nranks)
        return ch_fail_rank(CHOIR_ERR_INVALID, (int)other->rank, "choir_init",
                            "world sizes differ: %s was told %u ranks, %s was told %u", me,
                            mine->nranks, them, other->nranks);
    return CHOIR_OK;
}

/* *again_out: this process has been here before, as the same rank. */
static choir_status enter(const struct meeting *meeting, bool *again_out)
{
    const struct ch_record *mine = meeting->mine;
    struct ch_record other;
    char key[KEY_MAX], me[CH_RECORD_WHO_MAX], them[CH_RECORD_WHO_MAX];
    choir_status rc = claim(meeting, "first", &other);

    if (rc == CHOIR_OK)
        rc = compare(mine, &other);
    if (rc == CHOIR_OK)
        rc = claim(meeting, rank_key(mine->rank, key), &other);
    if (rc != CHOIR_OK || memcmp(mine->id, other.id, sizeof(mine->id)) == 0)
        return rc;
    *again_out = other.pid == mine->pid && ch_record_same_host(&other, mine);
    return ch_fail_rank(CHOIR_ERR_INVALID, (int)mine->rank, "choir_init",
                        "two processes claim the same rank: %s was here first, and now comes %s",
                        ch_record_who(&other, them), ch_record_who(mine, me));
}

static bool has_failed(const struct meeting *meeting)
{
    choir_bytes known = choir_str("known");
    choir_blob verdict = { NULL, 0 };
    bool there = false, failed;

    if (choir_store_check(meeting->store, &known, 1, &there) == CHOIR_OK && there)
        (void)choir_store_get(meeting->store, known, left_ms(meeting), &verdict);
    failed = verdict.nbytes > 0 && verdict.data[0] == 'n';
    choir_blob_free(&verdict);
    return failed;
}

/* The records of all ranks, as stored, behind each other. */
static choir_status fetch_records(const struct meeting *meeting, char *names, choir_bytes *keys,
                                  char *records_out)
{
    size_t nranks = meeting->mine->nranks;
    choir_blob *blobs;
    choir_status rc;

    for (size_t r = 0; r < nranks; r++)
        keys[r] = choir_str(rank_key((unsigned)r, names + r * KEY_MAX));
    rc = choir_store_multi_get(meeting->store, keys, nranks, left_ms(meeting), &blobs);
    if (rc != CHOIR_OK)
        return rc;
    for (size_t r = 0; r < nranks && rc == CHOIR_OK; r++) {
        if (blobs[r].nbytes != sizeof(struct ch_record))
            rc = ch_fail(CHOIR_ERR_PROTO, "the record of rank %zu has %zu bytes, expected %zu", r,
                         blobs[r].nbytes, sizeof(struct ch_record));
        else
            memcpy(records_out + r * sizeof(struct ch_record), blobs[r].data, blobs[r].nbytes);
    }
    choir_blob_free_list(blobs, nranks);
    return rc;
}

/* All have come: put their records together for everybody. */
static choir_status publish_roster(const struct meeting *meeting, choir_blob *verdict_out)
{
    size_t nranks = meeting->mine->nranks, nbytes = 1 + nranks * sizeof(struct ch_record);
    char *roster = ch_alloc(nbytes), *names = ch_alloc_array(nranks, KEY_MAX);
    choir_bytes *keys = ch_alloc_array(nranks, sizeof(*keys));
    choir_status rc;

    if (roster == NULL || names == NULL || keys == NULL)
        rc = ch_fail(CHOIR_ERR_NOMEM, "no memory for the records of %zu ranks", nranks);
    else
        rc = fetch_records(meeting, names, keys, roster + 1);
    if (rc == CHOIR_OK) {
        roster[0] = 'y';
        rc = publish(meeting, "known", roster, nbytes, verdict_out);
    }
    ch_free(keys);
    ch_free(names);
    ch_free(roster);
    return rc;
}

/* Count ourselves in; the last one publishes, and needs not ask for the verdict. */
static choir_status arrive(const struct meeting *meeting, const char *counter,
                           choir_status (*publish_all)(const struct meeting *meeting,
                                                       choir_blob *verdict_out),
                           choir_blob *verdict_out)
{
    int64_t arrived;
    choir_status rc = choir_store_add(meeting->store, choir_str(counter), 1, &arrived);

    if (rc == CHOIR_OK && arrived == (int64_t)meeting->mine->nranks)
        rc = publish_all(meeting, verdict_out);
    return rc;
}

static choir_status read_roster(const struct meeting *meeting, const choir_blob *verdict,
                                struct ch_record *all_out)
{
    size_t nranks = meeting->mine->nranks;
    choir_status rc = CHOIR_OK;

    if (verdict->nbytes != 1 + nranks * sizeof(struct ch_record))
        return ch_fail(CHOIR_ERR_PROTO, "the list of ranks has %zu bytes, expected %zu",
                       verdict->nbytes, 1 + nranks * sizeof(struct ch_record));
    for (size_t r = 0; r < nranks && rc == CHOIR_OK; r++) {
        rc = ch_record_read(verdict->data + 1 + r * sizeof(struct ch_record),
                            sizeof(struct ch_record), &all_out[r]);
        if (rc == CHOIR_OK && all_out[r].rank != r)
            rc = ch_fail(CHOIR_ERR_PROTO, "the record of rank %zu says rank %u", r,
                         all_out[r].rank);
    }
    return rc;
}

/* The verdict of a phase that we have arrived in. */
static choir_status await_verdict(const struct meeting *meeting, const char *key,
                                  choir_blob *verdict)
{
    choir_status rc = hear(meeting, key, verdict);

    if (rc == CHOIR_ERR_TIMEOUT && ch_deadline_passed(meeting->until))
        rc = give_up(meeting, key);
    return rc;
}

choir_status ch_roster_join(choir_store *store, const struct ch_record *mine, ch_deadline until,
                            struct ch_record *all_out, struct ch_roster_entry *entry_out)
{
    struct meeting meeting = { store, mine, ch_now(), until };
    choir_blob verdict = { NULL, 0 };
    bool again = false;
    choir_status rc = enter(&meeting, &again);

    *entry_out = (struct ch_roster_entry){ .counted = rc == CHOIR_OK,
                                           .spent = again && has_failed(&meeting) };
    if (entry_out->spent)
        return rc;
    if (rc != CHOIR_OK)
        return publish_failure(&meeting, "known");
    rc = arrive(&meeting, "arrived", publish_roster, &verdict);
    if (rc != CHOIR_OK)
        publish_failure(&meeting, "known");
    else
        rc = await_verdict(&meeting, "known", &verdict);
    if (rc == CHOIR_OK)
        rc = read_roster(&meeting, &verdict, all_out);
    choir_blob_free(&verdict);
    return rc;
}

static choir_status publish_done(const struct meeting *meeting, choir_blob *verdict_out)
{
    return publish(meeting, "done", "y", 1, verdict_out);
}

/* The same for the last phase, in which a rank may die of which the store knows nothing. */
static choir_status await_done(const struct meeting *meeting, const struct ch_roster_watch *watch,
                               choir_blob *verdict)
{
    struct meeting slice = *meeting;

    for (;;) {
        choir_status rc;

        slice.until = ch_deadline_ms(LOOK_MS);
        if (slice.until >= meeting->until)
            return await_verdict(meeting, "done", verdict);
        rc = hear(&slice, "done", verdict);
        if (rc != CHOIR_ERR_TIMEOUT || !ch_deadline_passed(slice.until))
            return rc;
        if (watch->fn(watch->arg) != CHOIR_OK)
            return publish_failure(meeting, "done");
    }
}

choir_status ch_roster_finish(choir_store *store, const struct ch_record *mine, ch_deadline until,
                              choir_status mine_went, const struct ch_roster_watch *watch)
{
    struct meeting meeting = { store, mine, ch_now(), until };
    choir_blob verdict = { NULL, 0 };
    choir_status rc = mine_went;

    if (rc == CHOIR_OK)
        rc = arrive(&meeting, "ready", publish_done, &verdict);
    if (rc != CHOIR_OK)
        rc = settle_failure(&meeting);
    else
        rc = await_done(&meeting, watch, &verdict);
    choir_blob_free(&verdict);
    return rc;
}

void ch_roster_forget(choir_store *store, int rank, int nranks)
{
    static const char *const common[] = { "first", "known", "arrived", "ready" };
    char key[KEY_MAX];
    choir_error why;

    ch_error_save(&why);
    (void)choir_store_delete(store, choir_str(rank_key((unsigned)rank, key)), NULL);
    for (size_t i = (size_t)rank; i < CH_ARRAY_LEN(common); i += (size_t)nranks)
        (void)choir_store_delete(store, choir_str(common[i]), NULL);
    ch_error_load(&why);
}

/* --- leaving ------------------------------------------------------------------------------------ */

static const char *left_key(unsigned rank, char *key)
{
    snprintf(key, KEY_MAX, "left/%u", rank);
    return key;
}

void ch_roster_leave(choir_store *store, int rank)
{
    char key[KEY_MAX];
    int64_t unused;
    choir_error why;

    ch_error_save(&why);
    (void)choir_store_add(store, choir_str(left_key((unsigned)rank, key)), 1, &unused);
    ch_error_load(&why);
}

void ch_roster_linger(choir_store *store, int nranks)
{
    struct ch_record mine = { .nranks = (uint32_t)nranks };
    struct meeting meeting = { store, &mine, ch_now(), ch_deadline_ms(LINGER_MS) };
    bool *there = ch_zalloc_array((size_t)nranks, sizeof(*there));
    choir_status rc = there != NULL ? find_joined(&meeting, there) : CHOIR_ERR_NOMEM;

    for (unsigned r = 0; r < (unsigned)nranks && rc == CHOIR_OK; r++) {
        char text[KEY_MAX];
        choir_bytes key = choir_str(left_key(r, text));

        if (there[r])
            rc = choir_store_wait(store, &key, 1, left_ms(&meeting));
    }
    ch_free(there);
}
