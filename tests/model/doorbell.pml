/*
 * doorbell.pml - the doorbell of src/base/bell.h and src/base/wait.c, for the Spin model checker.
 *
 * Question: can a post be lost, that is, can a sleeper sleep on although its flag was raised? Spin
 * looks at every interleaving; a lost wake-up is a state in which nothing can move any more.
 *
 * Processors let a store wait in a buffer while later loads go ahead, so every store here goes into
 * its writer's buffer and reaches memory when the process Memory decides. A flag only grows and each
 * buffer holds one variable, so a buffer is one number: the newest value not yet in memory. System
 * calls that ring or sleep pass through the kernel's locks and empty their caller's buffer.
 *
 * ORDER is what stands between a store and the following load:
 *   MEMBARRIER  the sleeper empties everybody's buffer (what we do where the kernel lets us)
 *   FENCE       each side empties its own (what we do elsewhere)
 *   POSTER, SLEEPER, NONE   only one side, or nobody: must fail, or the model shows nothing
 * BELL is what a ring does:
 *   EDGE        every sleeper has its own notice of it (a seat, edge-triggered: what we do)
 *   COUNTER     one counter, emptied by whoever wakes up: with two sleepers one can swallow the
 *               other's ring, must fail
 */
#define NONE       0
#define POSTER     1
#define SLEEPER    2
#define FENCE      3
#define MEMBARRIER 4
#define EDGE       0
#define COUNTER    1

#ifndef ORDER
#define ORDER MEMBARRIER
#endif
#ifndef BELL
#define BELL EDGE
#endif
#ifndef SLEEPERS
#define SLEEPERS 1
#endif
#ifndef POSTS
#define POSTS 3
#endif
#define POSTERS 2

byte flag[POSTERS];          /* in memory */
byte flag_buffer[POSTERS];   /* as its poster sees it */
byte nasleep;                /* in memory; its writers hold a lock, and so do not buffer apart */
byte nasleep_buffer;
bool rung[2];                /* per sleeper: a ring it has not taken notice of */

/* A sleeper's notice of rings; with COUNTER all share one. */
#if BELL == EDGE
#define SEAT(me) me
#else
#define SEAT(me) 0
#endif

#define EMPTY_POSTER(i) flag[i] = flag_buffer[i]
#define EMPTY_SLEEPERS  nasleep = nasleep_buffer

proctype Poster(byte me)
{
    byte value = 0;

    do
    :: value < POSTS ->
        value++;
        flag_buffer[me] = value;                      /* ch_post(): the store */
#if ORDER == FENCE || ORDER == POSTER
        EMPTY_POSTER(me);
#endif
        if                                            /* ch_bell_after_store(): the load */
        :: nasleep != 0 -> atomic { EMPTY_POSTER(me); rung[0] = true; rung[1] = true }   /* ch_bell_ring() */
        :: nasleep == 0 -> skip
        fi
    :: else -> break
    od
}

/* A single sleeper waits for both flags; of two, each waits for one. */
#if SLEEPERS == 1
#define READY(me, target) (flag[0] >= target && flag[1] >= target)
#else
#define READY(me, target) (flag[me] >= target)
#endif

proctype Sleeper(byte me)
{
    byte target = 1;

    do
    :: target > POSTS -> break
    :: target <= POSTS ->
        if
        :: READY(me, target) -> target++
        :: !READY(me, target) ->
            nasleep_buffer++;                         /* announce_sleep(), under the lock */
#if ORDER == MEMBARRIER
            atomic { EMPTY_SLEEPERS; EMPTY_POSTER(0); EMPTY_POSTER(1) }
#endif
#if ORDER == FENCE || ORDER == SLEEPER
            EMPTY_SLEEPERS;
#endif
            if                                        /* sleep_once(): the look before the sleep */
            :: READY(me, target) -> skip
            :: !READY(me, target) ->
                EMPTY_SLEEPERS;                       /* into the kernel */
                atomic { rung[SEAT(me)] -> rung[SEAT(me)] = false }    /* asleep until rung */
            fi;
            nasleep_buffer--                          /* announce_awake(), under the lock */
        fi
    od
}

/* Buffers empty themselves at any time, and in the end. */
proctype Memory()
{
end:
    do
    :: flag[0] != flag_buffer[0] -> EMPTY_POSTER(0)
    :: flag[1] != flag_buffer[1] -> EMPTY_POSTER(1)
    :: nasleep != nasleep_buffer -> EMPTY_SLEEPERS
    od
}

init {
    atomic {
        run Memory();
        run Poster(0);
        run Poster(1);
        run Sleeper(0);
#if SLEEPERS == 2
        run Sleeper(1);
#endif
    }
}
