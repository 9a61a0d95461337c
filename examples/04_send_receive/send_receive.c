/*
 * send_receive.c - messages between two ranks: a token round the ring, an exchange with both neighbours at
 * once, a value to the next rank, and a rank that takes what comes first.
 */
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

enum { TOKEN, LEFTWARDS, RIGHTWARDS, SHIFT, REPORT }; /* tags: what is what */

static void check(choir_status rc)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "%s\n", choir_last_error());
    exit(1);
}

/* Rank 0 starts it; everyone adds its rank and hands it on. */
static void pass_token(choir_group *group, int rank, int left, int right)
{
    int64_t token = 0;

    if (rank != 0)
        check(choir_recv(group, CHOIR_BUF(&token, 1, CHOIR_I64), left, TOKEN, NULL, NULL));
    token += rank;
    if (left == right && left == rank)
        return; /* alone: nobody to hand it to */
    check(choir_send(group, CHOIR_BUF(&token, 1, CHOIR_I64), right, TOKEN, NULL, NULL));
    if (rank == 0) {
        check(choir_recv(group, CHOIR_BUF(&token, 1, CHOIR_I64), left, TOKEN, NULL, NULL));
        printf("the token is back, and is %lld\n", (long long)token);
    }
}

/* All transfers of a batch start together, so nobody has to care who sends first. */
static void exchange(choir_group *group, int rank, int left, int right)
{
    int from_left = -1, from_right = -1;

    check(choir_batch_begin(group));
    check(choir_send(group, CHOIR_BUF(&rank, 1, CHOIR_I32), left, LEFTWARDS, NULL, NULL));
    check(choir_send(group, CHOIR_BUF(&rank, 1, CHOIR_I32), right, RIGHTWARDS, NULL, NULL));
    check(choir_recv(group, CHOIR_BUF(&from_left, 1, CHOIR_I32), left, RIGHTWARDS, NULL, NULL));
    check(choir_recv(group, CHOIR_BUF(&from_right, 1, CHOIR_I32), right, LEFTWARDS, NULL, NULL));
    check(choir_batch_end(group, NULL));
    printf("rank %d is between %d and %d\n", rank, from_left, from_right);
}

/* To one side only a single call does it. */
static void shift(choir_group *group, int rank, int left, int right)
{
    double mine = rank * 0.5, theirs = -1;

    check(choir_sendrecv(group, CHOIR_BUF(&mine, 1, CHOIR_F64), right,
                         CHOIR_BUF(&theirs, 1, CHOIR_F64), left, SHIFT, NULL, NULL));
    printf("rank %d has %g from rank %d\n", rank, theirs, left);
}

static void report(choir_group *group, int rank, int size)
{
    double value = rank * 1.5;
    int from;

    if (rank != 0) {
        check(choir_send(group, CHOIR_BUF(&value, 1, CHOIR_F64), 0, REPORT, NULL, NULL));
        return;
    }
    for (int i = 1; i < size; i++) {
        check(choir_recv_any(group, CHOIR_BUF(&value, 1, CHOIR_F64), REPORT, &from, NULL, NULL));
        printf("rank %d reports %g\n", from, value);
    }
}

int main(void)
{
    choir_group *group;
    int rank, size;

    check(choir_init(&group, NULL));
    rank = choir_group_rank(group);
    size = choir_group_size(group);
    pass_token(group, rank, (rank + size - 1) % size, (rank + 1) % size);
    exchange(group, rank, (rank + size - 1) % size, (rank + 1) % size);
    shift(group, rank, (rank + size - 1) % size, (rank + 1) % size);
    report(group, rank, size);
    choir_group_destroy(group);
    return 0;
}
