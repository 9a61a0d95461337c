/*
 * machine.c - see machine.h.
 */
#include "algo/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algo/page.h"
#include "base/compiler.h"
#include "base/cpu_name.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/params.h"
#include "base/sys.h"

/* The figures that have a line of their own. */
static const struct {
    const char *name;
    size_t offset;
    const char *meaning;
} figures[] = {
    { "call_us", offsetof(choir_machine, call_us), "every operation, on every rank" },
    { "wait_us", offsetof(choir_machine, wait_us), "from raising a flag to its being seen" },
    { "message_us", offsetof(choir_machine, message_us),
      "every message, of its sender's and its receiver's processor" },
    { "host_us", offsetof(choir_machine, host_us), "a message inside a host" },
    { "host_gbs", offsetof(choir_machine, host_gbs), "its bytes" },
    { "net_us", offsetof(choir_machine, net_us), "a message between hosts" },
    { "net_gbs", offsetof(choir_machine, net_gbs), "its bytes" },
};

static double *figure_at(choir_machine *m, size_t i)
{
    return (double *)(void *)((char *)m + figures[i].offset);
}

void choir_machine_init(choir_machine *m)
{
    static const choir_machine_point usual[] = { { 4096, 20, 20 },
                                                 { 1 << 20, 16, 16 },
                                                 { 16 << 20, 8, 8 } };

    *m = (choir_machine){ .size = sizeof(*m),
                          .ranks_per_host = 1,
                          .call_us = 0.2,
                          .wait_us = 0.3,
                          .message_us = 0.2,
                          .host_us = 0.4,
                          .host_gbs = 8,
                          .net_us = 1.6,
                          .net_gbs = 12,
                          .npoints = CH_ARRAY_LEN(usual) };
    memcpy(m->points, usual, sizeof(usual));
}

/* --- reading ------------------------------------------------------------------------------------------ */

static choir_status take_point(choir_machine *m, const char *value)
{
    choir_machine_point *p = &m->points[m->npoints];
    char rest;

    if (m->npoints == CHOIR_MACHINE_POINTS)
        return ch_fail(CHOIR_ERR_INVALID, "more than %d points", CHOIR_MACHINE_POINTS);
    if (sscanf(value, "%lf %lf %lf %c", &p->nbytes, &p->copy_gbs, &p->reduce_gbs, &rest) != 3)
        return ch_fail(CHOIR_ERR_INVALID, "\"%s\": expected a size in bytes and two rates in GB/s",
                       value);
    m->npoints++;
    return CHOIR_OK;
}

static choir_status take_number(const char *value, double *out)
{
    char *end;
    double number = strtod(value, &end);

    if (end == value || *end != '\0')
        return ch_fail(CHOIR_ERR_INVALID, "\"%s\": expected a number", value);
    *out = number;
    return CHOIR_OK;
}

static choir_status take(choir_machine *m, const char *name, const char *value)
{
    double number = 0;
    choir_status rc;

    if (strcmp(name, "cpu") == 0) {
        snprintf(m->cpu, sizeof(m->cpu), "%s", value);
        return CHOIR_OK;
    }
    if (strcmp(name, "point") == 0)
        return take_point(m, value);
    if (strcmp(name, "ranks_per_host") == 0) {
        rc = take_number(value, &number);
        if (rc == CHOIR_OK && !(number >= 0 && number <= 1 << 20))
            return ch_fail(CHOIR_ERR_INVALID, "\"%s\": expected 0, for all, or more", value);
        m->ranks_per_host = (int)number;
        return rc;
    }
    for (size_t i = 0; i < CH_ARRAY_LEN(figures); i++) {
        if (strcmp(name, figures[i].name) == 0)
            return take_number(value, figure_at(m, i));
    }
    return ch_fail(CHOIR_ERR_INVALID, "there is no figure \"%s\"", name);
}

/* One line, without its end; comment and blanks around are not part of it. */
static choir_status take_line(choir_machine *m, const char *line, size_t n, bool *has_points)
{
    char copy[512], name[32], *value;
    const char *comment = memchr(line, '#', n);

    if (comment != NULL)
        n = (size_t)(comment - line);
    while (n > 0 && strchr(" \t\r", line[n - 1]) != NULL)
        n--;
    while (n > 0 && strchr(" \t", *line) != NULL) {
        line++;
        n--;
    }
    if (n == 0)
        return CHOIR_OK;
    if (n >= sizeof(copy))
        return ch_fail(CHOIR_ERR_INVALID, "it has %zu bytes, %zu at most", n, sizeof(copy) - 1);
    memcpy(copy, line, n);
    copy[n] = '\0';
    value = copy + strcspn(copy, " \t");
    if (*value == '\0' || (size_t)(value - copy) >= sizeof(name))
        return ch_fail(CHOIR_ERR_INVALID, "\"%s\": expected a name and a value", copy);
    snprintf(name, sizeof(name), "%.*s", (int)(value - copy), copy);
    value += strspn(value, " \t");
    if (strcmp(name, "point") == 0 && !*has_points) {
        m->npoints = 0; /* ours give way to the first of theirs */
        *has_points = true;
    }
    return take(m, name, value);
}

choir_status ch_machine_check(const choir_machine *m)
{
    for (size_t i = 0; i < CH_ARRAY_LEN(figures); i++) {
        double value = *figure_at((choir_machine *)m, i);
        bool rate = strstr(figures[i].name, "gbs") != NULL;

        if (!(value >= 0 && value <= 1e12) || (rate && value <= 0))
            return ch_fail(CHOIR_ERR_INVALID, "%s is %g, expected %s", figures[i].name, value,
                           rate ? "more than 0" : "0 or more");
    }
    if (m->npoints < 1 || m->npoints > CHOIR_MACHINE_POINTS)
        return ch_fail(CHOIR_ERR_INVALID, "%d points, expected 1 to %d", m->npoints,
                       CHOIR_MACHINE_POINTS);
    for (int i = 0; i < m->npoints; i++) {
        const choir_machine_point *p = &m->points[i];

        if (!(p->nbytes > 0 && p->copy_gbs > 0 && p->reduce_gbs > 0 && p->nbytes < 1e18) ||
            (i > 0 && p->nbytes <= p[-1].nbytes))
            return ch_fail(CHOIR_ERR_INVALID,
                           "point %g %g %g: expected rising sizes and rates above 0", p->nbytes,
                           p->copy_gbs, p->reduce_gbs);
    }
    return CHOIR_OK;
}

choir_status choir_machine_parse(const char *text, choir_machine *out)
{
    choir_machine m;
    bool has_points = false;
    choir_status rc = CHOIR_OK;

    if (text == NULL || out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "machine: the text or the place for it is NULL");
    choir_machine_init(&m);
    for (int line = 1; rc == CHOIR_OK && *text != '\0'; line++) {
        size_t n = strcspn(text, "\n");

        rc = take_line(&m, text, n, &has_points);
        if (rc != CHOIR_OK)
            ch_error_prefix("machine, line %d: ", line);
        text += n + (text[n] == '\n');
    }
    if (rc == CHOIR_OK) {
        rc = ch_machine_check(&m);
        if (rc != CHOIR_OK)
            ch_error_prefix("machine: ");
    }
    if (rc == CHOIR_OK)
        *out = m;
    return rc;
}

/* --- files -------------------------------------------------------------------------------------------- */

enum { FILE_MOST = 64 * 1024 };

/* All of a small file; *text is as long as FILE_MOST + 1. */
static choir_status read_file(const char *path, char *text)
{
    int fd = ch_sys_open(path, O_RDONLY, 0);
    size_t used = 0;
    ssize_t n = 1;
    choir_status rc = CHOIR_OK;

    if (fd < 0)
        return ch_fail_errno("machine file %s", path);
    while (used < FILE_MOST && (n = ch_sys_read(fd, text + used, FILE_MOST - used)) > 0)
        used += (size_t)n;
    if (n < 0)
        rc = ch_fail_errno("machine file %s: read", path);
    else if (used == FILE_MOST)
        rc = ch_fail(CHOIR_ERR_INVALID, "machine file %s: longer than %d bytes", path, FILE_MOST);
    else if (memchr(text, '\0', used) != NULL)
        rc = ch_fail(CHOIR_ERR_INVALID, "machine file %s: it has a NUL byte, and is no text", path);
    ch_sys_close(fd);
    text[used] = '\0';
    return rc;
}

choir_status choir_machine_load(const char *path, choir_machine *out)
{
    char *text;
    choir_status rc;

    if (path == NULL || out == NULL)
        return ch_fail(CHOIR_ERR_INVALID, "machine: the path or the place for it is NULL");
    text = ch_alloc(FILE_MOST + 1);
    if (text == NULL)
        return ch_fail(CHOIR_ERR_NOMEM, "machine file %s: no memory to read it", path);
    rc = read_file(path, text);
    if (rc == CHOIR_OK) {
        rc = choir_machine_parse(text, out);
        if (rc != CHOIR_OK)
            ch_error_prefix("%s: ", path);
    }
    ch_free(text);
    return rc;
}

/* "AMD_EPYC" for an AMD EPYC, as part of a file's name; false if the processor has no name. */
static bool cpu_as_name(char *out, size_t size)
{
    ch_cpu_name(out, size);
    if (strcmp(out, "unknown") == 0)
        return false;
    for (char *c = out; *c != '\0'; c++) {
        bool plain = (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= 'a' && *c <= 'z');

        *c = plain ? *c : '_';
    }
    return true;
}

choir_status choir_machine_path(char *out, size_t size)
{
    const char *knob = ch_params()->machine, *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    char cpu[96];
    int n = -1;

    if (out == NULL || size == 0)
        return ch_fail(CHOIR_ERR_INVALID, "machine: no place for its path");
    if (strcmp(knob, "none") == 0)
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "CHOIR_MACHINE is none");
    if (knob[0] != '\0')
        n = snprintf(out, size, "%s", knob);
    else if (!cpu_as_name(cpu, sizeof(cpu)))
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "the kernel does not say the processor's model");
    else if (config != NULL && config[0] == '/')
        n = snprintf(out, size, "%s/choir/%s.machine", config, cpu);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, size, "%s/.config/choir/%s.machine", home, cpu);
    else
        return ch_fail(CHOIR_ERR_UNSUPPORTED, "neither XDG_CONFIG_HOME nor HOME is a folder");
    if (n < 0 || (size_t)n >= size)
        return ch_fail(CHOIR_ERR_INVALID, "the path of the machine file has %d bytes", n);
    return CHOIR_OK;
}

bool ch_machine_find(choir_machine *out)
{
    char path[1024];
    choir_status rc = choir_machine_path(path, sizeof(path));
    choir_error error;

    if (rc == CHOIR_OK)
        rc = choir_machine_load(path, out);
    if (rc == CHOIR_OK)
        return true;
    ch_error_save(&error);
    /* That there is none is the usual case, unless one was named. */
    if (rc == CHOIR_ERR_INVALID || (ch_params()->machine[0] != '\0' && rc != CHOIR_ERR_UNSUPPORTED))
        ch_log_warn("algorithms are chosen without measured figures: %s", error.text);
    return false;
}

/* FNV-1a over the figures that decide. */
uint64_t ch_machine_id(const choir_machine *m)
{
    const unsigned char *bytes = (const void *)m;
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = offsetof(choir_machine, call_us); i < sizeof(*m); i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h != 0 ? h : 1;
}

/* --- writing ------------------------------------------------------------------------------------------ */

choir_status ch_machine_text(const choir_machine *m, char **text_out)
{
    struct ch_page page = { 0 };

    ch_page_put(&page, "# a machine, for choir simulate and choir perf --explain-cost\n");
    if (m->cpu[0] != '\0')
        ch_page_put(&page, "cpu %s\n", m->cpu);
    ch_page_put(&page, "ranks_per_host %d # that share memory; 0: all of them\n",
                m->ranks_per_host);
    for (size_t i = 0; i < CH_ARRAY_LEN(figures); i++)
        ch_page_put(&page, "%s %.6g # %s\n", figures[i].name, *figure_at((choir_machine *)m, i),
                    figures[i].meaning);
    ch_page_put(&page, "# in all-reduces of so many bytes: GB/s of copies and of reductions\n");
    for (int i = 0; i < m->npoints; i++)
        ch_page_put(&page, "point %.0f %.4g %.4g\n", m->points[i].nbytes, m->points[i].copy_gbs,
                    m->points[i].reduce_gbs);
    return ch_page_end(&page, text_out);
}
