// SPDX-License-Identifier: Apache-2.0
// Connections between two processes of ours, as the recorder sees them: what went over them, and
// that neither a receiver that reads slowly nor the loopback makes anything be under way.
// Namespaces and a slow link: tests/root/connections.py.
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/unit/runner.h"
#include "tracer/record/sock_diag.h"
#include "tracer/record/sockets.h"

enum {
    WATCHED_MS = 1700,
    WATCHED_MAX_MS = 60000,
    PAUSE_US = 10000,
    SLOW_BYTES = 4096,
    ENOUGH_BYTES = 20000,
    ENOUGH_LOOKS = 8
};

struct watch {
    char dir[32], path[64];
    struct store *store;
    struct writer *writer;
    struct tasks *tasks;
    pid_t sender, receiver;
    unsigned sender_port, receiver_port;
};

static char data[1 << 16];

// One end each in a child of ours, which has nothing but that before anybody looks: whoever had it
// first is taken for its owner.
static void begins(int other, int ready)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(other);
    if (write(ready, "", 1) != 1)
        _exit(1);
}

// flood: as much as there is room for; else a bit now and then.
static void sends(int fd, bool flood)
{
    for (;;) {
        if (send(fd, data, flood ? sizeof data : 1000, MSG_NOSIGNAL) < 0)
            _exit(0);
        if (!flood)
            usleep(PAUSE_US);
    }
}

// slowly: less than the other one could send.
static void receives(int fd, bool slowly)
{
    while (recv(fd, data, slowly ? SLOW_BYTES : sizeof data, 0) > 0)
        if (slowly)
            usleep(PAUSE_US);
    _exit(0);
}

static void connect_both(int *ends, struct watch *watch)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                       own;
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1) ||
            getsockname(listener, (struct sockaddr *)&address, &len) ||
            connect(ends[0], (struct sockaddr *)&address, sizeof address))
        runner_skip("no connection to ourselves");
    ends[1] = accept(listener, NULL, NULL);
    len = sizeof own;
    CHECK_INT(getsockname(ends[0], (struct sockaddr *)&own, &len), 0);
    watch->sender_port = ntohs(own.sin_port);
    watch->receiver_port = ntohs(address.sin_port);
    close(listener);
}

static void watch_begin(struct watch *watch, bool floods, bool slowly)
{
    struct error err = {0};
    int ends[2], ready[2], fd = sock_diag_open(NULL);
    *watch = (struct watch){.dir = "/tmp/upgate-sockets-XXXXXX"};
    if (fd < 0)
        runner_skip("no NETLINK_SOCK_DIAG");
    close(fd);
    CHECK(mkdtemp(watch->dir) != NULL);
    snprintf(watch->path, sizeof watch->path, "%s/run.db", watch->dir);
    CHECK_INT(pipe(ready), 0);
    connect_both(ends, watch);
    watch->sender = fork();
    if (watch->sender == 0) {
        begins(ends[1], ready[1]);
        sends(ends[0], floods);
    }
    watch->receiver = fork();
    if (watch->receiver == 0) {
        begins(ends[0], ready[1]);
        receives(ends[1], slowly);
    }
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < 2; i++)
        CHECK_INT(read(ready[0], data, 1), 1);
    close(ready[0]);
    close(ready[1]);
    CHECK_INT(store_open(watch->path, STORE_CREATE, &watch->store, &err), 0);
    CHECK_INT(writer_new(watch->store, &watch->writer, &err), 0);
    watch->tasks = tasks_new(watch->writer, 1);
    CHECK(tasks_target(watch->tasks, (uint32_t)watch->sender) != NULL);
    CHECK(tasks_target(watch->tasks, (uint32_t)watch->receiver) != NULL);
}

static int64_t number(struct watch *watch, const char *sql, int64_t with)
{
    int64_t value = -1;
    store_get_int(watch->store, &value, NULL, sql, "i", with);
    return value;
}

// On a busy machine all three of us come to the CPU more seldom.
static bool watch_saw_enough(struct watch *watch)
{
    return number(watch, "SELECT sum(bytes) > ? FROM connection", ENOUGH_BYTES) == 1 &&
            number(watch, "SELECT sum(looks) >= ? FROM connection WHERE bytes > 0", ENOUGH_LOOKS) ==
            1;
}

static void watch_run(struct watch *watch)
{
    struct error err = {0};
    struct sockets *sockets = sockets_new(watch->writer, watch->tasks);
    int64_t begin_ns = clock_monotonic_ns(), until_ns = begin_ns + WATCHED_MS * INT64_C(1000000),
            late_ns = begin_ns + WATCHED_MAX_MS * INT64_C(1000000);
    for (int64_t now_ns; (now_ns = clock_monotonic_ns()) < until_ns ||
            (now_ns < late_ns && !sockets_missing(sockets) && !watch_saw_enough(watch));) {
        sockets_round(sockets, now_ns);
        usleep(PAUSE_US);
    }
    sockets_end(sockets, clock_monotonic_ns());
    if (sockets_missing(sockets))
        runner_skip(sockets_missing(sockets));
    sockets_free(sockets);
    tasks_flush(watch->tasks, clock_monotonic_ns(), false, NULL, NULL);
    CHECK_INT(writer_commit(watch->writer, true, &err), 0);
}

static void watch_end(struct watch *watch)
{
    kill(watch->sender, SIGKILL);
    kill(watch->receiver, SIGKILL);
    waitpid(watch->sender, NULL, 0);
    waitpid(watch->receiver, NULL, 0);
    tasks_free(watch->tasks, NULL, NULL);
    writer_free(watch->writer);
    store_close(watch->store);
    unlink(watch->path);
    rmdir(watch->dir);
}

TEST(what_went_from_one_process_to_another)
{
    struct watch watch;
    watch_begin(&watch, false, false);
    watch_run(&watch);
    int64_t bytes = number(
            &watch, "SELECT sum(bytes) FROM v_connection WHERE sender_pid = ?", watch.sender);
    CHECK(bytes > ENOUGH_BYTES);
    CHECK_INT(bytes % 1000, 0);
    // nothing went back
    CHECK_INT(number(&watch, "SELECT count(*) FROM v_connection WHERE sender_pid = ?",
                      watch.receiver),
            0);
    CHECK_INT(number(&watch, "SELECT count(*) FROM v_connection WHERE receiver_pid <> ?",
                      watch.receiver),
            0);
    CHECK_INT(number(&watch, "SELECT count(*) FROM v_connection WHERE sender <> '127.0.0.1:' || ?",
                      watch.sender_port),
            0);
    CHECK_INT(
            number(&watch, "SELECT count(*) FROM v_connection WHERE receiver <> '127.0.0.1:' || ?",
                    watch.receiver_port),
            0);
    CHECK_INT(
            number(&watch, "SELECT count(*) FROM v_connection WHERE end_ns <= begin_ns + ?", 0), 0);
    int64_t looks = number(&watch, "SELECT sum(looks) FROM v_connection WHERE ?", 1);
    CHECK(looks >= ENOUGH_LOOKS);
    // the loopback holds nothing up
    CHECK(number(&watch, "SELECT sum(underway) FROM v_connection WHERE ?", 1) * 4 <= looks);
    watch_end(&watch);
}

TEST(who_reads_slowly_is_no_slow_network)
{
    struct watch watch;
    watch_begin(&watch, true, true);
    usleep(200000); // until there is no room any more: a part of what was written has not been sent
    watch_run(&watch);
    int64_t looks = number(&watch, "SELECT sum(looks) FROM v_connection WHERE bytes > ?", 0);
    CHECK(looks >= ENOUGH_LOOKS);
    CHECK(number(&watch, "SELECT sum(underway) FROM v_connection WHERE ?", 1) * 4 <= looks);
    watch_end(&watch);
}
