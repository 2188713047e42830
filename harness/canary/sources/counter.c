// SPDX-License-Identifier: Apache-2.0
// Counters between two looks.
#include "harness/canary/sources/counter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/hash.h"
#include "common/containers/map.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"

#define COUNTER_SPARE 2                      // times what was seen
#define COUNTER_EXACT_MAX 9007199254740992.0 // 2^53: beyond, a counter cannot count by one

static uint64_t counter_key(const char *labels)
{
    return hash_bytes(0, labels, strlen(labels));
}

static struct counter_series *counter_find(struct counter *counter, const char *labels, int hint)
{
    if (hint < counter->count && strcmp(counter->series[hint].labels, labels) == 0)
        return &counter->series[hint]; // answers mostly come in one order
    size_t at = 0;
    uint64_t key = counter_key(labels);
    for (uint32_t i = map_first(&counter->by_labels, key, &at); i != MAP_NONE;
            i = map_next(&counter->by_labels, key, &at))
        if (strcmp(counter->series[i].labels, labels) == 0)
            return &counter->series[i];
    return NULL;
}

// Of two replicas one has scraped later. rate() takes each fall for a beginning, and all that was
// ever counted for new: so a fall to more than twice what the series has ever grown by in that
// time, and by no more than two looks, or a hundredth, is none. What may be either began anew:
// events that come twice are the smaller evil, and are no more than twice what that time has ever
// brought.
static bool counter_is_behind(const struct counter_series *series, double value, double at_s)
{
    double passed_s = at_s - series->at_s; // false for NaN: without a time nothing is known
    return passed_s > 0 && value > COUNTER_SPARE * series->fastest * passed_s &&
            series->counted - value <= fmax(COUNTER_SPARE * series->most, series->counted / 100);
}

static void counter_grow(struct counter_series *series, const struct prometheus_sample *sample,
        double at_s, struct counter_look *ret)
{
    double passed_s = at_s - series->at_s;
    bool fell = sample->value < series->counted;
    if (fell && sample->bare) {
        series->counted = sample->value;
        ret->fallen++;
        return;
    }
    if (fell && counter_is_behind(series, sample->value, at_s)) {
        ret->behind++;
        return;
    }
    if (fell)
        series->counted = 0; // its process began anew
    double grown = floor(sample->value - series->counted);
    series->grown = grown < COUNTER_EXACT_MAX ? (uint64_t)grown : 0;
    series->counted += grown;
    series->at_s = at_s;
    ret->grown += series->grown;
    if (fell || !(passed_s > 0))
        return;
    series->most = fmax(series->most, (double)series->grown);
    series->fastest = fmax(series->fastest, (double)series->grown / passed_s);
}

void counter_look(struct counter *counter, const struct prometheus_answer *answer, bool from_zero,
        struct counter_look *ret)
{
    *ret = (struct counter_look){0};
    for (int i = 0; i < counter->count; i++)
        counter->series[i].grown = 0;
    for (int i = 0; i < answer->count; i++) {
        const struct prometheus_sample *sample = &answer->samples[i];
        struct counter_series *series = counter_find(counter, sample->labels, i);
        bool zero = counter->looked && from_zero;
        if (!series) {
            if (counter->count == PROMETHEUS_SAMPLES_MAX) {
                ret->full = true;
                continue;
            }
            ret->began |= counter->looked;
            map_add(&counter->by_labels, counter_key(sample->labels), (uint32_t)counter->count);
            vector_push(counter->series, counter->count,
                    (struct counter_series){.labels = xstrdup(sample->labels),
                            .le = sample->le,
                            .counted = zero ? 0 : sample->value,
                            .at_s = answer->at_s});
            series = &counter->series[counter->count - 1];
        }
        counter_grow(series, sample, answer->at_s, ret);
    }
    counter->looked = true;
}

void counter_free(struct counter *counter)
{
    for (int i = 0; i < counter->count; i++)
        free(counter->series[i].labels);
    free(counter->series);
    map_free(&counter->by_labels);
    *counter = (struct counter){0};
}

struct counter_bucket {
    double le;
    uint64_t grown; // of all series with this border; cumulative, as Prometheus has it
};

static double counter_middle(double low, double high)
{
    if (high <= 0)
        return 0;
    if (isinf(high))
        return low > 0 ? low * 1.02 : 1; // the next bin: nothing but the lower border is known
    return low > 0 ? sqrt(low * high) : high / 2;
}

void counter_bins(const struct counter *counter, uint32_t bins[CANARY_BINS])
{
    struct counter_bucket *buckets = xcalloc((size_t)counter->count, sizeof *buckets);
    int count = 0;
    for (int i = 0; i < counter->count; i++)
        if (!isnan(counter->series[i].le))
            buckets[count++] =
                    (struct counter_bucket){counter->series[i].le, counter->series[i].grown};
    sort_in_place(buckets, (size_t)count, x, y, x->le < y->le);
    double low = 0;
    uint64_t below = 0, here = 0;
    for (int i = 0; i < count; i++) {
        here += buckets[i].grown;
        if (i + 1 < count && buckets[i + 1].le == buckets[i].le)
            continue;
        uint64_t inside = here > below ? here - below : 0;
        uint32_t *bin = &bins[canary_bin(counter_middle(low, buckets[i].le))];
        *bin += inside < UINT32_MAX - *bin ? (uint32_t)inside : UINT32_MAX - *bin;
        low = buckets[i].le;
        below = here > below ? here : below;
        here = 0;
    }
    free(buckets);
}
