/* allreduce.c - the sum over all ranks, on every rank. */
#include <stdio.h>

#include <choir/choir.h>

int main(void)
{
    float v[4] = { 1, 2, 3, 4 };
    choir_group *group;

    if (choir_init(&group, NULL) != CHOIR_OK ||
        choir_allreduce(group, CHOIR_BUF(v, 4, CHOIR_F32), NULL, NULL) != CHOIR_OK) {
        fprintf(stderr, "%s\n", choir_last_error());
        return 1;
    }
    printf("rank %d of %d: %g %g %g %g\n", choir_group_rank(group), choir_group_size(group), v[0],
           v[1], v[2], v[3]);
    choir_group_destroy(group);
    return 0;
}
