// SPDX-License-Identifier: Apache-2.0
// Runs the checks and shows what they found: what is missing first, then what is limited. Reads
// nothing itself; writes the stream it is given.
#include "harness/doctor/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/doctor/check.h"
#include "reports/render/text/screen.h"

enum { DOCTOR_ID_COLUMNS = 15, DOCTOR_STATUS_COLUMNS = 9, DOCTOR_FILE_MAX = 1 << 20 };

static const char *const doctor_words[] = {[DOCTOR_STATUS_OK] = "ok",
        [DOCTOR_STATUS_LIMITED] = "limited",
        [DOCTOR_STATUS_MISSING] = "missing"};

struct doctor_finding *doctor_add(
        struct doctor *doctor, const char *id, enum doctor_status status, const char *found, ...)
{
    va_list args;
    va_start(args, found);
    char *text = xvasprintf(found, args);
    va_end(args);
    struct doctor_finding *finding = vector_add(doctor->findings, doctor->count);
    *finding = (struct doctor_finding){.id = id, .status = status, .found = text};
    return finding;
}

void doctor_lose(struct doctor_finding *finding, const char *lost, const char *remedy)
{
    finding->lost = xstrdup(lost);
    finding->remedy = xstrdup(remedy);
}

void doctor_fact(struct doctor_finding *finding, const char *name, json_t *value)
{
    if (!finding->facts)
        finding->facts = json_object();
    json_object_set_new(finding->facts, name, value ? value : json_null());
}

char *doctor_read(const struct doctor *doctor, const char *path)
{
    char *full = xasprintf("%s%s", doctor->root, path);
    char *text = string_read_file(full, DOCTOR_FILE_MAX, NULL);
    free(full);
    for (size_t len = text ? strlen(text) : 0; len && strchr(" \n\t", text[len - 1]);)
        text[--len] = 0;
    return text;
}

struct doctor *doctor_examine(const char *root)
{
    static void (*const checks[])(struct doctor *) = {check_freezer, check_priority, check_cpus,
            check_quota, check_load, check_pressure, check_steal, check_frequency, check_clock,
            check_shared_memory, check_memory, check_disk, check_workloads, check_extension,
            check_pythons, check_gpu, check_gpu_tracing, check_calibration, check_tracing,
            check_kernel_symbols, check_python_stacks, check_lockdown, check_capture};
    struct doctor *doctor = xcalloc(1, sizeof *doctor);
    doctor->root = root;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        checks[i](doctor);
    return doctor;
}

struct doctor *doctor_examine_image(const char *name)
{
    struct doctor *doctor = xcalloc(1, sizeof *doctor);
    doctor->root = "";
    doctor->image = name;
    check_image(doctor, name);
    return doctor;
}

void doctor_free(struct doctor *doctor)
{
    if (!doctor)
        return;
    for (int i = 0; i < doctor->count; i++) {
        free(doctor->findings[i].found);
        free(doctor->findings[i].lost);
        free(doctor->findings[i].remedy);
        json_decref(doctor->findings[i].facts);
    }
    free(doctor->findings);
    free(doctor->sources);
    free(doctor);
}

bool doctor_can_run(const struct doctor *doctor)
{
    for (int i = 0; i < doctor->count; i++)
        if (doctor->findings[i].required && doctor->findings[i].status == DOCTOR_STATUS_MISSING)
            return false;
    return true;
}

json_t *doctor_json(const struct doctor *doctor)
{
    json_t *checks = json_array();
    for (int i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        json_t *check = json_object();
        json_object_set_new(check, "id", json_string(finding->id));
        json_object_set_new(check, "status", json_string(doctor_words[finding->status]));
        json_object_set_new(check, "required", json_boolean(finding->required));
        json_t *found = json_string(finding->found); // NULL when a path is not UTF-8
        json_object_set_new(check, "found", found ? found : json_null());
        json_object_set_new(
                check, "lost", finding->lost ? json_string(finding->lost) : json_null());
        json_object_set_new(
                check, "remedy", finding->remedy ? json_string(finding->remedy) : json_null());
        json_object_set_new(
                check, "facts", finding->facts ? json_incref(finding->facts) : json_object());
        json_array_append_new(checks, check);
    }
    json_t *document = json_object();
    json_object_set_new(document, "schema", json_string("upgate.doctor/1"));
    json_object_set_new(document, "can_run", json_boolean(doctor_can_run(doctor)));
    json_object_set_new(document, "checks", checks);
    return document;
}

// "          lost: ...", indented to the text above it.
static void doctor_print_part(
        struct strbuf *out, const char *label, const char *text, const struct render_opts *opts)
{
    int indent = DOCTOR_STATUS_COLUMNS + DOCTOR_ID_COLUMNS;
    screen_repeat(out, " ", indent);
    screen_style(out, SCREEN_STYLE_DIM, opts->color, label);
    char *clean = screen_clean(text, opts->utf8);
    int label_columns = screen_columns(label);
    screen_wrap(out, clean, opts->width, indent + label_columns, indent + label_columns);
    free(clean);
}

static void doctor_print_finding(
        struct strbuf *out, const struct doctor_finding *finding, const struct render_opts *opts)
{
    static const enum screen_style styles[] = {[DOCTOR_STATUS_OK] = SCREEN_STYLE_PASS,
            [DOCTOR_STATUS_LIMITED] = SCREEN_STYLE_INCONCLUSIVE,
            [DOCTOR_STATUS_MISSING] = SCREEN_STYLE_FAIL};
    struct strbuf status = {0};
    screen_pad(&status, doctor_words[finding->status], DOCTOR_STATUS_COLUMNS, false);
    screen_style(out, styles[finding->status], opts->color, status.text);
    strbuf_free(&status);
    screen_pad(out, finding->id, DOCTOR_ID_COLUMNS, false);
    int indent = DOCTOR_STATUS_COLUMNS + DOCTOR_ID_COLUMNS;
    if (strlen(finding->id) >= DOCTOR_ID_COLUMNS) { // a long name stands on a line of its own
        strbuf_add(out, "\n");
        screen_repeat(out, " ", indent);
    }
    for (const char *line = finding->found; line;) {
        size_t len = strcspn(line, "\n");
        char *text = xasprintf("%.*s", (int)len, line), *clean = screen_clean(text, opts->utf8);
        if (line != finding->found)
            screen_repeat(out, " ", indent);
        screen_wrap(out, clean, opts->width, indent, indent);
        free(clean);
        free(text);
        line = line[len] ? line + len + 1 : NULL;
    }
    if (finding->lost)
        doctor_print_part(out, "lost: ", finding->lost, opts);
    if (finding->remedy)
        doctor_print_part(out, "do:   ", finding->remedy, opts);
}

// The second job beside the main one, when it was looked at.
static void doctor_print_record(struct strbuf *out, const struct doctor *doctor, bool color)
{
    for (int i = 0; i < doctor->count; i++) {
        if (strcmp(doctor->findings[i].id, "capture") != 0)
            continue;
        bool can = doctor->findings[i].status != DOCTOR_STATUS_MISSING;
        screen_style(out, can ? SCREEN_STYLE_PASS : SCREEN_STYLE_INCONCLUSIVE, color,
                can ? "`upgate record` can run here" : "`upgate record` CANNOT run here");
        strbuf_add(out, "\n");
    }
}

int doctor_print(const struct doctor *doctor, const struct render_opts *opts, FILE *stream,
        struct error *err)
{
    int counts[3] = {0}, rc = 0;
    for (int i = 0; i < doctor->count; i++)
        counts[doctor->findings[i].status]++;
    struct render_opts shown = *opts;
    shown.width = opts->width ? opts->width : RENDER_WIDTH_DEFAULT;
    struct strbuf out = {0};
    screen_style(&out, doctor_can_run(doctor) ? SCREEN_STYLE_PASS : SCREEN_STYLE_FAIL, opts->color,
            doctor->image ? doctor_can_run(doctor) ? "`upgate ab` can run sides in this image"
                                                   : "`upgate ab` CANNOT run sides in this image"
                    : doctor_can_run(doctor) ? "`upgate ab` can run here"
                                             : "`upgate ab` CANNOT run here");
    strbuf_add(&out, ": %d ok, %d limited, %d missing\n", counts[DOCTOR_STATUS_OK],
            counts[DOCTOR_STATUS_LIMITED], counts[DOCTOR_STATUS_MISSING]);
    doctor_print_record(&out, doctor, opts->color);
    strbuf_add(&out, "\n");
    // What stops the main job first, then by status.
    for (int required = 1; required >= 0; required--)
        for (int i = 0; i < doctor->count; i++)
            if (doctor->findings[i].status == DOCTOR_STATUS_MISSING &&
                    doctor->findings[i].required == required)
                doctor_print_finding(&out, &doctor->findings[i], &shown);
    for (int status = DOCTOR_STATUS_LIMITED; status >= DOCTOR_STATUS_OK; status--)
        for (int i = 0; i < doctor->count; i++)
            if ((int)doctor->findings[i].status == status)
                doctor_print_finding(&out, &doctor->findings[i], &shown);
    errno = 0;
    if (fwrite(out.text, 1, out.len, stream) != out.len || fflush(stream) != 0)
        rc = error_set(
                err, errno ? -errno : -EIO, "failed to print: %s", strerror(errno ? errno : EIO));
    strbuf_free(&out);
    return rc;
}
