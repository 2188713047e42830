// SPDX-License-Identifier: Apache-2.0
// Plants about the CPU and about being stopped: others on the victim's CPU (contention, rt,
// softirq), and others who stop it (sigstop, ptrace). No cgroups: those are in groups.c.
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BURNERS 4
#define STOP_NS (60 * PLANT_MS)
#define FLOOD_BATCH 64

static void victim_works(struct plant *plant, void *arg)
{
    (void)arg;
    plant_steps(plant, NULL, NULL);
}

static int start_victim(struct plant *plant, struct error *err)
{
    int rc = plant_need_cpus(err);
    return rc ? rc : plant_victim(plant, "pl-victim", victim_works, NULL, err);
}

// contention: others as entitled as the victim, on its CPU.
static void burner(struct plant *plant, void *arg)
{
    (void)arg;
    plant_pin(plant->cpu_victim);
    while (!plant_stopped(plant)) {
        plant_burn_ns(10 * PLANT_MS);
        atomic_fetch_add(&plant->share->acts, 1);
    }
}

static int start_contention(struct plant *plant, struct error *err)
{
    plant->cpu_counts = true;
    int rc = start_victim(plant, err);
    for (int i = 0; !rc && i < BURNERS; i++)
        rc = plant_culprit(plant, "pl-burner", burner, NULL, err);
    return rc;
}

// rt: one with real-time priority, 40 of each 100 ms.
static void rt_act(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    plant_burn_ns(40 * PLANT_MS);
}

static void rt_hog(struct plant *plant, void *arg)
{
    struct sched_param param = {.sched_priority = 50};
    plant_pin(plant->cpu_victim);
    if (sched_setscheduler(0, SCHED_FIFO, &param))
        _exit(4);
    plant_every(plant, 100 * PLANT_MS, rt_act, arg);
}

static int start_rt(struct plant *plant, struct error *err)
{
    struct sched_param param = {.sched_priority = 50}, normal = {0};
    if (sched_setscheduler(0, SCHED_FIFO, &param))
        return error_set(err, -ENOTSUP, "no real-time priority: %s", strerror(errno));
    sched_setscheduler(0, SCHED_OTHER, &normal);
    plant->cpu_counts = true;
    int rc = start_victim(plant, err);
    return rc ? rc : plant_culprit(plant, "pl-rt", rt_hog, NULL, err);
}

// softirq: packets that another CPU sends and this one must receive. In a network namespace of the
// flooder's own, so that no setting of the machine is touched.
static int flood_prepare(struct plant *plant, int *ret_fd)
{
    char mask[64];
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) ||
            mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("sysfs", "/sys", "sysfs", 0, NULL))
        return -errno;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    strcpy(request.ifr_name, "lo");
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
        return -errno;
    // A mask is written in words of 32 CPUs, the highest first.
    int len = snprintf(mask, sizeof(mask), "%x", 1U << (plant->cpu_victim % 32));
    for (int word = 0; word < plant->cpu_victim / 32 && len < 48; word++)
        len += snprintf(mask + len, sizeof(mask) - (size_t)len, ",00000000");
    int rc = plant_write("/sys/class/net/lo/queues/rx-0/rps_cpus", mask);
    *ret_fd = fd;
    return rc;
}

static void flood_act(struct plant *plant, void *arg)
{
    static char packet[64];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)plant;
    for (int i = 0; i < FLOOD_BATCH; i++)
        sendto(*(int *)arg, packet, sizeof(packet), MSG_DONTWAIT, (struct sockaddr *)&to,
                sizeof(to));
}

static void flooder(struct plant *plant, void *arg)
{
    (void)arg;
    int fd = -1;
    plant_pin(plant->cpu_other);
    int rc = flood_prepare(plant, &fd);
    if (rc) {
        fprintf(stderr, "plant: softirq: no network namespace with RPS: %s\n", strerror(-rc));
        _exit(77);
    }
    plant_every(plant, 0, flood_act, &fd);
}

static int start_softirq(struct plant *plant, struct error *err)
{
    if (access("/sys/class/net/lo/queues/rx-0/rps_cpus", W_OK))
        return error_set(
                err, -ENOTSUP, "packets cannot be steered (rps_cpus): %s", strerror(errno));
    plant->cpu_counts = true;
    int rc = start_victim(plant, err);
    return rc ? rc : plant_culprit(plant, "pl-flood", flooder, NULL, err);
}

// sigstop
static void stop_act(struct plant *plant, void *arg)
{
    (void)arg;
    kill(plant->victim_pid, SIGSTOP);
    plant_sleep_ns(STOP_NS);
    kill(plant->victim_pid, SIGCONT);
}

static void stopper(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    plant_every(plant, 500 * PLANT_MS, stop_act, arg);
}

static int start_sigstop(struct plant *plant, struct error *err)
{
    int rc = start_victim(plant, err);
    return rc ? rc : plant_culprit(plant, "pl-stopper", stopper, NULL, err);
}

// ptrace: as a profiler or debugger that looks at the victim again and again.
static void ptrace_act(struct plant *plant, void *arg)
{
    (void)arg;
    int status;
    if (ptrace(PTRACE_SEIZE, plant->victim_pid, NULL, NULL))
        return;
    ptrace(PTRACE_INTERRUPT, plant->victim_pid, NULL, NULL);
    waitpid(plant->victim_pid, &status, __WALL);
    plant_sleep_ns(STOP_NS);
    ptrace(PTRACE_DETACH, plant->victim_pid, NULL, NULL);
}

static void tracer(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    plant_every(plant, 300 * PLANT_MS, ptrace_act, arg);
}

static int start_ptrace(struct plant *plant, struct error *err)
{
    int rc = start_victim(plant, err);
    if (rc)
        return rc;
    if (ptrace(PTRACE_SEIZE, plant->victim_pid, NULL, NULL))
        return error_set(err, -ENOTSUP, "ptrace is not allowed: %s", strerror(errno));
    int status;
    ptrace(PTRACE_INTERRUPT, plant->victim_pid, NULL, NULL);
    waitpid(plant->victim_pid, &status, __WALL);
    ptrace(PTRACE_DETACH, plant->victim_pid, NULL, NULL);
    return plant_culprit(plant, "pl-tracer", tracer, NULL, err);
}

const struct plant_kind plants_scheduler[] = {
        {"contention", start_contention},
        {"rt", start_rt},
        {"softirq", start_softirq},
        {"sigstop", start_sigstop},
        {"ptrace", start_ptrace},
        {NULL, NULL},
};
