/*
 * file.h - the insides of a file store: its locks, its table, and the way in and out.
 *
 * Every user keeps a table of its own and replays what the file has more than it knew. Who changes
 * something does so in the table's terms, and appends a record. Three locks, on bytes far behind the
 * content, of the open file (so the kernel drops them with a process that dies):
 *
 *   DATA      shared while reading the file, exclusive while writing it
 *   LINE      shared by those who wait for DATA: whoever comes while somebody does lets him go first,
 *             or one who uses the store in a loop would keep the others out for ever
 *   PRESENCE  shared for the life of every user of a rendezvous (nranks > 0): content of a rendezvous
 *             where nobody is present was left by a run that is over, and is never believed
 *
 * Nobody can be woken through a file, so whoever waits looks again, after 10 ms at most.
 *
 * file_open.c opens and closes, file.c is the way in and out, store_file.c what is done inside.
 */
#ifndef CH_FILE_H
#define CH_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/lock.h"
#include "io/patience.h"
#include "store/file_log.h"
#include "store/store.h"
#include "store/table.h"

enum {
    CH_FILE_MAX_NBYTES = 256 << 20,      /* the sum of all changes: nothing is ever compacted */
    CH_FILE_FIRST_PAUSE_NS = 50 * CH_US, /* between two looks: doubled each time, */
    CH_FILE_LOCK_PAUSE_NS = 1 * CH_MS,   /* up to this, when it is a lock that is waited for */
};

/* The bytes that stand for the locks. */
#define CH_FILE_DATA     ((off_t)1 << 62)
#define CH_FILE_PRESENCE (CH_FILE_DATA + 1)
#define CH_FILE_LINE     (CH_FILE_DATA + 2)

struct ch_file {
    struct ch_lock lock; /* guards the next two */
    int nwaiting;        /* threads in line; with the first of them we hold LINE */
    bool busy;           /* a thread is inside, and all that follows is its own */
    char *path;
    int fd;
    bool present; /* holds PRESENCE */
    struct ch_log_header header;
    struct ch_table *table;
    uint64_t end;  /* what the table knows of the file */
    uint64_t size; /* the file's, when last inside; more than `end`: its last record is torn */
};

/* --- file_open.c: as struct ch_store_ops has them ------------------------------------------------- */

choir_status ch_file_open(void *self, const struct ch_store_place *place,
                          const struct ch_patience *patience);
void ch_file_close(void *self);

/* --- inside: the file is locked, the table as the file is ----------------------------------------- */

/* To read (F_RDLCK) or to write (F_WRLCK). */
choir_status ch_file_enter(struct ch_file *file, int type, const struct ch_patience *patience);
void ch_file_leave(struct ch_file *file);

/* Enter again and again until look() says true; then the caller is inside. */
choir_status ch_file_enter_when(struct ch_file *file, int type,
                                bool (*look)(struct ch_file *file, void *arg), void *arg,
                                const struct ch_patience *patience, const char *what);

/* Make a change, in the file and then in the table; inside to write. */
choir_status ch_file_change(struct ch_file *file, enum ch_log_kind kind, choir_bytes key,
                            choir_bytes value);

/* --- what opening and closing need of it ---------------------------------------------------------- */

/* Wait a moment before the next look: *pause_io nanoseconds, which is doubled, up to `most`. */
choir_status ch_file_pause(const struct ch_patience *patience, uint64_t *pause_io, uint64_t most,
                           const char *what);

/* CHOIR_IN_PROGRESS if another has it. */
choir_status ch_file_try_lock(const struct ch_file *file, int type, off_t place);
choir_status ch_file_lock(const struct ch_file *file, int type, off_t place,
                          const struct ch_patience *patience);
void ch_file_unlock_data(const struct ch_file *file);

/* As much of `nbytes` as there is; all of them. */
choir_status ch_file_read_at(const struct ch_file *file, uint64_t place, unsigned char *bytes,
                             size_t nbytes, size_t *nbytes_out);
choir_status ch_file_write_at(const struct ch_file *file, uint64_t place,
                              const unsigned char *bytes, size_t nbytes);

#endif
