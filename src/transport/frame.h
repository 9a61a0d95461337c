/*
 * frame.h - what two p2p ends say to each other over a stream.
 *
 * A stream is a sequence of frames: 64 bytes, and for EAGER and DATA `nbytes` of a message behind them, filled up to a
 * multiple of 64: so a frame is one cache line of a ring, and a payload never shares one with the next frame.
 * Little-endian. No frame is longer than 64 + CH_P2P_EAGER bytes, so nothing waits long behind another.
 *
 *   offset  bytes  field
 *        0      4  nbytes   of the payload behind this frame
 *        4      1  kind     enum ch_frame_kind
 *        5      1  reason   enum ch_frame_reason; REFUSE only
 *        6      2  flags    CH_FRAME_ASKED, CH_FRAME_LENT
 *        8      4  credit   kept memory given back to the reader of this frame, since the last
 *       12      4  epoch    of what is lent; else 0
 *       16      8  context
 *       24      8  tag
 *       32      8  check
 *       40      8  total
 *       48      8  id       of the message, as its sender numbers it
 *       56      8  rid      of the message, as its receiver numbers it
 *
 *   kind      from      meaning, and fields used beside kind and credit
 *   EAGER     sender    a whole message: nbytes, context, tag, check, total = nbytes
 *   OFFER     sender    there is a message for you: context, tag, check, total, id; flags: asked for by ASK;
 *                       lent: it is at address rid of the sender's memory, until its withdrawals (transport.h) are not epoch any more
 *   TAKE      receiver  send it: id, rid
 *   READ      receiver  it was lent, and has been read: id
 *   DATA      sender    the next piece of it: nbytes, rid, total = bytes sent before
 *   REFUSE    receiver  it is not wanted, or no more: id, reason; context, tag; for a mismatch total and
 *                       check as the receiver has them; id 0 is an EAGER one, and rid what it had
 *                       (its length, or its check)
 *   WITHDRAW  sender    it will not come, or not all of it: id
 *   CREDIT    receiver  nothing but the credit
 *   HELD      sender    I hold messages back, having no credit left
 *   ASK       receiver  should one of these be held back, offer the first: context, tag
 *   ASKED_ALL receiver  I have asked for all I want now; the answer to HELD
 *   FLOWS     sender    I hold nothing back any more
 *
 * A message of up to CH_P2P_EAGER bytes goes as EAGER while there is credit; everything else is offered and
 * waits for TAKE. Whoever receives may have to keep what nobody asked for yet, and each message is charged
 * for that, whether it is kept or not: ch_frame_charge() of its payload. The sender counts
 * the charge as used until the receiver gives it back; EAGER may use CH_P2P_KEPT less a quarter, OFFER all
 * of CH_P2P_KEPT. With nothing left messages stay with their sender, who says HELD; from then to FLOWS the
 * receiver asks by name for what it has a receive for, and what was asked for is offered free of charge. So
 * what is kept for a peer has a limit, yet no message that somebody waits for is ever stuck behind
 * messages that nobody wants, in whatever context.
 *
 * Order: EAGER and OFFER leave in the order of the sends of a context and tag; held ones are later than all
 * that were not, and the first that fits is the one that is asked for.
 */
#ifndef CH_FRAME_H
#define CH_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum ch_frame_kind {
    CH_FRAME_EAGER = 1,
    CH_FRAME_OFFER,
    CH_FRAME_TAKE,
    CH_FRAME_DATA,
    CH_FRAME_REFUSE,
    CH_FRAME_WITHDRAW,
    CH_FRAME_CREDIT,
    CH_FRAME_HELD,
    CH_FRAME_ASK,
    CH_FRAME_ASKED_ALL,
    CH_FRAME_FLOWS,
    CH_FRAME_READ,
};

enum ch_frame_reason {
    CH_REFUSED_LENGTH = 1, /* the receive has another length */
    CH_REFUSED_CHECK,      /* the receive has another check word */
    CH_REFUSED_DROPPED,    /* the receive was taken back */
    CH_REFUSED_ENDED,      /* the context has ended */
};

enum { CH_FRAME_ASKED = 1, CH_FRAME_LENT = 2 };

struct ch_frame {
    uint32_t nbytes;
    uint8_t kind;
    uint8_t reason;
    uint16_t flags;
    uint32_t credit;
    uint32_t epoch;
    uint64_t context;
    uint64_t tag;
    uint64_t check;
    uint64_t total;
    uint64_t id;
    uint64_t rid;
};
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian");
_Static_assert(offsetof(struct ch_frame, kind) == 4, "as in the table above");
_Static_assert(offsetof(struct ch_frame, reason) == 5, "as in the table above");
_Static_assert(offsetof(struct ch_frame, flags) == 6, "as in the table above");
_Static_assert(offsetof(struct ch_frame, credit) == 8, "as in the table above");
_Static_assert(offsetof(struct ch_frame, context) == 16, "as in the table above");
_Static_assert(offsetof(struct ch_frame, tag) == 24, "as in the table above");
_Static_assert(offsetof(struct ch_frame, check) == 32, "as in the table above");
_Static_assert(offsetof(struct ch_frame, total) == 40, "as in the table above");
_Static_assert(offsetof(struct ch_frame, id) == 48, "as in the table above");
_Static_assert(offsetof(struct ch_frame, rid) == 56, "as in the table above");
_Static_assert(sizeof(struct ch_frame) == 64, "as in the table above");

/* The bytes behind a payload that mean nothing. */
static inline uint32_t ch_frame_fill(uint32_t nbytes)
{
    return -nbytes % sizeof(struct ch_frame);
}

/* What keeping a message takes: a record, and a buffer of a power of two for an eager one's payload. */
enum { CH_FRAME_CHARGE = 256, CH_FRAME_BUFFER_MIN = 64 };

static inline uint32_t ch_frame_buffer(uint32_t nbytes)
{
    uint32_t room = CH_FRAME_BUFFER_MIN;

    while (room < nbytes)
        room *= 2;
    return nbytes == 0 ? 0 : room;
}

static inline uint32_t ch_frame_charge(uint32_t nbytes)
{
    return CH_FRAME_CHARGE + ch_frame_buffer(nbytes);
}

#endif
