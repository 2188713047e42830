// SPDX-License-Identifier: Apache-2.0
// Times of a launch by every side in turns, as sides.h says it. Not part of sides.cu: that stands
// without the bench, in tests/unit, too.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/sides_time.cu
#include "kernels/bench.h"
#include "kernels/sides.h"

#define SIDES_SAMPLES 21

std::vector<std::vector<double>> sides_time(
        cudaStream_t stream, void (*launch)(void *, int, cudaStream_t), void *arg, int sets)
{
    const int count = sides_count(), was = sides_in_use();
    std::vector<std::vector<double>> times(count);
    int launches = 1;
    *sides_launched() = {};
    for (int side = 0; side < count; side++) {
        sides_use(side);
        launches = std::max(launches, bench_launches(stream, launch, arg, sets));
    }
    for (int i = 0; i < SIDES_SAMPLES; i++)
        for (int k = 0; k < count; k++) {
            sides_use(i % 2 ? (i + count - 1 - k) % count : (i + k) % count);
            times[sides_in_use()].push_back(bench_sample(stream, launch, arg, sets, launches));
        }
    sides_use(was);
    return times;
}

static void print_names(const char *what, std::set<std::string> &launched)
{
    const char *between = "";
    printf(", \"%s\": [", what);
    for (const std::string &name : launched) {
        printf("%s\"%s\"", between, name.c_str());
        between = ", ";
    }
    printf("]");
    launched.clear();
}

void sides_print(const std::vector<std::vector<double>> &times)
{
    if (times.empty())
        return;
    printf(", \"sides\": {");
    for (size_t side = 0; side < times.size(); side++) {
        printf("%s\"%s\": [", side ? ", " : "", sides_name((int)side));
        for (size_t i = 0; i < times[side].size(); i++)
            printf("%s%.1f", i ? ", " : "", times[side][i]);
        printf("]");
    }
    printf("}");
    print_names("replaced", sides_launched()->own);
    print_names("kept", sides_launched()->program);
}
