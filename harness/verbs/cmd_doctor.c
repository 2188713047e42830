// SPDX-License-Identifier: Apache-2.0
// `upgate doctor`: what this machine allows, what is missing, how to get it. Reads the machine,
// writes stdout or the file of -o; leaves nothing behind.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options.h"
#include "contracts/exit_code.h"
#include "harness/doctor/doctor.h"
#include "harness/plan/plan.h"
#include "harness/verbs/program.h"

struct doctor_values {
    bool json;
    const char *image;
    struct options_common common;
};

extern const struct verb verb_doctor;

static const char *const doctor_usage[] = {"doctor [--json]", "doctor --image NAME", NULL};

static const char *const doctor_examples[] = {
        "upgate doctor",
        "what is missing first, with what it costs and what to do",
        "upgate doctor --json | jq -r '.checks[] | select(.status != \"ok\") | .id'",
        "the names of what is not in order",
        "sudo upgate doctor",
        "what root would be allowed here",
        "upgate doctor --image registry/train:torch2.1",
        "what a side in this image would lack, and the flag that helps",
        NULL,
};

static const struct option_spec doctor_options[] = {
        {"Options", 0, "json", OPTION_FLAG, NULL, NULL, NULL,
                "the document upgate.doctor/1, as --format json",
                offsetof(struct doctor_values, json), 0, 0, 0},
        {NULL, 0, "image", OPTION_TEXT, "NAME", NULL, NULL,
                "look at this container image instead, as a side: a container of it is started for a moment",
                offsetof(struct doctor_values, image), 0, 0, 0},
        OPTIONS_COMMON(struct doctor_values, common, "FILE", "write there instead of stdout", NULL),
        {.name = NULL},
};

static int doctor_write(const struct doctor *doctor, const struct doctor_values *values, FILE *file,
        struct error *err)
{
    if (!values->json && strcmp(values->common.format, "json") != 0) {
        struct render_opts opts = {0};
        render_opts_detect(&opts, fileno(file), values->common.no_color);
        return doctor_print(doctor, &opts, file, err);
    }
    json_t *document = doctor_json(doctor);
    errno = 0;
    int rc = json_dumpf(document, file, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (rc || fputc('\n', file) == EOF || fflush(file) != 0)
        rc = error_set(
                err, errno ? -errno : -EIO, "failed to print: %s", strerror(errno ? errno : EIO));
    json_decref(document);
    return rc;
}

static int doctor_visit(const struct doctor_values *values, bool *ret_can_run, struct error *err)
{
    const char *path = values->common.output;
    FILE *file = path ? fopen(path, "we") : stdout;
    if (!file)
        return error_set(err, -errno, "failed to write '%s': %s", path, strerror(errno));
    struct doctor *doctor =
            values->image ? doctor_examine_image(values->image) : doctor_examine("");
    int rc = doctor_write(doctor, values, file, err);
    *ret_can_run = doctor_can_run(doctor);
    doctor_free(doctor);
    if (path && fclose(file) != 0 && rc == 0)
        rc = error_set(err, -errno, "failed to write '%s': %s", path, strerror(errno));
    return rc;
}

static int doctor_run(int argc, char **argv)
{
    struct doctor_values values = {.common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    int rc = program_parse(&verb_doctor, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0)
        return EXIT_CODE_PASS;
    bool can_run = true;
    if (rc == 0) {
        if (values.common.seed_given)
            log_warn("--seed changes nothing here: nothing is drawn");
        if (values.image)
            rc = plan_check_image(values.image, &err);
        if (rc == 0 && values.common.dry_run)
            printf("would look at %s%s; nothing is said of what it allows\n",
                    values.image ? "image " : "this machine", values.image ? values.image : "");
        else if (rc == 0)
            rc = doctor_visit(&values, &can_run, &err);
    }
    return program_judge(rc, can_run ? EXIT_CODE_PASS : EXIT_CODE_OPERATIONAL, &err);
}

const struct verb verb_doctor = {
        .name = "doctor",
        .summary =
                "Say what this machine allows, what is missing, what that costs and how to get it.",
        .usage = doctor_usage,
        .options = doctor_options,
        .examples = doctor_examples,
        .exit_codes = "0  `upgate ab` can run here, maybe with limits\n2  usage\n"
                      "4  `upgate ab` cannot run here at all",
        .run = doctor_run,
};
