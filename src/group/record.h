/*
 * record.h - what a rank tells the others about itself when it joins.
 *
 * As stored, little-endian; texts end in NUL and are cut to fit. The first 16 bytes and `version` keep
 * their places for good, so that two versions can at least tell each other apart.
 *
 *   offset  bytes  field
 *        0      4  magic        CH_RECORD_MAGIC
 *        4      2  format       CH_RECORD_FORMAT
 *        6      1  byte_order   of the rank's memory: 1 little, 2 big
 *        7      1  zero
 *        8      4  rank
 *       12      4  nranks       as this rank was told
 *       16     32  version      of the library
 *       48      8  pid          in its pid namespace
 *       56      8  netns        inode of its network namespace: sockets without a file are per namespace
 *       64      4  uid          of the process
 *       68     12  zero
 *       80     16  id           random; also in the rank's segment, which proves whose it is
 *       96     40  boot_id      of its kernel
 *      136     64  host         its name
 *      200     80  address      where others reach that host
 *      280     40  socket       where it hands over descriptors (io/fdpass.h)
 *      320     96  build        how the library was built
 *      416     96  cpu          the processor's model
 */
#ifndef CH_RECORD_H
#define CH_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <choir/status.h>

#define CH_RECORD_MAGIC UINT32_C(0x72704843) /* "CHpr" */

enum { CH_RECORD_FORMAT = 1, CH_RECORD_ID_NBYTES = 16 };

struct ch_record {
    uint32_t magic;
    uint16_t format;
    uint8_t byte_order;
    uint8_t zero1;
    uint32_t rank, nranks;
    char version[32];
    uint64_t pid, netns;
    uint32_t uid;
    uint8_t zero2[12];
    uint8_t id[CH_RECORD_ID_NBYTES];
    char boot_id[40], host[64], address[80], socket[40], build[96], cpu[96];
};
_Static_assert(sizeof(struct ch_record) == 512, "as in the table above");
_Static_assert(offsetof(struct ch_record, version) == 16, "as in the table above");
_Static_assert(offsetof(struct ch_record, id) == 80, "as in the table above");
_Static_assert(offsetof(struct ch_record, socket) == 280, "as in the table above");
_Static_assert(offsetof(struct ch_record, cpu) == 416, "as in the table above");

/* Fill in what this process knows of itself; rank, nranks, id, address and socket are the caller's. */
choir_status ch_record_of_process(struct ch_record *out);

/* To and from the stored form, which is the same struct in little-endian order. Reading checks that
 * it is a record at all and that every text ends; not that it fits ours. */
void ch_record_write(const struct ch_record *record, void *bytes_out);
choir_status ch_record_read(const void *bytes, size_t nbytes, struct ch_record *out);

/* Whether two ranks may share memory: one kernel, one network namespace, one user. */
bool ch_record_same_host(const struct ch_record *a, const struct ch_record *b);

enum { CH_RECORD_WHO_MAX = 160 };

/* "rank 3 (host beta, process 4711)", into `buf` of CH_RECORD_WHO_MAX, which is returned. */
const char *ch_record_who(const struct ch_record *record, char *buf);

#endif
