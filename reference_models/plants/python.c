// SPDX-License-Identifier: Apache-2.0
// Plants whose cause is Python's: the interpreter lock, the garbage collector, a data loader.
// Victim and culprit are scripts beside the program (python/), which map the share by its
// descriptor and count as plant_victim.c does.
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void plant_python(struct plant *plant, const char *script, const char *arg)
{
    char self[PATH_MAX - 64], path[PATH_MAX], number[16];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len <= 0)
        _exit(4);
    self[len] = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(path, sizeof(path), "%s/python/%s", self, script);
    snprintf(number, sizeof(number), "%d", plant->share_fd);
    setenv("PLANT_SHARE", number, 1);
    snprintf(number, sizeof(number), "%d", plant->cpu_victim);
    setenv("PLANT_CPU", number, 1);
    snprintf(number, sizeof(number), "%d", plant->cpu_other);
    setenv("PLANT_CPU_OTHER", number, 1);
    execlp(plant->python, plant->python, "-B", path, arg, (char *)NULL);
    fprintf(stderr, "plant: failed to start '%s': %s\n", plant->python, strerror(errno));
    _exit(4);
}

int plant_python_can(struct plant *plant, const char *statement, struct error *err)
{
    pid_t pid = fork();
    if (pid < 0)
        return error_set(err, -errno, "failed to start a process: %s", strerror(errno));
    if (pid == 0) {
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null_fd, STDOUT_FILENO);
        dup2(null_fd, STDERR_FILENO);
        execlp(plant->python, plant->python, "-c", statement, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    if (status == 0)
        return 0;
    return error_set(err, -ENOTSUP, "'%s' cannot '%s'", plant->python, statement);
}

static void script(struct plant *plant, void *arg)
{
    plant_python(plant, arg, plant->innocent ? "innocent" : "guilty");
}

static int start_script(
        struct plant *plant, const char *name, const char *culprit_comm, struct error *err)
{
    int rc = plant_python_can(plant, "import mmap, threading", err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", script, (void *)name, err);
    if (!rc && !plant->innocent && culprit_comm)
        strcpy(plant->culprit_comm, culprit_comm);
    return rc;
}

static int start_gil(struct plant *plant, struct error *err)
{
    int rc = plant_need_cpus(err);
    return rc ? rc : start_script(plant, "gil.py", "pl-summer", err);
}

static int start_gc(struct plant *plant, struct error *err)
{
    return start_script(plant, "gc_full.py", NULL, err);
}

static int start_loader(struct plant *plant, struct error *err)
{
    int rc = plant_need_cpus(err);
    return rc ? rc : start_script(plant, "loader.py", "pl-loader", err);
}

const struct plant_kind plants_python[] = {
        {"gil", start_gil}, {"gc", start_gc}, {"loader", start_loader}, {NULL, NULL}};
