// SPDX-License-Identifier: Apache-2.0
// Launches of container images. The root of the launch is the engine's program; upgate-inside
// (harness/image/inside.c) is the container's first process, says hello over a socket, and its
// child becomes the workload when it is told to. What is measured begins there: the engine's own
// start is not part of the launch. Reads the container's environment, writes that of its program.
#include "harness/run/launch_image.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/contain/process.h"

enum {
    IMAGE_HELLO_S = 60, // podman: 0.2 s on an idle machine
    IMAGE_BEGIN_S = 10,
    IMAGE_KILL_S = 5,
    IMAGE_REMOVE_S = 10, // podman: 0.2 s
    IMAGE_LOOK_NS = 5000000,
    IMAGE_TAIL_BYTES = 600,
    IMAGE_MOUNTS = 8
};

static int64_t image_in_s(int seconds)
{
    return clock_monotonic_ns() + seconds * 1000000000LL;
}

// What the engine or the container has printed, on one line. The caller frees.
static char *image_said(const struct launch *launch)
{
    char *tail = launch_output_tail(launch, IMAGE_TAIL_BYTES);
    size_t len = strlen(tail);
    string_make_plain(tail, len);
    while (len && (tail[len - 1] == '\n' || tail[len - 1] == ' '))
        tail[--len] = 0;
    for (char *at = tail; *at; at++)
        if (*at == '\n')
            *at = ' ';
    return tail;
}

// --- the engine ----------------------------------------------------------------------------------

static char **image_engine_argv(
        const struct launch_env *env, const struct launch_spec *spec, const struct launch *launch)
{
    const struct image *image = &env->images[spec->image_idx];
    char *mounts[IMAGE_MOUNTS] = {0};
    int count = 0;
    mounts[count++] = xasprintf("%s:%s", launch->steps_path, launch->steps_path);
    mounts[count++] = xasprintf("%s:%s:ro", env->python_dir, env->python_dir);
    mounts[count++] = xasprintf("%s:%s:ro", env->models_dir, env->models_dir);
    const struct inject *inject = spec->inject ? spec->inject : launch_steps_inject(env, spec);
    if (inject)
        mounts[count++] = xasprintf("%s:%s:ro", inject->library, inject->library);
    const struct image_run run = {.container = strrchr(launch->steps_path, '/') + 1,
            .own_mounts = mounts,
            .args = spec->side->engine_args,
            .socket = launch->hold_path,
            .gpus = inject_has_gpu()};
    char **argv = image_argv(image, &run);
    for (int i = 0; i < count; i++)
        free(mounts[i]);
    return argv;
}

// The engine ended, or nothing came of it: its own words say why.
static int image_engine_failed(const struct launch_env *env, const struct launch_spec *spec,
        struct launch *launch, struct error *local, struct error *err)
{
    const struct image *image = &env->images[spec->image_idx];
    int status = 0;
    struct rusage usage;
    struct pollfd end = {
            .fd = launch->engine_fd >= 0 ? launch->engine_fd : launch->pid_fd, .events = POLLIN};
    char how[64] = "";
    if (poll(&end, 1, 500) > 0 && keeper_wait(launch->keeper, &status, &usage) == 0)
        snprintf(how, sizeof how, WIFEXITED(status) ? ", exit code %d" : ", signal %d",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    char *said = image_said(launch);
    int rc = error_set(err, -EIO, "failed to start side '%s' in image '%s' by %s: %s%s%s%s",
            spec->side->name, image->name, image_engine_name(image), local->text, how,
            *said ? ": " : "", said);
    free(said);
    return rc;
}

// --- the program ---------------------------------------------------------------------------------

// Into the tree with it, where the engine has put it elsewhere (a daemon that is no child of ours).
static int image_place(const struct launch_env *env, const struct launch_spec *spec,
        struct launch *launch, const struct image_guest *guest, struct error *err)
{
    const char *engine = image_engine_name(&env->images[spec->image_idx]);
    if (guest->pid <= 0)
        return error_set(err, -EPERM,
                "failed to start side '%s': the processes that %s has started cannot be seen from here; run "
                "upgate outside of containers, or with the machine's pid namespace",
                spec->side->name, engine);
    int rc = tree_take(launch->tree, guest->pid);
    // by signals, of an engine that is no daemon
    if (rc == -ENOTSUP && tree_holds(launch->tree, guest->pid))
        rc = 0;
    if (rc)
        return error_set(err, rc,
                "failed to start side '%s': its process %d, which %s has started, cannot be put into a cgroup of "
                "ours (%s), and so not be held; run upgate as root, or take podman",
                spec->side->name, (int)guest->pid, engine,
                rc == -ENOTSUP ? "none can be made here" : strerror(-rc));
    // Its user is not ours: who may not open the step file makes no steps.
    if (guest->uid != geteuid())
        // without the right to do so inside_child says so
        rc = chown(launch->steps_path, guest->uid, (gid_t)-1);
    return 0;
}

// In a process of its own, whose environment becomes the container's: then what is set for a bare
// process is set here.
static void image_send(const struct launch_env *env, const struct launch_spec *spec,
        const struct launch *launch, const struct image_guest *guest, char **argv)
        __attribute__((noreturn));
static void image_send(const struct launch_env *env, const struct launch_spec *spec,
        const struct launch *launch, const struct image_guest *guest, char **argv)
{
    struct error err = {0};
    clearenv();
    for (char *at = guest->env; at < guest->env + guest->hello.env_bytes; at += strlen(at) + 1)
        if (strchr(at, '=') > at)
            putenv(at);
    launch_set_environment(env, spec, launch);
    cpu_set_t cpus = launch_cpus(env, spec->workload);
    char *dir = spec->side->workdir ? xstrdup(spec->side->workdir)
                                    : image_workdir(&env->images[spec->image_idx]);
    const struct image_start start = {.dir = dir,
            .argv = argv,
            .env = environ,
            .cpus = &cpus,
            .output_fd = launch->output_fd};
    _exit(image_hold_start(launch->hold, &start, &err) ? 1 : 0);
}

static int image_begin(const struct launch_env *env, const struct launch_spec *spec,
        struct launch *launch, const struct image_guest *guest, char **argv, struct error *err)
{
    int status = 0;
    pid_t pid = fork();
    if (pid < 0)
        return error_set(err, -errno, "failed to start a launch: %s", strerror(errno));
    if (pid == 0)
        image_send(env, spec, launch, guest, argv);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status ? error_set(err, -E2BIG,
                            "failed to start side '%s': its command and environment are too long",
                            spec->side->name)
                  : 0;
}

static int image_begin_error(const struct launch_spec *spec, const struct inside_event *event,
        char **argv, const char *dir, struct error *err)
{
    const char *side = spec->side->name, *image = spec->side->image,
               *cause = strerror(event->error);
    int rc = event->error == EINVAL ? -ENOEXEC : -event->error;
    switch (event->where) {
    case INSIDE_AT_WORKDIR:
        return error_set(err, rc,
                "failed to start side '%s': workdir '%s' in image '%s': %s; mount it, or name another",
                side, dir, image, cause);
    case INSIDE_AT_STEPS:
        return error_set(err, rc,
                "failed to start side '%s': the user of image '%s' cannot open the step file: %s; add "
                "\"--user=0\" to engine_args, or run upgate as root",
                side, image, cause);
    case INSIDE_AT_LOADER:
        return error_set(err, rc,
                "failed to start side '%s': image '%s' has '%s', but not the loader or interpreter that it asks for",
                side, image, argv[0]);
    case INSIDE_AT_PROGRAM:
        return error_set(err, rc,
                "failed to start side '%s': '%s' in image '%s': %s; name what the image has%s",
                side, argv[0], image, cause,
                spec->side->python ? ", `python` its interpreter" : ", or mount it");
    default:
        return error_set(
                err, rc, "failed to start side '%s' in image '%s': %s", side, image, cause);
    }
}

static int image_hear(const struct launch_env *env, const struct launch_spec *spec,
        struct launch *launch, char **argv, struct error *err)
{
    struct inside_event event = {0};
    int rc = image_hold_event(launch->hold, image_in_s(IMAGE_BEGIN_S), &event);
    if (rc) {
        struct error local = {0};
        error_set(&local, rc, "%s",
                rc == -ETIME ? "the program did not begin in time"
                             : "the container ended before its program began");
        return image_engine_failed(env, spec, launch, &local, err);
    }
    if (event.what == INSIDE_FAILED) {
        char *dir = spec->side->workdir ? xstrdup(spec->side->workdir)
                                        : image_workdir(&env->images[spec->image_idx]);
        rc = image_begin_error(spec, &event, argv, dir, err);
        free(dir);
        return rc;
    }
    launch->before_exec_bytes = event.before_exec_bytes;
    return 0;
}

static int image_start(struct launch_env *env, const struct launch_spec *spec,
        struct launch *launch, char **argv, struct error *err)
{
    struct image_guest guest = {0};
    struct error local = {0};
    int rc = image_hold_hello(
            launch->hold, launch->pid_fd, image_in_s(IMAGE_HELLO_S), spec->stop, &guest, &local);
    if (rc == -EINTR)
        return error_set(err, rc, "%s", local.text);
    if (rc)
        return image_engine_failed(env, spec, launch, &local, err);
    env->guests[spec->image_idx] = guest.hello;
    rc = image_place(env, spec, launch, &guest, err);
    if (rc == 0) {
        launch->engine_fd = launch->pid_fd; // which outlives the program
        launch->pid_fd = fcntl(image_hold_fd(launch->hold), F_DUPFD_CLOEXEC, 3);
        // A daemon may have started it: then it is no descendant of launch->pid.
        launch->program = guest.pid;
        tree_begin(launch->tree, guest.pid);
        rc = launch_see_calls(spec, launch, err);
    }
    if (rc == 0) {
        if (spec->on_start)
            spec->on_start(spec->arg, spec->side_idx, guest.pid);
        launch->started_ns = launch->active_since_ns = clock_monotonic_ns();
        rc = image_begin(env, spec, launch, &guest, argv, err);
    }
    if (rc == 0)
        rc = image_hear(env, spec, launch, argv, err);
    free(guest.env);
    return rc;
}

int launch_image_fork(struct launch_env *env, const struct launch_spec *spec, struct launch *launch,
        char **argv, struct error *err)
{
    launch->hold_path = image_hold_path(strrchr(launch->steps_path, '/') + 1);
    int rc = guardian_watch(env->guardian, launch->hold_path, err);
    if (rc == 0)
        rc = image_hold_new(launch->hold_path, &launch->hold, err);
    if (rc == 0)
        rc = tree_set_apart(launch->tree, err);
    if (rc)
        return rc;
    char **engine_argv = image_engine_argv(env, spec, launch);
    rc = launch_fork(env, spec, launch, engine_argv, err);
    image_argv_free(engine_argv);
    return rc ? rc : image_start(env, spec, launch, argv, err);
}

bool launch_image_loads(
        const struct launch_env *env, const struct launch_spec *spec, const char *library)
{
    const struct inside_hello *guest = &env->guests[spec->image_idx];
    if (!spec->side->image || !guest->magic)
        return true;
    return guest->glibc_major &&
            guest->glibc_major * 1000 + guest->glibc_minor >= image_glibc_needed(library);
}

// --- its end -------------------------------------------------------------------------------------

void launch_image_wait(struct launch *launch, int *ret_status, struct rusage *ret_usage)
{
    struct inside_event event = {0};
    if (image_hold_event(launch->hold, image_in_s(1), &event) || event.what != INSIDE_ENDED)
        return;
    *ret_status = event.status;
    ret_usage->ru_maxrss = event.peak_bytes / 1024;
    ret_usage->ru_utime = (struct timeval){
            .tv_sec = event.cpu_ns / 1000000000, .tv_usec = event.cpu_ns % 1000000000 / 1000};
}

void launch_image_kill(struct launch *launch)
{
    struct pollfd end = {.fd = launch->pid_fd, .events = POLLIN};
    // no container has begun: nobody but the engine is there, which is not of the tree
    bool engine = launch->engine_fd < 0;
    tree_thaw(launch->tree);
    image_hold_let_go(launch->hold);
    if (engine)
        syscall(SYS_pidfd_send_signal, launch->pid_fd, SIGTERM, NULL, 0);
    if (poll(&end, 1, IMAGE_KILL_S * 1000) > 0)
        return;
    tree_kill(launch->tree);
    if (engine)
        syscall(SYS_pidfd_send_signal, launch->pid_fd, SIGKILL, NULL, 0);
}

void launch_image_end(struct launch *launch)
{
    if (!launch->hold)
        return;
    struct pollfd end = {
            .fd = launch->engine_fd >= 0 ? launch->engine_fd : launch->pid_fd, .events = POLLIN};
    image_hold_let_go(launch->hold);
    if (end.fd >= 0 && poll(&end, 1, IMAGE_REMOVE_S * 1000) > 0)
        for (int64_t until_ns = image_in_s(KEEPER_GENTLE_S);
                !tree_is_empty(launch->tree) && clock_monotonic_ns() < until_ns;)
            clock_sleep_until_ns(clock_monotonic_ns() + IMAGE_LOOK_NS);
    image_hold_free(launch->hold);
    launch->hold = NULL;
}
