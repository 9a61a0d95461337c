/*
 * record.c - see record.h.
 */
#include "group/record.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <choir/version.h>

#include "base/compiler.h"
#include "base/cpu_name.h"
#include "base/error.h"
#include "base/sys.h"

#ifdef __clang__
#define BUILT_BY "clang " __clang_version__
#else
#define BUILT_BY "gcc " __VERSION__
#endif

/* --- this process ------------------------------------------------------------------------------- */

/* The beginning of a small file; empty if it cannot be read. */
static void read_text(const char *path, char *out, size_t size)
{
    int fd = ch_sys_open(path, O_RDONLY, 0);
    ssize_t n = fd >= 0 ? ch_sys_read(fd, out, size - 1) : -1;

    ch_sys_close(fd);
    out[n > 0 ? n : 0] = '\0';
}

static void keep_line(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%.*s", (int)strcspn(text, "\n"), text);
}

/* 0 if the kernel does not say: then ranks are told apart by boot id and user alone. */
static uint64_t network_namespace(void)
{
    int fd = ch_sys_open("/proc/self/ns/net", O_RDONLY, 0);
    struct stat st;
    uint64_t inode = fd >= 0 && ch_sys_fstat(fd, &st) == 0 ? st.st_ino : 0;

    ch_sys_close(fd);
    return inode;
}

choir_status ch_record_of_process(struct ch_record *out)
{
    char text[128];

    memset(out, 0, sizeof(*out));
    out->magic = CH_RECORD_MAGIC;
    out->format = CH_RECORD_FORMAT;
    out->byte_order = BYTE_ORDER == LITTLE_ENDIAN ? 1 : 2;
    out->pid = (uint64_t)getpid();
    out->uid = geteuid();
    out->netns = network_namespace();
    read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    keep_line(out->boot_id, sizeof(out->boot_id), text);
    if (out->boot_id[0] == '\0')
        return ch_fail(CHOIR_ERR_SYSTEM, "which host is this: no boot id in "
                                         "/proc/sys/kernel/random/boot_id");
    (void)!gethostname(out->host, sizeof(out->host) - 1); /* a longer one is cut off */
    snprintf(out->version, sizeof(out->version), "%s", choir_version());
    snprintf(out->build, sizeof(out->build), "%s%s", BUILT_BY, CH_DEBUG ? ", debug" : "");
    ch_cpu_name(out->cpu, sizeof(out->cpu));
    return CHOIR_OK;
}

/* --- stored form -------------------------------------------------------------------------------- */

/* Both ways: on a little-endian machine nothing changes. */
static void swap_order(struct ch_record *record)
{
    record->magic = le32toh(record->magic);
    record->format = le16toh(record->format);
    record->rank = le32toh(record->rank);
    record->nranks = le32toh(record->nranks);
    record->pid = le64toh(record->pid);
    record->netns = le64toh(record->netns);
    record->uid = le32toh(record->uid);
}

void ch_record_write(const struct ch_record *record, void *bytes_out)
{
    struct ch_record copy = *record;

    swap_order(&copy);
    memcpy(bytes_out, &copy, sizeof(copy));
}

static bool ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

choir_status ch_record_read(const void *bytes, size_t nbytes, struct ch_record *out)
{
    struct ch_record record;

    if (nbytes != sizeof(record))
        return ch_fail(CHOIR_ERR_PROTO, "a rank's record has %zu bytes, expected %zu", nbytes,
                       sizeof(record));
    memcpy(&record, bytes, sizeof(record));
    swap_order(&record);
    if (record.magic != CH_RECORD_MAGIC)
        return ch_fail(CHOIR_ERR_PROTO, "a rank's record starts with 0x%08x, expected 0x%08x",
                       record.magic, CH_RECORD_MAGIC);
    if (!ends(record.version, sizeof(record.version)) ||
        !ends(record.boot_id, sizeof(record.boot_id)) || !ends(record.host, sizeof(record.host)) ||
        !ends(record.address, sizeof(record.address)) ||
        !ends(record.socket, sizeof(record.socket)) || !ends(record.build, sizeof(record.build)) ||
        !ends(record.cpu, sizeof(record.cpu)))
        return ch_fail(CHOIR_ERR_PROTO, "a rank's record holds a text that does not end");
    *out = record;
    return CHOIR_OK;
}

bool ch_record_same_host(const struct ch_record *a, const struct ch_record *b)
{
    return strcmp(a->boot_id, b->boot_id) == 0 && a->netns == b->netns && a->uid == b->uid;
}

const char *ch_record_who(const struct ch_record *record, char *buf)
{
    snprintf(buf, CH_RECORD_WHO_MAX, "rank %u (host %s, process %llu)", record->rank, record->host,
             (unsigned long long)record->pid);
    return buf;
}
