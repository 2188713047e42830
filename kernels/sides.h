// SPDX-License-Identifier: Apache-2.0
// Other builds of the kernels: the launchers of this program can launch, in place of its own
// kernels, those of the same name from cubins that another compiler made (ci/gpu/compilers).
// Kernels that a side lacks (those of CUB, of libraries) stay the program's: here also others,
// which sides_print() tells; kernel_side() refuses a side that lacks others. One thread. Works by
// the linker's --wrap, so that no launcher knows of it; side 0 is the program itself.
#ifndef UPGATE_KERNELS_SIDES_H
#define UPGATE_KERNELS_SIDES_H

#include <set>
#include <string>
#include <vector>

#include "kernels/kernels.h"

// NAME=DIRECTORY: all *.cubin there. Dies in words when there is none, or one that the driver does
// not take.
void sides_open(const char *name_and_directory);
int sides_count(); // the program's own with them
const char *sides_name(int side);
void sides_use(int side);
int sides_in_use();

// Names of the kernels that sides launched since it was emptied: their own, or, where they lack
// them, the program's.
struct sides_launched {
    std::set<std::string> own, program;
};
struct sides_launched *sides_launched();

// Times of the same launch by every side in turns: sides_time()[side] are means in ns, the i-th of
// each taken one after the other, the order of the sides another one each time.
std::vector<std::vector<double>> sides_time(cudaStream_t stream,
        void (*launch)(void *arg, int set, cudaStream_t stream), void *arg, int sets);
// Into a line of JSON: the times of each side, and the kernels that the sides launched since the
// last call: their own, or, where they lack them, the program's. Nothing when there are no times.
void sides_print(const std::vector<std::vector<double>> &times);

#endif
