#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print layout_table.c: for the headers of each CUPTI given, compile a small C program against them and print what
sizeof and offsetof say. CUPTI writes, of each kind, the newest structure that its own header declares.

    tracer/inject/decode/make_layout.py --cuda DIR CUPTI... > tracer/inject/decode/layout_table.c
    tracer/inject/decode/make_layout.py --check --cuda DIR CUPTI...   # compare with the table that is there: exit 1 if it differs

CUPTI: a wheel (pip download --no-deps nvidia-cuda-cupti-cu11==11.8.87, nvidia-cuda-cupti-cu12==12.x.y,
nvidia-cuda-cupti==13.x.y) or a folder with cupti_activity.h. DIR: a folder with cuda.h of any newer toolkit, whose types the
headers name but none of our fields has. Needs a C compiler; x86-64."""
import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

# Kinds of records: number, base name of the structure. All whose size is known can be passed over.
KINDS = [
    (1, "Memcpy"), (2, "Memset"), (3, "Kernel"), (4, "API"), (5, "API"), (8, "Device"), (9, "Context"), (10, "Kernel"),
    (11, "Name"), (12, "Marker"), (13, "MarkerData"), (17, "Overhead"), (22, "MemcpyPtoP"), (26, "Function"),
    (27, "Module"), (28, "DeviceAttribute"), (36, "CudaEvent"), (37, "Stream"), (38, "Synchronization"),
    (39, "ExternalCorrelation"), (48, "API"), (49, "Memory"), (50, "MemoryPool"), (51, "GraphTrace"), (52, "Jit"),
    (53, "DeviceGraphTrace"), (54, "MemDecompress"), (55, "ConfidentialComputeRotation"), (56, "GraphHostNode"),
    (57, "ComputeEngineCtxSwitch"), (58, "HostLaunch"), (59, "GreenContext"),
]
KIND_COUNT = 64

# Our group, base name of the structure, [(our field, bytes, CUPTI's member)]. A member that a version has not got: -1;
# one that has other than these bytes: an error. grid, block, cluster: three in a row, checked.
GROUPS = [
    ("kernel", "Kernel", [
        ("registers", 2, "registersPerThread"), ("start", 8, "start"), ("end", 8, "end"), ("device", 4, "deviceId"),
        ("context", 4, "contextId"), ("stream", 4, "streamId"), ("grid", 4, "gridX"), ("block", 4, "blockX"),
        ("static_shared", 4, "staticSharedMemory"), ("dynamic_shared", 4, "dynamicSharedMemory"),
        ("local", 4, "localMemoryPerThread"), ("correlation", 4, "correlationId"), ("name", 8, "name"),
        ("graph_node", 8, "graphNodeId"), ("graph", 4, "graphId"), ("channel", 4, "channelID"),
        ("channel_type", 4, "channelType"), ("cluster", 4, "clusterX"), ("device_launched", 1, "isDeviceLaunched")]),
    ("copy", "Memcpy", [
        ("kind", 1, "copyKind"), ("source", 1, "srcKind"), ("target", 1, "dstKind"), ("flags", 1, "flags"),
        ("size", 8, "bytes"), ("start", 8, "start"), ("end", 8, "end"), ("device", 4, "deviceId"),
        ("context", 4, "contextId"), ("stream", 4, "streamId"), ("correlation", 4, "correlationId"),
        ("graph_node", 8, "graphNodeId"), ("graph", 4, "graphId")]),
    ("peer", "MemcpyPtoP", [
        ("kind", 1, "copyKind"), ("source", 1, "srcKind"), ("target", 1, "dstKind"), ("flags", 1, "flags"),
        ("size", 8, "bytes"), ("start", 8, "start"), ("end", 8, "end"), ("device", 4, "deviceId"),
        ("context", 4, "contextId"), ("stream", 4, "streamId"), ("correlation", 4, "correlationId"),
        ("graph_node", 8, "graphNodeId"), ("graph", 4, "graphId"), ("source_device", 4, "srcDeviceId"),
        ("target_device", 4, "dstDeviceId")]),
    ("set", "Memset", [
        ("value", 4, "value"), ("size", 8, "bytes"), ("start", 8, "start"), ("end", 8, "end"), ("device", 4, "deviceId"),
        ("context", 4, "contextId"), ("stream", 4, "streamId"), ("correlation", 4, "correlationId"),
        ("flags", 2, "flags"), ("kind", 2, "memoryKind"), ("graph_node", 8, "graphNodeId"), ("graph", 4, "graphId")]),
    ("graph", "GraphTrace", [
        ("correlation", 4, "correlationId"), ("start", 8, "start"), ("end", 8, "end"), ("device", 4, "deviceId"),
        ("graph", 4, "graphId"), ("context", 4, "contextId"), ("stream", 4, "streamId")]),
    ("sync", "Synchronization", [
        ("kind", 4, "type"), ("start", 8, "start"), ("end", 8, "end"), ("correlation", 4, "correlationId"),
        ("context", 4, "contextId"), ("stream", 4, "streamId"), ("event", 4, "cudaEventId"),
        ("event_sync", 8, "cudaEventSyncId")]),
    ("memory", "Memory", [
        ("operation", 4, "memoryOperationType"), ("kind", 4, "memoryKind"), ("correlation", 4, "correlationId"),
        ("address", 8, "address"), ("size", 8, "bytes"), ("at", 8, "timestamp"), ("device", 4, "deviceId"),
        ("context", 4, "contextId"), ("stream", 4, "streamId"), ("async", 4, "isAsync"),
        ("pool_type", 4, "memoryPoolConfig.memoryPoolType"), ("pool", 8, "memoryPoolConfig.address"),
        ("pool_size", 8, "memoryPoolConfig.pool.size"), ("pool_used", 8, "memoryPoolConfig.utilizedSize")]),
    ("pool", "MemoryPool", [
        ("operation", 4, "memoryPoolOperationType"), ("correlation", 4, "correlationId"), ("device", 4, "deviceId"),
        ("address", 8, "address"), ("size", 8, "size"), ("at", 8, "timestamp"), ("used", 8, "utilizedSize")]),
    ("marker", "Marker", [
        ("flags", 4, "flags"), ("at", 8, "timestamp"), ("id", 4, "id"), ("object", 4, "objectKind"),
        ("thread", 4, "objectId.pt.threadId"), ("name", 8, "name"), ("domain", 8, "domain")]),
    ("overhead", "Overhead", [
        ("kind", 4, "overheadKind"), ("object", 4, "objectKind"), ("thread", 4, "objectId.pt.threadId"),
        ("start", 8, "start"), ("end", 8, "end")]),
    ("device", "Device", [
        ("memory", 8, "globalMemorySize"), ("warp", 4, "numThreadsPerWarp"), ("sm_count", 4, "numMultiprocessors"),
        ("warps_sm", 4, "maxWarpsPerMultiprocessor"), ("shared_sm", 4, "maxSharedMemoryPerMultiprocessor"),
        ("registers_sm", 4, "maxRegistersPerMultiprocessor"), ("cc_major", 4, "computeCapabilityMajor"),
        ("cc_minor", 4, "computeCapabilityMinor"), ("id", 4, "id"), ("uuid", 16, "uuid"), ("name", 8, "name")]),
    ("stream", "Stream", [
        ("context", 4, "contextId"), ("stream", 4, "streamId"), ("priority", 4, "priority"), ("flag", 4, "flag")]),
    ("name", "Name", [
        ("object", 4, "objectKind"), ("thread", 4, "objectId.pt.threadId"), ("context", 4, "objectId.dcs.contextId"),
        ("stream", 4, "objectId.dcs.streamId"), ("name", 8, "name")]),
]
TRIPLES = {"gridX": "gridZ", "blockX": "blockZ", "clusterX": "clusterZ"}


def structures(folder):
    """{base name: [versions]} of all structures CUpti_Activity*; a version of "" is 1."""
    found = {}
    for path in glob.glob(os.path.join(folder, "cupti_activity*.h")):
        with open(path, encoding="utf-8", errors="replace") as file:
            for name in re.findall(r"^\} CUpti_Activity(\w+);", file.read(), re.M):
                base, version = re.fullmatch(r"(\w*?[A-Za-z])(\d*)", name).groups()
                found.setdefault(base, []).append(int(version or 1))
    return found


def struct_name(found, base):
    """The newest structure of a base name, None: this CUPTI has no such records."""
    if base not in found:
        return None
    # "Memory" is the record of the old kind MEMORY; MEMORY2's begin with 2.
    newest = max(found[base])
    return "CUpti_Activity%s%s" % (base, newest if newest > 1 else "")


def program(found, text):
    lines = ["#include <cupti_version.h>", "#include <cupti_activity.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void)", "{",
             '    printf("api_version %d\\n", CUPTI_API_VERSION);']
    for kind, base in KINDS:
        if struct_name(found, base):
            lines.append('    printf("bytes.%d %%d\\n", (int)sizeof(%s));' % (kind, struct_name(found, base)))
    for group, base, fields in GROUPS:
        name = struct_name(found, base)
        for field, size, member in fields:
            if not has_member(text, name, member):
                lines.append('    printf("%s.%s -1\\n");' % (group, field))
                continue
            lines.append('    _Static_assert(sizeof(((%s *)0)->%s) == %d, "%s.%s");' % (name, member, size, group, field))
            if member in TRIPLES:
                lines.append('    _Static_assert(offsetof(%s, %s) == offsetof(%s, %s) + 8, "%s");'
                             % (name, TRIPLES[member], name, member, member))
            lines.append('    printf("%s.%s %%d\\n", (int)offsetof(%s, %s));' % (group, field, name, member))
    return "\n".join(lines + ["    return 0;\n}\n"])


def has_member(text, name, member):
    """Whether the structure declares the first word of member; comments are taken out of text."""
    end = re.search(r"\}\s*%s;" % name, text)
    start = [match.start() for match in re.finditer(r"typedef struct", text[:end.start()])][-1]
    return re.search(r"\b%s\b\s*;" % member.split(".")[0], text[start:end.start()]) is not None


def read_headers(folder):
    text = ""
    for path in sorted(glob.glob(os.path.join(folder, "cupti_activity*.h"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            text += re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    return text


def headers_of(source, folder):
    """(name of the version, folder with the headers) of a wheel, unpacked into folder, or of a folder."""
    if os.path.isdir(source):
        return os.path.basename(os.path.abspath(source)), source
    with zipfile.ZipFile(source) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.endswith(".h")])
    package, version = os.path.basename(source).split("-")[:2]
    header = glob.glob(os.path.join(folder, "**", "cupti_activity.h"), recursive=True)
    if not header:
        sys.exit("make_layout: no cupti_activity.h in '%s'" % source)
    return "%s %s" % (package.replace("_", "-"), version), os.path.dirname(header[0])


def layout_of(source, cuda):
    """{"source": ..., "api_version": n, "bytes.10": n, "kernel.start": offset, ...} of one CUPTI."""
    with tempfile.TemporaryDirectory() as folder:
        name, headers = headers_of(source, folder)
        code, binary = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(code, "w", encoding="utf-8") as file:
            file.write(program(structures(headers), read_headers(headers)))
        subprocess.check_call([os.environ.get("CC", "cc"), "-w", "-I", headers, "-I", cuda, "-o", binary, code])
        output = subprocess.check_output([binary], text=True)
    layout = {line.split()[0]: int(line.split()[1]) for line in output.splitlines()}
    layout["source"] = name
    return layout


def table(layouts):
    lines = ["// SPDX-License-Identifier: Apache-2.0",
             "// Generated by tracer/inject/decode/make_layout.py; do not edit. Sizes and offsets of CUPTI's",
             "// activity records on x86-64, as the headers of these packages give them.",
             "// clang-format off",
             '#include "tracer/inject/decode/layout.h"', "", "const struct cupti_layout layout_table[] = {"]
    for layout in layouts:
        sizes = ["[%d] = %d" % (kind, layout["bytes.%d" % kind]) for kind, _ in KINDS if "bytes.%d" % kind in layout]
        lines += ["    {", '        .source = "%s",' % layout["source"], "        .api_version = %d," % layout["api_version"]]
        lines += wrap("        .bytes = {", sizes)
        for group, _, fields in GROUPS:
            lines += wrap("        .%s = {" % group, [".%s = %d" % (field, layout["%s.%s" % (group, field)])
                                                     for field, _, _ in fields])
        lines.append("    },")
    lines += ["};", "const size_t layout_table_count = sizeof(layout_table) / sizeof(layout_table[0]);", ""]
    return "\n".join(lines)


def wrap(head, words):
    lines, line = [], head
    for i, word in enumerate(words):
        word += "," if i + 1 < len(words) else "},"
        if len(line) + len(word) + 1 > 100:
            lines.append(line.rstrip())
            line = " " * 12
        line += word + " "
    return lines + [line.rstrip()]


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    if len(words) < 3 or words[0] != "--cuda":
        sys.exit(__doc__)
    layouts = [layout_of(source, words[1]) for source in words[2:]]
    layouts.sort(key=lambda layout: (layout["api_version"], layout["source"].split()[-1]))
    if "--check" not in sys.argv:
        sys.stdout.write(table(layouts))
        return
    with open(os.path.join(HERE, "layout_table.c"), encoding="utf-8") as file:
        blocks = re.findall(r"\n    \{.*?\n    \},", file.read(), re.S)
    wrong = [layout["source"] for layout in layouts
             if not any(block in blocks for block in re.findall(r"\n    \{.*?\n    \},", table([layout]), re.S))]
    for source in wrong:
        print("%s: not as in the table" % source)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
