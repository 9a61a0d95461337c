/* say_hello.c - the ranks of a job find each other and show what they found. */
#include <stdio.h>

#include <choir/choir.h>

static void show(const choir_group *group, int rank)
{
    choir_peer peer;
    bool alive = false;
    const char *state = "on another host";

    if (choir_group_peer(group, rank, &peer) != CHOIR_OK)
        return;
    if (peer.shares_memory && choir_group_alive(group, rank, &alive) == CHOIR_OK)
        state = alive ? "shares memory with rank 0, runs" : "shares memory with rank 0, has ended";
    printf("rank %d: host %s (%s), process %lld, Choir %s, %s: %s\n", peer.rank, peer.host,
           peer.address, (long long)peer.pid, peer.version, peer.cpu, state);
}

int main(void)
{
    choir_group *group;

    if (choir_init(&group, NULL) != CHOIR_OK) {
        fprintf(stderr, "%s\n", choir_last_error());
        return 1;
    }
    if (choir_group_rank(group) == 0) {
        printf("%d ranks, %d of them here (%s)\n", choir_group_size(group),
               choir_group_local_size(group), choir_group_origin(group));
        for (int rank = 0; rank < choir_group_size(group); rank++)
            show(group, rank);
    }
    /* Nobody leaves before rank 0 has looked at them. */
    if (choir_store_barrier(choir_group_store(group), choir_str("seen"), choir_group_size(group),
                            0) != CHOIR_OK)
        fprintf(stderr, "%s\n", choir_last_error());
    choir_group_destroy(group);
    return 0;
}
