/*
 * torch_serve.c - a server of a store for the tests of PyTorch's protocol.
 *
 *   torch_serve
 *
 * Prints where it speaks PyTorch's protocol, "127.0.0.1:40123", and ends when its standard input does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

int main(void)
{
    choir_store_server_create_opts opts = { .size = sizeof(opts), .torch_bind = "127.0.0.1:0" };
    choir_store_server *server;
    char ignored[64];

    if (choir_store_server_create(&opts, &server) != CHOIR_OK) {
        fprintf(stderr, "torch_serve: %s\n", choir_last_error());
        return EXIT_FAILURE;
    }
    puts(choir_store_server_torch_address(server));
    fflush(stdout);
    while (read(STDIN_FILENO, ignored, sizeof(ignored)) > 0)
        ;
    choir_store_server_destroy(server);
    return EXIT_SUCCESS;
}
