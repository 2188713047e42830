// SPDX-License-Identifier: Apache-2.0
// The GPU of a model: a stream, memory, copies. What fails while a model is being created is
// remembered, and the calls after it do nothing: create() asks once, at its end. What fails later
// ends the program in words (exit 4). One thread.
#ifndef UPGATE_CUDA_DEVICE_H
#define UPGATE_CUDA_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define DEVICE_BLOCKS_MAX 512

struct device {
    cudaStream_t stream;
    bool running; // created: from here on failures end the program
    bool ranked;  // others wait for it: then at once, as what exit() does may wait for a collective
                  // that never ends
    struct error err;
    size_t bytes; // of the GPU's memory, allocated
    void *block[DEVICE_BLOCKS_MAX], *pinned[DEVICE_BLOCKS_MAX];
    size_t blocks, pinned_count;
    void *workspace; // of kernel_mlp
};

// Launches the kernels of UPGATE_KERNELS, a directory of cubins, where that is set: a side of
// another compiler. -EINVAL: a GPU that the kernels are not built for; -ENODEV: none, or a driver
// that is missing or too old for this runtime.
int device_open(struct device *device, struct error *err);
// Of one of several ranks: its GPU is that of its number. -EINVAL: fewer GPUs than ranks.
int device_open_rank(struct device *device, uint32_t rank, uint32_t ranks, struct error *err);
void device_close(struct device *device); // zeroed is fine

// On the device, zeroed, at a multiple of 256 bytes; NULL when something has failed. what: of which
// sentences speak.
void *device_alloc(struct device *device, size_t bytes, const char *what);
// on the host, where copies start by themselves
void *device_pinned(struct device *device, size_t bytes);
void device_upload(struct device *device, void *to, const void *from, size_t bytes);   // starts it
void device_download(struct device *device, void *to, const void *from, size_t bytes); // starts it
void device_zero(struct device *device, void *to, size_t bytes);                       // starts it
void device_wait(struct device *device);

// What the runtime said; what: as in "failed to WHAT".
void device_check(struct device *device, cudaError_t error, const char *what);
// What a launcher said, with the sentence in device->err.
void device_must(struct device *device, int rc);
// Ends create(): 0, or what failed first.
int device_created(struct device *device, struct error *err);
static inline bool device_failed(const struct device *device)
{
    return device->err.code != 0;
}

#endif
