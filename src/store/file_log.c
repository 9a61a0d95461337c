/* file_log.c - see file_log.h for the layout. */
#include "store/file_log.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "base/sha256.h"
#include "store/bytes.h"

static const char file_magic[8] = "ChoirLog";
static const char record_magic[4] = "crec";

enum { SUM_NBYTES = 8, HEADER_SUM_AT = CH_LOG_HEADER_NBYTES - SUM_NBYTES, RECORD_SUM_AT = 16 };
_Static_assert(RECORD_SUM_AT + SUM_NBYTES == CH_LOG_HEAD_NBYTES,
               "the checksum ends a record's head");

static void put_u32(unsigned char *at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(number >> 8 * i);
}

static uint32_t get_u32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void end_sum(struct ch_sha256 *hash, unsigned char sum_out[SUM_NBYTES])
{
    unsigned char whole[CH_SHA256_NBYTES];

    ch_sha256_end(hash, whole);
    memcpy(sum_out, whole, SUM_NBYTES);
}

/* --- header -------------------------------------------------------------------------------------- */

static void sum_header(const unsigned char *bytes, unsigned char sum_out[SUM_NBYTES])
{
    struct ch_sha256 hash;

    ch_sha256_init(&hash);
    ch_sha256_add(&hash, bytes, HEADER_SUM_AT);
    end_sum(&hash, sum_out);
}

void ch_log_write_header(const struct ch_log_header *header,
                         unsigned char bytes_out[CH_LOG_HEADER_NBYTES])
{
    memset(bytes_out, 0, CH_LOG_HEADER_NBYTES);
    memcpy(bytes_out, file_magic, sizeof(file_magic));
    put_u32(bytes_out + 8, CH_LOG_VERSION);
    put_u32(bytes_out + 12, (uint32_t)header->nranks);
    memcpy(bytes_out + 16, header->salt, CH_LOG_SALT_NBYTES);
    memcpy(bytes_out + 32, header->run_id, strnlen(header->run_id, CH_LOG_RUN_ID_NBYTES - 1));
    sum_header(bytes_out, bytes_out + HEADER_SUM_AT);
}

static choir_status check_header(const unsigned char *bytes, size_t nbytes)
{
    size_t start = nbytes < sizeof(file_magic) ? nbytes : sizeof(file_magic);
    unsigned char sum[SUM_NBYTES];

    if (memcmp(bytes, file_magic, start) != 0)
        return ch_fail(CHOIR_ERR_PROTO, "it holds something else than a store; it is left alone");
    /* Before its length and its sum: those may be other ones in another version. */
    if (nbytes >= 12 && get_u32(bytes + 8) != CH_LOG_VERSION)
        return ch_fail(CHOIR_ERR_PROTO, "it is a store of format %u, this is a Choir for format %u",
                       get_u32(bytes + 8), CH_LOG_VERSION);
    if (nbytes < CH_LOG_HEADER_NBYTES)
        return ch_fail(
            CHOIR_ERR_PROTO,
            "its header is cut short, %zu bytes of %d; remove the file if nobody uses it", nbytes,
            CH_LOG_HEADER_NBYTES);
    sum_header(bytes, sum);
    if (memcmp(sum, bytes + HEADER_SUM_AT, SUM_NBYTES) != 0)
        return ch_fail(CHOIR_ERR_PROTO, "its header does not fit its checksum");
    /* Whoever can make a sum can make these wrong as well. */
    if (get_u32(bytes + 12) > INT_MAX || bytes[32 + CH_LOG_RUN_ID_NBYTES - 1] != '\0')
        return ch_fail(CHOIR_ERR_PROTO, "its header makes no sense");
    return CHOIR_OK;
}

choir_status ch_log_read_header(const unsigned char *bytes, size_t nbytes,
                                struct ch_log_header *header_out)
{
    choir_status rc = check_header(bytes, nbytes);

    if (rc != CHOIR_OK)
        return rc;
    header_out->nranks = (int)get_u32(bytes + 12);
    memcpy(header_out->salt, bytes + 16, CH_LOG_SALT_NBYTES);
    memcpy(header_out->run_id, bytes + 32, CH_LOG_RUN_ID_NBYTES);
    return CHOIR_OK;
}

/* --- records ------------------------------------------------------------------------------------- */

static void sum_record(const struct ch_log_header *header, uint64_t place,
                       const unsigned char *bytes, size_t nbytes, unsigned char sum_out[SUM_NBYTES])
{
    unsigned char at[8];
    struct ch_sha256 hash;

    put_u32(at, (uint32_t)place);
    put_u32(at + 4, (uint32_t)(place >> 32));
    ch_sha256_init(&hash);
    ch_sha256_add(&hash, header->salt, sizeof(header->salt));
    ch_sha256_add(&hash, at, sizeof(at));
    ch_sha256_add(&hash, bytes, RECORD_SUM_AT);
    ch_sha256_add(&hash, bytes + CH_LOG_HEAD_NBYTES, nbytes - CH_LOG_HEAD_NBYTES);
    end_sum(&hash, sum_out);
}

size_t ch_log_record_nbytes(const struct ch_log_record *record)
{
    return CH_LOG_HEAD_NBYTES + record->key.nbytes + record->value.nbytes;
}

void ch_log_write_record(const struct ch_log_header *header, uint64_t place,
                         const struct ch_log_record *record, unsigned char *bytes_out)
{
    unsigned char *behind = bytes_out + CH_LOG_HEAD_NBYTES;

    memset(bytes_out, 0, CH_LOG_HEAD_NBYTES);
    memcpy(bytes_out, record_magic, sizeof(record_magic));
    bytes_out[4] = (unsigned char)record->kind;
    put_u32(bytes_out + 8, (uint32_t)record->key.nbytes);
    put_u32(bytes_out + 12, (uint32_t)record->value.nbytes);
    if (record->key.nbytes > 0)
        memcpy(behind, record->key.data, record->key.nbytes);
    if (record->value.nbytes > 0)
        memcpy(behind + record->key.nbytes, record->value.data, record->value.nbytes);
    sum_record(header, place, bytes_out, ch_log_record_nbytes(record), bytes_out + RECORD_SUM_AT);
}

enum ch_log_found ch_log_read_record(const struct ch_log_header *header, uint64_t place,
                                     const unsigned char *bytes, size_t nbytes,
                                     struct ch_log_record *record_out, size_t *nbytes_out)
{
    unsigned char sum[SUM_NBYTES];
    size_t key_nbytes, value_nbytes, need = CH_LOG_HEAD_NBYTES;

    *nbytes_out = need;
    if (nbytes < need)
        return CH_LOG_SHORT;
    if (memcmp(bytes, record_magic, sizeof(record_magic)) != 0 || bytes[4] < CH_LOG_SET ||
        bytes[4] > CH_LOG_POP || (bytes[5] | bytes[6] | bytes[7]) != 0)
        return CH_LOG_TORN;
    key_nbytes = get_u32(bytes + 8);
    value_nbytes = get_u32(bytes + 12);
    need += key_nbytes + value_nbytes; /* two numbers of 32 bits: no overflow in a size_t of 64 */
    *nbytes_out = need;
    if (nbytes < need)
        return CH_LOG_SHORT;
    sum_record(header, place, bytes, need, sum);
    if (memcmp(sum, bytes + RECORD_SUM_AT, SUM_NBYTES) != 0)
        return CH_LOG_TORN;
    *record_out = (struct ch_log_record){
        .kind = (enum ch_log_kind)bytes[4],
        .key = { bytes + CH_LOG_HEAD_NBYTES, key_nbytes },
        .value = { bytes + CH_LOG_HEAD_NBYTES + key_nbytes, value_nbytes },
    };
    return CH_LOG_RECORD;
}

choir_status ch_log_apply(const struct ch_log_record *record, struct ch_table *table)
{
    switch (record->kind) {
    case CH_LOG_SET:
        return ch_table_set(table, record->key, record->value);
    case CH_LOG_APPEND:
        return ch_table_append(table, record->key, record->value);
    case CH_LOG_PUSH:
        return ch_table_queue_push(table, record->key, record->value);
    case CH_LOG_REMOVE:
        (void)ch_table_remove(table, record->key);
        return CHOIR_OK;
    case CH_LOG_POP:
        ch_table_queue_drop(table, record->key);
        return CHOIR_OK;
    }
    return CHOIR_OK;
}
