// SPDX-License-Identifier: Apache-2.0
// Two children that record, watched without waiting. A child finds its target itself, after the
// fork: looking through /proc would keep the controller from the rollback.
#include "harness/canary/why/why.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/canary/why/why_pids.h"

enum { WHY_NICE = 5, WHY_TEXT_MAX = 4096 };
// Attaching BPF and writing the store's end take seconds on a loaded machine; whoever needs longer
// hangs.
static const int64_t why_grace_ns = INT64_C(20000000000), why_kill_ns = INT64_C(10000000000),
                     why_name_ns = 1000000;

struct why_child {
    pid_t pid;           // 0: none
    int text_fd;         // its stderr, in memory; -1: none
    int64_t deadline_ns; // CLOCK_MONOTONIC
    bool asked;          // SIGINT was sent
    char *path, *problem;
    int64_t begin_ns, end_ns; // CLOCK_REALTIME; -1: not known
};

struct why {
    char *program;
    int64_t grace_ns, kill_ns;
    bool begun, written;
    struct why_child children[CANARY_ARMS];
};

struct why *why_new(const char *program)
{
    struct why *why = xcalloc(1, sizeof *why);
    why->program = xstrdup(program ? program : "/proc/self/exe");
    why_patience(why, why_grace_ns, why_kill_ns);
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        why->children[arm].text_fd = -1;
    return why;
}

void why_patience(struct why *why, int64_t grace_ns, int64_t kill_ns)
{
    why->grace_ns = grace_ns;
    why->kill_ns = kill_ns;
}

static void why_child_clear(struct why_child *child)
{
    if (child->pid > 0) {
        kill(child->pid, SIGKILL);
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (child->text_fd >= 0)
        close(child->text_fd);
    free(child->path);
    free(child->problem);
    *child = (struct why_child){.text_fd = -1};
}

void why_free(struct why *why)
{
    if (!why)
        return;
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        why_child_clear(&why->children[arm]);
    free(why->program);
    free(why);
}

// --- in the child --------------------------------------------------------------------------------

// "--pid" and "12,13", or "--cgroup" and its path; exits with a sentence where there is no target.
static void why_target(
        const struct rollout *rollout, int arm, const char **ret_option, char **ret_value)
{
    const struct rollout_hold *hold = &rollout->why;
    struct error err = {0};
    pid_t pids[WHY_PIDS_MAX];
    size_t count = 0;
    uint16_t port = 0;
    *ret_option = hold->cgroups[arm] ? "--cgroup" : "--pid";
    if (hold->cgroups[arm]) {
        *ret_value = hold->cgroups[arm];
        return;
    }
    if (hold->pids[arm]) {
        *ret_value = xasprintf("%" PRIu64, hold->pids[arm]);
        return;
    }
    const char *url = rollout->shadow_urls[arm];
    if (!url || why_port(url, &port)) {
        dprintf(STDERR_FILENO, "the plan names neither pid nor cgroup nor URL of this arm\n");
        _exit(2);
    }
    if (why_pids(port, pids, &count, &err)) {
        dprintf(STDERR_FILENO, "%s\n", err.text);
        _exit(2);
    }
    struct strbuf list = {0};
    for (size_t i = 0; i < count; i++)
        strbuf_add(&list, "%s%d", i ? "," : "", (int)pids[i]);
    *ret_value = strbuf_take(&list);
}

static void why_child_run(const struct why *why, const struct rollout *rollout, int arm,
        int text_fd) __attribute__((noreturn));
static void why_child_run(
        const struct why *why, const struct rollout *rollout, int arm, int text_fd)
{
    sigset_t none;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);                   // a Ctrl-C at the controller's terminal is the controller's
    prctl(PR_SET_PDEATHSIG, SIGINT); // it ends its recording whole when the controller is gone
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(text_fd, STDERR_FILENO);
    // The lock of the rollout, sockets: nothing of them may outlive the controller in here.
    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    if (nice(WHY_NICE) < 0)
        errno = 0; // at the lowest already
    const char *option = NULL;
    char *value = NULL, *duration = xasprintf("%" PRId64 "ms", rollout->why.duration_ns / 1000000);
    why_target(rollout, arm, &option, &value);
    char *const arguments[] = {(char *)"upgate", (char *)"record", (char *)"--quiet",
            (char *)"--output", why->children[arm].path, (char *)"--duration", duration,
            (char *)option, value, NULL};
    execv(why->program, arguments);
    dprintf(STDERR_FILENO, "failed to start '%s': %s\n", why->program, strerror(errno));
    _exit(4);
}

// --- in the controller ---------------------------------------------------------------------------

void why_begin(void *arg, const struct rollout *rollout, struct store *store)
{
    struct why *why = arg;
    if (why->begun && !why->written)
        return;
    why->begun = true;
    why->written = false;
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        struct why_child *child = &why->children[arm];
        why_child_clear(child);
        child->begin_ns = clock_wall_ns();
        child->end_ns = -1;
        child->path = xasprintf("%s.%s.%" PRId64 ".db", store_path(store),
                arm == CANARY_BASELINE ? "baseline" : "candidate",
                child->begin_ns / why_name_ns); // of a second there may be two
        child->deadline_ns = clock_monotonic_ns() + rollout->why.duration_ns + why->grace_ns;
        child->text_fd = memfd_create("upgate-why", MFD_CLOEXEC);
        pid_t pid = child->text_fd < 0 ? -1 : fork();
        if (pid == 0)
            why_child_run(why, rollout, arm, child->text_fd);
        if (pid < 0)
            child->problem = xasprintf("failed to start its recording: %s", strerror(errno));
        else
            child->pid = pid;
    }
}

// The last line of what it said, without our own prefix.
static char *why_last_line(const struct why_child *child)
{
    char text[WHY_TEXT_MAX + 1];
    off_t size = lseek(child->text_fd, 0, SEEK_END);
    ssize_t len = size <= 0 ? 0
                            : pread(child->text_fd, text, WHY_TEXT_MAX,
                                      size > WHY_TEXT_MAX ? size - WHY_TEXT_MAX : 0);
    text[len > 0 ? len : 0] = 0;
    string_make_plain(text, strlen(text));
    for (size_t end = strlen(text); end && text[end - 1] == '\n';)
        text[--end] = 0;
    char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (strncmp(line, "upgate: ", 8) == 0)
        line += 8;
    return *line ? xstrdup(line) : NULL;
}

// When it really recorded: between start and attaching there are seconds. The recording's clock is
// CLOCK_MONOTONIC.
static void why_window(struct why_child *child)
{
    struct store *store = NULL;
    struct error err = {0};
    int64_t begin = 0, end = 0, offset = clock_wall_ns() - clock_monotonic_ns();
    child->begin_ns = child->end_ns = -1;
    if (store_open(child->path, STORE_READ, &store, &err) == 0 &&
            store_get_int(store, &begin, &err, "SELECT begin_ns FROM recording", "") == 0 &&
            store_get_int(store, &end, &err, "SELECT end_ns FROM recording", "") == 0) {
        child->begin_ns = begin + offset;
        child->end_ns = end + offset;
    } else {
        child->problem = xstrdup(err.text[0] ? err.text : "its recording holds nothing");
    }
    store_close(store);
}

static void why_ended(struct why_child *child, int status)
{
    child->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        why_window(child);
        return;
    }
    char *line = why_last_line(child);
    if (child->asked && WIFSIGNALED(status))
        child->problem = xstrdup("its recording did not end in time and was killed");
    else if (WIFSIGNALED(status))
        child->problem = xasprintf("its recording was ended by signal %d", WTERMSIG(status));
    else
        child->problem = xstrdup(line ? line : "its recording failed");
    free(line);
}

// True: over. Never waits.
static bool why_watch(const struct why *why, struct why_child *child)
{
    int status = 0;
    if (child->pid == 0)
        return true;
    pid_t pid = waitpid(child->pid, &status, WNOHANG);
    if (pid == child->pid) {
        why_ended(child, status);
        return true;
    }
    if (pid < 0 && errno != EINTR) { // reaped by somebody else
        child->pid = 0;
        child->problem = xasprintf("its recording was lost: %s", strerror(errno));
        return true;
    }
    int64_t late_ns = clock_monotonic_ns() - child->deadline_ns;
    if (late_ns > 0 && !child->asked) {
        child->asked = true;
        kill(child->pid, SIGINT);
    } else if (late_ns > why->kill_ns) {
        kill(child->pid, SIGKILL);
    }
    return false;
}

static const int64_t *why_known(const int64_t *ns)
{
    return *ns >= 0 ? ns : NULL;
}

bool why_done(void *arg, struct store *store)
{
    struct why *why = arg;
    bool over = true;
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        over = why_watch(why, &why->children[arm]) && over;
    if (!over)
        return false;
    if (why->begun && !why->written) {
        const struct why_child *a = &why->children[CANARY_BASELINE],
                               *b = &why->children[CANARY_CANDIDATE];
        struct error err = {0};
        // A store that cannot be written loses the explanation, not the rollback.
        if (store_exec(store, &err,
                    "INSERT OR REPLACE INTO rollout_recording (arm, path, begin_ns, end_ns, problem) VALUES (0, ?, ?, ?, ?), (1, ?, ?, ?, ?)",
                    "sIIssIIs", a->path, why_known(&a->begin_ns), why_known(&a->end_ns), a->problem,
                    b->path, why_known(&b->begin_ns), why_known(&b->end_ns), b->problem))
            err.code = 0;
    }
    why->written = true;
    return true;
}
