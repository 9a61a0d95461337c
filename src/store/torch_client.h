/*
 * torch_client.h - the connections of a client of PyTorch's protocol, and who may use which.
 *
 * That protocol answers one request at a time, and a wait blocks its connection. So there are two
 * kinds of connection:
 *
 *   main   one. Every request that is answered at once, and those that have no answer, in the order in
 *          which they were made: who sets a key and then looks for it finds it.
 *   lanes  as many as threads wait at this moment: WAIT and BARRIER. What was awaited is then
 *          fetched through main. A few are kept for the next wait.
 *
 * Threads: any number at once. No lock is held while one of them waits.
 */
#ifndef CH_TORCH_CLIENT_H
#define CH_TORCH_CLIENT_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "store/torch_link.h"
#include "store/torch_message.h"

/* Commands that came later than the others; what a server knows is asked when it is first needed. */
enum ch_torch_feature { CH_TORCH_QUEUES, CH_TORCH_LISTING, CH_TORCH_BARRIERS, CH_TORCH_NFEATURES };

struct ch_torch_lane {
    struct ch_list in_idle;
    struct ch_torch_link link;
};

struct ch_torch_client {
    char *where;         /* "host:port"; NULL: not opened */
    struct ch_lock lock; /* guards the next four */
    bool main_is_taken;
    struct ch_list claims; /* who waits for main, in turn */
    struct ch_list idle;   /* lanes */
    int nidle;
    struct ch_torch_link main; /* of whoever has taken it */
    /* enum knowledge; relaxed: only ever set to the truth */
    _Atomic int features[CH_TORCH_NFEATURES];
};

/* Connect main, trying until the deadline. Close in any case afterwards; that accepts what is
 * zeroed. */
choir_status ch_torch_client_open(struct ch_torch_client *client, const char *where,
                                  const struct ch_patience *patience);
void ch_torch_client_close(struct ch_torch_client *client);

/* --- main ---------------------------------------------------------------------------------------- */

/* Take main, open and quiet, and give it back. A server that has gone is not waited for: whoever was
 * connected to it should hear of it. */
choir_status ch_torch_begin(struct ch_torch_client *torch, const struct ch_patience *patience);
void ch_torch_end(struct ch_torch_client *torch);

/* Ask on a link that the caller has taken. The reply is borrowed until the next call on it. */
choir_status ch_torch_ask_message(struct ch_torch_link *link,
                                  const struct ch_torch_message *message, enum ch_torch_reply form,
                                  size_t count, const struct ch_patience *patience,
                                  choir_bytes *reply_out);
choir_status ch_torch_ask_on(struct ch_torch_link *link, const struct ch_torch_request *request,
                             enum ch_torch_reply form, const struct ch_patience *patience,
                             choir_bytes *reply_out);

/* Take main and ask. If that goes well the caller reads the reply and then gives main back. */
choir_status ch_torch_ask(struct ch_torch_client *torch, const struct ch_torch_request *request,
                          enum ch_torch_reply form, const struct ch_patience *patience,
                          choir_bytes *reply_out);

/* Take main, ask for a number, give it back. */
choir_status ch_torch_ask_number(struct ch_torch_client *torch,
                                 const struct ch_torch_request *request, int64_t *number_out,
                                 const struct ch_patience *patience);

/* Take main, send what has no reply, give it back. */
choir_status ch_torch_tell(struct ch_torch_client *torch, const struct ch_torch_request *request,
                           const struct ch_patience *patience);
choir_status ch_torch_tell_message(struct ch_torch_client *torch,
                                   const struct ch_torch_message *message,
                                   const struct ch_patience *patience);

/* --- lanes --------------------------------------------------------------------------------------- */

/* One for the caller alone, open and quiet. Given back it is kept, or closed if it is not good any
 * more or there are enough. */
choir_status ch_torch_take_lane(struct ch_torch_client *torch, const struct ch_patience *patience,
                                struct ch_torch_lane **lane_out);
void ch_torch_give_lane(struct ch_torch_client *torch, struct ch_torch_lane *lane);

/* --- the server ---------------------------------------------------------------------------------- */

choir_status ch_torch_knows(struct ch_torch_client *torch, enum ch_torch_feature feature,
                            const struct ch_patience *patience, bool *knows_out);

/* CHOIR_ERR_UNSUPPORTED, in words, if it does not. */
choir_status ch_torch_need(struct ch_torch_client *torch, enum ch_torch_feature feature,
                           const struct ch_patience *patience);

/* Let some time pass. CHOIR_OK: it has, and there is more left. */
choir_status ch_torch_pause(uint64_t ns, const struct ch_patience *patience);

#endif
