// SPDX-License-Identifier: Apache-2.0
// Sentences about the collectives of both sides, the same in the table and in Markdown. Pure; the
// caller frees what is returned.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/text/numbers.h"

// "704 -> 631 us", "704 us -> 1.2 ms"; a side that has none is "nothing".
static char *collectives_times(double a, double b)
{
    return diff_text_join(a > 0 ? numbers_ns(a, NUMBERS_BUFFER) : "nothing", " -> ",
            b > 0 ? numbers_ns(b, NUMBERS_BUFFER) : "nothing");
}

// "704 -> 631 us of it exposed"
static char *collectives_exposed(double a, double b)
{
    if (!(a > 0) && !(b > 0))
        return xstrdup("none of it exposed");
    char *times = collectives_times(a, b), *text = xasprintf("%s of it exposed", times);
    free(times);
    return text;
}

static const char *collectives_how(const struct diff_collective *collective, int side)
{
    const char *how = collective->how[side];
    return how && *how ? how : NULL;
}

static bool collectives_alike(const struct diff_collective *collective)
{
    const char *a = collectives_how(collective, 0), *b = collectives_how(collective, 1);
    return a && b && strcmp(a, b) == 0;
}

static void collectives_change(struct strbuf *text, const char *a, const char *b)
{
    if (a && b && strcmp(a, b) == 0)
        strbuf_add(text, "%s", a);
    else
        strbuf_add(text, "%s -> %s", a ? a : "none", b ? b : "none");
}

static double collectives_number(double value)
{
    return isfinite(value) ? value : 0;
}

char *diff_text_collectives(const struct diff_workload *workload)
{
    double busy[2] = {0}, exposed[2] = {0};
    bool alike = true, told = true;
    if (!workload->collective_count)
        return NULL;
    for (size_t i = 0; i < workload->collective_count; i++) {
        const struct diff_collective *one = &workload->collectives[i];
        for (int side = 0; side < 2; side++) {
            busy[side] += collectives_number(one->busy_ns[side]);
            exposed[side] += collectives_number(one->exposed_ns[side]);
        }
        told = told && (collectives_how(one, 0) || collectives_how(one, 1));
        alike = alike && collectives_alike(one);
    }
    const char *const *version = workload->nccl_version;
    struct strbuf text = {0};
    if (version[0] || version[1]) {
        strbuf_add(&text, "NCCL ");
        collectives_change(&text, version[0], version[1]);
        strbuf_add(&text, ": ");
    }
    char *of_all = collectives_times(busy[0], busy[1]),
         *of_exposed = collectives_exposed(exposed[0], exposed[1]);
    strbuf_add(&text, "%s a %s, %s%s", of_all, workload->unit, of_exposed,
            !told           ? ""
                    : alike ? "; the same algorithms and protocols"
                            : "; other algorithms or protocols");
    free(of_all);
    free(of_exposed);
    return strbuf_take(&text);
}

char *diff_text_collective(
        const struct diff_workload *workload, const struct diff_collective *collective)
{
    struct strbuf text = {0};
    strbuf_add(
            &text, "%s%s%s: ", collective->name, *collective->size ? ", " : "", collective->size);
    const char *a = collectives_how(collective, 0), *b = collectives_how(collective, 1);
    if (a || b) {
        collectives_change(&text, a, b);
        strbuf_add(&text, "; ");
    }
    double count[2] = {
            collectives_number(collective->count[0]), collectives_number(collective->count[1])};
    if (fabs(count[0] - count[1]) < 0.005 * fmax(count[0], count[1]))
        strbuf_add(&text, "%.3g a %s; ", count[0], workload->unit);
    else
        strbuf_add(&text, "%.3g -> %.3g a %s; ", count[0], count[1], workload->unit);
    char *busy = collectives_times(collective->busy_ns[0], collective->busy_ns[1]),
         *exposed = collectives_exposed(collective->exposed_ns[0], collective->exposed_ns[1]);
    strbuf_add(&text, "%s, %s", busy, exposed);
    free(busy);
    free(exposed);
    return strbuf_take(&text);
}
