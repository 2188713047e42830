// SPDX-License-Identifier: Apache-2.0
// The processes are not trusted: what they say is cut and made harmless.
#include "harness/steps/unseen.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "contracts/step_range.h"

enum { UNSEEN_NAMES = 3, UNSEEN_SHOWN_MAX = 80 };

static void add_text(struct strbuf *words, const char *text)
{
    char *plain = xasprintf("%.*s", UNSEEN_SHOWN_MAX, text);
    string_make_plain(plain, strlen(plain));
    for (char *at = plain; *at; at++)
        if (*at == '\n')
            *at = '?';
    strbuf_add(words, "%s", plain);
    free(plain);
}

static void add_why(struct strbuf *words, const struct ug_step_looks *looks)
{
    for (uint32_t i = 0; i < UG_STEP_NEAR_MAX; i++)
        if (looks->near[i].state == UG_NEAR_WHY) {
            strbuf_add(words, ": ");
            add_text(words, looks->near[i].text);
            return;
        }
}

static bool said_before(
        const struct ug_step_looks *looks, const uint32_t *said, unsigned count, uint32_t entry)
{
    for (unsigned i = 0; i < count; i++)
        if (said[i] == entry || strcmp(looks->near[said[i]].text, looks->near[entry].text) == 0)
            return true;
    return false;
}

// The nearest ones, of several processes each once.
static void add_near(struct strbuf *words, const struct ug_step_looks *looks)
{
    uint32_t said[UNSEEN_NAMES];
    for (unsigned count = 0; count < UNSEEN_NAMES; count++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < UG_STEP_NEAR_MAX; i++)
            if (looks->near[i].state == UG_NEAR_NAME && !said_before(looks, said, count, i) &&
                    (best == UINT32_MAX || looks->near[i].distance < looks->near[best].distance))
                best = i;
        if (best == UINT32_MAX)
            return;
        said[count] = best;
        strbuf_add(words, count ? ", " : "; near: ");
        add_text(words, looks->near[best].text);
    }
}

char *unseen_why(const struct reader *reader, const char *step)
{
    struct ug_step_looks looks;
    struct strbuf words = {0};
    bool is_range = strncmp(step, UG_RANGE_RULE, strlen(UG_RANGE_RULE)) == 0;
    reader_looks(reader, &looks);
    if (!is_range && !looks.processes) {
        strbuf_add(&words, "no CUDA graph was replayed: no process of it uses CUDA");
    } else if (!is_range) {
        strbuf_add(&words, "no CUDA graph was replayed");
        add_why(&words, &looks);
    } else {
        strbuf_add(&words, "no range '");
        add_text(&words, step + strlen(UG_RANGE_RULE));
        if (!looks.processes)
            strbuf_add(&words, "': no process of it has called NVTX");
        else if (!looks.seen)
            strbuf_add(&words, "': none was begun");
        else
            strbuf_add(&words, "' among the %u that %s seen", looks.seen,
                    looks.seen == 1 ? "was" : "were");
        add_near(&words, &looks);
    }
    return strbuf_take(&words);
}
