// SPDX-License-Identifier: Apache-2.0
// The last row of cupti_records.h against NVIDIA's own header, where a toolkit of 13.0 is
// installed: compiling is half of the test (a struct of that name exists), the numbers are the
// other.
#include <cupti.h>
#include <stddef.h>
#include <stdio.h>

#include "tests/mock/cupti_records.h"

static int failed;

static void compare(const char *what, unsigned long is, unsigned long ours)
{
    if (is == ours)
        return;
    printf("FAILED  %s is %lu, cupti_records.h says %lu\n", what, is, ours);
    failed++;
}

#define ROW(record) cupti_versions[3].records[CUPTI_RECORD_##record]
#define SIZE(record, type, number) \
    compare("sizeof(" #type ")", sizeof(type), ROW(record).bytes); \
    compare("kind of " #type, number, ROW(record).kind)
#define AT(record, type, field) \
    compare("offset of " #type "." #field, offsetof(type, field), \
            ROW(record).fields[FIELD_##field].at); \
    compare("size of " #type "." #field, sizeof(((type *)0)->field), \
            ROW(record).fields[FIELD_##field].size)

static void check_work(void)
{
    SIZE(KERNEL, CUpti_ActivityKernel10, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    AT(KERNEL, CUpti_ActivityKernel10, start);
    AT(KERNEL, CUpti_ActivityKernel10, end);
    AT(KERNEL, CUpti_ActivityKernel10, correlationId);
    AT(KERNEL, CUpti_ActivityKernel10, streamId);
    AT(KERNEL, CUpti_ActivityKernel10, gridX);
    AT(KERNEL, CUpti_ActivityKernel10, blockX);
    AT(KERNEL, CUpti_ActivityKernel10, clusterX);
    AT(KERNEL, CUpti_ActivityKernel10, name);
    AT(KERNEL, CUpti_ActivityKernel10, graphNodeId);
    AT(KERNEL, CUpti_ActivityKernel10, graphId);
    AT(KERNEL, CUpti_ActivityKernel10, isDeviceLaunched);
    SIZE(COPY, CUpti_ActivityMemcpy6, CUPTI_ACTIVITY_KIND_MEMCPY);
    AT(COPY, CUpti_ActivityMemcpy6, bytes);
    AT(COPY, CUpti_ActivityMemcpy6, correlationId);
    SIZE(PEER, CUpti_ActivityMemcpyPtoP4, CUPTI_ACTIVITY_KIND_MEMCPY2);
    AT(PEER, CUpti_ActivityMemcpyPtoP4, dstDeviceId);
    AT(PEER, CUpti_ActivityMemcpyPtoP4, correlationId);
    SIZE(SET, CUpti_ActivityMemset4, CUPTI_ACTIVITY_KIND_MEMSET);
    AT(SET, CUpti_ActivityMemset4, correlationId);
    SIZE(GRAPH, CUpti_ActivityGraphTrace2, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    AT(GRAPH, CUpti_ActivityGraphTrace2, graphId);
    AT(GRAPH, CUpti_ActivityGraphTrace2, streamId);
}

static void check_host(void)
{
    SIZE(RUNTIME, CUpti_ActivityAPI, CUPTI_ACTIVITY_KIND_RUNTIME);
    SIZE(DRIVER, CUpti_ActivityAPI, CUPTI_ACTIVITY_KIND_DRIVER);
    AT(RUNTIME, CUpti_ActivityAPI, threadId);
    AT(RUNTIME, CUpti_ActivityAPI, correlationId);
    SIZE(SYNC, CUpti_ActivitySynchronization2, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    AT(SYNC, CUpti_ActivitySynchronization2, cudaEventSyncId);
    SIZE(MEMORY, CUpti_ActivityMemory4, CUPTI_ACTIVITY_KIND_MEMORY2);
    AT(MEMORY, CUpti_ActivityMemory4, timestamp);
    compare("offset of a pool's size", offsetof(CUpti_ActivityMemory4, memoryPoolConfig.pool.size),
            ROW(MEMORY).fields[FIELD_pool_size].at);
    SIZE(POOL, CUpti_ActivityMemoryPool3, CUPTI_ACTIVITY_KIND_MEMORY_POOL);
    AT(POOL, CUpti_ActivityMemoryPool3, utilizedSize);
    SIZE(MARKER, CUpti_ActivityMarker2, CUPTI_ACTIVITY_KIND_MARKER);
    AT(MARKER, CUpti_ActivityMarker2, domain);
    SIZE(OVERHEAD, CUpti_ActivityOverhead3, CUPTI_ACTIVITY_KIND_OVERHEAD);
    AT(OVERHEAD, CUpti_ActivityOverhead3, end);
    SIZE(DEVICE, CUpti_ActivityDevice5, CUPTI_ACTIVITY_KIND_DEVICE);
    AT(DEVICE, CUpti_ActivityDevice5, uuid);
    SIZE(STREAM, CUpti_ActivityStream, CUPTI_ACTIVITY_KIND_STREAM);
    AT(STREAM, CUpti_ActivityStream, priority);
}

int main(void)
{
    check_work();
    check_host();
    return failed ? 1 : 0;
}
