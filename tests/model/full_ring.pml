/*
 * full_ring.pml - who tells the writer of a full ring of room (src/transport/byte_ring.c), for the Spin model checker.
 *
 * Question: can a rank sleep on although its ring has room for what it has to write? Two threads of that rank write: one sleeps
 * whenever it finds the ring full, the other never waits (it starts a send, and goes away). The reader rings a rank that
 * seems to sleep, if the ring was full. Buffers of stores are as in doorbell.pml; the writers share a lock, and a lock
 * that is given back takes its holder's stores to memory.
 *
 * The sleeper's own order is always there (MEMBARRIER of doorbell.pml). FENCES is what stands beside it:
 *   BOTH             who fills the ring has a fence before it finds it full, and who takes has one before it looks
 *                    whether it was full (what we do)
 *   WRITER, READER, NONE   only one side, or nobody: must fail
 */
#define NONE   0
#define WRITER 1
#define READER 2
#define BOTH   3

#ifndef FENCES
#define FENCES BOTH
#endif
#ifndef ROOM
#define ROOM 2
#endif
#ifndef PARTS
#define PARTS 3
#endif
#define PART  2              /* bytes */
#define TOTAL (PARTS * PART)

byte written, written_buffer;   /* in memory, and as its writer sees it */
byte taken, taken_buffer;
byte nasleep, nasleep_buffer;
byte limit;                     /* bytes there are to write; with the lock */
byte ordered;                   /* likewise: `written` at the last fence */
bool locked, rung;

#define EMPTY_WRITERS written = written_buffer
#define EMPTY_READER  taken = taken_buffer
#define EMPTY_SLEEPER nasleep = nasleep_buffer

#define LOCK   atomic { !locked -> locked = true }
#define UNLOCK atomic { EMPTY_WRITERS; locked = false }

/* Write until there is nothing left or no room: ch_p2p_pump_out(). One byte in each turn, so that any may be the last
 * before a look. */
inline look()
{
    do
    :: atomic { written_buffer < limit && written_buffer - taken < ROOM -> written_buffer++ }
    :: atomic { written_buffer == limit -> break }
    :: atomic { written_buffer < limit && written_buffer - taken == ROOM ->
           if
#if FENCES == BOTH || FENCES == WRITER
           :: ordered != written_buffer -> ordered = written_buffer; EMPTY_WRITERS
           :: else -> break
#else
           :: break
#endif
           fi
       }
    od
}

proctype Sleeper()
{
    do
    :: written_buffer == TOTAL -> break
    :: written_buffer < TOTAL ->
        nasleep_buffer = 1;                                        /* announce_sleep() */
        atomic { EMPTY_SLEEPER; EMPTY_WRITERS; EMPTY_READER };     /* membarrier */
        LOCK; look(); UNLOCK;                                      /* the last look */
        if                                                         /* asleep until rung; what ends is told by other means */
        :: atomic { rung -> rung = false }
        :: written_buffer == TOTAL -> break
        fi;
        nasleep_buffer = 0
    od
}

proctype Caller()
{
    do
    :: limit == TOTAL -> break
    :: limit < TOTAL -> LOCK; limit = limit + PART; look(); UNLOCK
    od
}

proctype Reader()
{
    byte before, seen;

    do
    :: taken_buffer == TOTAL -> break
    :: atomic { written > taken_buffer -> before = taken_buffer; seen = written };
        taken_buffer = seen;                                       /* ch_byte_ring_consume() */
        if                                                         /* tell_writer() */
        :: nasleep == 0 -> skip
        :: nasleep != 0 ->
#if FENCES == BOTH || FENCES == READER
            EMPTY_READER;
#endif
            if
            :: written - before >= ROOM -> atomic { EMPTY_READER; rung = true }
            :: written - before < ROOM -> skip
            fi
        fi
    od
}

/* Buffers empty themselves at any time, and in the end. */
proctype Memory()
{
end:
    do
    :: written != written_buffer -> EMPTY_WRITERS
    :: taken != taken_buffer -> EMPTY_READER
    :: nasleep != nasleep_buffer -> EMPTY_SLEEPER
    od
}

init {
    atomic {
        run Memory();
        run Sleeper();
        run Caller();
        run Reader();
    }
}
