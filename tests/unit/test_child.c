// SPDX-License-Identifier: Apache-2.0
// A command with a deadline: how it ends, what it says, what is left of it.
#include "common/child.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/strings.h"
#include "tests/unit/runner.h"

static int run(const char *script, int64_t timeout_ns, const volatile sig_atomic_t *stop,
        struct child_end *end, struct error *err)
{
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    return child_run(argv,
            &(struct child_opts){.deadline_ns = clock_monotonic_ns() + timeout_ns, .stop = stop},
            end, err);
}

#define LONG_NS 600000000000

TEST(how_it_ends)
{
    static const struct {
        const char *script, *output, *said, *words;
        int code, signal;
    } cases[] = {{"echo out; echo a >&2; echo ' b ' >&2", "out\n", " b", "", 0, 0},
            {"true", "", "", "", 0, 0},
            {"echo no >&2; exit 7", "", "no", "'sh' ended with exit status 7: no", 7, 0},
            {"exit 127", "", "", "'sh' ended with exit status 127", 127, 0},
            {"kill -9 $$", "", "", "'sh' was ended by signal 9", -1, 9},
            {"cat; echo read", "read\n", "", "", 0, 0}, // its input is empty
            // what it leaves running is not waited for
            {"sleep 1000 & echo $!", NULL, "", "", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct child_end end;
        struct error err = {0};
        CHECK_INT(run(cases[i].script, LONG_NS, NULL, &end, &err), 0);
        CHECK_INT(end.code, cases[i].code);
        CHECK_INT(end.signal, cases[i].signal);
        if (cases[i].output)
            CHECK_STR(end.output, cases[i].output);
        else
            kill((pid_t)atoi(end.output), SIGKILL);
        CHECK_STR(end.said, cases[i].said);
        CHECK_INT(child_judge(&end, "sh", &err), cases[i].words[0] ? -EIO : 0);
        CHECK_STR(err.text, cases[i].words);
        free(end.output);
    }
}

TEST(what_cannot_be_started)
{
    char *const argv[] = {(char *)"/no/such/program", NULL},
                *const folder[] = {(char *)"/tmp", NULL};
    struct child_end end;
    struct error err = {0};
    const struct child_opts opts = {.deadline_ns = clock_monotonic_ns() + LONG_NS};
    CHECK_INT(child_run(argv, &opts, &end, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "failed to start '/no/such/program'");
    CHECK_INT(child_run(folder, &opts, &end, &err), -EACCES);
}

// Until a process is gone; the test's own limit ends one that never is.
static void wait_gone(pid_t pid)
{
    char *path = xasprintf("/proc/%d/stat", (int)pid), *text;
    while ((text = string_read_file(path, 4096, NULL)) && !strstr(text, ") Z ")) {
        free(text);
        clock_sleep_until_ns(clock_monotonic_ns() + 5000000);
    }
    free(text);
    free(path);
}

static pid_t pid_in(const char *path)
{
    char *text = string_read_file(path, 64, NULL);
    pid_t pid = text ? (pid_t)atoi(text) : 0;
    free(text);
    return pid;
}

TEST(the_deadline_is_its_whole_group_s)
{
    char path[64], script[200];
    struct child_end end;
    struct error err = {0};
    snprintf(path, sizeof path, "/tmp/test_child_%d", (int)getpid());
    snprintf(script, sizeof script,
            "trap '' TERM; sleep 1000 & echo $! > %s.new; mv %s.new %s; wait", path, path, path);
    // A loaded machine may take its time to write the number.
    for (int64_t timeout_ns = 200000000; access(path, F_OK) != 0; timeout_ns *= 2)
        CHECK_INT(run(script, timeout_ns, NULL, &end, &err), -ETIMEDOUT);
    CHECK_CONTAINS(err.text, "'sh' did not end in time and was killed");
    CHECK(pid_in(path) > 1);
    wait_gone(pid_in(path));
    unlink(path);
}

TEST(a_signal_ends_it)
{
    volatile sig_atomic_t stop = 1;
    struct child_end end;
    struct error err = {0};
    CHECK_INT(run("sleep 1000", LONG_NS, &stop, &end, &err), -EINTR);
    CHECK_CONTAINS(err.text, "ended by a signal");
}

TEST(much_output)
{
    struct child_end end;
    struct error err = {0};
    CHECK_INT(run("yes | head -c 1000000; yes no | head -c 1000000 >&2; echo end", LONG_NS, NULL,
                      &end, &err),
            0);
    CHECK_INT(end.code, 0);
    CHECK_INT(strlen(end.output), 65536);
    free(end.output);
}

// Whoever started us may have left SIGCHLD ignored: the kernel then reaps, and keeps the exit
// status to itself.
TEST(an_end_that_nobody_saw_is_not_taken_for_a_good_one)
{
    struct child_end end;
    struct error err = {0};
    signal(SIGCHLD, SIG_IGN);
    CHECK_INT(run("exit 7", LONG_NS, NULL, &end, &err), -ECHILD);
    CHECK_CONTAINS(err.text, "nobody knows how 'sh' ended");
}

TEST(its_limit_of_open_files_is_the_one_that_we_were_given)
{
    struct rlimit given, now;
    struct child_end end;
    struct error err = {0};
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &given), 0);
    given.rlim_cur = 100;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &given), 0);
    descriptors_raise();
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &now), 0);
    CHECK(now.rlim_cur == given.rlim_max && now.rlim_max == given.rlim_max);
    CHECK_INT(descriptors_limit(&now), 0);
    CHECK(now.rlim_cur == 100 && now.rlim_max == given.rlim_max);
    CHECK_INT(run("ulimit -n", LONG_NS, NULL, &end, &err), 0);
    CHECK_STR(end.output, "100\n");
    free(end.output);
    descriptors_raise(); // once
    descriptors_restore();
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &now), 0);
    CHECK_INT(now.rlim_cur, 100);
}
