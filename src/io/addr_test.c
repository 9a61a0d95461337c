/* addr_test.c - addresses in text and numbers, names within a deadline. */
#include "io/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "io/io_test.h"

static const struct {
    const char *text, *printed;
    const char *why;
} good[] = {
    { "127.0.0.1:80", "127.0.0.1:80", "plain IPv4" },
    { "0.0.0.0:0", "0.0.0.0:0", "any address, any port: for listening" },
    { "255.255.255.255:65535", "255.255.255.255:65535", "the largest of everything" },
    { "10.0.0.2:0080", "10.0.0.2:80", "a port with leading zeros is still decimal" },
    { "[::1]:80", "[::1]:80", "plain IPv6" },
    { "[::]:1", "[::]:1", "any address" },
    { "[2001:DB8:0:0::1]:4711", "[2001:db8::1]:4711", "printed in the canonical form" },
    { "[::ffff:10.0.0.2]:5", "[::ffff:10.0.0.2]:5", "mapped IPv4, as long as a person writes it" },
    { "[fe80::1%2]:5", "[fe80::1%2]:5", "a scope by number" },
};

CHOIR_TEST(text_and_numbers_agree)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(good); i++) {
        struct ch_addr addr, again;
        char text[CH_ADDR_TEXT_MAX];

        CHOIR_ROW("%s: %s", good[i].text, good[i].why);
        CHOIR_CHECK_OK(ch_addr_parse(good[i].text, &addr));
        CHOIR_CHECK_STR(ch_addr_text(&addr, text), good[i].printed);
        CHOIR_CHECK_OK(ch_addr_parse(text, &again));
        CHOIR_CHECK(ch_addr_equal(&addr, &again));
    }
}

static const struct {
    const char *text, *says;
    const char *why;
} bad[] = {
    { "", "no \":port\"", "nothing at all" },
    { "127.0.0.1", "no \":port\"", "no port" },
    { "127.0.0.1:", "not a port", "an empty port" },
    { ":80", "host is empty", "no host" },
    { "127.0.0.1:65536", "not a port", "one too many" },
    { "127.0.0.1:99999999999999999999999", "not a port", "does not fit any number" },
    { "127.0.0.1:-1", "not a port", "a sign" },
    { "127.0.0.1: 80", "not a port", "a space" },
    { "127.0.0.1:80x", "not a port", "something behind it" },
    { "127.1:80", "not an IPv4", "the old short form is refused: people mean something else" },
    { "127.0.0.256:80", "not an IPv4", "a byte too large" },
    { "::1:80", "brackets", "IPv6 without brackets is ambiguous" },
    { "[::1]", "no \":port\"", "brackets, but no port" },
    { "[::1]80", "no \":port\"", "no colon" },
    { "[::1:80", "without \"]\"", "an open bracket" },
    { "[]:80", "host is empty", "empty brackets" },
    { "[127.0.0.1]:80", "not an IPv6", "IPv4 in brackets" },
    { "[fe80::1%]:80", "not an IPv6", "an empty scope" },
    { "[fe80::1%4294967296]:80", "not an IPv6", "a scope of 33 bits" },
    { "[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]:80", "not an IPv6", "too many groups" },
    { "localhost:80", "not an IPv4", "a name is not a number" },
};

CHOIR_TEST(bad_text_is_refused_in_words)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(bad); i++) {
        struct ch_addr addr;

        CHOIR_ROW("\"%s\": %s", bad[i].text, bad[i].why);
        CHOIR_CHECK_STATUS(ch_addr_parse(bad[i].text, &addr), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), bad[i].says);
    }
}

CHOIR_TEST(a_host_of_any_length_is_taken_or_refused)
{
    char text[400];

    for (int len = 250; len < 300; len++) {
        struct ch_addr addr;

        memset(text, 'x', (size_t)len);
        snprintf(text + len, sizeof(text) - (size_t)len, ":1");
        CHOIR_CHECK_STATUS(ch_addr_parse(text, &addr), CHOIR_ERR_INVALID);
        CHOIR_CHECK_HAS(choir_last_error(), len > 253 ? "more than 253" : "not an IPv4");
    }
}

CHOIR_TEST(mapped_ipv4_from_the_kernel_is_ipv4)
{
    struct sockaddr_storage ss = { .ss_family = AF_UNIX };
    struct ch_addr addr;
    char text[CH_ADDR_TEXT_MAX];

    CHOIR_CHECK_STATUS(ch_addr_from_kernel(&ss, &addr), CHOIR_ERR_UNSUPPORTED);
    CHOIR_CHECK_OK(ch_addr_parse("[::ffff:10.0.0.2]:5", &addr));
    memcpy(&ss, &addr.v6, sizeof(addr.v6));
    CHOIR_CHECK_OK(ch_addr_from_kernel(&ss, &addr));
    CHOIR_CHECK_STR(ch_addr_text(&addr, text), "10.0.0.2:5");
}

/* --- names, in a world of our own ---------------------------------------------------------------- */

static struct {
    _Atomic int asked;
    _Atomic bool go; /* "slow.test" answers when this is set */
} server;

static int fake_lookup(const char *host, struct sockaddr_storage *addrs_out, int max, int *why_io)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&addrs_out[1];
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&addrs_out[0];

    atomic_fetch_add(&server.asked, 1);
    while (strcmp(host, "slow.test") == 0 && !atomic_load(&server.go))
        usleep(100);
    if (strcmp(host, "unix.test") == 0) {
        addrs_out[0].ss_family = AF_UNIX;
        return 1;
    }
    if (strcmp(host, "many.test") == 0) {
        for (int i = 0; i < max; i++) {
            struct sockaddr_in *each = (struct sockaddr_in *)&addrs_out[i];

            each->sin_family = AF_INET;
            each->sin_addr.s_addr = htonl(0x0a000000u + (unsigned)i);
        }
        return max;
    }
    if (strcmp(host, "nobody.test") == 0) {
        *why_io = EAI_NONAME;
        return -1;
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = in6addr_loopback;
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(0x0a000002);
    return 2;
}

static void use_fake_server(void)
{
    static struct ch_sys_ops ops;

    ops = ch_sys_real;
    ops.lookup = fake_lookup;
    ch_sys_replace(&ops);
}

enum { RIG_FDS = 3 }; /* of the rig's waiter: bell, set and a seat */

/* The looking thread ends on its own time. */
static bool nothing_is_left(void *arg)
{
    const int *fds = arg;

    return ch_mem_count(CH_SUB_IO).live_blocks == 0 && ch_sys_fd_count() == *fds;
}

static void wait_for_threads(int fds)
{
    wait_until(nothing_is_left, &fds, "the end of a looking thread");
}

CHOIR_TEST(a_name_has_all_its_addresses)
{
    struct rig rig;
    struct ch_addr_list list;
    char text[CH_ADDR_TEXT_MAX];
    struct ch_patience patience;

    use_fake_server();
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_addr_lookup("two.test:4711", &patience, &list));
    CHOIR_CHECK_EQ(list.count, 2);
    CHOIR_CHECK_STR(ch_addr_text(&list.addrs[0], text), "[::1]:4711");
    CHOIR_CHECK_STR(ch_addr_text(&list.addrs[1], text), "10.0.0.2:4711");
    CHOIR_CHECK_OK(ch_addr_lookup("many.test:1", &patience, &list));
    CHOIR_CHECK_EQ(list.count, CH_ADDR_LIST_MAX);
    wait_for_threads(RIG_FDS);
    rig_fini(&rig);
}

CHOIR_TEST(what_is_known_is_not_asked)
{
    static const struct {
        const char *text;
        int count;
        const char *first;
    } rows[] = {
        { "127.0.0.1:1", 1, "127.0.0.1:1" },
        { "[::1]:1", 1, "[::1]:1" },
        { "localhost:7", 2, "127.0.0.1:7" },
        { "LocalHost:7", 2, "127.0.0.1:7" },
    };
    struct ch_addr_list list;
    char text[CH_ADDR_TEXT_MAX];
    struct ch_patience none = { .until = 0 }; /* not even a waiter: nothing waits */

    use_fake_server();
    for (size_t i = 0; i < CH_ARRAY_LEN(rows); i++) {
        CHOIR_ROW("%s", rows[i].text);
        CHOIR_CHECK_OK(ch_addr_lookup(rows[i].text, &none, &list));
        CHOIR_CHECK_EQ(list.count, rows[i].count);
        CHOIR_CHECK_STR(ch_addr_text(&list.addrs[0], text), rows[i].first);
    }
    CHOIR_CHECK_STATUS(ch_addr_lookup("[::1:2", &none, &list), CHOIR_ERR_INVALID);
    CHOIR_CHECK_STATUS(ch_addr_lookup("[zz::1]:2", &none, &list), CHOIR_ERR_INVALID);
    CHOIR_CHECK_EQ(atomic_load(&server.asked), 0);
}

CHOIR_TEST(a_name_without_address_is_an_error)
{
    struct rig rig;
    struct ch_addr_list list = { .count = -7 };
    struct ch_patience patience;

    use_fake_server();
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_STATUS(ch_addr_lookup("nobody.test:1", &patience, &list), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_HAS(choir_last_error(), "nobody.test");
    CHOIR_CHECK_STATUS(ch_addr_lookup("unix.test:1", &patience, &list), CHOIR_ERR_NETWORK);
    CHOIR_CHECK_EQ(list.count, -7);
    wait_for_threads(RIG_FDS);
    rig_fini(&rig);
}

CHOIR_TEST(a_silent_name_server_does_not_outlast_the_deadline)
{
    struct rig rig;
    struct ch_addr_list list;
    uint64_t began = ch_now();
    struct ch_patience patience;

    use_fake_server();
    CHOIR_CHECK_OK(rig_init(&rig));
    patience = patience_ms(&rig, 50);
    CHOIR_CHECK_STATUS(ch_addr_lookup("slow.test:1", &patience, &list), CHOIR_ERR_TIMEOUT);
    check_took_about(began, 50);
    CHOIR_CHECK_HAS(choir_last_error(), "slow.test");

    ch_waiter_interrupt(&rig.waiter);
    patience = ample(&rig);
    CHOIR_CHECK_STATUS(ch_addr_lookup("slow.test:1", &patience, &list), CHOIR_ERR_INTERRUPTED);
    rig_fini(&rig);

    /* The caller is gone; the answers now come, for nobody. */
    atomic_store(&server.go, true);
    wait_for_threads(0);
}

static choir_status look_up_once(void *arg)
{
    struct rig rig;
    struct ch_addr_list list;
    struct ch_patience patience;
    choir_status rc = rig_init(&rig);

    (void)arg;
    if (rc != CHOIR_OK)
        return rc;
    patience = patience_ms(&rig, 1000 * (int64_t)choir_test_slowness());
    rc = ch_addr_lookup("two.test:1", &patience, &list);
    rig_fini(&rig);
    wait_for_threads(0);
    return rc;
}

CHOIR_TEST(every_failure_of_a_lookup_is_an_error)
{
    use_fake_server();
    choir_test_all_faults(look_up_once, NULL);
    check_copes_with(CH_FAULT_recvmsg, EINTR, look_up_once, NULL);
    check_copes_with(CH_FAULT_recvmsg, EAGAIN, look_up_once, NULL);
    check_copes_with(CH_FAULT_poll, EINTR, look_up_once, NULL);
}

/* The system's own look-up, for what every machine can answer without a network. */
CHOIR_TEST(the_system_is_asked_too)
{
    struct rig rig;
    struct ch_addr_list list;
    struct ch_patience patience;

    CHOIR_CHECK_OK(rig_init(&rig));
    patience = ample(&rig);
    CHOIR_CHECK_OK(ch_addr_lookup("[fe80::1%lo]:5", &patience, &list));
    CHOIR_CHECK_LE(1, list.count);
    CHOIR_CHECK_EQ(ch_addr_port(&list.addrs[0]), 5);
    wait_for_threads(RIG_FDS);
    rig_fini(&rig);
}
