/*
 * member.c - a rank for the tests of choir_init(): joins, tells what it found as one JSON line, and
 * stays until its standard input ends.
 *
 *   member [--url U] [--rank R --size N] [--timeout MS] [--token-file F] [--again] [--stay]
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

static void tell(const choir_group *group)
{
    choir_peer peer;
    bool alive;

    printf("{\"rank\": %d, \"size\": %d, \"local_rank\": %d, \"local_size\": %d, "
           "\"origin\": \"%s\", \"peers\": [",
           choir_group_rank(group), choir_group_size(group), choir_group_local_rank(group),
           choir_group_local_size(group), choir_group_origin(group));
    for (int r = 0; r < choir_group_size(group); r++) {
        if (choir_group_peer(group, r, &peer) != CHOIR_OK)
            exit(3);
        alive = false;
        if (peer.shares_memory && choir_group_alive(group, r, &alive) != CHOIR_OK)
            exit(3);
        printf("%s{\"rank\": %d, \"host_index\": %d, \"shares\": %s, \"alive\": %s, \"pid\": %lld, "
               "\"host\": \"%s\", \"boot_id\": \"%s\", \"address\": \"%s\", \"version\": \"%s\", "
               "\"cpu\": \"%s\"}",
               r > 0 ? ", " : "", peer.rank, peer.host_index, peer.shares_memory ? "true" : "false",
               alive ? "true" : "false", (long long)peer.pid, peer.host, peer.boot_id, peer.address,
               peer.version, peer.cpu);
    }
    printf("]}\n");
    fflush(stdout);
}

static choir_group *join(const choir_init_opts *opts)
{
    choir_group *group;

    if (choir_init(&group, opts) == CHOIR_OK)
        return group;
    fprintf(stderr, "%s: %s\n", choir_status_name(choir_last_error_record()->code),
            choir_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "url", required_argument, NULL, 'u' },
        { "rank", required_argument, NULL, 'r' },
        { "size", required_argument, NULL, 'n' },
        { "timeout", required_argument, NULL, 't' },
        { "token-file", required_argument, NULL, 'f' },
        { "again", no_argument, NULL, 'a' },
        { "stay", no_argument, NULL, 's' },
        { NULL, 0, NULL, 0 },
    };
    choir_init_opts opts = { .size = sizeof(opts) };
    int option, again = 0, stay = 0;
    choir_group *group;
    char byte;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'u':
            opts.url = optarg;
            break;
        case 'r':
            opts.rank = atoi(optarg);
            break;
        case 'n':
            opts.nranks = atoi(optarg);
            break;
        case 't':
            opts.timeout_ms = atoi(optarg);
            break;
        case 'f':
            opts.token_file = optarg;
            break;
        case 'a':
            again = 1;
            break;
        case 's':
            stay = 1;
            break;
        default:
            return 2;
        }
    }
    group = join(&opts);
    if (again) { /* a program may join several times */
        choir_group_destroy(group);
        group = join(&opts);
    }
    tell(group);
    while (stay && read(0, &byte, 1) > 0)
        ;
    if (stay)
        tell(group);
    choir_group_destroy(group);
    return 0;
}
