// SPDX-License-Identifier: Apache-2.0
// A rollout's store: rows both ways, the lock, evidence that a clock tells twice, requests of
// others, damage.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/canary/store/rollout_store.h"
#include "tests/unit/canary_world.h"
#include "tests/unit/runner.h"

static char path[64];
static struct error err;

static struct rollout *plan(void)
{
    static const char text[] =
            "name: r\ntraffic: {hooks: {url: u}}\nsources: [{jsonl: {baseline: a, candidate: b}}]\n"
            "stages: [{percent: 5, name: aa}, {percent: 10}, {percent: 100}]\n";
    char file[] = "/tmp/test_canary_XXXXXX";
    struct rollout *rollout = NULL;
    int fd = mkstemp(file);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    CHECK_INT(rollout_load(file, &rollout, &err), 0);
    unlink(file);
    return rollout;
}

static struct store *fresh(int *ret_lock)
{
    struct store *store = NULL;
    struct rollout *rollout = plan();
    json_t *command = json_pack("[s]", "upgate");
    canary_world_reset();
    snprintf(path, sizeof path, "/tmp/test_canary_%d.db", (int)getpid());
    unlink(path);
    if (rollout_store_lock(path, ret_lock, &err) || rollout_store_open(path, &store, &err) ||
            rollout_store_new(store, rollout, command, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    json_decref(command);
    rollout_free(rollout);
    return store;
}

static void done(struct store *store, int lock)
{
    store_close(store);
    close(lock);
    unlink(path);
}

TEST(state_both_ways)
{
    int lock;
    struct store *store = fresh(&lock);
    struct rollout_row row;
    CHECK_INT(rollout_store_read(store, &row, &err), 0);
    CHECK_STR(row.name, "r");
    CHECK_INT(row.state, ROLLOUT_WAITING);
    CHECK_INT(row.stage, -1);
    CHECK(isnan(row.percent));
    CHECK_INT(row.pid, getpid());
    CHECK_INT(row.up[0], -1);
    free(row.reason);
    row = (struct rollout_row){.name = row.name,
            .plan = row.plan,
            .reason = xstrdup("because"),
            .state = ROLLOUT_RUNNING,
            .stage = 1,
            .percent = 10.16,
            .since_ns = 7,
            .stage_since_ns = 8,
            .heartbeat_ns = 9,
            .up = {1, 0}};
    CHECK_INT(rollout_store_write(store, &row, &err), 0);
    rollout_row_clear(&row);
    CHECK_INT(rollout_store_read(store, &row, &err), 0);
    CHECK_STR(row.reason, "because");
    CHECK_INT(row.state, ROLLOUT_RUNNING);
    CHECK_INT(row.stage, 1);
    CHECK_DBL(row.percent, 10.16, 0);
    CHECK_INT(row.stage_since_ns, 8);
    CHECK(row.up[0] == 1 && row.up[1] == 0);
    CHECK_INT(rollout_store_alive(store, false, &err), 0);
    rollout_row_clear(&row);
    CHECK_INT(rollout_store_read(store, &row, &err), 0);
    CHECK_INT(row.pid, 0);
    rollout_row_clear(&row);
    done(store, lock);
}

TEST(a_stage_or_a_share_that_no_plan_has)
{
    static const char *const damages[] = {
            "stage = 7880209789", "stage = -2", "stage = 64", "percent = 9e999"};
    int lock;
    struct store *store = fresh(&lock);
    struct rollout_row row;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char sql[100];
        CHECK_INT(
                store_exec(store, &err, "UPDATE rollout SET stage = NULL, percent = NULL", ""), 0);
        CHECK_INT(rollout_store_read(store, &row, &err), 0);
        rollout_row_clear(&row);
        snprintf(sql, sizeof sql, "UPDATE rollout SET %s", damages[i]);
        CHECK_INT(store_exec(store, &err, sql, ""), 0);
        CHECK_INT(rollout_store_read(store, &row, &err), -EBADMSG);
        CHECK_CONTAINS(err.text, "damaged");
    }
    done(store, lock);
}

TEST(decisions)
{
    int lock;
    struct store *store = fresh(&lock);
    struct rollout_decision last;
    CHECK_INT(rollout_store_last_decision(store, &last, &err), -ENOENT);
    struct rollout_decision made = {.at_ns = 5,
            .state_from = ROLLOUT_RUNNING,
            .state_to = ROLLOUT_ROLLED_BACK,
            .stage_from = 1,
            .stage_to = 1,
            .percent_from = 10,
            .rule = RULE_TRIPWIRE_WRONG,
            .reason = "x",
            .who = "controller"};
    CHECK_INT(rollout_store_decide(store, &made, &err), 0);
    CHECK_INT(rollout_store_last_decision(store, &last, &err), 0);
    CHECK(last.id == made.id && last.effect_ns == 0 && last.rule == RULE_TRIPWIRE_WRONG &&
            last.state_to == ROLLOUT_ROLLED_BACK);
    CHECK_INT(rollout_store_effect(store, made.id, 6, 0.2, &err), 0);
    CHECK_INT(rollout_store_last_decision(store, &last, &err), 0);
    CHECK_INT(last.effect_ns, 6);
    CHECK_DBL(last.percent_to, 0.2, 0);
    CHECK_INT(store_exec(store, &err, "UPDATE rollout_decision SET rule = 'luck'", ""), 0);
    CHECK_INT(rollout_store_last_decision(store, &last, &err), -EBADMSG);
    done(store, lock);
}

static int each(void *arg, int64_t at_s, int stage, const struct canary_second arms[CANARY_ARMS])
{
    char *text = arg;
    sprintf(text + strlen(text), "%lld:%d:%llu/%llu ", (long long)at_s, stage,
            (unsigned long long)arms[0].requests, (unsigned long long)arms[1].requests);
    return arms[1].wrong == 77 ? -ECANCELED : 0;
}

TEST(seconds)
{
    int lock;
    struct store *store = fresh(&lock);
    struct canary_second arms[CANARY_ARMS] = {{.requests = 3}, {.requests = 1, .errors = 1}};
    char text[400] = "";
    CHECK_INT(rollout_store_seconds(store, each, text, &err), 0);
    CHECK_STR(text, "");
    arms[0].bins[1151] = 2;
    CHECK_INT(rollout_store_second(store, 100, 0, arms, &err), 0);
    CHECK_INT(rollout_store_second(store, 102, 1, arms, &err), 0);
    // the clock was set back: the second comes again
    CHECK_INT(rollout_store_second(store, 102, 1, arms, &err), 0);
    CHECK_INT(rollout_store_seconds(store, each, text, &err), 0);
    CHECK_STR(text, "100:0:3/1 102:1:6/2 ");
    arms[1].requests = arms[1].wrong = 77;
    arms[1].errors = 0;
    CHECK_INT(rollout_store_second(store, 101, 0, arms, &err), 0);
    text[0] = 0;
    CHECK_INT(rollout_store_seconds(store, each, text, &err), -ECANCELED);
    // A row that cannot be: read by nobody as evidence.
    CHECK_INT(
            store_exec(store, &err,
                    "UPDATE rollout_second SET errors = requests + 1 WHERE at_s = 100 AND arm = 0",
                    ""),
            0);
    CHECK_INT(rollout_store_seconds(store, each, text, &err), -EBADMSG);
    CHECK_INT(
            store_exec(store, &err,
                    "UPDATE rollout_second SET errors = 0, bins = x'ffffffffff' WHERE at_s = 100 AND arm = 0",
                    ""),
            0);
    CHECK_INT(rollout_store_seconds(store, each, text, &err), -EBADMSG);
    done(store, lock);
}

TEST(requests_of_others)
{
    int lock;
    struct store *store = fresh(&lock);
    struct rollout_request request;
    CHECK_INT(rollout_store_next_request(store, &request, &err), 0);
    CHECK_INT(request.verb, REQUEST_NONE);
    if (rollout_store_request(path, REQUEST_PAUSE, "ann@host", "lunch", &err) ||
            rollout_store_request(path, REQUEST_ABORT, "bob\x1b[2J", NULL, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    CHECK_INT(rollout_store_next_request(store, &request, &err), 0);
    CHECK_INT(request.verb, REQUEST_ABORT); // before all others
    CHECK_STR(request.who, "bob?[2J");      // nothing that moves a terminal's cursor
    CHECK_INT(rollout_store_take_request(store, request.id, 1, &err), 0);
    CHECK_INT(rollout_store_next_request(store, &request, &err), 0);
    CHECK_INT(request.verb, REQUEST_PAUSE);
    CHECK_STR(request.reason, "lunch");
    CHECK_INT(store_exec(store, &err, "UPDATE rollout SET state = 'rolled_back'", ""), 0);
    CHECK_INT(rollout_store_request(path, REQUEST_RESUME, "ann", NULL, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "has ended: rolled_back");
    done(store, lock);
    // no such file
    CHECK_INT(rollout_store_request(path, REQUEST_RESUME, "ann", NULL, &err), -EINVAL);
}

TEST(one_controller)
{
    int lock, second = -1, status = 0;
    struct store *store = fresh(&lock);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct error why = {0};
        int rc = rollout_store_lock(path, &second, &why);
        _exit(rc == -EBUSY && strstr(why.text, "held by another controller, process") ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    CHECK_INT(WEXITSTATUS(status), 0);
    done(store, lock);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    // freed with the process or its descriptor
    CHECK_INT(rollout_store_lock(path, &second, &err), 0);
    close(second);
    unlink(path);
    CHECK_INT(rollout_store_lock("/proc/none/r.db", &second, &err), -ENOENT);
}

TEST(cells)
{
    int lock;
    struct store *store = fresh(&lock);
    struct canary_cell cells[2] = {{.metric = CANARY_ERROR_RATE,
                                           .stage = 1,
                                           .value = 1.2,
                                           .low = NAN,
                                           .high = INFINITY,
                                           .threshold = 1.5,
                                           .requests = 9,
                                           .requests_missing = 4,
                                           .verdict = CANARY_FAIL,
                                           .since_s = 25,
                                           .since_ratio = 5.5},
            {.metric = CANARY_WRONG_ANSWERS, .stage = 1, .verdict = CANARY_PASS}};
    int64_t count = 0;
    CHECK_INT(rollout_store_cells(store, 100, cells, 2, &err), 0);
    CHECK_INT(rollout_store_cells(store, 100, cells, 2, &err), 0);
    CHECK_INT(
            store_get_int(store, &count, &err,
                    "SELECT count(*) FROM v_rollout_cell WHERE low IS NULL AND verdict = 'fail' AND missing = 4",
                    ""),
            0);
    CHECK_INT(count, 1);
    json_t *json = rollout_cells_to_json(cells, 2);
    // infinite is no number of JSON
    CHECK(json_is_null(json_object_get(json_array_get(json, 0), "bound")));
    CHECK_STR(json_string_value(json_object_get(json_array_get(json, 1), "verdict")), "pass");
    CHECK_INT(json_integer_value(json_object_get(json_array_get(json, 0), "since_s")), 25);
    CHECK_DBL(json_real_value(json_object_get(json_array_get(json, 0), "since_ratio")), 5.5, 0);
    CHECK(!json_object_get(json_array_get(json, 1), "since_s"));
    json_decref(json);
    done(store, lock);
}

TEST(other_stores_are_not_taken)
{
    struct store *store = NULL;
    struct rollout_row row;
    int lock;
    snprintf(path, sizeof path, "/tmp/test_canary_%d.db", (int)getpid());
    unlink(path);
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(rollout_store_read(store, &row, &err), -ENOENT);
    store_close(store);
    CHECK_INT(rollout_store_request(path, REQUEST_PAUSE, "me", NULL, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "no rollout");
    FILE *file = fopen(path, "w");
    fputs("this is no database, whatever its name says, and it is long enough to be looked at",
            file);
    fclose(file);
    CHECK_INT(rollout_store_lock(path, &lock, &err), 0);
    CHECK_INT(rollout_store_open(path, &store, &err), -EINVAL);
    close(lock);
    unlink(path);
}
