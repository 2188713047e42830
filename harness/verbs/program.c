// SPDX-License-Identifier: Apache-2.0
// How a program of ours begins and ends.
#include "harness/verbs/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "common/clock.h"
#include "common/environment.h"
#include "common/log.h"
#include "common/signals.h"
#include "contracts/exit_code.h"

static void program_environment_unknown(const char *name, const char *nearest)
{
    if (nearest)
        log_warn("ignoring unknown environment variable '%s'; did you mean '%s'?", name, nearest);
    else
        log_warn("ignoring unknown environment variable '%s'", name);
}

static void program_apply_log(void)
{
    static const char *const levels[] = {[LOG_LEVEL_ERROR] = "error",
            [LOG_LEVEL_WARN] = "warn",
            [LOG_LEVEL_INFO] = "info",
            [LOG_LEVEL_DEBUG] = "debug"};
    const char *word = environment_get(ENVIRONMENT_LOG);
    if (!word)
        return;
    for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++) {
        if (strcmp(word, levels[level]) == 0) {
            log_set_level((enum log_level)level);
            return;
        }
    }
    log_warn("ignoring %s='%s'; accepted: error, warn, info, debug",
            environment_name(ENVIRONMENT_LOG), word);
}

// Descriptors 0 to 2 that came closed would be given to the next file opened, the store for one,
// and messages would be written into it. They get one that refuses the wrong direction, so that
// output which nobody can read is an error and not a success.
static void program_reserve_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

static void program_on_failed_write(int number)
{
    (void)number; // the failed write says it; a handler, unlike SIG_IGN, is not inherited by
                  // workloads
}

// Who started us with it ignored has the same, and what we become (`upgate rank`) inherits that.
static void program_catch_failed_writes(int number)
{
    struct sigaction old, handle = {.sa_handler = program_on_failed_write, .sa_flags = SA_RESTART};
    if (sigaction(number, NULL, &old) < 0 || old.sa_handler != SIG_IGN)
        sigaction(number, &handle, NULL);
}

int program_parse(const struct verb *verb, int argc, char **argv, void *values,
        const struct options_common *common, struct options_rest *ret_rest, struct error *err)
{
    int rc = options_parse(verb, argc, argv, values, ret_rest, err);
    if (rc == 0 && ret_rest->help) {
        options_print_help(verb, stdout);
        return 1;
    }
    options_apply_common(common);
    return rc;
}

int program_judge(int rc, int code, const struct error *err)
{
    if (rc)
        log_error("%s", err->text);
    return rc ? error_exit_code(rc) : code;
}

// stdout is data: lost data never ends in 0.
int program_end(int rc)
{
    errno = 0;
    bool failed = ferror(stdout);
    if (fflush(stdout) != 0 || (fclose(stdout) != 0 && errno != EBADF))
        failed = true;
    if (!failed || rc == EXIT_CODE_OPERATIONAL) // a verb that noticed has said so
        return rc;
    log_error("failed to write to stdout: %s; the output is incomplete",
            errno ? strerror(errno) : "an earlier write failed");
    return rc ? rc : EXIT_CODE_OPERATIONAL;
}

void program_begin(void)
{
    program_reserve_descriptors();
    signals_remember();
    program_catch_failed_writes(SIGPIPE);
    program_catch_failed_writes(SIGXFSZ); // a limit on the size of files
    program_apply_log();
    clock_follow_machine();
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); // its count of bytes is under one lock, which
                                                // threads would take for each allocation
    environment_check(environ, program_environment_unknown);
}
