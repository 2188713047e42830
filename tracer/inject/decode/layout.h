// SPDX-License-Identifier: Apache-2.0
// Where the fields of CUPTI's activity records lie, version by version: filled by layout_table.c,
// which make_layout.py prints from CUPTI's own headers. From 11.8 to 13.5 CUPTI only ever appended
// fields: offsets agree and sizes grow.
#ifndef UPGATE_TRACER_INJECT_DECODE_LAYOUT_H
#define UPGATE_TRACER_INJECT_DECODE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum {
    LAYOUT_KIND_COUNT = 64, // of CUpti_ActivityKind; 13.5 has 60
    // CUPTI_API_VERSION of 11.8, 12.0 and 12.1, whose kernel records differ in size
    LAYOUT_VERSION_SHARED = 18
};

// Offsets; -1: this version has no such field. grid, block and cluster are three words in a row.
struct cupti_layout {
    const char *source;                // package and version
    uint32_t api_version;              // CUPTI_API_VERSION
    uint16_t bytes[LAYOUT_KIND_COUNT]; // by kind, 0: unknown
    struct {
        int16_t registers, start, end, device, context, stream, grid, block, static_shared,
                dynamic_shared, local, correlation, name, graph_node, graph, channel, channel_type,
                cluster, device_launched;
    } kernel;
    struct {
        int16_t kind, source, target, flags, size, start, end, device, context, stream, correlation,
                graph_node, graph;
    } copy;
    struct {
        int16_t kind, source, target, flags, size, start, end, device, context, stream, correlation,
                graph_node, graph, source_device, target_device;
    } peer;
    struct {
        int16_t value, size, start, end, device, context, stream, correlation, flags, kind,
                graph_node, graph;
    } set;
    struct {
        int16_t correlation, start, end, device, graph, context, stream;
    } graph;
    struct {
        int16_t kind, start, end, correlation, context, stream, event, event_sync;
    } sync;
    struct {
        int16_t operation, kind, correlation, address, size, at, device, context, stream, async,
                pool_type, pool, pool_size, pool_used;
    } memory;
    struct {
        int16_t operation, correlation, device, address, size, at, used;
    } pool;
    struct {
        int16_t flags, at, id, object, thread, name, domain;
    } marker;
    struct {
        int16_t kind, object, thread, start, end;
    } overhead;
    struct {
        int16_t memory, warp, sm_count, warps_sm, shared_sm, registers_sm, cc_major, cc_minor, id,
                uuid, name;
    } device;
    struct {
        int16_t context, stream, priority, flag;
    } stream;
    struct {
        int16_t object, thread, context, stream, name;
    } name;
};

extern const struct cupti_layout layout_table[]; // by rising api_version
extern const size_t layout_table_count;

#endif
