// SPDX-License-Identifier: Apache-2.0
// One launch: composes the command line and environment, starts the process tree held at its gate,
// follows it to its end. Reads the step protocol's shared memory through the reader; writes nothing
// to the store.
#include "harness/run/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/directory.h"
#include "common/environment.h"
#include "common/strings.h"
#include "harness/contain/host.h"
#include "harness/contain/process.h"
#include "harness/contain/python_steps.h"
#include "harness/run/launch_image.h"

enum {
    // Between two looks at the tree's memory, which take some 100 us: half of the launch's age, for
    // the
    // kernel keeps each process's peak, and only a process that ends between two looks is missed.
    LAUNCH_SAMPLE_NS_MIN = 100000000,
    LAUNCH_SAMPLE_NS_MAX = 1000000000,
    LAUNCH_SAMPLES_MIN = 3, // fewer of a launch may have met it before it had allocated anything
    LAUNCH_OUTPUT_KEEP_BYTES = 1 << 20,
    LAUNCH_OUTPUT_TRIM_BYTES = 16 << 20, // more than that to give back
    LAUNCH_ARGS_MAX = 256,
    LAUNCH_PORT_FIRST = 20000,
    LAUNCH_PORT_COUNT = 12000,
    LAUNCH_PORT_TRIES = 256,
    LAUNCH_SLOTS_MIN = 64 // a command need not say how many ranks its launcher makes
};

const char *launch_state_name(enum launch_state state)
{
    static const char *const names[] = {
            "running", "ok", "crashed", "timeout", "oom", "not_started", "stopped"};
    return names[state];
}

static bool launch_exists(const char *path)
{
    return access(path, R_OK) == 0;
}

// The path without "..": it is the same in a container, which may not have what is left again.
// Takes it.
static char *launch_real(char *path)
{
    char *real = path ? realpath(path, NULL) : NULL;
    if (!real)
        return path;
    free(path);
    return real;
}

int launch_env_find(struct launch_env *env, struct error *err)
{
    env->python_dir = launch_real(python_steps_dir());
    env->models_dir = launch_real(directory_of_part("reference_models"));
    return env->models_dir
            ? 0
            : error_set(err, -errno, "failed to find the own program: %s", strerror(errno));
}

// --- the command line ----------------------------------------------------------------------------

struct launch_words {
    char **argv;
    int count;
};

static void launch_word(struct launch_words *words, char *word)
{
    if (words->count == LAUNCH_ARGS_MAX) {
        free(word);
        return;
    }
    words->argv[words->count++] = word;
}

static void launch_words_of(struct launch_words *words, char **list)
{
    for (; list && *list; list++)
        launch_word(words, xstrdup(*list));
}

static char *launch_number(double value)
{
    return xasprintf("%.17g", value);
}

static bool launch_port_is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
            .sin_port = htons((uint16_t)port),
            .sin_addr.s_addr = htonl(INADDR_ANY)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
}

// Below those that the kernel gives to connections (from 32768 on), one of which may have it before
// the program has.
int launch_free_port(void)
{
    uint16_t drawn = 0;
    for (int i = 0; i < LAUNCH_PORT_TRIES; i++) {
        ssize_t got = getrandom(&drawn, sizeof drawn, 0);
        int port = LAUNCH_PORT_FIRST + (got == sizeof drawn ? drawn : i) % LAUNCH_PORT_COUNT;
        if (launch_port_is_free(port))
            return port;
    }
    return LAUNCH_PORT_FIRST; // the program says what is wrong with it
}

// The value of a placeholder, or NULL when there is none of that name.
static char *launch_placeholder(
        const struct launch_spec *spec, int port, const char *name, size_t len)
{
    const struct plan_workload *workload = spec->workload;
    if (len == 6 && !strncmp(name, "python", len))
        return plan_side_program(spec->side, spec->side->python ? spec->side->python : "python3");
    if (len == 5 && !strncmp(name, "steps", len))
        return xasprintf("%llu", (unsigned long long)spec->steps);
    if (len == 4 && !strncmp(name, "seed", len))
        return xasprintf("%llu", (unsigned long long)spec->seed);
    if (len == 5 && !strncmp(name, "ranks", len))
        return xasprintf("%llu", (unsigned long long)workload->ranks);
    if (len == 4 && !strncmp(name, "rank", len))
        return xstrdup("0");
    if (len == 4 && !strncmp(name, "rate", len))
        return launch_number(spec->rate_per_s);
    if (len == 5 && !strncmp(name, "dtype", len))
        return xstrdup(spec->dtype);
    const struct launch_nodes *nodes = spec->nodes;
    if (len == 5 && !strncmp(name, "nodes", len))
        return xasprintf("%d", nodes ? nodes->count : 1);
    if (len == 9 && !strncmp(name, "node_rank", len))
        return xasprintf("%d", nodes ? nodes->node : 0);
    if (len == 6 && !strncmp(name, "master", len))
        return xstrdup(nodes ? nodes->master : "127.0.0.1");
    if (len == 4 && !strncmp(name, "port", len))
        return xasprintf("%d", port);
    return NULL;
}

static char *launch_expand(const struct launch_spec *spec, int port, const char *word)
{
    struct strbuf out = {0};
    while (*word) {
        // "${rank}" is the shell's, not ours.
        bool ours = *word == '{' && (out.len == 0 || out.text[out.len - 1] != '$');
        const char *end = ours ? strchr(word, '}') : NULL;
        char *value =
                end ? launch_placeholder(spec, port, word + 1, (size_t)(end - word - 1)) : NULL;
        if (value) {
            strbuf_add(&out, "%s", value);
            free(value);
            word = end + 1;
        } else { // the plan has refused unknown names; other braces (JSON, shell) stay as they are
            strbuf_add_bytes(&out, word++, 1);
        }
    }
    return strbuf_take(&out);
}

static int launch_model_words(const struct launch_env *env, const struct launch_spec *spec,
        struct launch_words *words, struct error *err)
{
    const struct plan_side *side = spec->side;
    const struct plan_workload *workload = spec->workload;
    char *program;
    if (side->models) {
        char *dir = plan_side_directory(side, side->models);
        program = xasprintf("%s/%s", dir, workload->model);
        free(dir);
    } else if (side->python)
        program = xasprintf("%s/torch/%s.py", env->models_dir, workload->model);
    else
        program = xasprintf("%s/native/%s", env->models_dir, workload->model);
    if (!(side->image && side->models) && !launch_exists(program)) {
        int rc = error_set(err, -ENOENT, "side '%s' has no workload '%s': '%s' is missing",
                side->name, workload->model, program);
        free(program);
        return rc;
    }
    if (side->python && !side->models)
        launch_word(words, plan_side_program(side, side->python));
    launch_word(words, program);
    launch_word(words, xstrdup("--mode"));
    launch_word(words, xstrdup(plan_mode_name(workload->mode)));
    launch_word(words, xstrdup("--steps"));
    launch_word(words, xasprintf("%llu", (unsigned long long)spec->steps));
    launch_word(words, xstrdup("--seed"));
    launch_word(words, xasprintf("%llu", (unsigned long long)spec->seed));
    launch_word(words, xstrdup("--ranks"));
    launch_word(words, xasprintf("%llu", (unsigned long long)workload->ranks));
    launch_word(words, xstrdup("--dtype"));
    launch_word(words, xstrdup(spec->dtype));
    if (workload->mode == PLAN_MODE_INFER) {
        launch_word(words, xstrdup("--rate"));
        launch_word(words, launch_number(spec->rate_per_s));
    }
    if (workload->threads) {
        launch_word(words, xstrdup("--threads"));
        launch_word(words, xasprintf("%llu", (unsigned long long)workload->threads));
    }
    if (workload->size) {
        launch_word(words, xstrdup("--size"));
        launch_word(words, xstrdup(workload->size));
    }
    if (workload->variant) {
        launch_word(words, xstrdup("--variant"));
        launch_word(words, xstrdup(workload->variant));
    }
    launch_words_of(words, workload->args);
    return 0;
}

static void launch_argv_free(char **argv)
{
    for (char **word = argv; word && *word; word++)
        free(*word);
    free(argv);
}

// The argument vector a spec becomes, NULL-terminated; the caller frees with launch_argv_free.
// -EINVAL for an unknown placeholder, -ENOENT when the model's program does not exist.
static int launch_argv(const struct launch_env *env, const struct launch_spec *spec,
        char ***ret_argv, struct error *err)
{
    struct launch_words words = {.argv = xcalloc(LAUNCH_ARGS_MAX + 1, sizeof(char *))};
    int rc = 0;
    launch_words_of(&words, spec->side->prefix);
    if (spec->workload->model)
        rc = launch_model_words(env, spec, &words, err);
    int port = spec->nodes            ? spec->nodes->ports[spec->side_idx]
            : spec->workload->command ? launch_free_port()
                                      : 0;
    for (char **word = spec->workload->command; word && *word; word++)
        launch_word(&words, launch_expand(spec, port, *word));
    if (rc == 0 && words.count == LAUNCH_ARGS_MAX)
        rc = error_set(err, -EINVAL, "the command of workload '%s' has more than %d words",
                spec->workload->name, LAUNCH_ARGS_MAX - 1);
    if (rc) {
        launch_argv_free(words.argv);
        return rc;
    }
    *ret_argv = words.argv;
    return 0;
}

// --- the environment -----------------------------------------------------------------------------

const struct inject *launch_steps_inject(
        const struct launch_env *env, const struct launch_spec *spec)
{
    return spec->finds_steps && env->inject.library && plan_step_is_injected(spec->workload->step)
            ? &env->inject
            : NULL;
}

// What the launcher of the nodes said to upgate, as it is for the job that a side is: two are alive
// at a time. A launcher in the command says it anew to its ranks.
static void launch_set_nodes(const struct launch_spec *spec)
{
    const struct launch_nodes *nodes = spec->nodes;
    char text[32];
    setenv("MASTER_ADDR", nodes->master, 1);
    snprintf(text, sizeof text, "%d", nodes->ports[spec->side_idx]);
    setenv("MASTER_PORT", text, 1);
    // An outer torchrun's: its store is not the one of the side, its error file is not its own.
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    unsetenv("TORCHELASTIC_ERROR_FILE");
    if (spec->workload->ranks > 1)
        return;
    snprintf(text, sizeof text, "%d", nodes->node);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", nodes->count);
    setenv("WORLD_SIZE", text, 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
}

void launch_set_environment(
        const struct launch_env *env, const struct launch_spec *spec, const struct launch *launch)
{
    const struct plan_side *side = spec->side;
    if (spec->nodes)
        launch_set_nodes(spec);
    plan_side_set_environment(side);
    const struct inject *inject = launch_steps_inject(env, spec);
    // and seen from elsewhere
    bool is_named = inject || (spec->finds_steps && plan_step_is_symbol(spec->workload->step));
    if (spec->finds_steps && !is_named)
        python_steps_set(env->python_dir, spec->workload->step);
    else
        environment_put_first("PYTHONPATH", env->python_dir);
    // The sides would otherwise share and race for one byte-code cache of the models; and a first
    // launch that compiles is not the same work as a second one that does not.
    setenv("PYTHONDONTWRITEBYTECODE", "1", 0);
    // who names its steps wants no others
    if (spec->workload->steps_from == PLAN_STEPS_FROM_OFF || is_named)
        unsetenv(environment_name(ENVIRONMENT_STEPS));
    else
        setenv(environment_name(ENVIRONMENT_STEPS), launch->steps_path, 1);
    if (spec->inject && launch_image_loads(env, spec, spec->inject->library))
        inject_set(spec->inject, spec->inject_kinds);
    inject_set_steps(inject && launch_image_loads(env, spec, inject->library) ? inject : NULL,
            spec->workload->step, launch->steps_path);
}

// --- start ---------------------------------------------------------------------------------------

// execvp() without its habit of handing a file that is no program of this machine to /bin/sh: an
// interpreter of another architecture must not be read as a shell script. Returns errno.
static int launch_exec(char **argv)
{
    if (strchr(argv[0], '/')) {
        execv(argv[0], argv);
        return errno;
    }
    const char *search = getenv("PATH");
    char *dirs = xstrdup(search ? search : "/usr/local/bin:/usr/bin:/bin"), *rest = dirs, *dir;
    int failure = ENOENT;
    while ((dir = strsep(&rest, ":"))) {
        char *path = xasprintf("%s/%s", *dir ? dir : ".", argv[0]);
        execv(path, argv);
        if (errno != ENOENT && errno != ENOTDIR)
            failure = errno;
        free(path);
    }
    free(dirs);
    return failure;
}

// A model of ours says how many CPUs it keeps busy (a rank and thread each one): it gets as many
// and no more, since which of several CPUs a side lands on would be one more thing to draw. The
// last ones: interrupts mostly go to the first. A plan that names CPUs gets those.
cpu_set_t launch_cpus(const struct launch_env *env, const struct plan_workload *workload)
{
    uint64_t wanted = workload->ranks * (workload->threads ? workload->threads : 1);
    cpu_set_t cpus = env->cpus;
    if (!workload->model || env->cpus_named)
        return cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE && (uint64_t)CPU_COUNT(&cpus) > wanted; cpu++)
        CPU_CLR(cpu, &cpus);
    return cpus;
}

struct launch_start {
    const struct launch_env *env;
    const struct launch_spec *spec;
    const struct launch *launch;
    char **argv;
    int fd; // of the child
};

static void launch_child(void *arg)
{
    const struct launch_start *start = arg;
    const struct launch_spec *spec = start->spec;
    const struct launch *launch = start->launch;
    int fd = start->fd;
    int failure[2] = {0, 0}; // where, errno; {0, KiB resident} just before exec
    setsid();
    int rc = tree_join(launch->tree);
    if (rc) {
        failure[0] = 1;
        failure[1] = -rc;
        goto out;
    }
    char go;
    if (read(fd, &go, 1) != 1)
        _exit(127);
    if (!launch->hold) { // else all this is of the container's program
        cpu_set_t cpus = launch_cpus(start->env, spec->workload);
        sched_setaffinity(0, sizeof cpus, &cpus);
        launch_set_environment(start->env, spec, launch);
    }
    if (!launch->hold && spec->side->workdir && chdir(spec->side->workdir) < 0) {
        failure[0] = 2;
        failure[1] = errno;
        goto out;
    }
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(launch->output_fd, 1);
    dup2(launch->output_fd, 2);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    descriptors_restore();
    struct rusage usage; // last: every page of a library that is touched later comes to it, with 15
                         // of its neighbours
    getrusage(RUSAGE_SELF, &usage);
    failure[1] = (int)usage.ru_maxrss;
    if (write(fd, failure, sizeof failure) != sizeof failure)
        _exit(127);
    failure[1] = launch_exec(start->argv);
    failure[0] = 3;
out:
    rc = (int)write(fd, failure, sizeof failure);
    _exit(127);
}

static int launch_start_error(const int failure[2], const struct launch_spec *spec, char **argv,
        const struct launch *launch, struct error *err)
{
    const char *cause = strerror(failure[1]);
    switch (failure[0]) {
    case 1:
        return error_set(err, -failure[1], "failed to put a launch into '%s': %s",
                tree_cgroup(launch->tree), cause);
    case 2:
        return error_set(err, -failure[1], "failed to start side '%s': workdir '%s': %s",
                spec->side->name, spec->side->workdir, cause);
    default:
        return error_set(err, failure[1] == EINVAL ? -ENOEXEC : -failure[1],
                "failed to start side '%s': '%s': %s; check the plan's paths", spec->side->name,
                argv[0], cause);
    }
}

int launch_see_calls(const struct launch_spec *spec, struct launch *launch, struct error *err)
{
    if (!spec->finds_steps || !plan_step_is_symbol(spec->workload->step))
        return 0;
    struct native_calls_opts opts = {.symbol = spec->workload->step,
            .steps = launch->reader,
            .pids = &launch->program,
            .pid_count = 1,
            .holds = true,
            .control_ppm = spec->control_ppm};
    return native_calls_start(&opts, &launch->calls, err);
}

// In the parent: what was waited for has been done, the launch begins.
static void launch_let_go(const struct launch_spec *spec, struct launch *launch, int fd)
{
    if (spec->on_start && !launch->hold)
        spec->on_start(spec->arg, spec->side_idx, launch->pid);
    launch->started_ns = launch->active_since_ns = clock_monotonic_ns();
    ssize_t sent = send(fd, "", 1, MSG_NOSIGNAL);
    (void)sent; // it is gone: the read that follows says so
}

int launch_fork(struct launch_env *env, const struct launch_spec *spec, struct launch *launch,
        char **argv, struct error *err)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return error_set(err, -errno, "failed to start a launch: %s", strerror(errno));
    struct launch_start start = {env, spec, launch, argv, fds[1]};
    int rc = keeper_start(launch_child, &start, tree_cgroup(launch->tree), launch->hold != NULL,
            &launch->keeper, &launch->pid, err);
    close(fds[1]);
    if (rc) {
        close(fds[0]);
        return rc;
    }
    tree_set_root(launch->tree, launch->pid, keeper_pid(launch->keeper));
    // It waits to be let go, so its number is still its own.
    launch->pid_fd = (int)syscall(SYS_pidfd_open, launch->pid, 0);
    int no_pid_fd = launch->pid_fd < 0 ? errno : 0;
    launch->program = launch->pid;
    rc = launch->hold ? 0 : launch_see_calls(spec, launch, err);
    if (rc) {
        close(fds[0]); // it ends without having begun
        return rc;
    }
    launch_let_go(spec, launch, fds[0]);
    // Its end closes at exec: then all is well.
    int failure[2] = {0, 0};
    ssize_t got;
    while ((got = read(fds[0], failure, sizeof failure)) > 0 || (got < 0 && errno == EINTR)) {
        if (got > 0 && failure[0])
            break;
        if (got > 0)
            launch->before_exec_bytes = failure[1] * 1024LL;
    }
    close(fds[0]);
    if (failure[0])
        return launch_start_error(failure, spec, argv, launch, err);
    if (no_pid_fd)
        return error_set(err, -no_pid_fd,
                "failed to follow a launch: pidfd_open: %s; Linux 5.3 is needed",
                strerror(no_pid_fd));
    return 0;
}

static int launch_open_output(void)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir && *dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC | O_APPEND, 0600);
    return fd >= 0 ? fd : (int)syscall(SYS_memfd_create, "upgate-output", 1u /* MFD_CLOEXEC */);
}

int launch_start(struct launch_env *env, const struct launch_spec *spec, struct launch **ret_launch,
        struct error *err)
{
    struct launch *launch = xcalloc(1, sizeof *launch);
    launch->pid_fd = launch->engine_fd = launch->output_fd = launch->exit_code =
            launch->exit_signal = -1;
    launch->cpu_ns = launch->peak_memory_bytes = launch->unstopped_cpu_ns = launch->held_from_ns =
            -1;
    launch->held_only = spec->held_only;
    char name[64], **argv = NULL;
    snprintf(name, sizeof name, "launch-%llu", (unsigned long long)env->count++);
    launch->steps_path = xasprintf(
            "/dev/shm/upgate-%d-%lld-%s", getpid(), (long long)process_start_ticks(getpid()), name);
    uint64_t slots = spec->workload->ranks * 2;
    struct reader_opts opts = {.slot_count = (uint32_t)(slots < LAUNCH_SLOTS_MIN ? LAUNCH_SLOTS_MIN
                                               : slots > UG_STEP_SLOTS_MAX       ? UG_STEP_SLOTS_MAX
                                                                                 : slots),
            .control_ppm = spec->control_ppm};
    cpu_set_t cpus = launch_cpus(env, spec->workload);
    host_join_cpus(&cpus);
    launch->oom_kills_before = spec->oom_kills;
    int rc = launch_argv(env, spec, &argv, err);
    // The guardian first: a kill at any moment from here on leaves nothing.
    if (rc == 0)
        rc = guardian_watch(env->guardian, launch->steps_path, err);
    if (rc == 0)
        rc = tree_new(env->means, env->base, name, launch->steps_path, &launch->tree, err);
    if (rc == 0)
        rc = reader_create(&launch->reader, launch->steps_path, &opts, err);
    launch->machine = machine_new(&cpus);
    if (rc == 0 && (launch->output_fd = launch_open_output()) < 0)
        rc = error_set(err, -errno, "failed to make a file for the output of a launch: %s",
                strerror(errno));
    if (rc == 0)
        rc = spec->side->image ? launch_image_fork(env, spec, launch, argv, err)
                               : launch_fork(env, spec, launch, argv, err);
    launch_argv_free(argv);
    if (rc) {
        launch_free(env, launch);
        return rc;
    }
    *ret_launch = launch;
    return 0;
}

// --- looks at it now and then --------------------------------------------------------------------

// Only the end of what it prints is kept: a chatty workload must not fill the disk.
static void launch_trim_output(struct launch *launch)
{
    struct stat info;
    if (fstat(launch->output_fd, &info) < 0)
        return;
    off_t until = info.st_size - LAUNCH_OUTPUT_KEEP_BYTES;
    if (until - launch->output_trimmed_bytes < LAUNCH_OUTPUT_TRIM_BYTES)
        return;
    if (fallocate(launch->output_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                launch->output_trimmed_bytes, until - launch->output_trimmed_bytes) == 0)
        launch->output_trimmed_bytes = until;
}

static void launch_sample(struct launch *launch, int64_t now_ns)
{
    if (now_ns < launch->next_sample_ns)
        return;
    tree_sample_memory(launch->tree);
    launch->sample_count++;
    launch_trim_output(launch);
    int64_t wait_ns = (now_ns - launch->started_ns) / 2;
    launch->next_sample_ns = now_ns +
            (wait_ns < LAUNCH_SAMPLE_NS_MIN                  ? LAUNCH_SAMPLE_NS_MIN
                            : wait_ns > LAUNCH_SAMPLE_NS_MAX ? LAUNCH_SAMPLE_NS_MAX
                                                             : wait_ns);
}

// --- its turns -----------------------------------------------------------------------------------

void launch_resume(struct launch *launch)
{
    if (launch->state != LAUNCH_RUNNING || launch->active_since_ns)
        return;
    if (launch->unstopped_cpu_ns >= 0) {
        int64_t steal_ns = host_steal_ns() - launch->unstopped_steal_ns;
        launch->overlap_ns +=
                (tree_cpu_ns(launch->tree) - launch->unstopped_cpu_ns) * launch->look_weight;
        launch->overlap_steal_ns += (steal_ns > 0 ? steal_ns : 0) * launch->look_weight;
    }
    launch->unstopped_cpu_ns = -1;
    launch->unlooked = false;
    launch->active_since_ns = launch->resumed_ns = clock_monotonic_ns();
    if (launch->held_only && launch->held_from_ns >= 0)
        launch->held_cpu_ns += tree_cpu_ns(launch->tree) - launch->held_from_ns;
    launch->held_from_ns = -1;
    if (!launch->held_only)
        tree_thaw(launch->tree);
    launch->freeze_ns += clock_monotonic_ns() - launch->active_since_ns;
}

void launch_look(struct launch *launch, int64_t weight)
{
    launch->look_weight = weight;
    if (launch->unlooked && !tree_stopped(launch->tree)) {
        launch->unstopped_cpu_ns = tree_cpu_ns(launch->tree); // -1 without a cgroup v2: not told
        launch->unstopped_steal_ns = host_steal_ns();
    }
    launch->unlooked = false;
}

void launch_suspend(struct launch *launch, int64_t patience_ns)
{
    if (launch->state != LAUNCH_RUNNING || !launch->active_since_ns)
        return;
    int64_t now = clock_monotonic_ns();
    launch->active_ns += now - launch->active_since_ns;
    launch->active_since_ns = 0;
    launch->unlooked = !launch->held_only && tree_freeze(launch->tree, patience_ns) == -EINPROGRESS;
    if (launch->held_only)
        launch->held_from_ns = tree_cpu_ns(launch->tree);
    if (patience_ns >= 0)
        launch_look(launch, 1);
    int64_t frozen = clock_monotonic_ns();
    launch->freeze_ns += frozen - now;
    launch->freeze_count++;
    launch_sample(launch, frozen);
}

int64_t launch_active_ns(const struct launch *launch)
{
    return launch->active_ns +
            (launch->active_since_ns ? clock_monotonic_ns() - launch->active_since_ns : 0);
}

// --- its end -------------------------------------------------------------------------------------

// By how much the kernel's count of resident memory may be off. Since Linux 6.2 it is three
// counters, each kept by CPU and handed on in batches of 32 pages, or two for each CPU where that
// is more (percpu_counter_batch).
static int64_t launch_resident_error_bytes(void)
{
    int64_t cpus = sysconf(_SC_NPROCESSORS_ONLN), batch = 2 * cpus > 32 ? 2 * cpus : 32;
    return 3 * batch * cpus * sysconf(_SC_PAGESIZE);
}

// At the end the exit status has the exact peak of the root, unless that is what it had before
// exec; looks at the tree have all processes, and miss what comes between two of them.
static int64_t launch_peak_bytes(const struct launch *launch, int64_t root_bytes)
{
    int64_t seen = tree_peak_memory_bytes(launch->tree);
    bool exact = root_bytes > launch->before_exec_bytes + launch_resident_error_bytes();
    bool watched = launch->sample_count >= LAUNCH_SAMPLES_MIN;
    if (!watched && (!exact || tree_process_count(launch->tree) > 1))
        return -1;
    return exact && root_bytes > seen ? root_bytes : seen;
}

static void launch_reap(struct launch *launch, int patience_ms)
{
    int status = SIGKILL; // what the root gets when its keeper is killed
    struct rusage usage = {0};
    struct pollfd poller = {.fd = launch->pid_fd, .events = POLLIN};
    if (launch->pid_fd >= 0 && poll(&poller, 1, patience_ms) <= 0)
        return;
    launch->ended_ns = clock_monotonic_ns(); // the keeper, without our priority, is told later
    if (launch->hold)
        launch_image_wait(launch, &status, &usage);
    else
        keeper_wait(launch->keeper, &status, &usage);
    if (launch->active_since_ns)
        launch->active_ns += launch->ended_ns - launch->active_since_ns;
    launch->active_since_ns = 0;
    int64_t own = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL +
            (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL;
    int64_t all = tree_cpu_ns(launch->tree); // the group keeps it for those that have ended
    launch->cpu_ns = all > 0 ? all : own;
    launch->peak_memory_bytes = launch_peak_bytes(launch, usage.ru_maxrss * 1024LL);
    if (launch->state == LAUNCH_RUNNING) {
        launch->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        launch->exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
        bool oom = launch->exit_code && launch->oom_kills_before >= 0 &&
                host_oom_kills() > launch->oom_kills_before;
        launch->state = launch->exit_code == 0 ? LAUNCH_OK : oom ? LAUNCH_OOM : LAUNCH_CRASHED;
    }
    native_calls_stop(launch->calls); // its last steps are in the file then
    launch->pid = -1;
}

bool launch_ended(struct launch *launch)
{
    if (launch->pid <= 0)
        return true;
    launch_sample(launch, clock_monotonic_ns());
    launch_reap(launch, 0);
    return launch->pid <= 0;
}

bool launch_wait(struct launch *launch, int64_t deadline_ns)
{
    while (!launch_ended(launch)) {
        int64_t now = clock_monotonic_ns(), left = deadline_ns - now;
        if (left <= 0)
            return false;
        if (left > LAUNCH_SAMPLE_NS_MIN)
            left = LAUNCH_SAMPLE_NS_MIN;
        struct pollfd poller = {.fd = launch->pid_fd, .events = POLLIN};
        struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        if (ppoll(&poller, 1, &wait, NULL) < 0)
            return launch_ended(launch); // a signal: let the caller look
    }
    return true;
}

void launch_kill(struct launch *launch, enum launch_state state)
{
    if (launch->pid <= 0)
        return;
    tree_sample_memory(launch->tree);
    launch->state = state;
    if (launch->hold)
        launch_image_kill(launch);
    else
        tree_kill(launch->tree);
    while (launch->pid > 0)
        launch_reap(launch, -1);
}

char *launch_output_tail(const struct launch *launch, size_t bytes)
{
    off_t size = lseek(launch->output_fd, 0, SEEK_END);
    off_t from = size > (off_t)bytes ? size - (off_t)bytes : 0;
    char *text = xcalloc(bytes + 1, 1);
    ssize_t got = pread(launch->output_fd, text, bytes, from);
    text[got > 0 ? got : 0] = 0;
    // The cut may have gone through a character: begin with a whole one.
    ssize_t first = 0;
    while (from > 0 && first < 3 && first < got && ((unsigned char)text[first] & 0xc0) == 0x80)
        first++;
    memmove(text, text + first, (size_t)(got > 0 ? got - first : 0) + 1);
    string_make_utf8(text, got > 0 ? (size_t)(got - first) : 0);
    return text;
}

void launch_free(struct launch_env *env, struct launch *launch)
{
    if (!launch)
        return;
    if (launch->pid > 0)
        launch_kill(launch, LAUNCH_STOPPED);
    launch_image_end(launch);
    tree_free(launch->tree);
    keeper_free(launch->keeper);
    native_calls_free(launch->calls);
    reader_free(launch->reader);
    machine_free(launch->machine);
    if (launch->steps_path)
        guardian_forget(env->guardian, launch->steps_path);
    if (launch->hold_path)
        guardian_forget(env->guardian, launch->hold_path);
    if (launch->pid_fd >= 0)
        close(launch->pid_fd);
    if (launch->engine_fd >= 0)
        close(launch->engine_fd);
    if (launch->output_fd >= 0)
        close(launch->output_fd);
    free(launch->hold_path);
    free(launch->steps_path);
    free(launch);
}
