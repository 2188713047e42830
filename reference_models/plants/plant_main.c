// SPDX-License-Identifier: Apache-2.0
// `plant NAME --seconds S`: stalls a victim in one known way. Two JSON lines on stdout: who is who,
// when the stall is running; and what the victim itself measured, at the end or on SIGTERM and
// SIGINT. answers.json says which cause must be found. The director: it starts everybody, waits,
// ends them, and lets the janitor undo what was made. Exit: 0, 2 usage, 4 failed, 77 this machine
// cannot.
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "common/units.h"
#include "contracts/exit_code.h"

#define EXIT_SKIP 77
#define SIZE_DEFAULT (UINT64_C(2) << 30)

static const struct plant_kind *const families[] = {plants_memory, plants_pages, plants_scheduler,
        plants_groups, plants_storage, plants_waits, plants_python};
#define FAMILY_COUNT (sizeof(families) / sizeof(families[0]))

struct director {
    struct plant plant;
    double seconds;
    pid_t janitor;
    sigset_t signals;
};

static const char usage[] =
        "Stall a victim process in one known way.\n\n"
        "Usage: plant NAME [options]\n"
        "       plant --list\n\n"
        "  --seconds S     for so long (default 10)\n"
        "  --size BYTES    of the victim's memory, where that matters (default 2GiB)\n"
        "  --innocent      the same victim and neighbours, nobody stalls it\n"
        "  --dir DIR       for files (default $TMPDIR or /var/tmp)\n"
        "  --python PROG   interpreter of the Python plants (default python3)\n"
        "  --list          names, one a line\n\n"
        "Exit status: 0 done, 2 usage, 4 failed, 77 this machine lacks what the plant needs.\n";

static const struct plant_kind *kind_find(const char *name)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        for (const struct plant_kind *kind = families[i]; kind->name; kind++) {
            if (strcmp(kind->name, name) == 0)
                return kind;
        }
    }
    return NULL;
}

static void kinds_print(void)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        for (const struct plant_kind *kind = families[i]; kind->name; kind++)
            puts(kind->name);
    }
}

static int options_parse(
        struct director *director, int argc, char **argv, const char **ret_name, struct error *err)
{
    static const struct option options[] = {
            {"seconds", required_argument, NULL, 's'},
            {"size", required_argument, NULL, 'm'},
            {"innocent", no_argument, NULL, 'i'},
            {"dir", required_argument, NULL, 'd'},
            {"python", required_argument, NULL, 'p'},
            {"list", no_argument, NULL, 'l'},
            {"help", no_argument, NULL, 'h'},
            {NULL, 0, NULL, 0},
    };
    struct plant *plant = &director->plant;
    uint64_t size = SIZE_DEFAULT;
    int option, rc = 0;
    while (!rc && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            rc = unit_parse_double(optarg, 0.1, 3600, &director->seconds, err);
            break;
        case 'm':
            rc = unit_parse_bytes(optarg, &size, err);
            break;
        case 'i':
            plant->innocent = true;
            break;
        case 'd':
            plant->dir = optarg;
            break;
        case 'p':
            plant->python = optarg;
            break;
        case 'l':
            kinds_print();
            exit(0);
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            exit(EXIT_CODE_USAGE);
        }
    }
    if (rc)
        return rc;
    plant->size_bytes = size;
    if (optind + 1 != argc)
        return error_set(err, -EINVAL, "one plant is needed; try plant --list");
    *ret_name = argv[optind];
    return 0;
}

// The first CPU we may use is the victim's, the last one everybody else's.
static void cpus_choose(struct plant *plant)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    plant->cpu_victim = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &set))
            continue;
        if (plant->cpu_victim < 0)
            plant->cpu_victim = cpu;
        plant->cpu_other = cpu;
    }
}

static int share_make(struct plant *plant, struct error *err)
{
    plant->share_fd = memfd_create("upgate-plant", 0);
    if (plant->share_fd < 0 || ftruncate(plant->share_fd, sizeof(*plant->share)))
        return error_set(err, -errno, "failed to make shared memory: %s", strerror(errno));
    plant->share = mmap(
            NULL, sizeof(*plant->share), PROT_READ | PROT_WRITE, MAP_SHARED, plant->share_fd, 0);
    if (plant->share == MAP_FAILED)
        return error_set(err, -errno, "failed to map shared memory: %s", strerror(errno));
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&plant->share->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    sem_init(&plant->share->asked, 1, 0);
    sem_init(&plant->share->answered, 1, 0);
    return 0;
}

// A process outside our session that waits for our end of a pipe to close, which it does however we
// end, and then undoes what the share lists.
static int janitor_start(struct director *director, struct error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return error_set(err, -errno, "failed to make a pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        return error_set(err, -errno, "failed to start the janitor: %s", strerror(errno));
    if (pid == 0) {
        setsid();
        prctl(PR_SET_NAME, "pl-janitor");
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int fd = 0; null_fd >= 0 && fd <= 2; fd++)
            dup2(null_fd, fd); // who reads our output must not wait for it
        close(ends[1]);
        char byte;
        while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
        }
        plant_clean_all(director->plant.share);
        _exit(0);
    }
    close(ends[0]);
    director->janitor = pid;
    director->plant.janitor_fd = ends[1];
    return 0;
}

static void who_print(const struct plant *plant, const char *name)
{
    printf("{\"plant\": \"%s\", \"innocent\": %s, \"victim_pid\": %d, \"culprit_pid\": ", name,
            plant->innocent ? "true" : "false", plant->victim_pid);
    if (plant->culprit_count)
        printf("%d", plant->culprits[0]);
    else
        printf("null");
    printf(", \"culprit_comm\": ");
    if (plant->culprit_comm[0])
        printf("\"%s\"", plant->culprit_comm);
    else
        printf("null");
    printf(", \"culprit_pids\": [");
    for (int i = 0; i < plant->culprit_count; i++)
        printf("%s%d", i ? ", " : "", plant->culprits[i]);
    printf("], \"pids\": [%d", plant->director);
    for (int i = 0; i < plant->child_count; i++)
        printf(", %d", plant->children[i]);
    printf("]}\n");
    fflush(stdout);
}

static void measure_print(const struct plant *plant, const char *name, int64_t took_ns)
{
    struct plant_share *share = plant->share;
    printf("{\"plant\": \"%s\", \"seconds\": %.3f, \"steps\": %llu, \"stalls\": %llu, "
           "\"total_ns\": %llu, \"max_ns\": %llu, \"queued_ns\": %llu, \"acts\": %llu}\n",
            name, (double)took_ns / 1e9, (unsigned long long)atomic_load(&share->steps),
            (unsigned long long)atomic_load(&share->stalls),
            (unsigned long long)atomic_load(&share->total_ns),
            (unsigned long long)atomic_load(&share->max_ns),
            (unsigned long long)atomic_load(&share->queued_ns),
            (unsigned long long)atomic_load(&share->acts));
    fflush(stdout);
}

// Until the time is over or somebody says stop. A child that ends meanwhile ends the plant.
static int wait_for_end(struct director *director, struct error *err)
{
    int64_t end_ns = plant_now_ns() + (int64_t)(director->seconds * 1e9);
    for (;;) {
        int64_t left_ns = end_ns - plant_now_ns();
        if (left_ns <= 0)
            return 0;
        struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
        int number = sigtimedwait(&director->signals, NULL, &left);
        if (number < 0 && errno != EINTR && errno != EAGAIN)
            return error_set(err, -errno, "failed to wait: %s", strerror(errno));
        if (number > 0 && number != SIGCHLD)
            return 0;
        int status;
        pid_t pid = number == SIGCHLD ? waitpid(-1, &status, WNOHANG) : 0;
        if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
            return error_set(err, -ENOTSUP, "this machine cannot, see above");
        if (pid > 0)
            return error_set(err, -ECHILD, "process %d of the plant ended too early (status %#x)",
                    pid, (unsigned int)status);
    }
}

// Ends everybody. The janitor first, as a frozen process does not die before it is thawed.
static void end_all(struct director *director)
{
    struct plant *plant = &director->plant;
    atomic_store(&plant->share->stop, 1);
    for (int i = 0; i < plant->child_count; i++)
        kill(plant->children[i], SIGKILL);
    close(plant->janitor_fd);
    for (int i = 0; i < plant->child_count; i++)
        waitpid(plant->children[i], NULL, 0);
    waitpid(director->janitor, NULL, 0);
}

int main(int argc, char **argv)
{
    struct director director = {.seconds = 10};
    struct plant *plant = &director.plant;
    struct error err = {0};
    const char *name = NULL;
    const char *temp = getenv("TMPDIR");
    plant->dir = temp && temp[0] ? temp : "/var/tmp";
    plant->python = "python3";
    plant->director = getpid();
    int rc = options_parse(&director, argc, argv, &name, &err);
    const struct plant_kind *kind = rc ? NULL : kind_find(name);
    if (!rc && !kind)
        rc = error_set(&err, -EINVAL, "no plant '%s'; try plant --list", name);
    if (rc) {
        fprintf(stderr, "plant: %s\n", err.text);
        return error_exit_code(rc);
    }
    signal(SIGPIPE, SIG_IGN); // a reader that left must not keep us from cleaning
    sigemptyset(&director.signals);
    sigaddset(&director.signals, SIGTERM);
    sigaddset(&director.signals, SIGINT);
    sigaddset(&director.signals, SIGHUP);
    sigaddset(&director.signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &director.signals, NULL);
    cpus_choose(plant);
    rc = share_make(plant, &err);
    if (!rc)
        rc = janitor_start(&director, &err);
    if (rc) {
        fprintf(stderr, "plant: %s\n", err.text);
        return EXIT_CODE_OPERATIONAL;
    }
    rc = kind->start(plant, &err);
    if (!rc)
        rc = plant_neighbours(plant, &err);
    if (!rc) {
        int64_t begin_ns = plant_now_ns();
        who_print(plant, name);
        rc = wait_for_end(&director, &err);
        measure_print(plant, name, plant_now_ns() - begin_ns);
    }
    end_all(&director);
    if (!rc)
        return 0;
    fprintf(stderr, "plant: %s: %s\n", name, err.text);
    return rc == -ENOTSUP ? EXIT_SKIP : EXIT_CODE_OPERATIONAL;
}
