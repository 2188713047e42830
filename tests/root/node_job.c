// SPDX-License-Identifier: Apache-2.0
// A job whose ranks add up a number in each step, as an all-reduce does: nobody gets on before all
// have come. Rank 0 listens at the port, the others talk to it. A step sleeps, so that it takes as
// long on a busy machine.
//     node_job STEPS STEP_US RANK RANKS PORT [FAULT]
// FAULT: a file; while it is there, the rank that it names in its first word, at the step of the
// second one, does what the third one says: "die" by a signal, "exit" with 3, "hang". The file is
// taken away by who does it, unless a fourth word says "always".
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "contracts/upgate_step.h"

enum { RANKS_MAX = 64 };

static void job_sleep_us(long us)
{
    struct timespec wait = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&wait, NULL);
}

static int job_connect(int rank, int ranks, int port, int *fds)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
            .sin_port = htons((unsigned short)port),
            .sin_addr.s_addr = inet_addr("127.0.0.1")};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (rank) {
        for (int i = 0; i < 3000; i++) { // 30 s
            if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
                return fds[0] = fd, write(fd, &rank, sizeof rank) == sizeof rank ? 0 : -1;
            job_sleep_us(10000);
            close(fd);
            fd = socket(AF_INET, SOCK_STREAM, 0);
        }
        return -1;
    }
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, ranks) < 0)
        return -1;
    for (int i = 1; i < ranks; i++) {
        int who = 0, peer = accept(fd, NULL, NULL);
        if (peer < 0 || read(peer, &who, sizeof who) != sizeof who || who < 1 || who >= ranks)
            return -1;
        fds[who] = peer;
    }
    return 0;
}

static int job_reduce(int rank, int ranks, const int *fds, double *value)
{
    double other;
    for (int i = 1; rank == 0 && i < ranks; i++) {
        if (read(fds[i], &other, sizeof other) != sizeof other)
            return -1;
        *value += other;
    }
    for (int i = 1; rank == 0 && i < ranks; i++)
        if (write(fds[i], value, sizeof *value) != sizeof *value)
            return -1;
    if (rank &&
            (write(fds[0], value, sizeof *value) != sizeof *value ||
                    read(fds[0], value, sizeof *value) != sizeof *value))
        return -1;
    return 0;
}

static void job_fault(const char *path, int rank, int step)
{
    FILE *file = fopen(path, "r");
    int who = -1, when = -1;
    char what[8] = "", always[8] = "";
    if (!file)
        return;
    int words = fscanf(file, "%d %d %7s %7s", &who, &when, what, always);
    fclose(file);
    if (words < 3 || who != rank || when != step)
        return;
    if (strcmp(always, "always") != 0)
        unlink(path);
    if (strcmp(what, "die") == 0)
        raise(SIGKILL);
    if (strcmp(what, "exit") == 0)
        _exit(3);
    pause();
}

int main(int argc, char **argv)
{
    int rank = argc > 5 ? atoi(argv[3]) : -1, ranks = argc > 5 ? atoi(argv[4]) : 0, fds[RANKS_MAX];
    if (rank < 0 || ranks < 1 || ranks > RANKS_MAX)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    if (job_connect(rank, ranks, atoi(argv[5]), fds) < 0) {
        fprintf(stderr, "rank %d: no connection\n", rank);
        return 4;
    }
    for (int step = 0; step < atoi(argv[1]); step++) {
        double value = rank + step;
        ug_step_begin();
        if (argc > 6)
            job_fault(argv[6], rank, step);
        job_sleep_us(atol(argv[2]));
        if (job_reduce(rank, ranks, fds, &value) < 0) {
            fprintf(stderr, "rank %d: a peer is gone at step %d\n", rank, step);
            return 5;
        }
        ug_step_loss(value);
        ug_step_end(1);
    }
    return 0;
}
