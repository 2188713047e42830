// SPDX-License-Identifier: Apache-2.0
// Probing a side without a run: interpreters and programs that answer, do not exist, fail, hang,
// talk too much, or cannot import their framework; nothing is left alive afterwards.
#include "harness/run/probe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "tests/unit/runner.h"

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static int probe(char *const *argv, bool interpreter, int64_t timeout_ns, json_t **document,
        struct error *err)
{
    struct probe_spec spec = {
            .side = "old", .argv = argv, .interpreter = interpreter, .timeout_ns = timeout_ns};
    return fingerprint_probe(&spec, document, err);
}

static void check_no_children(void)
{
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
    CHECK_INT(errno, ECHILD);
}

// The process whose number is in this file ends. What kills it does not wait for that, and init may
// still have to reap it.
static void check_gone(const char *file)
{
    char *pid = string_read_file(file, 64, NULL),
         *path = xasprintf("/proc/%d/stat", pid ? atoi(pid) : 0), *stat;
    CHECK(pid != NULL && atoi(pid) > 0);
    for (int64_t end_ns = clock_monotonic_ns() + INT64_C(60000000000);
            (stat = string_read_file(path, 4096, NULL)) && !strstr(stat, ") Z") &&
            clock_monotonic_ns() < end_ns;
            free(stat))
        usleep(10000);
    CHECK(!stat || strstr(stat, ") Z"));
    free(stat);
    free(path);
    free(pid);
}

static bool have_python(void)
{
    return system("python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null") == 0;
}

TEST(interpreter_answers)
{
    if (!have_python())
        runner_skip("no python3 of 3.8 or later on the path");
    json_t *document = NULL;
    struct error err = {0};
    CHECK_INT(probe((char *[]){"python3", NULL}, true, 0, &document, &err), 0);
    CHECK_STR(err.text, "");
    const json_t *python = json_object_get(document, "python"),
                 *process = json_object_get(document, "process");
    CHECK_CONTAINS(text_of(json_object_get(python, "interpreter"), "version"), "3.");
    CHECK(json_is_object(json_object_get(python, "packages")));
    CHECK_CONTAINS(text_of(json_object_get(process, "exe"), "path"), "python");
    CHECK(json_array_size(json_object_get(process, "libraries")) > 0);
    CHECK(!json_object_get(process, "environment_changes"));
    CHECK_CONTAINS(text_of(json_object_get(document, "components"), "interpreter"), "Python 3.");
    json_decref(document);
    check_no_children();
}

TEST(noise_before_the_answer_is_no_answer)
{
    if (!have_python())
        runner_skip("no python3 of 3.8 or later on the path");
    json_t *document = NULL;
    struct error err = {0};
    char *argv[] = {"sh", "-c", "echo hello; echo UPGATE-FINGER; exec python3 \"$@\"", "sh", NULL};
    CHECK_INT(probe(argv, true, 0, &document, &err), 0);
    CHECK(json_is_object(json_object_get(document, "python")));
    json_decref(document);
}

TEST(framework_that_does_not_import)
{
    if (!have_python())
        runner_skip("no python3 of 3.8 or later on the path");
    char dir[] = "/tmp/test_fingerprint_probe.XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *path = xasprintf("%s/torch.py", dir);
    FILE *file = fopen(path, "w");
    fputs("raise ImportError('libdoom.so.1: cannot open shared object file')\n", file);
    fclose(file);
    setenv("PYTHONPATH", dir, 1);
    json_t *document = NULL;
    struct error err = {0};
    CHECK_INT(probe((char *[]){"python3", NULL}, true, 0, &document, &err), 0);
    CHECK_CONTAINS(
            text_of(json_object_get(document, "missing"), "python.import torch"), "libdoom.so.1");
    CHECK(json_is_null(json_object_get(json_object_get(document, "python"), "torch")));
    json_decref(document);
    unlink(path);
    rmdir(dir);
    free(path);
}

TEST(no_such_program)
{
    json_t *document = NULL;
    struct error err = {0};
    CHECK_INT(probe((char *[]){"/no/such/python", NULL}, true, 0, &document, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "'/no/such/python': No such file");
    CHECK(document == NULL);
    CHECK_INT(probe((char *[]){"/etc/passwd", NULL}, true, 0, &document, &err), -EACCES);
    check_no_children();
}

static int refuse(void *arg)
{
    (void)arg;
    return -ENOTDIR;
}

TEST(side_that_cannot_be_prepared)
{
    json_t *document = NULL;
    struct error err = {0};
    struct probe_spec spec = {.side = "old", .argv = (char *[]){"true", NULL}, .prepare = refuse};
    CHECK_INT(fingerprint_probe(&spec, &document, &err), -ENOTDIR);
    check_no_children();
}

TEST(program_that_fails)
{
    json_t *document = NULL;
    struct error err = {0};
    char *argv[] = {"sh", "-c", "echo first >&2; echo the last words >&2; exit 3", "sh", NULL};
    CHECK_INT(probe(argv, true, 0, &document, &err), -ECHILD);
    CHECK_CONTAINS(err.text, "side 'old'");
    CHECK_CONTAINS(err.text, "exit code 3");
    CHECK_CONTAINS(err.text, "the last words");
    char *killed[] = {"sh", "-c", "kill -9 $$", "sh", NULL};
    CHECK_INT(probe(killed, true, 0, &document, &err), -ECHILD);
    CHECK_CONTAINS(err.text, "signal 9");
    CHECK(document == NULL);
    check_no_children();
}

TEST(program_that_hangs_is_ended)
{
    json_t *document = NULL;
    struct error err = {0};
    char *file = xasprintf("/tmp/test_fingerprint_probe_%d", (int)getpid());
    char *script = xasprintf("sleep 777 & echo $! > %s.new; mv %s.new %s; wait", file, file, file);
    char *argv[] = {"sh", "-c", script, "sh", NULL};
    // A loaded machine may take its time to write the number.
    for (int64_t timeout_ns = 400000000; access(file, F_OK) != 0; timeout_ns *= 2)
        CHECK_INT(probe(argv, true, timeout_ns, &document, &err), -ETIME);
    CHECK_CONTAINS(err.text, "no answer");
    check_no_children();
    check_gone(file); // its grandchild is killed with the group
    unlink(file);
    free(file);
    free(script);
}

// A session of its own, a parent that ends: known by descent alone.
TEST(nothing_that_hides_survives)
{
    json_t *document = NULL;
    struct error err = {0};
    char dir[] = "/tmp/test_probe.XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *path = xasprintf("%s/pid", dir); // by who is in the other session already
    char *script = xasprintf(
            "(setsid sh -c 'echo $$ > %s.new; mv %s.new %s; exec sleep 778' &) & while [ ! -e %s ]; do sleep 0.05; done; exit 3",
            path, path, path, path);
    char *argv[] = {"sh", "-c", script, "sh", NULL};
    // it would hold the output open for 778 s
    CHECK_INT(probe(argv, true, INT64_C(300000000000), &document, &err), -ECHILD);
    check_no_children();
    check_gone(path);
    unlink(path);
    rmdir(dir);
    free(path);
    free(script);
}

static int64_t own_memory_kb(void)
{
    char *text = string_read_file("/proc/self/status", 4096, NULL),
         *at = text ? strstr(text, "VmHWM:") : NULL;
    int64_t kb = at ? atoll(at + 6) : -1;
    free(text);
    return kb;
}

TEST(chatty_stderr_takes_no_memory_and_no_disk)
{
    json_t *document = NULL;
    struct error err = {0};
    int64_t before_kb = own_memory_kb();
    char *argv[] = {"sh", "-c",
            "(yes a long line of noise | head -c 300000000; echo the last words) >&2; exit 4", "sh",
            NULL};
    CHECK_INT(probe(argv, true, INT64_C(300000000000), &document, &err), -ECHILD);
    CHECK_CONTAINS(err.text, "exit code 4");
    CHECK_CONTAINS(err.text, "the last words");
    CHECK(before_kb > 0 && own_memory_kb() - before_kb < 20000);
    check_no_children();
}

TEST(noise_with_nul_bytes_before_the_answer)
{
    if (!have_python())
        runner_skip("no python3 of 3.8 or later on the path");
    json_t *document = NULL;
    struct error err = {0};
    char *argv[] = {"sh", "-c", "head -c 100000 /dev/zero; exec python3 \"$@\"", "sh", NULL};
    CHECK_INT(probe(argv, true, 0, &document, &err), 0);
    CHECK_STR(err.text, "");
    CHECK(json_is_object(json_object_get(document, "python")));
    json_decref(document);
}

TEST(more_noise_than_anybody_reads)
{
    json_t *document = NULL;
    struct error err = {0};
    char *argv[] = {"sh", "-c", "exec yes noise", "sh", NULL};
    CHECK_INT(probe(argv, true, INT64_C(300000000000), &document, &err), -EMSGSIZE);
    CHECK_CONTAINS(err.text, "more than 16 MB");
    check_no_children();
}

TEST(answer_without_an_end)
{
    json_t *document = NULL;
    struct error err = {0};
    char *argv[] = {
            "sh", "-c", "printf 'UPGATE-FINGERPRINT '; exec tr '\\0' x < /dev/zero", "sh", NULL};
    CHECK_INT(probe(argv, true, INT64_C(300000000000), &document, &err), -EMSGSIZE);
    check_no_children();
}

TEST(answer_that_is_damaged)
{
    json_t *document = NULL;
    struct error err = {0};
    char *argv[] = {"sh", "-c", "echo 'UPGATE-FINGERPRINT {\"pid\": 1'; sleep 5", "sh", NULL};
    CHECK_INT(probe(argv, true, 0, &document, &err), -EPROTO);
    CHECK_CONTAINS(err.text, "damaged");
    CHECK(document == NULL);
    check_no_children();
}

TEST(program_that_does_not_speak_is_read_as_it_runs)
{
    json_t *document = NULL;
    struct error err = {0};
    CHECK_INT(probe((char *[]){"sleep", "60", NULL}, false, 0, &document, &err), 0);
    CHECK_CONTAINS(
            text_of(json_object_get(json_object_get(document, "process"), "exe"), "path"), "sleep");
    CHECK(json_is_null(json_object_get(document, "python")));
    CHECK_CONTAINS(text_of(json_object_get(document, "components"), "libc"), " ");
    json_decref(document);
    check_no_children();
}
