/*
 * grid.c - ranks as a grid: every row adds up, then every column.
 *
 * A group for a row and one for a column is how model and data parallelism live side by side. All ranks
 * of a group call choir_group_split() together, each with the list it belongs to.
 */
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

enum { COLUMNS = 2 };

static void check(choir_status rc)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "%s\n", choir_last_error());
    exit(1);
}

/* The ranks from `first`, `step` apart: a row (step 1) or a column. */
static choir_group *line_of(choir_group *world, int first, int step, int count)
{
    int *ranks = malloc((size_t)count * sizeof(*ranks));
    choir_group *line;

    if (ranks == NULL)
        exit(1);
    for (int i = 0; i < count; i++)
        ranks[i] = first + i * step;
    check(choir_group_split(world, ranks, (size_t)count, NULL, &line));
    free(ranks);
    return line;
}

int main(void)
{
    choir_group *world, *row, *column;
    int rank, size, in_row, in_column;

    check(choir_init(&world, NULL));
    rank = choir_group_rank(world);
    size = choir_group_size(world);
    if (size % COLUMNS != 0) {
        fprintf(stderr, "grid: the number of ranks must be a multiple of %d, not %d\n", COLUMNS,
                size);
        return 1;
    }
    row = line_of(world, rank / COLUMNS * COLUMNS, 1, COLUMNS);
    column = line_of(world, rank % COLUMNS, COLUMNS, size / COLUMNS);

    in_row = in_column = rank;
    check(choir_allreduce(row, CHOIR_BUF(&in_row, 1, CHOIR_I32), NULL, NULL));
    check(choir_allreduce(column, CHOIR_BUF(&in_column, 1, CHOIR_I32), NULL, NULL));
    printf("rank %d: row %d sums to %d, column %d to %d (%s)\n", rank, rank / COLUMNS, in_row,
           rank % COLUMNS, in_column, choir_group_name(column));

    choir_group_destroy(column);
    choir_group_destroy(row);
    choir_group_destroy(world);
    return 0;
}
