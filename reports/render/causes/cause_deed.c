// SPDX-License-Identifier: Apache-2.0
// Who is late, and what it did, in words. Pure.
#include <ctype.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/causes/cause_text.h"

char *cause_text_title(const char *title)
{
    char *text = xstrdup(title);
    if (*text && (islower((unsigned char)text[1]) || text[1] == ' '))
        text[0] = (char)tolower((unsigned char)text[0]);
    return text;
}

char *cause_text_rank(int32_t rank, int32_t pid)
{
    return rank >= 0 ? xasprintf("rank %d", (int)rank) : xasprintf("process %d", (int)pid);
}

// "python's garbage collector runs, in collect (ddp.py)"
static char *deed_cause(const struct stall_deed *deed)
{
    const struct stall_cause *cause = stall_cause_of(deed->cause);
    const char *function = deed->function;
    char *title = cause_text_title(cause ? cause->title : deed->cause),
         *text = xasprintf("%s%s%s", title, function ? ", in " : "", function ? function : "");
    free(title);
    return text;
}

static char *deed_link(const struct stall_deed *deed)
{
    char *peer = cause_text_rank(deed->peer_rank, deed->peer_pid);
    char *text = deed->kind == STALL_DEED_RECEIVES
            ? xasprintf("messages from %s to it come late, by the network or its connection", peer)
            : xasprintf("its messages to %s come late, by the network or its connection", peer);
    free(peer);
    return text;
}

char *cause_text_deed(const struct stall_deed *deed)
{
    switch (deed->kind) {
    case STALL_DEED_CAUSE:
        return deed_cause(deed);
    case STALL_DEED_COMPUTES:
        return xasprintf("computing in %s", deed->function);
    case STALL_DEED_WAITS:
        return xasprintf("waiting in %s", deed->function);
    case STALL_DEED_SLEEPS:
        return xasprintf("sleeping in %s", deed->function);
    case STALL_DEED_KERNEL:
        return xasprintf("%s, which takes its GPU longer", deed->function);
    case STALL_DEED_KERNELS:
        return xasprintf("all kernels, which take its GPU %.0f %% longer (a slower clock?)",
                100 * deed->more_share);
    case STALL_DEED_MESSAGES:
        return xstrdup("its messages come late, by the network or its connection");
    case STALL_DEED_SENDS:
    case STALL_DEED_RECEIVES:
        return deed_link(deed);
    default:
        return NULL;
    }
}
