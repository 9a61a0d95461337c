/*
 * perf_machine.c - what the machine is, and what else it did while it was measured.
 *
 * Whether it was quiet is not guessed from the load, which our own ranks raise: all CPU time that the kernel
 * counted meanwhile, less what the ranks used, was somebody else's.
 */
#include "perf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* More than this is not quiet: others' share of a processor, percent of stolen time, and what the kernel's ticks blur. */
static const double others_much = 0.10, steal_much = 1.0, ticks_blur = 5;

static double seconds(struct timeval tv)
{
    return (double)tv.tv_sec + (double)tv.tv_usec * 1e-6;
}

static double own_cpu(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

choir_status choir_perf_host_cpu(choir_group *group, bool threads, double *out)
{
    int rank = choir_group_rank(group);
    bool here = true;
    choir_peer self, first;

    if (choir_group_peer(group, rank, &self) == CHOIR_OK &&
        choir_group_peer(group, 0, &first) == CHOIR_OK)
        here = self.host_index == first.host_index;
    if (threads)
        here = rank == 0;
    *out = here ? own_cpu() : 0;
    return choir_allreduce(group, CHOIR_BUF(out, 1, CHOIR_F64), NULL, NULL);
}

/* "cpu  user nice system idle iowait irq softirq steal ..." */
static struct perf_ticks read_ticks(void)
{
    struct perf_ticks ticks = { 0 };
    unsigned long long of[8] = { 0 };
    FILE *file = fopen("/proc/stat", "re");

    if (file == NULL)
        return ticks;
    if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &of[0], &of[1], &of[2], &of[3],
               &of[4], &of[5], &of[6], &of[7]) == 8) {
        ticks.busy = of[0] + of[1] + of[2] + of[5] + of[6];
        ticks.steal = of[7];
        ticks.all = ticks.busy + ticks.steal + of[3] + of[4];
    }
    fclose(file);
    return ticks;
}

/* x86 says "model name"; others may say "Model" or nothing. */
void choir_perf_cpu(char *out, size_t size)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");

    snprintf(out, size, "unknown");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');

        if (colon == NULL ||
            (strncmp(line, "model name", 10) != 0 && strncmp(line, "Model", 5) != 0))
            continue;
        colon += strspn(colon, ": \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (file != NULL)
        fclose(file);
}

void choir_perf_machine_begin(struct perf_machine *machine, double own)
{
    *machine = (struct perf_machine){
        .processors = choir_processors(), .quiet = true, .began = read_ticks(), .own_began = own
    };
    choir_perf_cpu(machine->cpu, sizeof(machine->cpu));
    if (getloadavg(&machine->load, 1) != 1)
        machine->load = 0;
}

void choir_perf_machine_look(struct perf_machine *machine, double own)
{
    struct perf_ticks now = read_ticks();
    double hz = (double)sysconf(_SC_CLK_TCK), all = (double)(now.all - machine->began.all);
    double steal = (double)(now.steal - machine->began.steal), others;
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    if (all <= 0)
        return;
    others = (double)(now.busy - machine->began.busy) - (own - machine->own_began) * hz;
    if (others < 0)
        others = 0;
    machine->steal = 100 * steal / all;
    machine->others = others / all * (double)(online > 0 ? online : 1);
    machine->quiet = (others < ticks_blur || machine->others < others_much) &&
                     (steal < ticks_blur || machine->steal < steal_much);
}

void choir_perf_put_noise(const char *command, const struct perf_machine *m)
{
    fprintf(stderr,
            "choir %s: ****************************************************************\n"
            "choir %s: *** NOT QUIET: others kept %.2f processors busy meanwhile and %.1f %%\n"
            "choir %s: *** of the time was stolen. These figures are not to be trusted.\n"
            "choir %s: ****************************************************************\n",
            command, command, m->others, m->steal, command, command);
}
