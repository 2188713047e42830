// SPDX-License-Identifier: Apache-2.0
// What a late rank did, in words. Pure.
#include <ctype.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/causes/cause_text.h"

// "reads wait for the disk", "python's garbage collector runs, in collect (ddp.py)": the title of
// the cause within a sentence.
static char *deed_cause(const struct stall_deed *deed)
{
    const struct stall_cause *cause = stall_cause_of(deed->cause);
    const char *function = deed->function;
    char *text = xasprintf("%s%s%s", cause ? cause->title : deed->cause, function ? ", in " : "",
            function ? function : "");
    if (islower((unsigned char)text[1]) || text[1] == ' ')
        text[0] = (char)tolower((unsigned char)text[0]);
    return text;
}

static char *deed_link(const struct stall_deed *deed)
{
    char *peer = deed->peer_rank >= 0 ? xasprintf("rank %d", (int)deed->peer_rank)
                                      : xasprintf("process %d", (int)deed->peer_pid);
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
