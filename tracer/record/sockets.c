// SPDX-License-Identifier: Apache-2.0
// Once a second a list of all connections: of those with both ends in it, both of them some
// process's of the target, links are made. Then looks at these, and rows about twice a second.
#include "tracer/record/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/budget.h"
#include "common/clock.h"
#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "common/target/file.h"
#include "tracer/record/sock_diag.h"
#include "tracer/record/sock_pairs.h"

enum {
    SOCKETS_SPACES_MAX = 16,
    SOCKETS_LINKS_MAX = 1024,
    SOCKETS_BUFFER_BYTES = 1 << 16, // what target_file_converse() gives at most
    SOCKETS_BATCH = 30, // questions at one go, of ten links: the kernel holds some 2 KiB for an
                        // answer, and 208 KiB for a socket
    SOCKETS_ASKS = 3,   // of a look at a link: the first end, the second, the first again
    // answers of some 130 bytes, half a buffer at a time: twice what PAIRS_ENDS_MAX is
    SOCKETS_DRAIN_MAX = 128,
    SOCKETS_SEARCH_NS = 1000000000,
    SOCKETS_LOOK_NS = 10000000, // in each round of the recorder, but not where rounds follow each
                                // other at once
    SOCKETS_ROW_NS = 500000000,
    SOCKETS_ROW_LOOKS = 4, // a row of fewer would tell by chance
    // a minute without a byte, as before the first one: looked at once a row
    SOCKETS_QUIET_ROWS = 120,
    SOCKETS_SHARE = 100, // one part of the time so many for lists, and for looks
    SOCKETS_BURST_NS = 20000000,
    // bytes: a reader that waits leaves a packet or two until it has the CPU
    SOCKETS_UNREAD_MAX = 4096,
};

struct sockets_space { // a network namespace
    ino_t inode;
    int fd; // -1: it cannot be asked
};

struct sockets_flow { // one way, and since the last row
    uint64_t received, received_before, retransmits, retransmits_before;
    uint32_t looks, underway;
    bool known;
};

struct sockets_link {
    struct socket_end ends[2];
    struct sock_diag_socket told[SOCKETS_ASKS];
    bool answered[SOCKETS_ASKS];
    struct sockets_flow flows[2]; // from each end
    bool listed;
    uint32_t quiet; // rows
    int64_t begin_ns;
};

struct sockets_asked {
    uint32_t link, ask;
};

struct sockets {
    struct writer *writer;
    struct tasks *tasks;
    struct sockets_space spaces[SOCKETS_SPACES_MAX];
    struct socket_pairs pairs;
    struct sockets_link *links;
    size_t space_count, link_count, link_room;
    struct map linked; // of the inode of an end: its link
    uint32_t sequence;
    bool several;
    char *missing;
    struct budget budget; // of looks
    int64_t search_next_ns, look_next_ns, row_next_ns;
    struct sockets_asked asked[SOCKETS_BATCH];
    size_t asked_count;
    char questions[SOCKETS_BATCH * SOCK_DIAG_QUESTION_BYTES];
    char buffer[SOCKETS_BUFFER_BYTES];
};

// --- namespaces ----------------------------------------------------------------------------------

// code: -errno, or 0
static void sockets_lack(struct sockets *sockets, const char *what, int code)
{
    if (!sockets->missing)
        sockets->missing = xasprintf(
                "connections: %s%s%s; of more than two ranks it may not be told whose messages come late",
                what, code ? ": " : "", code ? strerror(-code) : "");
}

static void sockets_add_space(struct sockets *sockets, const char *path, bool own)
{
    struct stat there, here;
    if (stat(path, &there) < 0)
        return;
    for (size_t i = 0; i < sockets->space_count; i++)
        if (sockets->spaces[i].inode == there.st_ino)
            return;
    if (sockets->space_count == SOCKETS_SPACES_MAX) {
        sockets_lack(sockets, "the target is in too many network namespaces", 0);
        return;
    }
    own = own || (stat("/proc/thread-self/ns/net", &here) == 0 && here.st_ino == there.st_ino);
    int fd = sock_diag_open(own ? NULL : path);
    if (fd < 0)
        sockets_lack(sockets,
                own ? "the kernel cannot be asked"
                    : "a network namespace of the target cannot be entered",
                fd);
    sockets->spaces[sockets->space_count++] =
            (struct sockets_space){there.st_ino, fd < 0 ? -1 : fd};
}

static void sockets_on_space(void *context, struct task_process *process)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/ns/net", process->tgid);
    sockets_add_space(context, path, false);
}

struct sockets *sockets_new(struct writer *writer, struct tasks *tasks)
{
    struct sockets *sockets = xcalloc(1, sizeof *sockets);
    sockets->writer = writer;
    sockets->tasks = tasks;
    sockets->budget = (struct budget){.divisor = SOCKETS_SHARE, .burst_ns = SOCKETS_BURST_NS};
    tasks_each_target(tasks, sockets_on_space, sockets);
    if (!sockets->space_count) // of a cgroup that is empty yet
        sockets_add_space(sockets, "/proc/thread-self/ns/net", true);
    return sockets;
}

void sockets_free(struct sockets *sockets)
{
    if (!sockets)
        return;
    for (size_t i = 0; i < sockets->space_count; i++)
        if (sockets->spaces[i].fd >= 0)
            close(sockets->spaces[i].fd);
    pairs_free(&sockets->pairs);
    free(sockets->links);
    map_free(&sockets->linked);
    free(sockets->missing);
    free(sockets);
}

const char *sockets_missing(const struct sockets *sockets)
{
    return sockets->several ? sockets->missing : NULL;
}

// --- lists ---------------------------------------------------------------------------------------

// Answers into the buffer; how much, or -errno. By the process that may wait: whoever sends holds
// the lock of its socket, and may not go on before a file system has answered.
static ssize_t sockets_converse(
        struct sockets *sockets, uint32_t space, const void *questions, size_t len)
{
    int fd = sockets->spaces[space].fd;
    ssize_t got = target_file_converse(fd, questions, len, sockets->buffer, sizeof sockets->buffer);
    int code = errno;
    if (got < 0 && code == EAGAIN)
        sockets_lack(sockets, "the kernel did not tell in time", 0);
    return got < 0 ? -code : got;
}

// What is left of a list that was given up, which would refuse the next one. 0 or -errno.
static int sockets_drain(struct sockets *sockets, uint32_t space)
{
    ssize_t len = 1;
    for (int i = 0; len > 0 && i < SOCKETS_DRAIN_MAX; i++)
        len = sockets_converse(sockets, space, NULL, 0);
    return len < 0 ? (int)len : len > 0 ? -E2BIG : 0;
}

// All of one family in a namespace, to the ends. 0 or -errno.
static int sockets_list(struct sockets *sockets, uint32_t space, uint8_t family)
{
    char question[SOCK_DIAG_QUESTION_BYTES];
    uint32_t sequence = ++sockets->sequence;
    ssize_t len = sockets_drain(sockets, space);
    sock_diag_ask_all(question, family, sequence);
    if (len == 0)
        len = sockets_converse(sockets, space, question, sizeof question);
    for (; len > 0; len = sockets_converse(sockets, space, NULL, 0)) {
        struct sock_diag_answer answer;
        for (size_t at = 0; sock_diag_next(sockets->buffer, (size_t)len, &at, &answer);) {
            if (answer.sequence != sequence)
                continue;
            if (answer.kind != SOCK_DIAG_SOCKET)
                return answer.code;
            if (!pairs_add(&sockets->pairs, &answer.socket, space))
                return -E2BIG;
        }
    }
    return len < 0 ? (int)len : -EAGAIN; // it has no end
}

// --- rows ----------------------------------------------------------------------------------------

static void sockets_text(const struct sock_diag_socket *end, char *out, size_t size)
{
    char address[INET6_ADDRSTRLEN] = "";
    inet_ntop(end->family, end->id.idiag_src, address, sizeof address);
    snprintf(out, size, end->family == AF_INET6 ? "[%s]:%u" : "%s:%u", address,
            (unsigned)ntohs(end->id.idiag_sport));
}

static void sockets_put_row(
        struct sockets *sockets, const struct sockets_link *link, int from, int64_t now_ns)
{
    const struct socket_end *sender = &link->ends[from], *receiver = &link->ends[!from];
    const struct sockets_flow *flow = &link->flows[from];
    char sends[80], receives[80];
    sockets_text(&sender->socket, sends, sizeof sends);
    sockets_text(&receiver->socket, receives, sizeof receives);
    struct row row = writer_row(sockets->writer, WRITER_CONNECTION);
    row_int(&row, sender->process);
    row_int(&row, receiver->process);
    row_text(&row, sends);
    row_text(&row, receives);
    row_int(&row, link->begin_ns);
    row_int(&row, now_ns);
    row_int(&row, (int64_t)(flow->received - flow->received_before));
    row_int(&row, (int64_t)(flow->retransmits - flow->retransmits_before));
    row_int(&row, flow->looks);
    row_int(&row, flow->underway);
    writer_put(sockets->writer, &row);
}

// Where something happened. last: what there is, however little.
static void sockets_write(
        struct sockets *sockets, struct sockets_link *link, int64_t now_ns, bool last)
{
    if (now_ns <= link->begin_ns ||
            (!last && link->flows[0].looks < SOCKETS_ROW_LOOKS &&
                    link->flows[1].looks < SOCKETS_ROW_LOOKS))
        return;
    link->quiet++;
    for (int from = 0; from < 2; from++) {
        struct sockets_flow *flow = &link->flows[from];
        if (flow->looks && (flow->received != flow->received_before || flow->underway)) {
            sockets_put_row(sockets, link, from, now_ns);
            link->quiet = 0;
        }
        flow->received_before = flow->received;
        flow->retransmits_before = flow->retransmits;
        flow->looks = flow->underway = 0;
    }
    link->begin_ns = now_ns;
}

static void sockets_write_all(struct sockets *sockets, int64_t now_ns, bool last)
{
    for (size_t i = 0; i < sockets->link_count; i++)
        sockets_write(sockets, &sockets->links[i], now_ns, last);
}

// --- links ---------------------------------------------------------------------------------------

static void sockets_keep_listed(struct sockets *sockets, int64_t now_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < sockets->link_count; i++) {
        struct sockets_link *link = &sockets->links[i];
        if (!link->listed)
            sockets_write(sockets, link, now_ns, true);
        else if (kept++ != i)
            sockets->links[kept - 1] = *link;
    }
    sockets->link_count = kept;
}

static void sockets_make_links(struct sockets *sockets, int64_t now_ns)
{
    map_clear(&sockets->linked);
    for (uint32_t i = 0; i < sockets->link_count; i++) {
        sockets->links[i].listed = false;
        for (int k = 0; k < 2; k++)
            map_add(&sockets->linked, sockets->links[i].ends[k].socket.inode, i);
    }
    for (uint32_t i = 0; i < sockets->pairs.end_count; i++) {
        if (!pairs_is_link(&sockets->pairs, i))
            continue;
        const struct socket_end *end = &sockets->pairs.ends[i],
                                *mate = &sockets->pairs.ends[end->mate];
        uint32_t known = map_get(&sockets->linked, end->socket.inode);
        if (known != MAP_NONE && known == map_get(&sockets->linked, mate->socket.inode)) {
            sockets->links[known].listed = true;
        } else if (sockets->link_count < SOCKETS_LINKS_MAX) {
            sockets->links = vector_reserve(sockets->links, &sockets->link_room,
                    sockets->link_count + 1, sizeof *sockets->links);
            sockets->links[sockets->link_count++] = (struct sockets_link){.ends = {*end, *mate},
                    .listed = true,
                    .quiet = SOCKETS_QUIET_ROWS + 1,
                    .begin_ns = now_ns};
        } else {
            sockets_lack(sockets, "there are too many between processes of the target", 0);
        }
    }
    sockets_keep_listed(sockets, now_ns);
}

// What passes: the next list is asked for all the same.
static bool sockets_passes(int code)
{
    return code == -ENOBUFS || code == -EAGAIN || code == -EBUSY || code == -EMSGSIZE ||
            code == -EINTR || code == -ENOMEM;
}

static void sockets_search(struct sockets *sockets, int64_t now_ns)
{
    bool changed = pairs_take_processes(&sockets->pairs, sockets->tasks);
    sockets->several |= sockets->pairs.process_count > 1;
    sockets->pairs.end_count = 0;
    for (uint32_t i = 0; i < sockets->space_count && sockets->pairs.process_count > 1; i++) {
        struct sockets_space *space = &sockets->spaces[i];
        int rc = space->fd < 0 ? 0 : sockets_list(sockets, i, AF_INET);
        // where there is none, IPv4 is enough
        int six = rc == 0 && space->fd >= 0 ? sockets_list(sockets, i, AF_INET6) : 0;
        rc = six == -E2BIG || sockets_passes(six) ? six : rc;
        if (sockets_passes(rc)) { // whom it has not told of is not gone
            sockets->pairs.crowd = changed ? 0 : sockets->pairs.crowd;
            return;
        }
        if (rc) {
            sockets_lack(sockets,
                    rc == -E2BIG ? "there are too many" : "the kernel does not tell of them",
                    rc == -E2BIG ? 0 : rc);
            close(space->fd);
            space->fd = -1;
            sockets->pairs.end_count = 0; // none of a part of them
        }
    }
    if (!pairs_find(&sockets->pairs, changed)) // of the youngest processes nothing is known
        sockets_lack(sockets, "the target has too many descriptors", 0);
    sockets_make_links(sockets, now_ns);
}

// --- looks ---------------------------------------------------------------------------------------

// Those that have been put together for a namespace. The kernel answers them in their order.
static void sockets_ask(struct sockets *sockets, uint32_t space)
{
    size_t count = sockets->asked_count;
    uint32_t first = sockets->sequence + 1;
    sockets->sequence += (uint32_t)count;
    sockets->asked_count = 0;
    if (!count || sockets->spaces[space].fd < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const struct sockets_asked *one = &sockets->asked[i];
        sock_diag_ask_one(sockets->questions + i * SOCK_DIAG_QUESTION_BYTES,
                &sockets->links[one->link].ends[one->ask % 2].socket, first + (uint32_t)i);
    }
    ssize_t len =
            sockets_converse(sockets, space, sockets->questions, count * SOCK_DIAG_QUESTION_BYTES);
    struct sock_diag_answer answer;
    for (size_t at = 0; len > 0 && sock_diag_next(sockets->buffer, (size_t)len, &at, &answer);) {
        uint32_t index = answer.sequence - first; // what is left of an earlier one is far beyond
        if (index >= count)
            continue;
        const struct sockets_asked *one = &sockets->asked[index];
        struct sockets_link *link = &sockets->links[one->link];
        // else it is closed
        link->answered[one->ask] = answer.kind == SOCK_DIAG_SOCKET && answer.socket.has_counters;
        link->told[one->ask] = answer.socket;
    }
}

static void sockets_put(struct sockets *sockets, uint32_t space, uint32_t link, uint32_t ask)
{
    sockets->asked[sockets->asked_count++] = (struct sockets_asked){link, ask};
    if (sockets->asked_count == SOCKETS_BATCH)
        sockets_ask(sockets, space);
}

static bool sockets_is_asked(const struct sockets_link *link, bool all)
{
    return all || link->quiet <= SOCKETS_QUIET_ROWS;
}

// Links within a namespace: all that is asked of one stands together.
static void sockets_ask_within(struct sockets *sockets, uint32_t space, bool all)
{
    for (uint32_t i = 0; i < sockets->link_count; i++) {
        const struct sockets_link *link = &sockets->links[i];
        bool within = link->ends[0].space == space && link->ends[1].space == space;
        for (uint32_t ask = 0; ask < SOCKETS_ASKS && within && sockets_is_asked(link, all); ask++)
            sockets_put(sockets, space, i, ask);
    }
    sockets_ask(sockets, space);
}

// Links between two: first ends, then second ones, then first ones again.
static void sockets_ask_between(struct sockets *sockets, uint32_t space, uint32_t ask, bool all)
{
    for (uint32_t i = 0; i < sockets->link_count; i++) {
        const struct sockets_link *link = &sockets->links[i];
        if (link->ends[0].space != link->ends[1].space && link->ends[ask % 2].space == space &&
                sockets_is_asked(link, all))
            sockets_put(sockets, space, i, ask);
    }
    sockets_ask(sockets, space);
}

static void sockets_count(struct sockets_link *link)
{
    for (int from = 0; from < 2; from++) {
        const struct sock_diag_socket *sender = &link->told[from],
                                      *receiver = &link->told[from + 1];
        struct sockets_flow *flow = &link->flows[from];
        if (!link->answered[from] || !link->answered[from + 1])
            continue;
        flow->received = receiver->received;
        flow->retransmits = sender->retransmits;
        if (!flow->known) {
            flow->received_before = flow->received;
            flow->retransmits_before = flow->retransmits;
        }
        if (flow->received != flow->received_before)
            link->quiet = 0;
        flow->known = true;
        flow->looks++;
        flow->underway += sender->unacknowledged && sender->written > receiver->received &&
                receiver->unread <= SOCKETS_UNREAD_MAX;
    }
}

// all: those that are quiet as well.
static void sockets_look(struct sockets *sockets, bool all)
{
    for (size_t i = 0; i < sockets->link_count; i++)
        memset(sockets->links[i].answered, 0, sizeof sockets->links[i].answered);
    for (uint32_t space = 0; space < sockets->space_count; space++)
        sockets_ask_within(sockets, space, all);
    for (uint32_t ask = 0; ask < SOCKETS_ASKS; ask++)
        for (uint32_t space = 0; space < sockets->space_count; space++)
            sockets_ask_between(sockets, space, ask, all);
    for (size_t i = 0; i < sockets->link_count; i++)
        sockets_count(&sockets->links[i]);
}

void sockets_round(struct sockets *sockets, int64_t now_ns)
{
    if (now_ns >= sockets->search_next_ns) {
        int64_t begin_ns = clock_monotonic_ns();
        sockets_search(sockets, now_ns);
        int64_t cost_ns = clock_monotonic_ns() - begin_ns;
        sockets->search_next_ns = now_ns +
                (cost_ns * SOCKETS_SHARE > SOCKETS_SEARCH_NS ? cost_ns * SOCKETS_SHARE
                                                             : SOCKETS_SEARCH_NS);
    }
    if (!sockets->link_count || now_ns < sockets->look_next_ns || !budget_affords(&sockets->budget))
        return;
    bool row = now_ns >= sockets->row_next_ns;
    budget_begin(&sockets->budget);
    sockets_look(sockets, row);
    budget_end(&sockets->budget);
    sockets->look_next_ns = now_ns + SOCKETS_LOOK_NS;
    if (!row)
        return;
    sockets_write_all(sockets, now_ns, false);
    sockets->row_next_ns = now_ns + SOCKETS_ROW_NS;
}

void sockets_end(struct sockets *sockets, int64_t now_ns)
{
    sockets_look(sockets, true);
    sockets_write_all(sockets, now_ns, true);
}
