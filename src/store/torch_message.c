/* torch_message.c - see torch_message.h. */
#include "store/torch_message.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

static choir_status message_init(struct ch_torch_message *message, size_t nbytes)
{
    message->nbytes = nbytes;
    message->bytes = nbytes <= sizeof(message->small) ? message->small : ch_alloc(nbytes);
    if (message->bytes == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "torch: no memory for a request of %zu bytes", nbytes);
    return CHOIR_OK;
}

void ch_torch_message_fini(struct ch_torch_message *message)
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

static choir_status check_key(choir_bytes key)
{
    if (key.nbytes > CH_TORCH_KEY_MAX - 1)
        return ch_fail(CHOIR_ERR_INVALID, "a key of %zu bytes, PyTorch's servers take at most %d",
                       key.nbytes, CH_TORCH_KEY_MAX - 1);
    return CHOIR_OK;
}

/* "/" and the key, which was checked, in `buf` of CH_TORCH_KEY_MAX. */
static choir_bytes slashed(choir_bytes key, char *buf)
{
    buf[0] = '/';
    if (key.nbytes > 0)
        memcpy(buf + 1, key.data, key.nbytes);
    return (choir_bytes){ buf, key.nbytes + 1 };
}

choir_status ch_torch_build_raw(const struct ch_torch_request *request,
                                struct ch_torch_message *out)
{
    choir_status rc = message_init(out, ch_torch_size(request));

    if (rc == CHOIR_OK)
        ch_torch_put(out->bytes, request);
    return rc;
}

choir_status ch_torch_build(const struct ch_torch_request *request, struct ch_torch_message *out)
{
    struct ch_torch_request with_slash = *request;
    char key[CH_TORCH_KEY_MAX];
    choir_status rc = check_key(request->key);

    if (rc == CHOIR_OK)
        rc = check_value(request->value);
    if (rc == CHOIR_OK)
        rc = check_value(request->desired);
    if (rc != CHOIR_OK)
        return rc;
    with_slash.key = slashed(request->key, key);
    return ch_torch_build_raw(&with_slash, out);
}

static choir_bytes value_of(const struct ch_torch_items *items, size_t i)
{
    return items->values != NULL ? items->values[i] : (choir_bytes){ NULL, 0 };
}

static size_t item_size(enum ch_torch_command command, const struct ch_torch_items *items, size_t i)
{
    const struct ch_torch_request item = { .command = command,
                                           .key = items->keys[i],
                                           .value = value_of(items, i) };

    return 1 + ch_torch_item_size(&item); /* the "/" */
}

struct ch_torch_items ch_torch_first_part(enum ch_torch_command command,
                                          const struct ch_torch_items *items)
{
    struct ch_torch_items part = *items;
    size_t nbytes = 0;

    for (part.count = 0; part.count < items->count && part.count < CH_TORCH_COUNT_MAX;
         part.count++) {
        nbytes += item_size(command, items, part.count);
        if (nbytes > CH_TORCH_PART_NBYTES && part.count > 0)
            break;
    }
    return part;
}

void ch_torch_drop_part(struct ch_torch_items *items, size_t count)
{
    items->keys += count;
    items->values = items->values != NULL ? items->values + count : NULL;
    items->count -= count;
}

choir_status ch_torch_check_items(const struct ch_torch_items *items)
{
    choir_status rc = CHOIR_OK;

    for (size_t i = 0; i < items->count && rc == CHOIR_OK; i++) {
        rc = check_key(items->keys[i]);
        if (rc == CHOIR_OK)
            rc = check_value(value_of(items, i));
    }
    return rc;
}

choir_status ch_torch_build_list(enum ch_torch_command command, const struct ch_torch_items *items,
                                 struct ch_torch_message *out)
{
    const struct ch_torch_request head = { .command = command, .number = (int64_t)items->count };
    size_t nbytes = ch_torch_size(&head);
    char key[CH_TORCH_KEY_MAX];
    unsigned char *at;
    choir_status rc = ch_torch_check_items(items);

    for (size_t i = 0; i < items->count && rc == CHOIR_OK; i++)
        nbytes += item_size(command, items, i);
    if (rc == CHOIR_OK)
        rc = message_init(out, nbytes);
    if (rc != CHOIR_OK)
        return rc;
    at = ch_torch_put(out->bytes, &head);
    for (size_t i = 0; i < items->count; i++) {
        const struct ch_torch_request item = { .command = command,
                                               .key = slashed(items->keys[i], key),
                                               .value = value_of(items, i) };

        at = ch_torch_put_item(at, &item);
    }
    return CHOIR_OK;
}
