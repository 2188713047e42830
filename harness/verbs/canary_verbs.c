// SPDX-License-Identifier: Apache-2.0
// upgate canary plan, run and serve: reads the plan, starts what it asks for. Prints to stdout what
// was asked for, and nothing else.
#include "harness/verbs/canary_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "harness/canary/controller/controller.h"
#include "harness/canary/plan/foresight.h"
#include "harness/canary/store/rollout_store.h"
#include "harness/verbs/command_line.h"
#include "harness/verbs/program.h"
#include "reports/render/render.h"
#ifdef UPGATE_HAVE_CANARY_SERVE
#include "harness/canary/serve/serve.h"
#endif
#ifdef UPGATE_HAVE_CANARY_SHADOW
#include "harness/canary/shadow/shadow_stage.h"
#endif
#ifdef UPGATE_HAVE_CANARY_WHY
#include "harness/canary/why/why.h"
#endif

static bool canary_is_store(const char *path)
{
    char magic[16] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, magic, sizeof magic);
    if (fd >= 0)
        close(fd);
    return got == sizeof magic && memcmp(magic, "SQLite format 3", sizeof magic) == 0;
}

int canary_store_of(
        const char *path, char **ret_store, struct rollout **ret_plan, struct error *err)
{
    struct rollout *rollout = NULL;
    if (ret_plan)
        *ret_plan = NULL;
    if (canary_is_store(path)) {
        *ret_store = xstrdup(path);
        return 0;
    }
    int rc = rollout_load(path, &rollout, err);
    if (rc)
        return rc;
    *ret_store = xstrdup(rollout->store);
    if (ret_plan)
        *ret_plan = rollout;
    else
        rollout_free(rollout);
    return 0;
}

char *canary_who(void)
{
    char host[256] = "";
    const char *sudo = getenv("SUDO_USER");
    const struct passwd *user = getpwuid(geteuid());
    gethostname(host, sizeof host - 1);
    char *who = sudo && *sudo ? xasprintf("%s@%s", sudo, host)
            : user            ? xasprintf("%s@%s", user->pw_name, host)
                              : xasprintf("uid %u@%s", (unsigned)geteuid(), host);
    string_make_plain(who, strlen(who));
    return who;
}

// --- plan ----------------------------------------------------------------------------------------

static void canary_print_json(json_t *json)
{
    // For people: 0.01, not 0.010000000000000000208. main looks whether stdout took it.
    json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    putchar('\n');
    json_decref(json);
}

static int canary_write_plan(
        const char *path, const struct rollout *rollout, bool json, struct error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        return error_set(err, -errno, "failed to print: %s", strerror(errno));
    if (json) {
        json_t *document = foresight_to_json(rollout);
        json_dumpf(document, file, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        fputc('\n', file);
        json_decref(document);
    } else {
        foresight_print(rollout, file);
    }
    fclose(file);
    int rc = path ? render_write_bytes(path, text, size, err) : 0;
    if (!path)
        fwrite(text, 1, size, stdout);
    free(text);
    return rc;
}

int canary_verb_plan(const char *path, const struct canary_values *values)
{
    struct rollout *rollout = NULL;
    struct error err = {0};
    int rc = rollout_load(path, &rollout, &err);
    if (rc == 0 && values->common.dry_run)
        canary_print_json(rollout_to_json(rollout));
    else if (rc == 0)
        rc = canary_write_plan(
                values->common.output, rollout, strcmp(values->common.format, "json") == 0, &err);
    rollout_free(rollout);
    return program_judge(rc, EXIT_CODE_PASS, &err);
}

// --- run -----------------------------------------------------------------------------------------

static int canary_run(const struct rollout *rollout, const struct canary_values *values,
        const json_t *command, enum exit_code *ret_exit, struct error *err)
{
    char *who = canary_who();
    struct controller_options options = {.rollout = rollout,
            .who = who,
            .command_line = command,
            .anew = values->anew,
            .wait_ns = values->wait_ns};
#ifdef UPGATE_HAVE_CANARY_SHADOW
    struct shadow_stage stage = {.requests = rollout->shadow.requests,
            .methods = (const char *const *)rollout->shadow.methods,
            .ignore = (const char *const *)rollout->shadow.ignore,
            .tolerance = rollout->shadow.tolerance};
    const struct controller_shadow shadow = {
            &stage, shadow_stage_begin, shadow_stage_traffic, shadow_stage_take, shadow_stage_end};
    options.shadow = &shadow;
#endif
#ifdef UPGATE_HAVE_CANARY_WHY
    struct why *why = why_new(NULL);
    const struct controller_why hook = {why, why_begin, why_done};
    options.why = &hook;
#endif
    int rc = controller_run(&options, ret_exit, err);
#ifdef UPGATE_HAVE_CANARY_WHY
    why_free(why);
#endif
    free(who);
    return rc;
}

int canary_verb_run(const char *path, const struct canary_values *values, int argc, char **argv)
{
    struct rollout *rollout = NULL;
    struct error err = {0};
    enum exit_code code = EXIT_CODE_OPERATIONAL;
    json_t *command = command_line_json(argc, argv);
    int rc = rollout_load(path, &rollout, &err);
    if (rc == 0 && values->common.dry_run) {
        canary_print_json(rollout_to_json(rollout));
        code = EXIT_CODE_PASS;
    } else if (rc == 0) {
        rc = canary_run(rollout, values, command, &code, &err);
    }
    json_decref(command);
    int shown = 0;
    if (rc == 0 && !values->common.dry_run) // what is left of it, for people and scripts
        shown = canary_verb_status(rollout->store, values);
    if (rc == 0 && !values->common.dry_run && values->common.output)
        shown = canary_verb_report(rollout->store, values);
    rollout_free(rollout);
    if (rc)
        return program_judge(rc, EXIT_CODE_PASS, &err);
    return code == EXIT_CODE_PASS && shown ? shown : (int)code;
}

// --- serve ---------------------------------------------------------------------------------------

int canary_verb_serve(const char *path, const struct canary_values *values)
{
    struct error err = {0};
#ifdef UPGATE_HAVE_CANARY_SERVE
    char *store = NULL;
    struct rollout *rollout = NULL;
    int rc = canary_store_of(path, &store, &rollout, &err);
    if (rc == 0 && values->common.dry_run) {
        log_info("would serve '%s' on %s", store,
                values->listen ? values->listen : "127.0.0.1:8080");
    } else if (rc == 0) {
        struct serve_options options = {.store = store,
                .name = values->name ? values->name
                        : rollout    ? rollout->name
                                     : NULL,
                .listen = values->listen,
                .token_file = values->token_file,
                .tls_cert = values->tls_cert,
                .tls_key = values->tls_key,
                .no_token = values->no_token,
                .open_metrics = values->open_metrics};
        rc = canary_serve(&options, &err);
    }
    rollout_free(rollout);
    free(store);
#else
    (void)path;
    (void)values;
    int rc = error_set(&err, -ENOTSUP, "this upgate was built without `canary serve`");
#endif
    return program_judge(rc, EXIT_CODE_PASS, &err);
}
