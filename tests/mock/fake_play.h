// SPDX-License-Identifier: Apache-2.0
// What one CUDA call does in the fake CUPTI: callbacks to the subscriber, records into buffers.
#ifndef UPGATE_TESTS_MOCK_FAKE_PLAY_H
#define UPGATE_TESTS_MOCK_FAKE_PLAY_H

#include <stdint.h>

#include "tests/mock/fake.h"

#define CUPTI_KIND_COUNT 80
#define CUPTI_CBID_COUNT 1024

enum cupti_domain { // as CUpti_CallbackDomain
    CUPTI_DOMAIN_DRIVER = 1,
    CUPTI_DOMAIN_RUNTIME = 2,
    CUPTI_DOMAIN_RESOURCE = 3,
    CUPTI_DOMAIN_COUNT = 8
};

struct cupti_callback_data { // as CUpti_CallbackData
    uint32_t site;           // 0 enter, 1 exit
    const char *function_name;
    const void *function_params;
    void *return_value;
    const char *symbol_name;
    void *context;
    uint32_t context_uid;
    uint64_t *correlation_data;
    uint32_t correlation_id;
};

struct cupti_resource_data { // as CUpti_ResourceData
    void *context, *stream, *descriptor;
};

struct cupti_graph_data { // as CUpti_GraphData
    void *graph, *original_graph, *node, *original_node;
    uint32_t node_type;
    void *dependency, *graph_exec;
};

typedef void (*cupti_callback_fn)(void *user, uint32_t domain, uint32_t cbid, const void *data);

// What is switched on; written by the API in fake_cupti.c, read by every call.
void play_subscribe(cupti_callback_fn callback, void *user);
void play_unsubscribe(void);
void play_reset(void);         // unsubscribed, and every kind and call off
void play_dump(uint32_t kind); // records of what there already is: streams
int play_is_at_exit(void);     // of a call: the calling thread is in that callback
void play_callback(uint32_t domain, uint32_t cbid, int on);
void play_kind(uint32_t kind, int on);
void play_call(uint32_t domain, uint32_t cbid, int on);     // records of one API call
const char *play_call_name(uint32_t domain, uint32_t cbid); // NULL: unknown

void play_nvtx(void); // a module with NVTX is ours to listen to
uint64_t play_now_gpu(void);
uint32_t play_op(const struct fake_op *op);
void play_report(FILE *out);

#endif
