/*
 * unique_id.h - what is in an id, and the store behind it in which its ranks meet.
 *
 *   offset  bytes  what
 *        0      8  "choir-id"
 *        8      2  version, little endian: 1
 *       10      6  zero
 *       16     16  name: random, what tells the ids of one process apart
 *       32     32  token: random, whoever connects must hold it
 *       64     60  address of the process that made it, "10.0.0.2:4711", filled up with zeros
 *      124      4  the first bytes of the SHA-256 of all before: an id that was cut or mixed up is told at once
 */
#ifndef CH_UNIQUE_ID_H
#define CH_UNIQUE_ID_H

#include <choir/comm.h>
#include <choir/store.h>

#include "base/clock.h"

enum { CH_ID_NAME_NBYTES = 16, CH_ID_ADDRESS_MAX = 60 };

struct ch_id_parts {
    char name[2 * CH_ID_NAME_NBYTES + 1]; /* in hexadecimal digits */
    char address[CH_ID_ADDRESS_MAX];
    choir_token token;
};

/* CHOIR_ERR_INVALID, saying what is wrong with them, if these bytes are no id. */
choir_status ch_unique_id_read(const choir_unique_id *id, struct ch_id_parts *out);

/*
 * The id's own corner of the store in the process that made it; ends with choir_store_close().
 * Errors: CHOIR_ERR_NETWORK at once if nobody listens there any more.
 */
choir_status ch_unique_id_open(const struct ch_id_parts *parts, ch_deadline until,
                               choir_store **store_out);

/* End the store of all ids that this process made, which otherwise lasts as long as the process: for tests. */
void ch_unique_id_stop(void);

#endif
