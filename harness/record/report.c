// SPDX-License-Identifier: Apache-2.0
// What `upgate record` prints on stdout.
#include "harness/record/report.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/log.h"
#include "common/units.h"
#include "contracts/spool.h"
#include "harness/contain/inject.h"
#include "reports/render/text/json_text.h"

static const char *report_ending(const struct recording_result *result)
{
    switch (result->ending) {
    case RECORDING_SIGNAL:
        return result->signal == SIGINT ? "ended by Ctrl-C" : "ended by a signal";
    case RECORDING_TARGET:
        return "the target ended";
    default:
        return "time is over";
    }
}

static const char *report_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void report_print_host(const struct recording_result *result)
{
    char length[32];
    const struct recorder_totals *totals = &result->totals;
    printf("recorded %s (%s)", unit_format_ns(length, sizeof length, (double)result->length_ns),
            report_ending(result));
    if (totals->host)
        printf(": %llu gaps of %u thread%s, %llu samples, %llu lock waits, %llu facts",
                (unsigned long long)totals->gaps, totals->threads, report_plural(totals->threads),
                (unsigned long long)totals->samples, (unsigned long long)totals->locks,
                (unsigned long long)totals->facts);
    if (result->steps)
        printf("%s%llu steps", totals->host ? ", " : ": ", (unsigned long long)result->steps);
    printf("; %llu lost\n", (unsigned long long)totals->dropped);
}

// "13.0" of 130000; before CUPTI 13 the number of its interface is all there is: 18 came with 11.8,
// 28 with 12.9.
static void report_version(char text[24], json_int_t version)
{
    if (version >= 10000)
        snprintf(text, 24, "%lld.%lld", (long long)(version / 10000),
                (long long)(version % 10000 / 100));
    else if (version)
        snprintf(text, 24, "of API version %lld", (long long)version);
    else
        snprintf(text, 24, "of unknown version");
}

static void report_print_process(const json_t *process)
{
    const char *state = json_string_value(json_object_get(process, "state"));
    const char *reason = json_string_value(json_object_get(process, "reason"));
    json_int_t cupti = json_integer_value(json_object_get(process, "cupti_version"));
    const json_t *residual = json_object_get(process, "clock_residual_ns");
    char version[24], clock[32], worst[32];
    printf("  process %lld: ", (long long)json_integer_value(json_object_get(process, "pid")));
    bool kernels = json_integer_value(json_object_get(process, "kinds")) & UG_WANT_KERNELS;
    if (!kernels || (state && strcmp(state, "refused") == 0)) {
        printf("not traced: %s\n", reason ? reason : "no reason told");
        return;
    }
    report_version(version, cupti);
    printf("CUPTI %s", version);
    if (json_is_integer(residual))
        printf(", clocks joined within %s (at most %s) by %lld samples",
                unit_format_ns(clock, sizeof clock, (double)json_integer_value(residual)),
                unit_format_ns(worst, sizeof worst,
                        (double)json_integer_value(
                                json_object_get(process, "clock_residual_max_ns"))),
                (long long)json_integer_value(json_object_get(process, "clock_samples")));
    printf("%s%s\n", reason ? "; " : "", reason ? reason : "");
}

static void report_print_gpu(const struct recording_result *result)
{
    const struct gpu_totals *gpu = &result->totals.gpu;
    const json_t *process;
    size_t i;
    if (!gpu->processes)
        return;
    printf("GPU side of %u process%s: %llu kernels, %llu copies, %llu graph launches, %llu waiting or allocating calls, "
           "%llu collectives, %llu Python marks; %llu lost\n",
            gpu->processes, gpu->processes == 1 ? "" : "es", (unsigned long long)gpu->kernels,
            (unsigned long long)gpu->copies, (unsigned long long)gpu->graphs,
            (unsigned long long)gpu->calls, (unsigned long long)gpu->collectives,
            (unsigned long long)gpu->marks, (unsigned long long)gpu->dropped);
    json_array_foreach(result->gpu, i, process) report_print_process(process);
}

void report_print(const struct recording_opts *opts, const struct recording_result *result)
{
    report_print_host(result);
    report_print_gpu(result);
    if (result->totals.host)
        printf("next: upgate stalls %s\n", opts->path);
}

static json_t *report_gpu_json(const struct recording_result *result)
{
    const struct gpu_totals *gpu = &result->totals.gpu;
    return json_pack("{sI sI sI sI sI sI sI si si sO?}", "kernels", (json_int_t)gpu->kernels,
            "copies", (json_int_t)gpu->copies, "graphs", (json_int_t)gpu->graphs, "calls",
            (json_int_t)gpu->calls, "collectives", (json_int_t)gpu->collectives, "marks",
            (json_int_t)gpu->marks, "lost", (json_int_t)gpu->dropped, "processes",
            (int)gpu->processes, "refused", (int)gpu->refused, "process", result->gpu);
}

void report_print_json(const struct recording_opts *opts, const struct recording_result *result)
{
    static const char *const endings[] = {[RECORDING_TIME] = "time",
            [RECORDING_SIGNAL] = "signal",
            [RECORDING_TARGET] = "target"};
    const struct recorder_totals *totals = &result->totals;
    json_t *exit_code = opts->command && result->command_ended && WIFEXITED(result->command_status)
            ? json_integer(WEXITSTATUS(result->command_status))
            : json_null();
    json_t *document = json_pack("{ss so sI sI ss sb si sI sI sI sI sI sI so so}", "schema",
            "upgate.record/1", "store", render_json_text(opts->path), "recording",
            (json_int_t)result->recording_id, "window_ns", (json_int_t)result->length_ns, "ending",
            endings[result->ending], "host", totals->host, "threads", (int)totals->threads, "gaps",
            (json_int_t)totals->gaps, "samples", (json_int_t)totals->samples, "locks",
            (json_int_t)totals->locks, "facts", (json_int_t)totals->facts, "steps",
            (json_int_t)result->steps, "lost", (json_int_t)totals->dropped, "command_exit_code",
            exit_code, "gpu", report_gpu_json(result));
    json_dumpf(document, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(document);
}

int report_print_environment(bool json, struct error *err)
{
    struct inject inject = {0};
    struct inject_variable variables[INJECT_VARIABLES];
    char kinds[16];
    int rc = inject_find(&inject, err);
    if (rc)
        return rc;
    inject_variables(&inject, 0, kinds, variables);
    json_t *object = json_object();
    for (const struct inject_variable *at = variables; at->name; at++) {
        json_object_set_new(object, at->name, json_string(at->value));
        if (!json)
            printf("%s=%s\n", at->name, at->value);
    }
    if (json) {
        json_t *document =
                json_pack("{ss sO}", "schema", "upgate.record-env/1", "environment", object);
        json_dumpf(document, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(document);
    } else {
        log_info(
                "systemd: EnvironmentFile=, or Environment= before each line; Docker: --env-file, or ENV before each "
                "line, with the directory mounted at the same place; then: upgate record --pid PID");
    }
    json_decref(object);
    inject_free(&inject);
    return 0;
}
