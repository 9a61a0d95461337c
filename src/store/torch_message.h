/*
 * torch_message.h - whole requests of PyTorch's protocol as bytes, for the client to send.
 *
 * Here keys get their "/", and what a server would close the connection for is refused with
 * CHOIR_ERR_INVALID before anything is sent. A message that was built is ended with
 * ch_torch_message_fini(); one that could not be needs nothing.
 */
#ifndef CH_TORCH_MESSAGE_H
#define CH_TORCH_MESSAGE_H

#include "store/torch_wire.h"

enum {
    CH_TORCH_SMALL_REQUEST = 512, /* such a one needs no memory */
    /* A list is sent in parts of about this size: PyTorch's server looks at all of it anew whenever a
     * piece of it arrives. */
    CH_TORCH_PART_NBYTES = 1 << 20,
};

struct ch_torch_message {
    unsigned char *bytes; /* `small`, or on the heap */
    size_t nbytes;
    unsigned char small[CH_TORCH_SMALL_REQUEST];
};

/* Some keys of a list, and values for them or NULL. */
struct ch_torch_items {
    const choir_bytes *keys, *values;
    size_t count;
};

/* A request without a list; the second without putting a "/" in front of its key. */
choir_status ch_torch_build(const struct ch_torch_request *request, struct ch_torch_message *out);
choir_status ch_torch_build_raw(const struct ch_torch_request *request,
                                struct ch_torch_message *out);

/* A request with a list, of which ch_torch_first_part() has seen that it is not too long. */
choir_status ch_torch_build_list(enum ch_torch_command command, const struct ch_torch_items *items,
                                 struct ch_torch_message *out);

void ch_torch_message_fini(struct ch_torch_message *message);

/* As many of the items, from the front, as go into one request; and the rest. */
struct ch_torch_items ch_torch_first_part(enum ch_torch_command command,
                                          const struct ch_torch_items *items);
void ch_torch_drop_part(struct ch_torch_items *items, size_t count);

/* Whether all of them are such that a server takes them. */
choir_status ch_torch_check_items(const struct ch_torch_items *items);

#endif
