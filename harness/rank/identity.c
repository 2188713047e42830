// SPDX-License-Identifier: Apache-2.0
// Who a rank is.
#include "harness/rank/identity.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"

void identity_clock_read(struct identity_clock *ret)
{
    enum { TRIES = 5 };
    int64_t narrowest = INT64_MAX;
    for (int i = 0; i < TRIES; i++) { // whoever is interrupted in between is the wider one
        int64_t before = clock_monotonic_ns(), wall = clock_wall_ns(), after = clock_monotonic_ns();
        if (after - before >= narrowest)
            continue;
        narrowest = after - before;
        ret->wall_minus_monotonic_ns = wall - (before + narrowest / 2);
    }
    struct timex now = {.modes = 0}; // asks only
    int state = adjtimex(&now);
    bool known =
            state >= 0 && state != TIME_ERROR && !(now.status & STA_UNSYNC) && now.maxerror >= 0;
    ret->error_ns = known ? (int64_t)now.maxerror * 1000 + narrowest : -1;
}

// Of a text, what IDENTITY_RUN_MAX and the name of a directory allow.
static void identity_run_set(char *ret_run, const char *text)
{
    snprintf(ret_run, IDENTITY_RUN_MAX, "%s", *text ? text : "run");
    for (char *at = ret_run; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '-' && *at != '_' &&
                (*at != '.' || at == ret_run))
            *at = '_';
}

void identity_find(const char *run, struct identity *ret)
{
    struct utsname names;
    *ret = (struct identity){0};
    if (!launcher_find_own(&ret->launcher))
        ret->launcher =
                (struct launcher_rank){.ranks = 1, .local_rank = -1, .local_ranks = -1, .node = -1};
    uname(&names);
    snprintf(ret->host, sizeof ret->host, "%.*s", (int)sizeof ret->host - 1, names.nodename);
    string_make_plain(ret->host, strlen(ret->host));
    char *boot = string_read_file("/proc/sys/kernel/random/boot_id", 36, NULL);
    snprintf(ret->boot, sizeof ret->boot, "%s", boot ? boot : "");
    free(boot);
    char made[IDENTITY_RUN_MAX];
    // Without a launcher nobody else belongs to it; with one that names no job, all ranks must come
    // to the same name.
    if (ret->launcher.launcher)
        snprintf(made, sizeof made, "%s",
                *ret->launcher.job ? ret->launcher.job : ret->launcher.launcher);
    else
        snprintf(made, sizeof made, "%s-%d-%lld", ret->host, (int)getpid(),
                (long long)(clock_wall_ns() / 1000000000));
    identity_run_set(ret->run, run ? run : made);
    identity_clock_read(&ret->clock);
}

static json_t *identity_number(int64_t value) // -1: not known
{
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

json_t *identity_json(const struct identity *identity)
{
    const struct launcher_rank *launcher = &identity->launcher;
    return json_pack("{ss si si si so so so ss? ss ss sI so}", "run", identity->run, "restart",
            (int)launcher->restart, "rank", (int)launcher->rank, "ranks", (int)launcher->ranks,
            "local_rank", identity_number(launcher->local_rank), "local_ranks",
            identity_number(launcher->local_ranks), "node", identity_number(launcher->node),
            "launcher", launcher->launcher, "host", identity->host, "boot", identity->boot,
            "wall_minus_monotonic_ns", (json_int_t)identity->clock.wall_minus_monotonic_ns,
            "clock_error_ns", identity_number(identity->clock.error_ns));
}

static bool identity_get_number(const json_t *json, const char *name, int64_t *ret)
{
    const json_t *value = json_object_get(json, name);
    *ret = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    return json_is_integer(value) || json_is_null(value);
}

static bool identity_get_text(const json_t *json, const char *name, char *ret, size_t size)
{
    const char *text = json_string_value(json_object_get(json, name));
    if (!text || strlen(text) >= size)
        return false;
    snprintf(ret, size, "%s", text);
    string_make_plain(ret, strlen(ret));
    return true;
}

bool identity_parse(const json_t *json, struct identity *ret)
{
    int64_t rank, ranks, restart, local_rank, local_ranks, node;
    char run[IDENTITY_RUN_MAX];
    *ret = (struct identity){0};
    if (!identity_get_number(json, "rank", &rank) || !identity_get_number(json, "ranks", &ranks) ||
            !identity_get_number(json, "restart", &restart) ||
            !identity_get_number(json, "local_rank", &local_rank) ||
            !identity_get_number(json, "local_ranks", &local_ranks) ||
            !identity_get_number(json, "node", &node) ||
            !identity_get_text(json, "run", ret->run, sizeof ret->run) ||
            !identity_get_text(json, "host", ret->host, sizeof ret->host) ||
            !identity_get_text(json, "boot", ret->boot, sizeof ret->boot) ||
            !identity_get_number(
                    json, "wall_minus_monotonic_ns", &ret->clock.wall_minus_monotonic_ns) ||
            !identity_get_number(json, "clock_error_ns", &ret->clock.error_ns))
        return false;
    identity_run_set(run, ret->run);
    if (rank < 0 || rank >= ranks || ranks > INT32_MAX || restart < 0 || restart > INT32_MAX ||
            local_rank > INT32_MAX || local_ranks > INT32_MAX || node > INT32_MAX ||
            ret->clock.wall_minus_monotonic_ns < 0 ||
            ret->clock.wall_minus_monotonic_ns >= (int64_t)1 << 62 ||
            ret->clock.error_ns > (int64_t)1 << 60 || strcmp(run, ret->run) != 0)
        return false;
    ret->launcher = (struct launcher_rank){.rank = (int32_t)rank,
            .ranks = (int32_t)ranks,
            .restart = (int32_t)restart,
            .local_rank = (int32_t)local_rank,
            .local_ranks = (int32_t)local_ranks,
            .node = (int32_t)node};
    return true;
}
