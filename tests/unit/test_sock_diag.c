// SPDX-License-Identifier: Apache-2.0
// Answers of the kernel about connections: whole ones, of older and of newer kernels, cut short,
// and such as no kernel gives; and what this kernel tells of a connection of ours.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/target/file.h"
#include "tests/unit/runner.h"
#include "tracer/record/sock_diag.h"

enum { ROOM = 2048, NEWER = 40 };

struct answers {
    unsigned char bytes[ROOM];
    size_t len;
};

static void put(struct answers *answers, const void *bytes, size_t len)
{
    memcpy(answers->bytes + answers->len, bytes, len);
    answers->len += (len + 3) & ~(size_t)3;
}

// Of a socket, with so many bytes of struct tcp_info.
static void put_socket(struct answers *answers, uint32_t sequence, size_t info_len)
{
    unsigned char info[sizeof(struct tcp_info) + NEWER];
    struct tcp_info known = {.tcpi_bytes_sent = 9000,
            .tcpi_bytes_retrans = 1000,
            .tcpi_notsent_bytes = 500,
            .tcpi_bytes_received = 77,
            .tcpi_total_retrans = 3};
    memset(info, 0xff, sizeof info);
    memcpy(info, &known, sizeof known);
    struct inet_diag_msg body = {.idiag_family = AF_INET,
            .idiag_state = 1,
            .id = {.idiag_sport = htons(80)},
            .idiag_rqueue = 11,
            .idiag_wqueue = 22,
            .idiag_inode = 4711};
    struct nlattr before = {.nla_len = sizeof before + 1, .nla_type = INET_DIAG_SHUTDOWN},
                  attribute = {.nla_len = (uint16_t)(sizeof attribute + info_len),
                          .nla_type = INET_DIAG_INFO};
    struct nlmsghdr head = {
            .nlmsg_len = (uint32_t)(sizeof head + sizeof body + 8 + sizeof attribute + info_len),
            .nlmsg_type = SOCK_DIAG_BY_FAMILY,
            .nlmsg_seq = sequence};
    put(answers, &head, sizeof head);
    put(answers, &body, sizeof body);
    put(answers, &before, sizeof before);
    put(answers, "", 1);
    put(answers, &attribute, sizeof attribute);
    put(answers, info, info_len);
}

static void put_code(struct answers *answers, uint16_t type, uint32_t sequence, int32_t code)
{
    struct nlmsghdr head = {
            .nlmsg_len = sizeof head + sizeof code, .nlmsg_type = type, .nlmsg_seq = sequence};
    put(answers, &head, sizeof head);
    put(answers, &code, sizeof code);
}

TEST(a_socket_and_its_counters)
{
    struct answers answers = {0};
    struct sock_diag_answer answer;
    size_t at = 0;
    put_socket(&answers, 9, sizeof(struct tcp_info));
    CHECK(sock_diag_next(answers.bytes, answers.len, &at, &answer));
    CHECK_INT(answer.kind, SOCK_DIAG_SOCKET);
    CHECK_INT(answer.sequence, 9);
    CHECK_INT(answer.socket.family, AF_INET);
    CHECK_INT(ntohs(answer.socket.id.idiag_sport), 80);
    CHECK_INT(answer.socket.inode, 4711);
    CHECK_INT(answer.socket.unread, 11);
    CHECK_INT(answer.socket.unacknowledged, 22);
    CHECK(answer.socket.has_counters);
    CHECK_INT(answer.socket.written, 8500); // what was sent twice was written once
    CHECK_INT(answer.socket.received, 77);
    CHECK_INT(answer.socket.retransmits, 3);
    CHECK_INT(at, answers.len);
    CHECK(!sock_diag_next(answers.bytes, answers.len, &at, &answer));
}

TEST(kernels_tell_less_or_more)
{
    const struct {
        size_t len;
        bool has;
    } kernels[] = {{0, false}, {104, false}, {offsetof(struct tcp_info, tcpi_bytes_retrans), false},
            {offsetof(struct tcp_info, tcpi_bytes_retrans) + 8, true},
            {sizeof(struct tcp_info) + NEWER, true}};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        struct answers answers = {0};
        struct sock_diag_answer answer;
        size_t at = 0;
        put_socket(&answers, 1, kernels[i].len);
        CHECK(sock_diag_next(answers.bytes, answers.len, &at, &answer));
        CHECK_INT(answer.socket.has_counters, kernels[i].has);
        CHECK_INT(answer.socket.written, kernels[i].has ? 8500 : 0);
        CHECK_INT(answer.socket.inode, 4711);
    }
}

TEST(a_list_ends_and_may_fail)
{
    struct answers answers = {0};
    struct sock_diag_answer answer;
    size_t at = 0;
    put_socket(&answers, 7, 104);
    put_code(&answers, NLMSG_ERROR, 7, 0); // that a question came tells nothing
    put_code(&answers, NLMSG_NOOP, 7, 5);
    put_socket(&answers, 7, 104);
    put_code(&answers, NLMSG_DONE, 7, 0);
    put_code(&answers, NLMSG_DONE, 7, -ENOENT);
    put_code(&answers, NLMSG_ERROR, 8, -EPERM);
    const struct {
        enum sock_diag_kind kind;
        int code;
    } expected[] = {{SOCK_DIAG_SOCKET, 0}, {SOCK_DIAG_SOCKET, 0}, {SOCK_DIAG_DONE, 0},
            {SOCK_DIAG_FAILED, -ENOENT}, {SOCK_DIAG_FAILED, -EPERM}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        CHECK(sock_diag_next(answers.bytes, answers.len, &at, &answer));
        CHECK_INT(answer.kind, expected[i].kind);
        CHECK_INT(answer.code, expected[i].code);
    }
    CHECK_INT(answer.sequence, 8);
    CHECK(!sock_diag_next(answers.bytes, answers.len, &at, &answer));
}

// In memory of just that size, so that a sanitizer sees who reads beyond.
static size_t walk(const void *bytes, size_t len, bool *ret_counters)
{
    unsigned char *copy = malloc(len ? len : 1);
    struct sock_diag_answer answer;
    size_t count = 0;
    memcpy(copy, bytes, len);
    for (size_t at = 0; sock_diag_next(copy, len, &at, &answer);) {
        count++;
        *ret_counters |= answer.kind == SOCK_DIAG_SOCKET && answer.socket.has_counters;
    }
    free(copy);
    return count;
}

TEST(what_is_cut_short_is_no_answer)
{
    struct answers answers = {0};
    bool counters = false;
    put_socket(&answers, 1, sizeof(struct tcp_info));
    for (size_t len = 0; len < answers.len; len++)
        CHECK_INT(walk(answers.bytes, len, &counters), 0);
    CHECK(!counters);
    CHECK_INT(walk(answers.bytes, answers.len, &counters), 1);
    CHECK(counters);
    for (uint32_t said = 0; said < answers.len; said++) {
        memcpy(answers.bytes, &said, sizeof said);
        counters = false;
        CHECK(walk(answers.bytes, answers.len, &counters) <= answers.len / sizeof(struct nlmsghdr));
    }
}

TEST(lengths_that_lie)
{
    // of the attribute with the counters
    const size_t at = sizeof(struct nlmsghdr) + sizeof(struct inet_diag_msg) + 8;
    const uint16_t lies[] = {0, 1, 3, 4, 5, 200, UINT16_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct answers answers = {0};
        bool counters = false;
        put_socket(&answers, 1, sizeof(struct tcp_info));
        memcpy(answers.bytes + at, &lies[i], sizeof lies[i]);
        CHECK_INT(walk(answers.bytes, answers.len, &counters), 1);
        CHECK(!counters);
    }
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        unsigned char bytes[300];
        bool counters = false;
        for (size_t i = 0; i < sizeof bytes; i++) {
            seed = seed * 1103515245 + 12345;
            // lengths are small now and then
            bytes[i] = i % 4 > 1 && seed >> 30 ? 0 : (unsigned char)(seed >> 16);
        }
        bytes[0] = (unsigned char)(round % 256);
        bytes[1] = 0;
        bytes[4] = SOCK_DIAG_BY_FAMILY;
        bytes[5] = 0;
        CHECK(walk(bytes, sizeof bytes - (size_t)(round % 64), &counters) <=
                sizeof bytes / sizeof(struct nlmsghdr));
    }
}

static unsigned char room[1 << 16];

// The end of the connection with this local port in a list of all.
static bool find(int fd, uint16_t port, struct sock_diag_socket *ret)
{
    unsigned char question[SOCK_DIAG_QUESTION_BYTES];
    struct sock_diag_answer answer;
    bool found = false;
    sock_diag_ask_all(question, AF_INET, 5);
    for (ssize_t len = target_file_converse(fd, question, sizeof question, room, sizeof room);
            len > 0; len = target_file_converse(fd, NULL, 0, room, sizeof room))
        for (size_t at = 0; sock_diag_next(room, (size_t)len, &at, &answer);)
            if (answer.kind == SOCK_DIAG_SOCKET && ntohs(answer.socket.id.idiag_sport) == port &&
                    answer.socket.id.idiag_src[0] == htonl(INADDR_LOOPBACK)) {
                *ret = answer.socket;
                found = true;
            }
    return found;
}

static struct sock_diag_socket ask(int fd, const struct sock_diag_socket *end)
{
    unsigned char question[SOCK_DIAG_QUESTION_BYTES];
    struct sock_diag_answer answer = {0};
    size_t at = 0;
    sock_diag_ask_one(question, end, 6);
    ssize_t len = target_file_converse(fd, question, sizeof question, room, sizeof room);
    CHECK(len > 0);
    CHECK(len > 0 && sock_diag_next(room, (size_t)len, &at, &answer));
    CHECK_INT(answer.kind, SOCK_DIAG_SOCKET);
    CHECK_INT(answer.sequence, 6);
    return answer.socket;
}

// Two in one message are answered in their order.
static void check_order(
        int fd, const struct sock_diag_socket *first, const struct sock_diag_socket *second)
{
    unsigned char questions[2 * SOCK_DIAG_QUESTION_BYTES];
    struct sock_diag_answer answer = {0};
    size_t at = 0;
    sock_diag_ask_one(questions, first, 7);
    sock_diag_ask_one(questions + SOCK_DIAG_QUESTION_BYTES, second, 8);
    ssize_t len = target_file_converse(fd, questions, sizeof questions, room, sizeof room);
    CHECK(len > 0 && sock_diag_next(room, (size_t)len, &at, &answer));
    CHECK_INT(answer.sequence, 7);
    CHECK_INT(answer.socket.inode, first->inode);
    CHECK(len > 0 && sock_diag_next(room, (size_t)len, &at, &answer));
    CHECK_INT(answer.sequence, 8);
    CHECK_INT(answer.socket.inode, second->inode);
    CHECK_INT(target_file_converse(fd, NULL, 0, room, sizeof room), 0);
}

TEST(this_kernel_tells_of_a_connection)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
                       own = {0};
    socklen_t len = sizeof address;
    int fd = sock_diag_open(NULL), listener = socket(AF_INET, SOCK_STREAM, 0),
        client = socket(AF_INET, SOCK_STREAM, 0);
    struct sock_diag_socket sender = {0}, receiver = {0};
    char data[1000] = {0};
    if (fd < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) ||
            listen(listener, 1) || getsockname(listener, (struct sockaddr *)&address, &len) ||
            connect(client, (struct sockaddr *)&address, sizeof address))
        runner_skip("no connection to ourselves, or no NETLINK_SOCK_DIAG");
    int server = accept(listener, NULL, NULL);
    len = sizeof own;
    CHECK_INT(getsockname(client, (struct sockaddr *)&own, &len), 0);
    CHECK_INT(send(client, data, sizeof data, 0), sizeof data);
    if (!find(fd, ntohs(own.sin_port), &sender) || !find(fd, ntohs(address.sin_port), &receiver))
        runner_skip("this kernel has no tcp_diag");
    CHECK(sender.inode && receiver.inode && sender.inode != receiver.inode);
    sender = ask(fd, &sender);
    receiver = ask(fd, &receiver);
    check_order(fd, &sender, &receiver);
    CHECK(sender.has_counters && receiver.has_counters);
    CHECK_INT(sender.written, sizeof data);
    CHECK_INT(receiver.received, sizeof data);
    CHECK_INT(receiver.unread, sizeof data);
    CHECK_INT(receiver.written, 0);
    CHECK_INT(recv(server, data, sizeof data, 0), sizeof data);
    CHECK_INT(ask(fd, &receiver).unread, 0);
    close(server);
    close(client);
    close(listener);
    close(fd);
}
