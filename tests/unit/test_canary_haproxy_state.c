// SPDX-License-Identifier: Apache-2.0
// What HAProxy 2.6 answers at its socket, as recorded, and what it never would.
#include <errno.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/canary/traffic/haproxy_state.h"
#include "harness/canary/traffic/hook.h"
#include "tests/unit/runner.h"

static const char state_answer[] =
        "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change "
        "srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn "
        "srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n"
        "4 ranker 1 old 127.0.0.1 2 0 253 100 6 6 3 4 6 0 0 0 - 5982 - 0 0 - - 0\n"
        "4 ranker 2 new 127.0.0.1 2 8 3 0 0 1 0 2 0 0 0 0 - 5983 - 0 0 - - 0\n"
        "4 ranker 3 out 127.0.0.1 2 1 9 9 0 1 0 2 0 0 0 0 - 5983 - 0 0 - - 0\n";
static const char stat_answer[] =
        "# pxname,svname,qcur,qmax,scur,smax,slim,stot,status,weight,act,bck,last_chk,algo,-,ssl_sess,\n"
        "ranker,old,1,0,2,1,,17,UP 1/3,253,1,0,\"said \"\"no\"\", twice\",,-,0,\n"
        "ranker,new,0,0,0,0,,0,DOWN,0,0,0,,,-,0,\n"
        "ranker,spare,0,0,0,0,,0,no check,1,0,1,,,-,0,\n"
        "ranker,BACKEND,0,0,0,1,1997,2,UP,100,1,0,,roundrobin,-,,\n";

TEST(recorded_answers)
{
    struct haproxy_backend backend = {0};
    struct error err = {0};
    CHECK_INT(haproxy_read_state(state_answer, "ranker", &backend, &err), 0);
    CHECK_INT(haproxy_read_stat(stat_answer, "ranker", &backend, &err), 0);
    CHECK_INT(backend.count, 4);
    const struct haproxy_server *old = haproxy_server(&backend, "old"),
                                *new = haproxy_server(&backend, "new");
    CHECK_INT(old->weight, 253);
    CHECK(old->up && old->listed && old->counted && !old->draining && !old->maintenance &&
            !old->backup);
    CHECK_INT(old->sessions, 2);
    CHECK_INT(old->queued, 1);
    CHECK_INT(old->total, 17);
    CHECK_INT(new->weight, 3);
    CHECK(new->draining && !new->up && !new->maintenance);
    CHECK(haproxy_server(&backend, "out")->maintenance &&
            !haproxy_server(&backend, "out")->counted);
    CHECK(haproxy_server(&backend, "spare")->backup && haproxy_server(&backend, "spare")->up);
    CHECK(haproxy_server(&backend, "nobody") == NULL);
    CHECK_STR(backend.algorithm, "roundrobin");
    haproxy_backend_free(&backend);
}

TEST(answers_that_are_none)
{
    static const char *const wrong[] = {"", "\n", "Permission denied", "# ", "1\n# a b c\n",
            "Unknown command", "# pxname\n", "{}"};
    struct haproxy_backend backend = {0};
    struct error err = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(haproxy_read_state(wrong[i], "ranker", &backend, &err), -EBADMSG);
        CHECK_INT(haproxy_read_stat(wrong[i], "ranker", &backend, &err), -EBADMSG);
    }
    CHECK_INT(haproxy_read_state("Can't find backend.", "nope", &backend, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "no backend 'nope'");
    CHECK_INT(haproxy_read_state(state_answer, "other", &backend, &err), -ENOENT);
    CHECK_INT(backend.count, 0);
}

TEST(every_cut_and_very_long_answers)
{
    char *text = xstrdup(state_answer);
    struct error err;
    for (size_t len = strlen(text); len-- > 0;) {
        struct haproxy_backend backend = {0};
        text[len] = 0;
        int rc = haproxy_read_state(text, "ranker", &backend, &err);
        CHECK(rc == 0 || rc == -EBADMSG || rc == -ENOENT);
        CHECK(backend.count <= 3);
        haproxy_backend_free(&backend);
    }
    free(text);
    struct strbuf longer = {0};
    strbuf_add(&longer, "# pxname,svname,status,scur");
    for (int i = 0; i < 5000; i++)
        strbuf_add(&longer, ",column%d", i);
    strbuf_add(&longer, "\nranker,");
    for (int i = 0; i < 5000; i++)
        strbuf_add(&longer, "x");
    strbuf_add(&longer, ",UP,1\n");
    for (int i = 0; i < 5000; i++)
        strbuf_add(&longer, "ranker,s%d,UP,7\n", i);
    struct haproxy_backend backend = {0};
    CHECK_INT(haproxy_read_stat(longer.text, "ranker", &backend, &err), 0);
    CHECK_INT(backend.count, HAPROXY_SERVERS_MAX);
    CHECK_INT(haproxy_server(&backend, "s7")->sessions, 7);
    haproxy_backend_free(&backend);
    strbuf_free(&longer);
}

TEST(the_process_that_answers)
{
    static const struct {
        const char *info;
        uint64_t pid, uptime_s;
    } cases[] = {
            {"Name: HAProxy\nPid: 812\nUptime_sec: 7\nUptime: 0d 0h00m07s\nNode: a\n\n", 812, 7},
            {"Name: HAProxy\nUptime_sec: 7\nPid: 1\n\n", 1, 7},
            {"Name: HAProxy\nPid: 812\n\n", 0, 0}, // half of it is nothing
            {"", 0, 0}};
    struct error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct haproxy_backend backend = {0};
        char *answer = xasprintf(
                "%s1\n# be_id be_name srv_id srv_name srv_admin_state srv_uweight\n4 ranker 1 old 0 7\n",
                cases[i].info);
        CHECK_INT(haproxy_read_state(answer, "ranker", &backend, &err), 0);
        CHECK_INT(backend.pid, cases[i].pid);
        CHECK_INT(backend.uptime_s, cases[i].uptime_s);
        CHECK_INT(haproxy_server(&backend, "old")->weight, 7);
        haproxy_backend_free(&backend);
        free(answer);
    }
    // What stands behind it is not of it, and no backend is still no backend.
    struct haproxy_backend backend = {0};
    CHECK_INT(haproxy_read_state("Name: HAProxy\nPid: 812\nUptime_sec: 7\n\nCan't find backend.\n",
                      "ranker", &backend, &err),
            -ENOENT);
    CHECK_CONTAINS(err.text, "no backend 'ranker'");
    haproxy_backend_free(&backend);
}

TEST(words_of_a_hook)
{
    char *const command[] = {"./shift", "{percent}", "x{percent}%{other}{percent", "{}", "", NULL};
    const struct hook_word words[] = {{"percent", "2.5"}, {"arm", "candidate"}};
    char **argv = hook_argv(command, words, 2);
    CHECK_STR(argv[0], "./shift");
    CHECK_STR(argv[1], "2.5");
    CHECK_STR(argv[2], "x2.5%{other}{percent");
    CHECK_STR(argv[3], "{}");
    CHECK_STR(argv[4], "");
    CHECK(argv[5] == NULL);
    hook_argv_free(argv);
}
