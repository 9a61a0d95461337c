/* mean.c - the mean of three buffers, in one pass and with one rounding. */
#include <stdio.h>

#include <choir/choir.h>

int main(void)
{
    const float a[4] = { 1, 2, 3, 4 }, b[4] = { 10, 20, 30, 40 }, c[4] = { 100, 200, 300, 400 };
    const void *const srcs[] = { a, b, c };
    float mean[4];

    if (choir_reduce_local(mean, srcs, 3, 4, CHOIR_F32,
                           CHOIR_OPTS(reduce_local, .op = CHOIR_AVG)) != CHOIR_OK) {
        fprintf(stderr, "reduce: %s\n", choir_last_error());
        return 1;
    }
    for (int i = 0; i < 4; i++)
        printf("%g ", mean[i]);
    printf("\n");
    return 0;
}
