// SPDX-License-Identifier: Apache-2.0
// What we use of NVTX, declared here so that no header of it is needed to build. Names, values and
// layouts are those of its public interface (nvToolsExt.h, nvtxTypes.h), the same in
// libnvToolsExt.so of NVTX 2 and in every NVTX 3.
#ifndef UPGATE_TRACER_INJECT_STEPS_NVTX_ABI_H
#define UPGATE_TRACER_INJECT_STEPS_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum { NVTX_EXPORT_CALLBACKS = 1 };
enum { NVTX_MODULE_CORE = 1, NVTX_MODULE_CORE2 = 5 };
enum nvtx_core {
    NVTX_MARK_EX = 1,
    NVTX_MARK_A,
    NVTX_MARK_W,
    NVTX_RANGE_START_EX,
    NVTX_RANGE_START_A,
    NVTX_RANGE_START_W,
    NVTX_RANGE_END,
    NVTX_RANGE_PUSH_EX,
    NVTX_RANGE_PUSH_A,
    NVTX_RANGE_PUSH_W,
    NVTX_RANGE_POP
};
enum nvtx_core2 {
    NVTX_DOMAIN_MARK_EX = 1,
    NVTX_DOMAIN_RANGE_START_EX,
    NVTX_DOMAIN_RANGE_END,
    NVTX_DOMAIN_RANGE_PUSH_EX,
    NVTX_DOMAIN_RANGE_POP,
    NVTX_DOMAIN_REGISTER_A = 10,
    NVTX_DOMAIN_REGISTER_W,
    NVTX_DOMAIN_CREATE_A,
    NVTX_DOMAIN_CREATE_W
};
enum nvtx_message { NVTX_MESSAGE_ASCII = 1, NVTX_MESSAGE_WIDE = 2, NVTX_MESSAGE_REGISTERED = 3 };

struct nvtx_attributes { // nvtxEventAttributes_t
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type; // enum nvtx_message
    union {
        const char *ascii;
        const wchar_t *wide;
        const void *registered;
    } message;
};

typedef void (*nvtx_function)(void);

struct nvtx_callbacks { // NvtxExportTableCallbacks
    size_t bytes;
    // 1, with an array of pointers to the function pointers of a module, and how many; else 0.
    int (*functions)(int module, nvtx_function ***ret_table, unsigned *ret_count);
};

_Static_assert(sizeof(struct nvtx_attributes) == 48 &&
                offsetof(struct nvtx_attributes, message_type) == 32,
        "as nvToolsExt.h");

#define NVTX_NO_LEVEL (-2) // NVTX_NO_PUSH_POP_TRACKING: what a push and a pop answer without a tool

#endif
