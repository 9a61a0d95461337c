/* stats.c - see stats.h. */
#include "stats.h"

#include <sched.h>
#include <stdlib.h>

static cpu_set_t allowed;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct spread spread_of(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return (struct spread){ values[count / 10], values[count / 2], values[count - 1 - count / 10] };
}

void note_processors(void)
{
    sched_getaffinity(0, sizeof(allowed), &allowed);
}

void pin(int index)
{
    cpu_set_t one;
    int found = 0;

    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && found++ == index % CPU_COUNT(&allowed)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}
