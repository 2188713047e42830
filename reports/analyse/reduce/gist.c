// SPDX-License-Identifier: Apache-2.0
// A rank's window: put together, added, as bytes.
#include "reports/analyse/reduce/gist.h"

#include <string.h>

static size_t gist_bytes_max(size_t what)
{
    return what == GIST_STEP          ? GIST_STEP_BYTES
            : what <= GIST_WAIT_OTHER ? GIST_WAIT_BYTES
                                      : GIST_KERNEL_BYTES;
}

const char *gist_name(enum gist_spread what)
{
    static const char *const names[GIST_SPREAD_COUNT] = {"step", "wait_ranks", "wait_other",
            "matrix", "attention", "convolution", "reduction", "pointwise", "collective", "other",
            "copy"};
    return names[what];
}

// The first word that a name has decides: a kernel of attention is made of products of matrices,
// and has their words too.
enum gist_spread gist_kernel(const char *name)
{
    static const struct {
        const char *word;
        enum gist_spread what;
    } words[] = {{"nccl", GIST_KERNEL_COLLECTIVE}, {"AllReduce", GIST_KERNEL_COLLECTIVE},
            {"all_reduce", GIST_KERNEL_COLLECTIVE}, {"flash", GIST_KERNEL_ATTENTION},
            {"fmha", GIST_KERNEL_ATTENTION}, {"attention", GIST_KERNEL_ATTENTION},
            {"convol", GIST_KERNEL_CONVOLUTION}, {"conv2d", GIST_KERNEL_CONVOLUTION},
            {"conv3d", GIST_KERNEL_CONVOLUTION}, {"wgrad", GIST_KERNEL_CONVOLUTION},
            {"dgrad", GIST_KERNEL_CONVOLUTION}, {"fprop", GIST_KERNEL_CONVOLUTION},
            {"winograd", GIST_KERNEL_CONVOLUTION}, {"gemm", GIST_KERNEL_MATRIX},
            {"gemv", GIST_KERNEL_MATRIX}, {"nvjet", GIST_KERNEL_MATRIX},
            {"splitK", GIST_KERNEL_MATRIX}, {"cutlass", GIST_KERNEL_MATRIX},
            {"softmax", GIST_KERNEL_REDUCTION}, {"SoftMax", GIST_KERNEL_REDUCTION},
            {"norm", GIST_KERNEL_REDUCTION}, {"Norm", GIST_KERNEL_REDUCTION},
            {"reduce", GIST_KERNEL_REDUCTION}, {"elementwise", GIST_KERNEL_POINTWISE},
            {"pointwise", GIST_KERNEL_POINTWISE}, {"triton_poi", GIST_KERNEL_POINTWISE},
            {"triton_red", GIST_KERNEL_REDUCTION}, {"triton_per", GIST_KERNEL_REDUCTION},
            {"multi_tensor_apply", GIST_KERNEL_POINTWISE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i].word))
            return words[i].what;
    return GIST_KERNEL_OTHER;
}

void gist_put(struct gist *gist, enum gist_spread what, uint64_t ns)
{
    spread_put(&gist->spreads[what], ns, gist_bytes_max(what));
}

static void gist_phase_add(struct gist_phase *sum, const struct gist_phase *more)
{
    sum->count = spread_sum(sum->count, more->count);
    sum->ns = spread_sum(sum->ns, more->ns);
}

static void gist_add_phase(struct gist *gist, const struct gist_phase *more)
{
    size_t at = 0;
    while (at < gist->phase_count && strcmp(gist->phases[at].name, more->name) < 0)
        at++;
    if (at < gist->phase_count && strcmp(gist->phases[at].name, more->name) == 0) {
        gist_phase_add(&gist->phases[at], more);
        return;
    }
    if (at == GIST_PHASES_MAX) {
        gist_phase_add(&gist->others, more);
        return;
    }
    if (gist->phase_count == GIST_PHASES_MAX) // the last one goes
        gist_phase_add(&gist->others, &gist->phases[--gist->phase_count]);
    memmove(&gist->phases[at + 1], &gist->phases[at],
            (gist->phase_count - at) * sizeof *gist->phases);
    gist->phases[at] = *more;
    gist->phase_count++;
}

void gist_put_phase(struct gist *gist, const char *name, uint64_t ns)
{
    struct gist_phase one = {.count = 1, .ns = ns};
    if (!*name)
        name = "?";
    memcpy(one.name, name, strnlen(name, GIST_NAME_MAX));
    gist_add_phase(gist, &one);
}

void gist_add(struct gist *sum, const struct gist *more)
{
    for (size_t i = 0; i < GIST_SPREAD_COUNT; i++)
        if (more->spreads[i].bin_count)
            spread_add(&sum->spreads[i], &more->spreads[i], gist_bytes_max(i));
    for (size_t i = 0; i < more->phase_count; i++)
        gist_add_phase(sum, &more->phases[i]);
    gist_phase_add(&sum->others, &more->others);
}

// ---- bytes: spreads that are not empty, each behind its number; phases; the others, where there
// is no room for more ----

size_t gist_encode(const struct gist *gist, uint8_t ret[GIST_BYTES_MAX])
{
    uint8_t *at = ret;
    uint64_t spreads = 0;
    for (size_t i = 0; i < GIST_SPREAD_COUNT; i++)
        spreads += gist->spreads[i].bin_count > 0;
    at += varint_put(at, spreads);
    for (size_t i = 0; i < GIST_SPREAD_COUNT; i++) {
        if (!gist->spreads[i].bin_count)
            continue;
        at += varint_put(at, i);
        at += spread_encode(&gist->spreads[i], at);
    }
    at += varint_put(at, gist->phase_count);
    for (size_t i = 0; i < gist->phase_count; i++) {
        size_t len = strlen(gist->phases[i].name);
        at += varint_put(at, len);
        memcpy(at, gist->phases[i].name, len);
        at += len;
        at += varint_put(at, gist->phases[i].count);
        at += varint_put(at, gist->phases[i].ns);
    }
    if (gist->phase_count == GIST_PHASES_MAX) {
        at += varint_put(at, gist->others.count);
        at += varint_put(at, gist->others.ns);
    }
    return (size_t)(at - ret);
}

static void gist_decode_phase(struct varints *bytes, const char *before, struct gist_phase *ret)
{
    uint64_t len = varint_get(bytes);
    const uint8_t *name = len >= 1 && len <= GIST_NAME_MAX ? varint_take(bytes, (size_t)len) : NULL;
    if (!name || memchr(name, 0, (size_t)len)) {
        bytes->bad = true;
        return;
    }
    memcpy(ret->name, name, (size_t)len);
    ret->count = varint_get(bytes);
    ret->ns = varint_get(bytes);
    bytes->bad |= !ret->count || strcmp(before, ret->name) >= 0;
}

bool gist_decode(const uint8_t *from, size_t size, struct gist *ret)
{
    struct varints bytes = {.at = from, .end = from + size};
    *ret = (struct gist){0};
    uint64_t spreads = varint_get(&bytes), next = 0;
    for (uint64_t i = 0; i < spreads && !bytes.bad; i++) {
        uint64_t what = varint_get(&bytes);
        if (what < next || what >= GIST_SPREAD_COUNT)
            return false;
        spread_decode(&bytes, gist_bytes_max((size_t)what), &ret->spreads[what]);
        next = what + 1;
    }
    uint64_t phases = varint_get(&bytes);
    if (phases > GIST_PHASES_MAX)
        return false;
    for (; ret->phase_count < phases && !bytes.bad; ret->phase_count++)
        gist_decode_phase(&bytes, ret->phase_count ? ret->phases[ret->phase_count - 1].name : "",
                &ret->phases[ret->phase_count]);
    if (phases == GIST_PHASES_MAX) {
        ret->others.count = varint_get(&bytes);
        ret->others.ns = varint_get(&bytes);
        bytes.bad |= !ret->others.count && ret->others.ns;
    }
    return !bytes.bad && bytes.at == bytes.end;
}
