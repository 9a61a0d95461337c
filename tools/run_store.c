/*
 * run_store.c - the store that the launcher hosts, and the token that its clients must hold.
 */
#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <choir/choir.h>

/* "[::1]:80" or "host:80" */
static bool split_address(const char *address, char *host, size_t size, char *port,
                          size_t port_size)
{
    const char *colon = strrchr(address, ':');
    size_t n = colon != NULL ? (size_t)(colon - address) : 0;

    if (n == 0 || n >= size || strlen(colon + 1) >= port_size)
        return false;
    if (address[0] == '[' && address[n - 1] == ']') {
        address++;
        n -= 2;
    }
    memcpy(host, address, n);
    host[n] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return true;
}

static bool is_loopback(const struct addrinfo *info)
{
    if (info->ai_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(
            &((const struct sockaddr_in6 *)(const void *)info->ai_addr)->sin6_addr);
    return (ntohl(((const struct sockaddr_in *)(const void *)info->ai_addr)->sin_addr.s_addr) >>
            24) == 127;
}

/* Many systems give a host's own name an address on loopback, where others do not find it: any other
 * address is better. */
const char *choir_run_resolve(const char *address, char *out, size_t size)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all, *best;
    char host[RUN_ADDRESS_MAX], port[8], number[64];
    int rc;

    if (!split_address(address, host, sizeof(host), port, sizeof(port)))
        return "it is not HOST:PORT";
    rc = getaddrinfo(host, port, &hints, &all);
    if (rc != 0)
        return gai_strerror(rc);
    best = all;
    while (best->ai_next != NULL && is_loopback(best))
        best = best->ai_next;
    if (is_loopback(best))
        best = all;
    rc = getnameinfo(best->ai_addr, best->ai_addrlen, number, sizeof(number), NULL, 0,
                     NI_NUMERICHOST);
    snprintf(out, size, best->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s", number, port);
    freeaddrinfo(all);
    return rc != 0 ? gai_strerror(rc) : NULL;
}

bool choir_run_set_torch(struct run_world *world, const char *address)
{
    if (address == NULL || address[0] == '\0') {
        world->torch_port[0] = '\0';
        return true;
    }
    return split_address(address, world->torch_host, sizeof(world->torch_host), world->torch_port,
                         sizeof(world->torch_port));
}

choir_status choir_run_store_open(struct run *run, const char *bind, const char *torch_bind)
{
    return choir_store_server_create(CHOIR_OPTS(store_server_create, .bind = bind,
                                                .token = &run->token, .torch_bind = torch_bind),
                                     &run->server);
}

void choir_run_make_id(char *out, size_t size)
{
    choir_token random = { { 0 } };

    choir_token_make(&random); /* a run without a random name is still a run */
    for (size_t i = 0; 2 * i + 3 <= size && i < 8; i++)
        snprintf(out + 2 * i, 3, "%02x", random.bytes[i]);
}

/* Made before the keeper is forked, so that it has the same number there; filled in later. */
int choir_run_token_file(void)
{
    return memfd_create("choir-token", MFD_CLOEXEC);
}

int choir_run_token_fill(int fd, const choir_token *token)
{
    char text[2 * CHOIR_TOKEN_NBYTES + 2];

    for (int i = 0; i < CHOIR_TOKEN_NBYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", token->bytes[i]);
    text[2 * CHOIR_TOKEN_NBYTES] = '\n';
    return pwrite(fd, text, sizeof(text) - 1, 0) == (ssize_t)sizeof(text) - 1 ? 0 : -1;
}
