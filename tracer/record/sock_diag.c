// SPDX-License-Identifier: Apache-2.0
// Messages of NETLINK_SOCK_DIAG.
#include "tracer/record/sock_diag.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

// TCP_ESTABLISHED, whose header defines struct tcp_info once more
enum { SOCK_DIAG_ESTABLISHED = 1 };

struct sock_diag_question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};
_Static_assert(sizeof(struct sock_diag_question) == SOCK_DIAG_QUESTION_BYTES,
        "questions stand side by side");

static void sock_diag_ask(
        void *at, struct sock_diag_question question, uint16_t flags, uint32_t sequence)
{
    question.head = (struct nlmsghdr){.nlmsg_len = sizeof question,
            .nlmsg_type = SOCK_DIAG_BY_FAMILY,
            .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
            .nlmsg_seq = sequence};
    question.body.sdiag_protocol = IPPROTO_TCP;
    question.body.idiag_states = 1u << SOCK_DIAG_ESTABLISHED;
    memcpy(at, &question, sizeof question);
}

void sock_diag_ask_all(void *question, uint8_t family, uint32_t sequence)
{
    sock_diag_ask(question, (struct sock_diag_question){.body.sdiag_family = family}, NLM_F_DUMP,
            sequence);
}

void sock_diag_ask_one(void *question, const struct sock_diag_socket *socket, uint32_t sequence)
{
    struct sock_diag_question one = {.body.sdiag_family = socket->family,
            .body.idiag_ext = 1u << (INET_DIAG_INFO - 1),
            .body.id = socket->id};
    sock_diag_ask(question, one, 0, sequence);
}

static size_t sock_diag_aligned(size_t len)
{
    return (len + 3) & ~(size_t)3;
}

// A kernel older or newer than the headers gives less or more of the structure.
static void sock_diag_counters(const char *bytes, size_t len, struct sock_diag_socket *ret)
{
    struct tcp_info info = {0};
    if (len < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans)
        return;
    memcpy(&info, bytes, len < sizeof info ? len : sizeof info);
    ret->has_counters = true;
    ret->written = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
    ret->received = info.tcpi_bytes_received;
    ret->retransmits = info.tcpi_total_retrans;
}

static bool sock_diag_socket(const char *body, size_t len, struct sock_diag_socket *ret)
{
    struct inet_diag_msg message;
    struct nlattr attribute;
    if (len < sizeof message)
        return false;
    memcpy(&message, body, sizeof message);
    *ret = (struct sock_diag_socket){.id = message.id,
            .family = message.idiag_family,
            .inode = message.idiag_inode,
            .unread = message.idiag_rqueue,
            .unacknowledged = message.idiag_wqueue};
    for (size_t at = sizeof message; at < len && len - at >= sizeof attribute;
            at += sock_diag_aligned(attribute.nla_len)) {
        memcpy(&attribute, body + at, sizeof attribute);
        if (attribute.nla_len < sizeof attribute || attribute.nla_len > len - at)
            break;
        if ((attribute.nla_type & NLA_TYPE_MASK) == INET_DIAG_INFO)
            sock_diag_counters(
                    body + at + sizeof attribute, attribute.nla_len - sizeof attribute, ret);
    }
    return true;
}

// False: a message that tells nothing, such as that a question came.
static bool sock_diag_answer(
        const struct nlmsghdr *head, const char *body, size_t len, struct sock_diag_answer *ret)
{
    int32_t code = 0;
    *ret = (struct sock_diag_answer){.sequence = head->nlmsg_seq};
    if (head->nlmsg_type == SOCK_DIAG_BY_FAMILY)
        return sock_diag_socket(body, len, &ret->socket);
    if (head->nlmsg_type != NLMSG_DONE && head->nlmsg_type != NLMSG_ERROR)
        return false;
    if (len >= sizeof code)
        memcpy(&code, body, sizeof code);
    else if (head->nlmsg_type == NLMSG_ERROR)
        code = -EBADMSG;
    ret->kind = code < 0 ? SOCK_DIAG_FAILED : SOCK_DIAG_DONE;
    ret->code = code < 0 ? code : 0;
    return code < 0 || head->nlmsg_type == NLMSG_DONE;
}

bool sock_diag_next(const void *bytes, size_t len, size_t *at, struct sock_diag_answer *ret)
{
    struct nlmsghdr head;
    while (*at < len && len - *at >= sizeof head) {
        const char *message = (const char *)bytes + *at;
        memcpy(&head, message, sizeof head);
        if (head.nlmsg_len < sizeof head || head.nlmsg_len > len - *at)
            return false;
        *at += sock_diag_aligned(head.nlmsg_len);
        if (sock_diag_answer(&head, message + sizeof head, head.nlmsg_len - sizeof head, ret))
            return true;
    }
    return false;
}
