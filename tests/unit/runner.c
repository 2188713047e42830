// SPDX-License-Identifier: Apache-2.0
// Runs each registered case in a forked child and counts. Exit 0 all passed, 1 a failure, 77 all
// skipped. Failures inside a case are printed and the case goes on, so one run shows them all.
#include "tests/unit/runner.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RUNNER_CASES_MAX = 256,
    RUNNER_DIRECTORIES_MAX = 4,
    RUNNER_EXIT_SKIP = 77,
    RUNNER_CASE_SECONDS_MAX = 400
};

struct runner_case {
    const char *name;
    void (*fn)(void);
};

// A process that ends while threads of it go on is kept by TSan for a second, so that it sees what
// these still do: of a case that ends sixty processes it is a minute. They go round in
// microseconds.
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=50";
}

static struct runner_case runner_cases[RUNNER_CASES_MAX];
static int runner_case_count;
static int runner_checks, runner_failures;

void runner_register(const char *name, void (*fn)(void))
{
    if (runner_case_count == RUNNER_CASES_MAX)
        abort();
    runner_cases[runner_case_count++] = (struct runner_case){name, fn};
}

void runner_checked(void)
{
    runner_checks++;
}

void runner_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    printf("    %s:%d: ", file, line);
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
    runner_failures++;
}

static const char *runner_directories[RUNNER_DIRECTORIES_MAX];
static int runner_directory_count;
static pid_t runner_pid; // whose they are: what a case forks may end by exit(), too

static int runner_remove(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)type;
    (void)at;
    remove(path);
    return 0;
}

static void runner_clean(void)
{
    for (int i = 0; i < runner_directory_count && getpid() == runner_pid; i++)
        nftw(runner_directories[i], runner_remove, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

char *runner_directory(char *template)
{
    if (runner_directory_count == RUNNER_DIRECTORIES_MAX)
        abort();
    if (!mkdtemp(template))
        return NULL;
    if (!runner_directory_count++)
        atexit(runner_clean);
    runner_directories[runner_directory_count - 1] = template;
    runner_pid = getpid();
    return template;
}

void runner_skip(const char *reason)
{
    printf("    skipped: %s\n", reason);
    exit(RUNNER_EXIT_SKIP);
}

static int runner_run(const struct runner_case *one)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(RUNNER_CASE_SECONDS_MAX);
        one->fn();
        if (!runner_checks) {
            puts("    checked nothing");
            exit(1);
        }
        exit(runner_failures ? 1 : 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        printf("    ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static bool runner_selected(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

int main(int argc, char **argv)
{
    int ran = 0, failed = 0, skipped = 0;
    bool list = argc == 2 && strcmp(argv[1], "-l") == 0;
    for (int i = 0; i < runner_case_count; i++) {
        if (list) {
            puts(runner_cases[i].name);
            continue;
        }
        if (!runner_selected(runner_cases[i].name, argc, argv))
            continue;
        ran++;
        int rc = runner_run(&runner_cases[i]);
        skipped += rc == RUNNER_EXIT_SKIP;
        failed += rc != 0 && rc != RUNNER_EXIT_SKIP;
        printf("%s %s\n",
                rc == 0                          ? "ok  "
                        : rc == RUNNER_EXIT_SKIP ? "skip"
                                                 : "FAIL",
                runner_cases[i].name);
    }
    if (list)
        return 0;
    printf("%d cases, %d failed, %d skipped\n", ran, failed, skipped);
    if (!ran || failed)
        return 1;
    return skipped == ran ? RUNNER_EXIT_SKIP : 0;
}
