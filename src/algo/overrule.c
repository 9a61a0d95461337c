/*
 * overrule.c - CHOIR_ALGO: operation:algorithm[:MIN-MAX], several between commas.
 */
#include <stdio.h>
#include <string.h>

#include "algo/select.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/params.h"

enum { ITEM_MAX = 127 };

const char *ch_algo_names(enum ch_coll coll, char *buf, size_t size)
{
    size_t used = 0;

    if (size > 0)
        buf[0] = '\0';
    for (size_t i = 0; ch_algos[i] != NULL && used < size; i++) {
        if (ch_algos[i]->coll == coll)
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used == 0 ? "" : ", ",
                                     ch_algos[i]->name);
    }
    return buf;
}

static choir_status no_such_operation(const char *item, const char *name)
{
    char known[256] = "";
    size_t used = 0;

    for (int c = 0; c < CH_NCOLLS && used < sizeof(known); c++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", c == 0 ? "" : ", ",
                                 ch_coll_name((enum ch_coll)c));
    return ch_fail(CHOIR_ERR_INVALID,
                   "CHOIR_ALGO: \"%s\": there is no operation \"%s\"; there are %s", item, name,
                   known);
}

/* "64K", "max" */
static bool parse_limit(const char *text, uint64_t *out)
{
    size_t nbytes;

    if (strcmp(text, "max") == 0) {
        *out = UINT64_MAX;
        return true;
    }
    if (!ch_parse_size(text, &nbytes))
        return false;
    *out = nbytes;
    return true;
}

static choir_status parse_limits(const char *item, char *text, struct ch_overrule *out)
{
    char *dash = strchr(text, '-');

    if (dash != NULL) {
        *dash = '\0';
        if (parse_limit(text, &out->from) && parse_limit(dash + 1, &out->to) &&
            out->from <= out->to)
            return CHOIR_OK;
    }
    return ch_fail(CHOIR_ERR_INVALID,
                   "CHOIR_ALGO: \"%s\": sizes are written MIN-MAX, such as 64K-max", item);
}

/* `words` is a copy of `item` to be cut up. */
static choir_status parse_item(const char *item, char *words, struct ch_overrule *out)
{
    char *algo = strchr(words, ':'), *limits, known[256];
    enum ch_coll coll;

    if (algo == NULL)
        return ch_fail(CHOIR_ERR_INVALID,
                       "CHOIR_ALGO: \"%s\": it is written operation:algorithm[:MIN-MAX]", item);
    *algo++ = '\0';
    limits = strchr(algo, ':');
    if (limits != NULL)
        *limits++ = '\0';
    if (!ch_coll_find(words, &coll))
        return no_such_operation(item, words);
    *out = (struct ch_overrule){ .algo = ch_algo_find(coll, algo), .from = 0, .to = UINT64_MAX };
    if (out->algo == NULL)
        return ch_fail(CHOIR_ERR_INVALID,
                       "CHOIR_ALGO: \"%s\": %s has no algorithm \"%s\"; it has %s", item, words,
                       algo, ch_algo_names(coll, known, sizeof(known)));
    return limits == NULL ? CHOIR_OK : parse_limits(item, limits, out);
}

choir_status ch_overrules_parse(const char *text, struct ch_overrules *out)
{
    struct ch_overrules found = { 0 };

    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        char item[ITEM_MAX + 1], words[ITEM_MAX + 1];
        choir_status rc;

        if (length > ITEM_MAX)
            return ch_fail(CHOIR_ERR_INVALID, "CHOIR_ALGO: \"%.20s...\" is too long to be an entry",
                           text);
        if (found.count == CH_OVERRULES_MAX)
            return ch_fail(CHOIR_ERR_INVALID, "CHOIR_ALGO: more than %d entries", CH_OVERRULES_MAX);
        snprintf(item, sizeof(item), "%.*s", (int)length, text);
        memcpy(words, item, length + 1);
        rc = parse_item(item, words, &found.list[found.count++]);
        if (rc != CHOIR_OK)
            return rc;
        text += length;
        if (*text == ',')
            text++;
    }
    *out = found;
    return CHOIR_OK;
}
