// SPDX-License-Identifier: Apache-2.0
// What we use of CUPTI and of the CUDA driver, declared here so that no CUDA header is needed to
// build. Names, values and layouts are those of NVIDIA's public interface (cupti_activity.h,
// cupti_callbacks.h, cupti_result.h, cuda.h), which are the same from CUPTI 11.8 to 13.x; records
// of activities, which are not, are in layout_table.c.
#ifndef UPGATE_TRACER_INJECT_CUPTI_CUPTI_ABI_H
#define UPGATE_TRACER_INJECT_CUPTI_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum cupti_result {
    CUPTI_OK = 0,
    CUPTI_NOT_COMPATIBLE = 14,
    CUPTI_NOT_INITIALIZED = 15,
    CUPTI_INVALID_KIND = 21,
    CUPTI_NOT_SUPPORTED = 27,
    CUPTI_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_OLD_PROFILER_API = 36,
    CUPTI_MULTIPLE_SUBSCRIBERS = 39
};

enum cupti_kind {
    CUPTI_KIND_MEMCPY = 1,
    CUPTI_KIND_MEMSET = 2,
    CUPTI_KIND_CONCURRENT_KERNEL = 10,
    CUPTI_KIND_NAME = 11,
    CUPTI_KIND_MARKER = 12,
    CUPTI_KIND_OVERHEAD = 17,
    CUPTI_KIND_MEMCPY2 = 22,
    CUPTI_KIND_STREAM = 37,
    CUPTI_KIND_SYNCHRONIZATION = 38,
    CUPTI_KIND_MEMORY2 = 49,
    CUPTI_KIND_MEMORY_POOL = 50,
    CUPTI_KIND_GRAPH_TRACE = 51
};

enum cupti_attribute {
    CUPTI_ATTR_DEVICE_BUFFER_SIZE = 0,         // size_t
    CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT = 2,   // size_t
    CUPTI_ATTR_ZEROED_OUT_BUFFER = 5,          // uint8_t
    CUPTI_ATTR_DEVICE_BUFFER_PRE_ALLOCATE = 6, // size_t
    CUPTI_ATTR_PER_THREAD_BUFFER = 9           // uint8_t, from 12.3
};

enum { CUPTI_FLUSH_FORCED = 1 };

enum cupti_domain {
    CUPTI_DOMAIN_DRIVER = 1,
    CUPTI_DOMAIN_RUNTIME = 2,
    CUPTI_DOMAIN_RESOURCE = 3,
    CUPTI_DOMAIN_STATE = 6
};

enum cupti_resource_cbid {
    CUPTI_RESOURCE_CONTEXT_CREATED = 1,
    CUPTI_RESOURCE_MODULE_UNLOAD_STARTING = 7,
    CUPTI_RESOURCE_GRAPHNODE_CREATED = 13,
    CUPTI_RESOURCE_GRAPHNODE_CLONED = 20
};

enum { CUPTI_STATE_FATAL_ERROR = 1 };

enum cupti_site { CUPTI_SITE_ENTER = 0, CUPTI_SITE_EXIT = 1 };

struct cupti_callback_data { // CUpti_CallbackData
    uint32_t site;           // enum cupti_site
    const char *function_name;
    const void *function_params;
    void *function_return;
    const char *symbol_name;
    void *context;
    uint32_t context_uid;
    uint64_t *correlation_data;
    uint32_t correlation_id;
};

struct cupti_resource_data { // CUpti_ResourceData
    void *context;
    void *stream;
    void *descriptor;
};

struct cupti_state_data { // CUpti_StateData
    int32_t result;
    const char *message;
};

struct cupti_graph_data { // CUpti_GraphData, the descriptor of resource callbacks about graphs
    void *graph;
    void *original_graph;
    void *node;
    void *original_node;
    uint32_t node_type;
    void *dependency;
    void *graph_exec;
};

typedef void (*cupti_requested_fn)(uint8_t **buffer, size_t *size, size_t *records_max);
typedef void (*cupti_completed_fn)(
        void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
typedef void (*cupti_callback_fn)(void *user, uint32_t domain, uint32_t cbid, const void *data);

// Functions of libcupti; NULL where this version has none.
struct cupti {
    void *library;
    int (*get_version)(uint32_t *version);
    int (*get_result_string)(int result, const char **text);
    int (*get_timestamp)(uint64_t *timestamp);
    int (*subscribe)(void **subscriber, cupti_callback_fn callback, void *user);
    int (*unsubscribe)(void *subscriber);
    int (*enable_callback)(uint32_t enable, void *subscriber, uint32_t domain, uint32_t cbid);
    int (*enable_domain)(uint32_t enable, void *subscriber, uint32_t domain);
    int (*callback_name)(uint32_t domain, uint32_t cbid, const char **name);
    int (*register_callbacks)(cupti_requested_fn requested, cupti_completed_fn completed);
    int (*enable)(uint32_t kind);
    int (*enable_and_dump)(uint32_t kind); // from 11.8 on, not in all
    int (*disable)(uint32_t kind);
    int (*set_attribute)(uint32_t attribute, size_t *bytes, void *value);
    int (*flush_all)(uint32_t flag);
    int (*dropped)(void *context, uint32_t stream, size_t *count);
    int (*next_record)(uint8_t *buffer, size_t valid_bytes, void **record);
    int (*thread_id_type)(uint32_t type); // 1: of the system
    int (*context_id)(void *context, uint32_t *id);
    int (*device_id)(void *context, uint32_t *id);
    int (*graph_node_id)(void *node, uint64_t *id);
    int (*nvtx_initialize)(const void *(*export_table)(uint32_t id)); // InitializeInjectionNvtx2
    int (*finalize)(void);
};

enum cuda_attribute { // CUdevice_attribute
    CUDA_ATTR_MULTIPROCESSORS = 16,
    CUDA_ATTR_MAX_THREADS_SM = 39,
    CUDA_ATTR_CC_MAJOR = 75,
    CUDA_ATTR_CC_MINOR = 76,
    CUDA_ATTR_SHARED_SM = 81,
    CUDA_ATTR_REGISTERS_SM = 82
};

// Functions of libcuda; all NULL when the process has none.
struct cuda {
    int (*driver_version)(int *version);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int bytes, int device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*device_uuid)(uint8_t *uuid, int device);
    int (*primary_state)(int device, unsigned *flags, int *active);
    int (*primary_retain)(void **context, int device);
    int (*primary_release)(int device);
    int (*context_get)(void **context);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*context_wait)(void); // for all that the current one has been given
};

#endif
