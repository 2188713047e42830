// SPDX-License-Identifier: Apache-2.0
// Each process is asked once: the way up ends at the first one that is known already, and all on
// the way get its answer.
#include "bpf/descendants.h"

#include <stdint.h>
#include <stdlib.h>

#include "common/containers/map.h"
#include "common/strings.h"

enum place { PLACE_UNKNOWN, PLACE_ASKED, PLACE_BELOW, PLACE_ELSEWHERE };

struct tree {
    const struct descendant *all;
    struct map by_pid; // to indices
    uint8_t *places;   // enum place
};

// MAP_NONE: not in the list.
static uint32_t tree_parent(const struct tree *tree, uint32_t at)
{
    return map_get(&tree->by_pid, (uint64_t)(uint32_t)tree->all[at].parent);
}

static void tree_ask(struct tree *tree, uint32_t from)
{
    uint32_t at = from;
    while (at != MAP_NONE && tree->places[at] == PLACE_UNKNOWN) {
        tree->places[at] = PLACE_ASKED;
        at = tree_parent(tree, at);
    }
    // One that is still ASKED closes a circle, in which nobody is below anybody.
    enum place answer =
            at != MAP_NONE && tree->places[at] == PLACE_BELOW ? PLACE_BELOW : PLACE_ELSEWHERE;
    for (at = from; at != MAP_NONE && tree->places[at] == PLACE_ASKED; at = tree_parent(tree, at))
        tree->places[at] = (uint8_t)answer;
}

void descendants_mark(struct descendant *all, size_t count, pid_t root, pid_t without)
{
    struct tree tree = {.all = all, .places = xcalloc(count + 1, sizeof *tree.places)};
    for (uint32_t i = 0; i < count; i++) {
        *map_put(&tree.by_pid, (uint64_t)(uint32_t)all[i].pid) = i;
        tree.places[i] = all[i].pid == without ? PLACE_ELSEWHERE
                : all[i].pid == root           ? PLACE_BELOW
                                               : PLACE_UNKNOWN;
    }
    for (uint32_t i = 0; i < count; i++) {
        tree_ask(&tree, i);
        all[i].below = tree.places[i] == PLACE_BELOW;
    }
    map_free(&tree.by_pid);
    free(tree.places);
}
