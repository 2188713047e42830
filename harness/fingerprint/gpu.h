// SPDX-License-Identifier: Apache-2.0
// NVIDIA driver and GPUs of the machine, from /proc/driver/nvidia and from NVML where it is
// installed (opened at run time, never linked).
#ifndef UPGATE_FINGERPRINT_GPU_H
#define UPGATE_FINGERPRINT_GPU_H

#include <jansson.h>

// In the reason why "host.gpu.devices" is missing: no program can use the GPU then.
#define GPU_OTHER_DRIVER "the driver's libraries and its kernel module are of different versions"

// `root` as for host_collect(); `nvml` is the library to open, NULL for the system's. A new object,
// or JSON null on a machine without an NVIDIA driver.
json_t *gpu_collect(const char *root, const char *nvml, json_t *missing);

#endif
