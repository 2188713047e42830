// SPDX-License-Identifier: Apache-2.0
// The rig of the controller's tests: plan, store, a controller in a process of its own.
#include "tests/unit/canary_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strings.h"
#include "harness/canary/controller/controller.h"
#include "harness/canary/store/rollout_store.h"
#include "tests/unit/runner.h"

char rig_dir[64], rig_store[96];
static char plan_path[96];

void rig_plan(const char *more)
{
    FILE *file = fopen(plan_path, "w");
    fprintf(file,
            "name: r\nstore: %s\ntraffic: {haproxy: {socket: s, backend: b, baseline: old, candidate: new, baseline2: old2}}\n"
            "sources: [{jsonl: {baseline: a, candidate: b}}]\n%s",
            rig_store, more);
    fclose(file);
}

void rig_begin(const char *more)
{
    canary_world_reset();
    // in memory: a rollout's store waits for the disk at each decision
    strcpy(rig_dir, "/dev/shm/test_controller_XXXXXX");
    CHECK(mkdtemp(rig_dir) != NULL);
    snprintf(rig_store, sizeof rig_store, "%s/r.db", rig_dir);
    snprintf(plan_path, sizeof plan_path, "%s/r.yaml", rig_dir);
    canary_world->path = rig_store;
    rig_plan(more);
}

void rig_end(void)
{
    char *command = xasprintf("rm -rf '%s'", rig_dir);
    CHECK_INT(system(command), 0);
    free(command);
}

int rig_run_with(int64_t wait_ns, bool anew)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct rollout *rollout = NULL;
        struct error err = {0};
        enum exit_code code = EXIT_CODE_USAGE;
        log_set_level(getenv("CANARY_TEST_LOG") ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR);
        if (!getenv("CANARY_TEST_LOG") && !freopen("/dev/null", "w", stderr))
            _exit(99);
        json_t *command = json_pack("[s]", "upgate");
        int rc = rollout_load(plan_path, &rollout, &err);
        struct controller_options options = {.rollout = rollout,
                .who = "tester",
                .command_line = command,
                .anew = anew,
                .wait_ns = wait_ns};
        if (rc == 0)
            rc = controller_run(&options, &code, &err);
        if (rc)
            fprintf(stderr, "%s\n", err.text);
        rollout_free(rollout);
        json_decref(command);
        fflush(NULL);
        _exit(rc ? REFUSED - rc : (int)code);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int rig_run(void)
{
    return rig_run_with(-1, false);
}

int64_t rig_int(const char *sql)
{
    struct store *store = NULL;
    struct error err = {0};
    int64_t value = -999;
    if (store_open(rig_store, STORE_READ, &store, &err) ||
            store_get_int(store, &value, &err, sql, ""))
        runner_fail(__FILE__, __LINE__, "%s: %s", sql, err.text);
    store_close(store);
    return value;
}

char *rig_text(const char *sql)
{
    static char text[1000];
    struct store *store = NULL;
    struct error err = {0};
    if (store_open(rig_store, STORE_READ, &store, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    char *found = store ? store_get_text(store, sql, "") : NULL;
    snprintf(text, sizeof text, "%s", found ? found : "(none)");
    free(found);
    store_close(store);
    return text;
}

void rig_ask(enum rollout_verb verb)
{
    struct error err = {0};
    if (rollout_store_request(rig_store, verb, "ann", "as told", &err))
        _exit(98);
}
