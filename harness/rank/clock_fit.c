// SPDX-License-Identifier: Apache-2.0
// Bounds of many collectives into a line. The collectives are cut into pieces of equal numbers as
// they follow each other; of each piece one lower and one upper bound stay, and not the outermost:
// what was recorded with wrong times lies outside of the others. All lines between the bounds that
// stay are possible. Where they leave no line, as clocks do not run evenly, the one that misses
// them least is taken, and its error is that of the pieces.
#include "harness/rank/clock_fit.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"

enum {
    FIT_PIECES_MAX = 64,
    FIT_PIECE_MIN = 8, // collectives
    FIT_SPARE = 100,   // one of so many is left out at each side of a piece, and one besides
    FIT_SEARCH = 100,  // times an interval shrinks to two thirds
    FIT_SLOPES_MAX = FIT_PIECES_MAX * (FIT_PIECES_MAX - 1) / 2
};
static const double fit_drift_max = 5e-4;   // what the kernel lets a clock be steered by (adjtimex)
static const double fit_drift_piece = 2e-4; // twice what two clocks of 50 ppm differ by: bounds of
                                            // one piece are of different moments
static const double fit_error_max =
        3.6e12; // an hour; also keeps all sums of errors and maps in their range
static const double fit_shift_max = 0x1p57; // four years between the starts of two machines
static const double fit_drift_unseen =
        5e-5; // of a clock that runs unevenly, where there are no collectives

struct fit_point { // of one bound, from the origin
    double at, offset;
};

struct fit_lines { // the bounds that stay, from the rough line
    struct fit_point lows[FIT_PIECES_MAX], highs[FIT_PIECES_MAX];
    size_t count;
    double drift_min, drift_max;
};

struct fit_rough { // offset = at_origin + slope * at
    double at_origin, slope;
};

// --- maps ----------------------------------------------------------------------------------------

int64_t clock_map_apply(const struct clock_map *map, int64_t ns)
{
    return ns + map->shift_ns + llround(map->drift * (double)(ns - map->from_ns));
}

struct clock_map clock_map_inverse(const struct clock_map *map)
{
    return (struct clock_map){.shift_ns = -map->shift_ns,
            .from_ns = map->from_ns + map->shift_ns,
            .drift = -map->drift / (1 + map->drift)};
}

struct clock_map clock_map_compose(const struct clock_map *first, const struct clock_map *then)
{
    int64_t between = first->from_ns + first->shift_ns;
    return (struct clock_map){.shift_ns = clock_map_apply(then, between) - first->from_ns,
            .from_ns = first->from_ns,
            .drift = first->drift + then->drift + first->drift * then->drift};
}

// --- what is usual -------------------------------------------------------------------------------

static int fit_by_number(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double fit_median(double *numbers, size_t count)
{
    qsort(numbers, count, sizeof *numbers, fit_by_number);
    return numbers[count / 2];
}

static int fit_by_time(const void *left, const void *right)
{
    const struct clock_bounds *a = left, *b = right;
    return (a->high_at_ns > b->high_at_ns) - (a->high_at_ns < b->high_at_ns);
}

static size_t fit_first(size_t count, size_t pieces, size_t piece)
{
    return piece * count / pieces;
}

static struct fit_point fit_low(const struct clock_bounds *one, const struct clock_bounds *origin)
{
    return (struct fit_point){
            (double)(one->low_at_ns - origin->low_at_ns), (double)(one->low_ns - origin->low_ns)};
}

static struct fit_point fit_high(const struct clock_bounds *one, const struct clock_bounds *origin)
{
    return (struct fit_point){
            (double)(one->high_at_ns - origin->low_at_ns), (double)(one->high_ns - origin->low_ns)};
}

// Medians of the pieces, and of all lines through two of them: what is wrong in one piece does not
// move it.
static struct fit_rough fit_find_rough(const struct clock_bounds *bounds, size_t count,
        size_t pieces, const struct clock_bounds *origin)
{
    struct fit_point middles[FIT_PIECES_MAX];
    double *numbers = xcalloc(count > FIT_SLOPES_MAX ? count : FIT_SLOPES_MAX, sizeof *numbers);
    size_t slopes = 0;
    for (size_t piece = 0; piece < pieces; piece++) {
        size_t first = fit_first(count, pieces, piece), end = fit_first(count, pieces, piece + 1);
        for (size_t i = first; i < end; i++)
            numbers[i - first] =
                    (fit_low(&bounds[i], origin).at + fit_high(&bounds[i], origin).at) / 2;
        middles[piece].at = fit_median(numbers, end - first);
        for (size_t i = first; i < end; i++)
            numbers[i - first] =
                    (fit_low(&bounds[i], origin).offset + fit_high(&bounds[i], origin).offset) / 2;
        middles[piece].offset = fit_median(numbers, end - first);
    }
    for (size_t i = 0; i < pieces; i++)
        for (size_t k = i + 1; k < pieces; k++)
            if (middles[k].at > middles[i].at)
                numbers[slopes++] =
                        (middles[k].offset - middles[i].offset) / (middles[k].at - middles[i].at);
    struct fit_rough rough = {.slope = slopes ? fit_median(numbers, slopes) : 0};
    rough.slope = fmax(-fit_drift_max, fmin(fit_drift_max, rough.slope));
    for (size_t i = 0; i < pieces; i++)
        numbers[i] = middles[i].offset - rough.slope * middles[i].at;
    rough.at_origin = fit_median(numbers, pieces);
    free(numbers);
    return rough;
}

// --- the bounds that stay ------------------------------------------------------------------------

static int fit_by_offset(const void *left, const void *right)
{
    const struct fit_point *a = left, *b = right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static struct fit_point fit_from_rough(struct fit_point point, const struct fit_rough *rough)
{
    return (struct fit_point){point.at, point.offset - rough->at_origin - rough->slope * point.at};
}

// false: of too many pieces the bounds exclude each other.
static bool fit_choose(const struct clock_bounds *bounds, size_t count, size_t pieces,
        const struct clock_bounds *origin, const struct fit_rough *rough, struct fit_lines *ret)
{
    size_t most = count / pieces + 1;
    struct fit_point *lows = xcalloc(most, sizeof *lows), *highs = xcalloc(most, sizeof *highs);
    *ret = (struct fit_lines){
            .drift_min = -fit_drift_max - rough->slope, .drift_max = fit_drift_max - rough->slope};
    for (size_t piece = 0; piece < pieces; piece++) {
        size_t first = fit_first(count, pieces, piece),
               size = fit_first(count, pieces, piece + 1) - first, spare = 1 + size / FIT_SPARE;
        for (size_t i = 0; i < size; i++) {
            lows[i] = fit_from_rough(fit_low(&bounds[first + i], origin), rough);
            highs[i] = fit_from_rough(fit_high(&bounds[first + i], origin), rough);
        }
        qsort(lows, size, sizeof *lows, fit_by_offset);
        qsort(highs, size, sizeof *highs, fit_by_offset);
        struct fit_point low = lows[size - 1 - spare], high = highs[spare];
        if (low.offset - high.offset > fit_drift_piece * fabs(low.at - high.at))
            continue;
        ret->lows[ret->count] = low;
        ret->highs[ret->count++] = high;
    }
    free(lows);
    free(highs);
    return ret->count >= 2 && ret->count * 4 >= pieces * 3;
}

// --- lines between them --------------------------------------------------------------------------

// The highest and lowest line of that slope, where it passes `at`.
static double fit_top(const struct fit_lines *lines, double slope, double at)
{
    double top = INFINITY;
    for (size_t i = 0; i < lines->count; i++)
        top = fmin(top, lines->highs[i].offset - slope * (lines->highs[i].at - at));
    return top;
}

static double fit_bottom(const struct fit_lines *lines, double slope, double at)
{
    double bottom = -INFINITY;
    for (size_t i = 0; i < lines->count; i++)
        bottom = fmax(bottom, lines->lows[i].offset - slope * (lines->lows[i].at - at));
    return bottom;
}

enum fit_what { FIT_ROOM, FIT_TOP, FIT_BOTTOM };

static double fit_value(const struct fit_lines *lines, enum fit_what what, double slope, double at)
{
    if (what == FIT_TOP)
        return fit_top(lines, slope, at);
    if (what == FIT_BOTTOM)
        return -fit_bottom(lines, slope, at);
    return fit_top(lines, slope, at) - fit_bottom(lines, slope, at);
}

// All three rise with the slope and then fall.
static double fit_best(
        const struct fit_lines *lines, enum fit_what what, double from, double to, double at)
{
    for (int i = 0; i < FIT_SEARCH; i++) {
        double third = (to - from) / 3;
        if (fit_value(lines, what, from + third, at) < fit_value(lines, what, to - third, at))
            from += third;
        else
            to -= third;
    }
    return (from + to) / 2;
}

// The last slope from `best` on that leaves room.
static double fit_edge(const struct fit_lines *lines, double best, double edge, double at)
{
    if (fit_value(lines, FIT_ROOM, edge, at) >= 0)
        return edge;
    for (int i = 0; i < FIT_SEARCH; i++) {
        double middle = (best + edge) / 2;
        if (fit_value(lines, FIT_ROOM, middle, at) >= 0)
            best = middle;
        else
            edge = middle;
    }
    return best;
}

struct fit_range {
    double low, high;
};

static struct fit_range fit_range_at(
        const struct fit_lines *lines, double from, double to, double at)
{
    return (struct fit_range){fit_bottom(lines, fit_best(lines, FIT_BOTTOM, from, to, at), at),
            fit_top(lines, fit_best(lines, FIT_TOP, from, to, at), at)};
}

// No line is between all of them: that of the slope that misses them least, and how far the clock
// may be from it.
static void fit_uneven(
        const struct fit_lines *lines, double slope, const double *ends, struct fit_range *ret)
{
    double middle = (fit_top(lines, slope, 0) + fit_bottom(lines, slope, 0)) / 2, error = 0,
           first = INFINITY, last = -INFINITY;
    for (size_t i = 0; i < lines->count; i++) {
        const struct fit_point *low = &lines->lows[i], *high = &lines->highs[i];
        error = fmax(error,
                fmax(middle + slope * low->at - low->offset,
                        high->offset - middle - slope * high->at));
        first = fmin(first, fmin(low->at, high->at));
        last = fmax(last, fmax(low->at, high->at));
    }
    error += fit_drift_unseen * fmax(0, fmax(first - ends[0], ends[1] - last));
    for (int i = 0; i < 2; i++)
        ret[i] = (struct fit_range){
                middle + slope * ends[i] - error, middle + slope * ends[i] + error};
}

static void fit_find_ranges(
        const struct fit_lines *lines, const double *ends, struct fit_range *ret)
{
    double centre = (ends[0] + ends[1]) / 2,
           best = fit_best(lines, FIT_ROOM, lines->drift_min, lines->drift_max, centre);
    if (fit_value(lines, FIT_ROOM, best, centre) < 0) {
        fit_uneven(lines, best, ends, ret);
        return;
    }
    double from = fit_edge(lines, best, lines->drift_min, centre),
           to = fit_edge(lines, best, lines->drift_max, centre);
    for (int i = 0; i < 2; i++)
        ret[i] = fit_range_at(lines, from, to, ends[i]);
}

// Through the middles of what is possible at both ends, `base_ns` further.
static void fit_set(
        struct clock_fit *fit, const struct fit_range *ranges, int64_t base_ns, double slope)
{
    double middles[2];
    for (int i = 0; i < 2; i++) {
        middles[i] = (ranges[i].low + ranges[i].high) / 2;
        fit->half_ns[i] = fmax(0, (ranges[i].high - ranges[i].low) / 2);
    }
    fit->map = (struct clock_map){.shift_ns = base_ns + llround(middles[0]),
            .from_ns = fit->begin_ns,
            .drift = slope + (middles[1] - middles[0]) / (double)(fit->end_ns - fit->begin_ns)};
}

enum clock_fit_state clock_fit(struct clock_bounds *bounds, size_t count, int64_t begin_ns,
        int64_t end_ns, struct clock_fit *ret)
{
    struct fit_lines lines;
    struct fit_range ranges[2];
    if (count < CLOCK_FIT_MIN)
        return CLOCK_FIT_FEW;
    qsort(bounds, count, sizeof *bounds, fit_by_time);
    size_t pieces = count / FIT_PIECE_MIN < FIT_PIECES_MAX ? count / FIT_PIECE_MIN : FIT_PIECES_MAX;
    // one near all others: doubles are exact there
    const struct clock_bounds origin = bounds[count / 2];
    const struct fit_rough rough = fit_find_rough(bounds, count, pieces, &origin);
    if (!fit_choose(bounds, count, pieces, &origin, &rough, &lines))
        return CLOCK_FIT_CONTRADICT;
    const double ends[2] = {
            (double)(begin_ns - origin.low_at_ns), (double)(end_ns - origin.low_at_ns)};
    fit_find_ranges(&lines, ends, ranges);
    for (int i = 0; i < 2; i++) {
        double shift = (double)origin.low_ns + rough.at_origin + rough.slope * ends[i];
        if (!(ranges[i].high - ranges[i].low < 2 * fit_error_max &&
                    fabs(shift) + fabs(ranges[i].low) < fit_shift_max))
            return CLOCK_FIT_FEW;
    }
    *ret = (struct clock_fit){.begin_ns = begin_ns, .end_ns = end_ns};
    fit_set(ret, ranges, origin.low_ns + llround(rough.at_origin + rough.slope * ends[0]),
            rough.slope);
    return CLOCK_FIT_DONE;
}

// --- what others know ----------------------------------------------------------------------------

// How far ahead the fit has the second clock at begin and end, less shift_ns.
static void fit_ranges_from(const struct clock_fit *fit, int64_t shift_ns, struct fit_range *ret)
{
    const int64_t ends[2] = {fit->begin_ns, fit->end_ns};
    for (int i = 0; i < 2; i++) {
        double middle = (double)(clock_map_apply(&fit->map, ends[i]) - ends[i] - shift_ns);
        ret[i] = (struct fit_range){middle - fit->half_ns[i], middle + fit->half_ns[i]};
    }
}

bool clock_fit_clip(struct clock_fit *fit, int64_t shift_ns, int64_t error_ns)
{
    struct fit_range ranges[2];
    fit_ranges_from(fit, shift_ns, ranges);
    for (int i = 0; i < 2; i++) {
        ranges[i] = (struct fit_range){
                fmax(ranges[i].low, -(double)error_ns), fmin(ranges[i].high, (double)error_ns)};
        if (ranges[i].low > ranges[i].high)
            return false;
    }
    fit_set(fit, ranges, shift_ns, 0);
    return true;
}

int64_t clock_fit_error_ns(const struct clock_fit *fit)
{
    double error = ceil(fmax(fit->half_ns[0], fit->half_ns[1]));
    return error > CLOCK_FIT_ERROR_MIN_NS ? (int64_t)error : CLOCK_FIT_ERROR_MIN_NS;
}

int64_t clock_fit_distance_ns(const struct clock_fit *fit, int64_t shift_ns)
{
    struct fit_range ranges[2];
    double most = 0;
    fit_ranges_from(fit, shift_ns, ranges);
    for (int i = 0; i < 2; i++)
        most = fmax(most, fmax(fabs(ranges[i].low), fabs(ranges[i].high)));
    return (int64_t)ceil(most);
}
