// SPDX-License-Identifier: Apache-2.0
// Checks of a container image as a side: starts a container of it the way a launch does, asks what
// is in it, lets its Python say whether upgate's extension loads, and ends it. What the image or
// the engine denies is named with the flag that helps.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/environment.h"
#include "common/proc.h"
#include "common/strings.h"
#include "harness/contain/inject.h"
#include "harness/contain/keeper.h"
#include "harness/contain/process.h"
#include "harness/contain/python_steps.h"
#include "harness/contain/tree.h"
#include "harness/doctor/check.h"
#include "harness/image/hold.h"
#include "harness/image/image.h"

enum { CHECK_HELLO_S = 60, CHECK_PYTHON_S = 60, CHECK_REMOVE_S = 10, CHECK_TAIL_BYTES = 600 };
#define CHECK_SHM_BYTES_MIN (INT64_C(1) << 30)

struct check_container {
    struct image image;
    struct keeper *keeper;
    struct image_hold *hold;
    struct image_guest guest;
    char *hold_path, *steps_path, *python_dir;
    char **argv;
    int output_fd;
    struct tree *tree;
    char *base; // of the tree
};

static void check_image_child(void *arg)
{
    const struct check_container *container = arg;
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(container->output_fd, 1);
    dup2(container->output_fd, 2);
    descriptors_restore();
    execv(container->argv[0], container->argv);
    fprintf(stderr, "%s: %s\n", container->argv[0], strerror(errno));
    _exit(127);
}

static char *check_image_output(const struct check_container *container)
{
    char *text = xcalloc(CHECK_TAIL_BYTES + 1, 1);
    ssize_t got = pread(container->output_fd, text, CHECK_TAIL_BYTES, 0);
    string_make_plain(text, got > 0 ? (size_t)got : 0);
    for (char *at = text; *at; at++)
        if (*at == '\n')
            *at = at[1] ? ' ' : 0;
    return text;
}

static int check_image_start(struct check_container *container, struct error *err)
{
    struct proc_stat self;
    pid_t root;
    char *name = xasprintf("upgate-%d-%llu-doctor", getpid(),
            proc_stat_of(getpid(), &self) ? 0ULL : (unsigned long long)self.start_ticks);
    container->hold_path = image_hold_path(name);
    container->steps_path = xasprintf("/dev/shm/%s", name);
    char *python_dir = python_steps_dir();
    container->python_dir = python_dir ? realpath(python_dir, NULL) : NULL;
    free(python_dir);
    int steps = open(container->steps_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    container->output_fd = memfd_create("upgate-doctor", MFD_CLOEXEC);
    int rc = steps < 0 || container->output_fd < 0 || !container->python_dir
            ? error_set(err, -errno, "failed to make '%s': %s", container->steps_path,
                      strerror(errno))
            : image_hold_new(container->hold_path, &container->hold, err);
    if (steps >= 0)
        close(steps);
    if (rc == 0) {
        char *mounts[] = {xasprintf("%s:%s", container->steps_path, container->steps_path),
                xasprintf("%s:%s:ro", container->python_dir, container->python_dir), NULL};
        const struct image_run run = {.container = name,
                .own_mounts = mounts,
                .socket = container->hold_path,
                .gpus = inject_has_gpu()};
        container->argv = image_argv(&container->image, &run);
        free(mounts[0]);
        free(mounts[1]);
        rc = keeper_start(
                check_image_child, container, NULL, false, &container->keeper, &root, err);
    }
    free(name);
    return rc ? rc
              : image_hold_hello(container->hold, keeper_fd(container->keeper),
                        clock_monotonic_ns() + CHECK_HELLO_S * 1000000000LL, NULL,
                        &container->guest, err);
}

static void check_image_end(struct check_container *container)
{
    image_hold_let_go(container->hold);
    if (container->keeper) {
        struct pollfd end = {.fd = keeper_fd(container->keeper), .events = POLLIN};
        poll(&end, 1, CHECK_REMOVE_S * 1000);
    }
    keeper_free(container->keeper);
    tree_free(container->tree);
    tree_release_base(container->base);
    free(container->base);
    image_hold_free(container->hold);
    if (container->argv)
        image_remove(&container->image, strrchr(container->steps_path, '/') + 1);
    if (container->steps_path)
        unlink(container->steps_path);
    if (container->output_fd >= 0)
        close(container->output_fd);
    image_argv_free(container->argv);
    free(container->guest.env);
    free(container->hold_path);
    free(container->steps_path);
    free(container->python_dir);
    image_clear(&container->image);
}

// --- what it has ---------------------------------------------------------------------------------

static void check_image_hello(struct doctor *doctor, const struct check_container *container)
{
    const struct inside_hello *hello = &container->guest.hello;
    struct doctor_finding *finding;
    bool small = hello->shm_bytes < CHECK_SHM_BYTES_MIN;
    finding = doctor_add(doctor, "image-shm", small ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK,
            "/dev/shm of %lld MiB", (long long)(hello->shm_bytes < 0 ? 0 : hello->shm_bytes >> 20));
    if (small)
        doctor_lose(finding, "data loaders and NCCL fail or slow down once it is full",
                "leave --ipc and --shm-size out of engine_args: upgate gives the machine's; or \"--shm-size=8g\" with --ipc=private");
    doctor_fact(finding, "bytes", json_integer(hello->shm_bytes));
    if (hello->glibc_major)
        finding = doctor_add(doctor, "image-libc", DOCTOR_STATUS_OK, "glibc %d.%d",
                hello->glibc_major, hello->glibc_minor);
    else {
        finding = doctor_add(doctor, "image-libc", DOCTOR_STATUS_LIMITED,
                hello->musl ? "musl, no glibc" : "no C library that is known");
        doctor_lose(finding,
                "steps of Python programs are not found, `import upgate` does nothing, and the GPU side is not recorded; "
                "total time, CPU time and memory are judged",
                "take an image on glibc (Debian, Ubuntu, Fedora, …); there is no flag for it");
    }
    struct inject inject = {0};
    int needs = inject_find(&inject, NULL) ? 0 : image_glibc_needed(inject.library);
    if (hello->glibc_major && hello->glibc_major * 1000 + hello->glibc_minor < needs) {
        finding->status = DOCTOR_STATUS_LIMITED;
        char *text = xasprintf(
                "%s is not loaded, it needs glibc %d.%d: the GPU side of traced launches is not recorded",
                "libupgate_inject.so", needs / 1000, needs % 1000);
        doctor_lose(finding, text,
                "take an upgate that was built on an older distribution; there is no flag for it");
        free(text);
    }
    inject_free(&inject);
    finding = doctor_add(doctor, "image-ptrace",
            hello->ptrace_error ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK,
            hello->ptrace_error ? "processes in it may not trace each other (%s)"
                                : "processes in it may trace each other%s",
            hello->ptrace_error ? strerror(hello->ptrace_error) : "");
    if (hello->ptrace_error)
        doctor_lose(finding,
                "debuggers and profilers that the program starts itself do not work; upgate reads it from outside",
                "engine_args: [\"--cap-add=SYS_PTRACE\"]");
    doctor_fact(finding, "seccomp", json_integer(hello->seccomp));
    if (inject_has_gpu() && !hello->gpu) {
        finding = doctor_add(doctor, "image-gpu", DOCTOR_STATUS_LIMITED,
                "no GPU in the container, and this machine has one");
        doctor_lose(finding, "the side runs without GPU",
                "podman: make the description of the devices, `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; docker: "
                "`nvidia-ctk runtime configure --runtime=docker`");
    }
}

// Tried, as a launch does it.
static void check_image_cgroup(struct doctor *doctor, struct check_container *container)
{
    struct error err = {0};
    struct doctor_finding *finding;
    enum tree_means means = tree_detect(&container->base);
    int rc = container->guest.pid <= 0
            ? error_set(&err, -ESRCH, "its processes cannot be seen from here")
            : 0;
    if (rc == 0)
        rc = tree_new(
                means, container->base, "doctor", container->steps_path, &container->tree, &err);
    if (rc == 0 && !(means == TREE_MEANS_SIGNALS && container->image.joins_cgroup) &&
            (rc = tree_take(container->tree, container->guest.pid)))
        error_set(&err, rc, "%s", rc == -ENOTSUP ? "no cgroup can be made here" : strerror(-rc));
    finding = doctor_add(doctor, "image-cgroup", rc ? DOCTOR_STATUS_MISSING : DOCTOR_STATUS_OK,
            rc ? "its process cannot be put into a cgroup of upgate's: %s"
               : "its process can be held by %s",
            rc ? err.text : tree_means_name(means));
    finding->required = true;
    if (rc)
        doctor_lose(finding, "sides that are images cannot be run",
                "run upgate as root and outside of containers; or take podman with crun");
}

// Its Python, and what of ours loads in it. The container ends with it.
static void check_image_python(struct doctor *doctor, struct check_container *container)
{
    static char code[] =
            "import sys, platform\n"
            "try:\n    import upgate._core\n    why = ''\nexcept BaseException as error:\n    why = repr(error)\n"
            "print((platform.python_implementation() + ' %d.%d.%d ' % sys.version_info[:3] + why).strip())\n";
    static char python[] = "python3", option[] = "-c", inherit[] = "PYTHONDONTWRITEBYTECODE=1";
    char *argv[] = {python, option, code, NULL},
         *path = xasprintf("PYTHONPATH=%s", container->python_dir);
    char *steps = xasprintf("%s=%s", environment_name(ENVIRONMENT_STEPS), container->steps_path);
    const struct image_guest *guest = &container->guest;
    size_t count = 0;
    char **env = xcalloc(guest->hello.env_bytes + 4, sizeof *env);
    for (char *at = guest->env; at < guest->env + guest->hello.env_bytes; at += strlen(at) + 1)
        if (strncmp(at, "PYTHONPATH=", 11) != 0)
            env[count++] = at;
    env[count++] = path;
    env[count++] = steps;
    env[count++] = inherit;
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    if (guest->uid != geteuid()) // as a launch tries it; what comes of it is told below
        (void)!chown(container->steps_path, guest->uid, (gid_t)-1);
    const struct image_start start = {
            .dir = "", .argv = argv, .env = env, .cpus = &cpus, .output_fd = container->output_fd};
    struct inside_event event = {0}, ended = {0};
    int64_t until_ns = clock_monotonic_ns() + CHECK_PYTHON_S * 1000000000LL;
    int rc = image_hold_start(container->hold, &start, NULL);
    if (rc == 0)
        rc = image_hold_event(container->hold, until_ns, &event);
    bool began = rc == 0 && event.what == INSIDE_RUNNING;
    if (began)
        rc = image_hold_event(container->hold, until_ns, &ended);
    char *said = check_image_output(container);
    struct doctor_finding *finding;
    bool no_steps = rc == 0 && event.what == INSIDE_FAILED && event.where == INSIDE_AT_STEPS;
    finding = doctor_add(doctor, "image-user", no_steps ? DOCTOR_STATUS_MISSING : DOCTOR_STATUS_OK,
            "runs as user %u%s%s%s", guest->hello.uid,
            *container->image.user ? ", which the image asks for" : "",
            no_steps ? ", who cannot open upgate's step file: " : "",
            no_steps ? strerror(event.error) : "");
    if (no_steps) {
        finding->required = true;
        doctor_lose(finding, "nothing can be measured in it",
                "engine_args: [\"--user=0\"]; or run upgate as root");
    }
    bool loads = began && rc == 0 && ended.what == INSIDE_ENDED && ended.status == 0 &&
            !strchr(said, '(');
    if (!no_steps && loads)
        doctor_add(doctor, "image-python", DOCTOR_STATUS_OK,
                "python3 is %s, and upgate's extension loads", said);
    else if (!no_steps) {
        finding = doctor_add(doctor, "image-python", DOCTOR_STATUS_LIMITED, "%s%s",
                began ? "python3 says: " : "it has no python3: ",
                began ? said : strerror(event.error));
        doctor_lose(finding,
                began ? "steps of Python programs are not found"
                      : "models and programs in Python do not run",
                "name the image's interpreter by `python`, such as /opt/conda/bin/python");
    }
    free(said);
    free(env);
    free(path);
    free(steps);
}

void check_image(struct doctor *doctor, const char *name)
{
    struct check_container container = {.output_fd = -1};
    struct plan_side side = {.name = (char *)"doctor", .image = (char *)name};
    struct error err = {0};
    struct doctor_finding *finding;
    int rc = image_open(&side, NULL, &container.image, &err);
    char *text = rc ? NULL : image_describe(&container.image);
    finding = doctor_add(doctor, "image", rc ? DOCTOR_STATUS_MISSING : DOCTOR_STATUS_OK, "%s",
            rc ? err.text : text);
    finding->required = true;
    if (rc)
        doctor_lose(finding, "no side can be run in it",
                "check its name, and that `podman pull` or `docker pull` brings it");
    free(text);
    if (rc == 0 && (rc = check_image_start(&container, &err))) {
        char *said = container.output_fd >= 0 ? check_image_output(&container) : xstrdup("");
        finding =
                doctor_add(doctor, "image-start", DOCTOR_STATUS_MISSING, "%s: %s", err.text, said);
        finding->required = true;
        doctor_lose(finding, "no side can be run in it",
                "what the engine says has to be mended first; IMAGES.md has its command line");
        free(said);
    } else if (rc == 0) {
        check_image_hello(doctor, &container);
        check_image_cgroup(doctor, &container);
        check_image_python(doctor, &container);
    }
    check_image_end(&container);
}
