// SPDX-License-Identifier: Apache-2.0
// When a run has ended: with its last launch, which may be a traced one behind its verdict.
#include "harness/run/session_store.h"

#include <unistd.h>

#include "tests/unit/runner.h"

static int64_t run_value(struct store *store, const char *sql)
{
    int64_t value = -1;
    store_get_int(store, &value, NULL, sql, "");
    return value;
}

TEST(a_run_has_ended_when_its_traced_launches_have)
{
    struct store *store = NULL;
    struct plan *plan = NULL;
    struct error err = {0};
    json_t *words = json_array(), *host = json_object();
    const int64_t judged_ns = 2000, traced_ns = 3000;
    CHECK_INT(store_open("", STORE_CREATE, &store, &err), 0);
    CHECK_INT(plan_from_command(NULL, NULL, NULL, 0, &plan, &err), 0);
    CHECK_INT(session_store_create(store, plan, false, words, host, &err), 0);
    CHECK_INT(run_value(store, "SELECT ended_wall_ns FROM run"), -1);
    CHECK_INT(run_value(store, "SELECT writer_pid FROM run"), getpid());
    CHECK_INT(session_store_state(store, "done", &judged_ns, &err), 0);
    CHECK_INT(run_value(store, "SELECT ended_wall_ns FROM run WHERE state = 'done'"), judged_ns);
    CHECK_INT(run_value(store, "SELECT writer_pid FROM run"), -1);
    // killed now, it took as long as is known
    CHECK_INT(session_store_writer(store, NULL, &err), 0);
    CHECK_INT(run_value(store, "SELECT ended_wall_ns FROM run"), judged_ns);
    CHECK_INT(run_value(store, "SELECT writer_pid FROM run"), getpid());
    CHECK_INT(session_store_writer(store, &traced_ns, &err), 0);
    CHECK_INT(run_value(store, "SELECT ended_wall_ns FROM run WHERE state = 'done'"), traced_ns);
    CHECK_INT(run_value(store, "SELECT writer_pid FROM run"), -1);
    CHECK_INT(session_store_state(store, "running", NULL, &err), 0);
    CHECK_INT(run_value(store, "SELECT ended_wall_ns FROM run"), -1);
    store_close(store);
    plan_free(plan);
    json_decref(words);
    json_decref(host);
}
