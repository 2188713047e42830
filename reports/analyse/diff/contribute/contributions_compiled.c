// SPDX-License-Identifier: Apache-2.0
// Compiled code that one side has lost: torch.compile made code of the phases of a step there, and
// on the other side the framework runs them operator by operator. Its kernels, launches and Python
// are no longer those of the other side, one by one, so all of these phases is one line; and where
// a mode that sees every operator runs there alone, as a counter of operations does, it is named.
// Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/contribute/code_parts.h"
#include "reports/analyse/diff/diff_input.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

enum { COMPILED_PHASES_MAX = 8 };

struct compiled {
    const struct code *code;
    int side;               // that has the compiled code
    struct compiled_phase { // samples; of them in compiled code
        const char *name;   // NULL: no phase
        double all, compiled;
    } phases[COMPILED_PHASES_MAX];
    size_t phase_count;
};

static bool function_is_compiled(const struct code *code, uint32_t function)
{
    return function != COST_NONE && code->functions[function].module &&
            strcmp(code->functions[function].module, HOST_COMPILED) == 0;
}

// Samples of the compiled function that has most of them.
static double compiled_ticks(const struct code *code, int side)
{
    double most = 0;
    for (uint32_t i = 0; i < code->function_count; i++)
        if (function_is_compiled(code, i))
            most = fmax(most, code->functions[i].ticks[side] + code->functions[i].elsewhere[side]);
    return most;
}

// The phase that a node stands in; a program without phases has one without a name.
static struct compiled_phase *phase_of(struct compiled *compiled, uint32_t node)
{
    const char *name = code_phase(compiled->code, compiled->side, node);
    size_t i = 0;
    for (; i < compiled->phase_count; i++) {
        const char *known = compiled->phases[i].name;
        if (known == name || (known && name && strcmp(known, name) == 0))
            return &compiled->phases[i];
    }
    if (i == COMPILED_PHASES_MAX)
        return NULL;
    compiled->phases[compiled->phase_count++].name = name;
    return &compiled->phases[i];
}

// Is a node of the side's tree, or what it stands in, a function that was compiled?
static bool node_is_compiled(const struct compiled *compiled, uint32_t node)
{
    const struct cost_tree *tree = compiled->code->all->compared->trees[compiled->side];
    for (; node != COST_NONE && node != 0; node = tree->nodes[node].parent)
        if (function_is_compiled(compiled->code, compiled->code->function_of[compiled->side][node]))
            return true;
    return false;
}

// The phases of which compiled code is most, in the order of the tree: of the samples on the host's
// path, and of those on the way to launches.
static void phases_make(struct compiled *compiled)
{
    const struct code *code = compiled->code;
    const struct cost_tree *tree = code->all->compared->trees[compiled->side];
    for (uint32_t i = 1; i < tree->node_count; i++) {
        double ticks = tree->nodes[i].kind == COST_FUNCTION ? (double)tree->nodes[i].count : 0;
        struct compiled_phase *phase = ticks > 0 ? phase_of(compiled, i) : NULL;
        if (!phase)
            continue;
        phase->all += ticks;
        phase->compiled += node_is_compiled(compiled, i) ? ticks : 0;
    }
    bool counted = false;
    for (size_t i = 0; i < tree->caller_count; i++) {
        struct compiled_phase *phase = phase_of(compiled, tree->callers[i].node);
        counted = tree->callers[i].depth ? counted : false; // another sample
        if (!phase)
            continue;
        phase->all += tree->callers[i].depth == 0;
        if (!counted && function_is_compiled(code, code->callers[compiled->side][i])) {
            phase->compiled++;
            counted = true;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < compiled->phase_count; i++) {
        const struct compiled_phase *phase = &compiled->phases[i];
        bool own = phase->name || compiled->phase_count == 1;
        if (own && phase->compiled >= DIFF_TICKS_MIN && phase->compiled >= code_below * phase->all)
            compiled->phases[kept++] = *phase;
    }
    compiled->phase_count = kept;
}

// A group that only one side has is asked on that side.
static bool group_is_compiled(const struct compiled *compiled, uint32_t group)
{
    const struct align_group *of = compiled->code->all->groups[group].group;
    int side = (compiled->side ? of->count_b : of->count_a) ? compiled->side : !compiled->side;
    if (compiled->code->all->groups[group].kind == DIFF_DATA_WAIT)
        return false;
    for (size_t i = 0; i < compiled->phase_count; i++)
        if (!compiled->phases[i].name ||
                code_in_phase(compiled->code, side, group, compiled->phases[i].name))
            return true;
    return false;
}

// What sees every operator on the other side alone: "_FlopCounterMode.__torch_dispatch__"; NULL.
static const char *compiled_mode(const struct compiled *compiled)
{
    static const char *const ends[] = {"__torch_dispatch__", "__torch_function__"};
    const struct code *code = compiled->code;
    const struct code_function *found = NULL;
    for (size_t i = 0; i < code->function_count; i++) {
        const struct code_function *of = &code->functions[i];
        double own = of->ticks[!compiled->side];
        bool mode = false;
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            const char *at = strstr(of->name, ends[k]);
            mode = mode || (at && strlen(at) == strlen(ends[k]));
        }
        if (mode && own >= DIFF_TICKS_MIN &&
                code_other(code, !compiled->side, (uint32_t)i) <= code_elsewhere * own &&
                (!found || own > found->ticks[!compiled->side]))
            found = of;
    }
    return found ? found->name : NULL;
}

// "forward and backward, under _FlopCounterMode.__torch_dispatch__"
static const char *compiled_label(const struct compiled *compiled)
{
    struct strbuf text = {0};
    for (size_t i = 0; i < compiled->phase_count; i++)
        strbuf_add(&text, "%s%s",
                !i                                      ? ""
                        : i + 1 < compiled->phase_count ? ", "
                                                        : " and ",
                compiled->phases[i].name ? compiled->phases[i].name : "the step");
    const char *mode = compiled_mode(compiled);
    if (mode) {
        char name[NAMES_LENGTH_MAX] = "";
        names_label(mode, name, sizeof name, CONTRIBUTIONS_LABEL_MAX);
        strbuf_add(&text, ", under %s", name);
    }
    return diff_text(compiled->code->all->compared->arena, &text);
}

// What the untraced steps differ by for certain, less all that else differs in a traced one; the
// rest of a step is the same code on both sides. 0: that is not known.
static double compiled_certain(const struct contributions *all, const struct diff_estimate *of)
{
    const struct diff_untraced *untraced = all->compared->untraced;
    double sign = copysign(1, of->delta), rest = fabs(untraced->delta - of->delta),
           own = diff_units_half_own(all->prior, of) - of->step_half,
           least = sign > 0 ? untraced->lo : -untraced->hi;
    bool most = rest <= (1 - diff_most) * fabs(untraced->delta);
    return most && least - rest - own > 0 ? least - rest - own : 0;
}

// One question, which is asked where samples show compiled code on one side alone, and so never of
// equal sides: what the launches spread by is its own, not that of parts. A step that a counter of
// operations made twice as long was off by 0.2 ms of 42 from launch to launch, and by 10 % as its
// parts were (gpu-dispatch-mode). Where tracing slows the sides unlike, the untraced steps tell
// (torch-eager: +2.3 ms of 2.5, +-4.1 ms).
static bool compiled_told(
        const struct contributions *all, struct contributions_whole *whole, double busy)
{
    whole->half = diff_units_half_own(all->prior, &whole->estimate);
    if (contributions_told(all->compared, &whole->estimate, whole->half, busy))
        return true;
    double certain = compiled_certain(all, &whole->estimate);
    whole->nearest = copysign(certain, whole->estimate.delta);
    return certain >= contributions_floor_ns(all->compared->untraced) &&
            contributions_told(
                    all->compared, &whole->estimate, fabs(whole->estimate.delta) - certain, busy);
}

void code_compiled(struct code *code)
{
    struct contributions *all = code->all;
    double ticks[2] = {compiled_ticks(code, 0), compiled_ticks(code, 1)};
    struct compiled compiled = {.code = code, .side = ticks[1] > ticks[0]};
    if (ticks[compiled.side] < DIFF_TICKS_MIN ||
            ticks[!compiled.side] > code_elsewhere * ticks[compiled.side])
        return;
    phases_make(&compiled);
    uint32_t *groups = NULL;
    size_t count = 0;
    double busy = 0;
    for (uint32_t g = 0; g < all->group_count; g++) {
        if (code->owner[g] != COST_NONE || !group_is_compiled(&compiled, g))
            continue;
        vector_push(groups, count, g);
        busy += all->groups[g].busy_b - all->groups[g].busy_a;
    }
    struct contributions_whole whole = {
            .kind = compiled.side ? DIFF_CODE_COMPILED : DIFF_CODE_UNCOMPILED};
    code->asked++;
    if (count)
        contributions_estimate_groups(all, groups, count, &whole.estimate);
    if (count && compiled_told(all, &whole, busy)) {
        whole.label = compiled_label(&compiled);
        for (size_t i = 0; i < count; i++)
            code->owner[groups[i]] = (uint32_t)code->whole_count;
        vector_push(code->wholes, code->whole_count, whole);
    }
    free(groups);
}
