// SPDX-License-Identifier: Apache-2.0
// What a late rank did, in words. It stands here, and not with the other sentences in
// reports/render/stalls, as reports/analyse/diff/recordings keeps the text.
#include <ctype.h>

#include "common/containers/arena.h"
#include "reports/analyse/stalls/stalls.h"

// "reads wait for the disk", "python's garbage collector runs": the title of the cause within a
// sentence.
static const char *deed_cause(const char *id, struct arena *arena)
{
    const struct stall_cause *cause = stall_cause_of(id);
    char *title = arena_copy(arena, cause ? cause->title : id);
    if (islower((unsigned char)title[1]) || title[1] == ' ')
        title[0] = (char)tolower((unsigned char)title[0]);
    return title;
}

static const char *deed_peer(const struct stall_deed *deed, struct arena *arena)
{
    return deed->peer_rank >= 0 ? arena_print(arena, "rank %d", (int)deed->peer_rank)
                                : arena_print(arena, "process %d", (int)deed->peer_pid);
}

const char *stall_deed_words(const struct stall_deed *deed, struct arena *arena)
{
    const char *function = deed->function;
    switch (deed->kind) {
    case STALL_DEED_CAUSE:
        return arena_print(arena, "%s%s%s", deed_cause(deed->cause, arena), function ? ", in " : "",
                function ? function : "");
    case STALL_DEED_COMPUTES:
        return arena_print(arena, "computing in %s", function);
    case STALL_DEED_WAITS:
        return arena_print(arena, "waiting in %s", function);
    case STALL_DEED_SLEEPS:
        return arena_print(arena, "sleeping in %s", function);
    case STALL_DEED_KERNEL:
        return arena_print(arena, "%s, which takes its GPU longer", function);
    case STALL_DEED_KERNELS:
        return arena_print(arena,
                "all kernels, which take its GPU %.0f %% longer (a slower clock?)",
                100 * deed->more_share);
    case STALL_DEED_MESSAGES:
        return "its messages come late, by the network or its connection";
    case STALL_DEED_SENDS:
        return arena_print(arena, "its messages to %s come late, by the network or its connection",
                deed_peer(deed, arena));
    case STALL_DEED_RECEIVES:
        return arena_print(arena,
                "messages from %s to it come late, by the network or its connection",
                deed_peer(deed, arena));
    default:
        return NULL;
    }
}
