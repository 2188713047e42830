// SPDX-License-Identifier: Apache-2.0
// Tables of HAProxy, read by the names of their columns: each version adds some.
#include "harness/canary/traffic/haproxy_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "common/units.h"

enum {
    HAPROXY_FIELDS_MAX = 256, // `show stat` of 2.6 has 95
    HAPROXY_FIELD_LEN = 128,
    // srv_admin_state of `show servers state`: forced, inherited, configured, by the resolver
    HAPROXY_ADMIN_MAINTENANCE = 0x01 | 0x02 | 0x04 | 0x20 | 0x40,
    HAPROXY_ADMIN_DRAIN = 0x08
};

struct haproxy_row {
    char fields[HAPROXY_FIELDS_MAX][HAPROXY_FIELD_LEN];
    int count;
};

static void haproxy_put(struct haproxy_row *row, size_t *len, char c)
{
    if (*len + 1 < HAPROXY_FIELD_LEN)
        row->fields[row->count][(*len)++] = c;
}

// One line, up to its end; fields may stand in quotes, and then "" is a quote. Returns where the
// next line begins, NULL: none.
static const char *haproxy_row_read(const char *at, char separator, struct haproxy_row *row)
{
    size_t len = 0;
    bool quoted = false;
    row->count = 0;
    if (!*at)
        return NULL;
    for (; *at && (quoted || *at != '\n'); at++) {
        if (*at == '"' && separator == ',') {
            if (quoted && at[1] == '"')
                haproxy_put(row, &len, *at++);
            else
                quoted = !quoted;
        } else if (*at == separator && !quoted) {
            row->fields[row->count][len] = 0;
            len = 0;
            if (row->count < HAPROXY_FIELDS_MAX - 1)
                row->count++;
        } else {
            haproxy_put(row, &len, *at);
        }
    }
    row->fields[row->count++][len] = 0;
    return *at ? at + 1 : at;
}

static int haproxy_column(const struct haproxy_row *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->fields[i], name) == 0)
            return i;
    return -1;
}

static const char *haproxy_field(const struct haproxy_row *row, int column)
{
    return column >= 0 && column < row->count ? row->fields[column] : "";
}

static uint64_t haproxy_number(const struct haproxy_row *row, int column)
{
    uint64_t value = 0;
    return unit_parse_uint(haproxy_field(row, column), 0, UINT64_MAX / 2, &value, NULL) ? 0 : value;
}

struct haproxy_server *haproxy_server(struct haproxy_backend *backend, const char *name)
{
    for (int i = 0; i < backend->count; i++)
        if (strcmp(backend->servers[i].name, name) == 0)
            return &backend->servers[i];
    return NULL;
}

static struct haproxy_server *haproxy_server_put(struct haproxy_backend *backend, const char *name)
{
    struct haproxy_server *server = haproxy_server(backend, name);
    if (server || backend->count == HAPROXY_SERVERS_MAX)
        return server;
    struct haproxy_server *added = vector_add(backend->servers, backend->count);
    snprintf(added->name, sizeof added->name, "%s", name);
    return added;
}

static int haproxy_refuse(const char *answer, const char *command, struct error *err)
{
    return error_set(err, -EBADMSG, "the socket does not answer '%s' as HAProxy does, but: %.120s",
            command, answer);
}

// "Name: HAProxy", "Pid: 812", "Uptime_sec: 7", … up to an empty line. Returns what follows it;
// `answer` where it is no such thing.
static const char *haproxy_read_info(const char *answer, struct haproxy_backend *ret)
{
    const char *end = strstr(answer, "\n\n"), *pid = strstr(answer, "\nPid: "),
               *uptime = strstr(answer, "\nUptime_sec: ");
    if (!end || !pid || !uptime || pid > end || uptime > end)
        return answer;
    ret->pid = strtoull(pid + 6, NULL, 10);
    ret->uptime_s = strtoull(uptime + 13, NULL, 10);
    return end + 2;
}

// "1", "# be_id be_name srv_id srv_name …", one line a server.
int haproxy_read_state(
        const char *answer, const char *backend, struct haproxy_backend *ret, struct error *err)
{
    struct haproxy_row *names = xcalloc(2, sizeof *names), *row = names + 1;
    answer = haproxy_read_info(answer, ret);
    if (strncmp(answer, "Can't find backend", 18) == 0) {
        free(names);
        return error_set(err, -ENOENT, "HAProxy has no backend '%s'", backend);
    }
    const char *at = strstr(answer, "# ");
    int servers = 0;
    at = at ? haproxy_row_read(at + 2, ' ', names) : NULL;
    int column_backend = haproxy_column(names, "be_name"),
        column_name = haproxy_column(names, "srv_name");
    int column_weight = haproxy_column(names, "srv_uweight"),
        column_admin = haproxy_column(names, "srv_admin_state");
    if (!at || column_backend < 0 || column_name < 0 || column_weight < 0 || column_admin < 0) {
        free(names);
        return haproxy_refuse(answer, "show servers state", err);
    }
    while ((at = haproxy_row_read(at, ' ', row))) {
        if (strcmp(haproxy_field(row, column_backend), backend) != 0 ||
                !*haproxy_field(row, column_name))
            continue;
        struct haproxy_server *server = haproxy_server_put(ret, haproxy_field(row, column_name));
        if (!server)
            break;
        uint64_t admin = haproxy_number(row, column_admin);
        server->listed = true;
        server->weight = haproxy_number(row, column_weight);
        server->maintenance = admin & HAPROXY_ADMIN_MAINTENANCE;
        server->draining = admin & HAPROXY_ADMIN_DRAIN;
        servers++;
    }
    free(names);
    return servers ? 0
                   : error_set(err, -ENOENT, "the backend '%s' of HAProxy has no servers", backend);
}

// "UP", "UP 1/3", "no check", "DRAIN" (weight 0, or to be drained), "NOLB"; not up: "DOWN", "DOWN
// 1/2", "MAINT", "MAINT (via …)".
static bool haproxy_is_up(const char *status)
{
    return strncmp(status, "UP", 2) == 0 || strncmp(status, "DRAIN", 5) == 0 ||
            strncmp(status, "NOLB", 4) == 0 || strcmp(status, "no check") == 0;
}

// "# pxname,svname,qcur,…", one line a server, and one of the backend itself.
int haproxy_read_stat(
        const char *answer, const char *backend, struct haproxy_backend *ret, struct error *err)
{
    struct haproxy_row *names = xcalloc(2, sizeof *names), *row = names + 1;
    const char *at =
            strncmp(answer, "# ", 2) == 0 ? haproxy_row_read(answer + 2, ',', names) : NULL;
    int column_backend = haproxy_column(names, "pxname"),
        column_name = haproxy_column(names, "svname");
    int column_status = haproxy_column(names, "status"),
        column_sessions = haproxy_column(names, "scur");
    int column_queued = haproxy_column(names, "qcur"), column_total = haproxy_column(names, "stot");
    int column_backup = haproxy_column(names, "bck"),
        column_algorithm = haproxy_column(names, "algo");
    int column_cookie = haproxy_column(names, "cookie");
    if (!at || column_backend < 0 || column_name < 0 || column_status < 0 || column_sessions < 0) {
        free(names);
        return haproxy_refuse(answer, "show stat", err);
    }
    while ((at = haproxy_row_read(at, ',', row))) {
        const char *name = haproxy_field(row, column_name);
        if (strcmp(haproxy_field(row, column_backend), backend) != 0 || !*name ||
                strcmp(name, "FRONTEND") == 0)
            continue;
        if (strcmp(name, "BACKEND") == 0) {
            snprintf(ret->algorithm, sizeof ret->algorithm, "%.31s",
                    haproxy_field(row, column_algorithm));
            snprintf(ret->cookie, sizeof ret->cookie, "%.63s", haproxy_field(row, column_cookie));
            continue;
        }
        struct haproxy_server *server = haproxy_server_put(ret, name);
        if (!server)
            break;
        server->counted = true;
        server->up = haproxy_is_up(haproxy_field(row, column_status));
        server->backup = haproxy_number(row, column_backup) > 0;
        server->cookie = *haproxy_field(row, column_cookie) != 0;
        server->sessions = haproxy_number(row, column_sessions);
        server->queued = haproxy_number(row, column_queued);
        server->total = haproxy_number(row, column_total);
    }
    free(names);
    return 0;
}

void haproxy_backend_free(struct haproxy_backend *backend)
{
    free(backend->servers);
    *backend = (struct haproxy_backend){0};
}
