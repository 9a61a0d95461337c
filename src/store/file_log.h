/*
 * file_log.h - the format of a file store: a header, then records, each of them one change.
 *
 * Numbers are little-endian.
 *
 *   header   0   8  "ChoirLog"                  record   0   4  "crec"
 *            8   4  version, 1                           4   1  what it does (enum ch_log_kind)
 *           12   4  nranks; 0: it lasts                  5   3  zero
 *           16  16  salt, new with every beginning       8   4  bytes of the key
 *           32  64  run id, text, NUL-padded            12   4  bytes of the value
 *           96  24  zero                                16   8  checksum of all but these 8
 *          120   8  checksum of the 120 before          24   -  key, then value
 *
 * A checksum is the first 8 bytes of a SHA-256. A record's goes over the file's salt and the record's
 * place as well, so that bytes of an earlier run are never taken for records of this one. A last record
 * that is cut short or does not fit its checksum was torn by a crash: it never happened.
 *
 * Nothing here touches a file; file.c does. The bytes may be anybody's (tests/fuzz/file_fuzz.c).
 */
#ifndef CH_FILE_LOG_H
#define CH_FILE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>
#include <choir/store.h>

#include "store/table.h"

enum {
    CH_LOG_VERSION = 1,
    CH_LOG_HEADER_NBYTES = 128,
    CH_LOG_HEAD_NBYTES = 24, /* of a record, before its key */
    CH_LOG_SALT_NBYTES = 16,
    CH_LOG_RUN_ID_NBYTES = 64, /* with a NUL at its end */
};

struct ch_log_header {
    int nranks;
    unsigned char salt[CH_LOG_SALT_NBYTES];
    char run_id[CH_LOG_RUN_ID_NBYTES];
};

enum ch_log_kind {
    CH_LOG_SET = 1,
    CH_LOG_APPEND,
    CH_LOG_REMOVE,
    CH_LOG_PUSH,
    CH_LOG_POP,
};

struct ch_log_record {
    enum ch_log_kind kind;
    choir_bytes key, value; /* borrowed from the bytes it was parsed from */
};

void ch_log_write_header(const struct ch_log_header *header,
                         unsigned char bytes_out[CH_LOG_HEADER_NBYTES]);

/* CHOIR_ERR_PROTO with a text that says what is wrong: another program's file, one that is cut short,
 * another version. `bytes` are the file's first, as many as there are up to a header's. */
choir_status ch_log_read_header(const unsigned char *bytes, size_t nbytes,
                                struct ch_log_header *header_out);

size_t ch_log_record_nbytes(const struct ch_log_record *record);

/* Write a record that will stand at `place` of the file. `bytes_out` has room for it. */
void ch_log_write_record(const struct ch_log_header *header, uint64_t place,
                         const struct ch_log_record *record, unsigned char *bytes_out);

enum ch_log_found {
    CH_LOG_RECORD, /* a whole record: *nbytes_out long */
    CH_LOG_SHORT,  /* not enough bytes to tell: at least *nbytes_out would be needed */
    CH_LOG_TORN,   /* not a record */
};

/* What stands at the front of `bytes`, at `place` of the file. */
enum ch_log_found ch_log_read_record(const struct ch_log_header *header, uint64_t place,
                                     const unsigned char *bytes, size_t nbytes,
                                     struct ch_log_record *record_out, size_t *nbytes_out);

/* Make the change in a table. */
choir_status ch_log_apply(const struct ch_log_record *record, struct ch_table *table);

#endif
