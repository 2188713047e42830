// SPDX-License-Identifier: Apache-2.0
// Answers lookups: kernel table, or process -> mapping -> file or perf map -> symbol -> readable
// name. A small table of recent answers saves the reads and the demangling for addresses that come
// again, which in stacks of a training loop is nearly all of them. Owner thread only.
#include "tracer/symbols/symbols.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/strings.h"
#include "tracer/symbols/demangle.h"
#include "tracer/symbols/kernel.h"
#include "tracer/symbols/processes.h"

enum {
    SYMBOLS_BYTES_MAX = 20 << 20,
    SYMBOLS_STRINGS_BYTES_MAX = 8 << 20,
    SYMBOLS_FILES_MAX = 512,     // PyTorch of a distribution maps 318, a wheel 50
    SYMBOLS_PROCESSES_MAX = 256, // 64 ranks with two workers each, and what disturbs them
    SYMBOLS_RECHECK_NS = 20000000,
    SYMBOLS_RECENT = 2048, // 80 KiB
};

struct symbols_recent {
    uint64_t address;
    uint32_t generation; // 0: empty
    bool known;
    const char *name;
    uint64_t offset;
};

struct symbols {
    struct names names;
    struct elf_files files;
    struct processes processes;
    struct kernel_symbols kernel;
    struct symbols_stats stats;
    struct symbols_recent *recent;
    char *kallsyms_path, *proc_path, *debug_path, *cache_path;
};

// A quarter of the fds that this process may have, where that is less: two sides are recorded at
// once.
static uint32_t symbols_files_max(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 4 >= SYMBOLS_FILES_MAX)
        return SYMBOLS_FILES_MAX;
    return limit.rlim_cur > 8 ? (uint32_t)(limit.rlim_cur / 4) : 2;
}

int symbols_new(const struct symbols_opts *opts, struct symbols **ret, struct error *err)
{
    struct symbols_opts o = opts ? *opts : (struct symbols_opts){0};
    if (o.files_max > 1 << 16 || o.processes_max > 1 << 16)
        return error_set(
                err, -EINVAL, "failed to set up symbols: more than 65536 files or processes");
    struct symbols *symbols = xcalloc(1, sizeof(*symbols));
    symbols->kallsyms_path = xstrdup(o.kallsyms_path ? o.kallsyms_path : "/proc/kallsyms");
    symbols->proc_path = xstrdup(o.proc_path ? o.proc_path : "/proc");
    symbols->debug_path = xstrdup(o.debug_path ? o.debug_path : "/usr/lib/debug");
    symbols->cache_path = !o.cache_path ? debug_cache_path()
            : *o.cache_path             ? xstrdup(o.cache_path)
                                        : NULL;
    symbols->recent = xcalloc(SYMBOLS_RECENT, sizeof(*symbols->recent));
    symbols->names.bytes_max =
            o.strings_bytes_max ? o.strings_bytes_max : SYMBOLS_STRINGS_BYTES_MAX;
    symbols->files = (struct elf_files){.bytes_max = o.bytes_max ? o.bytes_max : SYMBOLS_BYTES_MAX,
            .proc = symbols->proc_path,
            .debug_path = symbols->debug_path,
            .cache_path = symbols->cache_path,
            .names = &symbols->names,
            .stats = &symbols->stats};
    elf_files_init(&symbols->files, o.files_max ? o.files_max : symbols_files_max());
    symbols->processes = (struct processes){.proc = symbols->proc_path,
            .recheck_ns = o.recheck_ns ? o.recheck_ns : SYMBOLS_RECHECK_NS,
            .files = &symbols->files,
            .stats = &symbols->stats};
    processes_init(&symbols->processes, o.processes_max ? o.processes_max : SYMBOLS_PROCESSES_MAX);
    *ret = symbols;
    return 0;
}

void symbols_free(struct symbols *symbols)
{
    if (!symbols)
        return;
    processes_free(&symbols->processes);
    elf_files_free(&symbols->files);
    kernel_symbols_free(&symbols->kernel);
    names_free(&symbols->names);
    free(symbols->recent);
    free(symbols->kallsyms_path);
    free(symbols->proc_path);
    free(symbols->debug_path);
    free(symbols->cache_path);
    free(symbols);
}

static void symbols_unknown(struct symbols *symbols, const char *what, struct symbol *ret)
{
    *ret = (struct symbol){.name = what, .module = what};
    symbols->stats.unknown++;
}

void symbols_kernel(struct symbols *symbols, uint64_t ip, struct symbol *ret)
{
    struct symbol found = {.known = true};
    symbols->stats.lookups++;
    if (!symbols_kernel_available(symbols, NULL)) {
        symbols_unknown(symbols, "kernel", ret);
        return;
    }
    found.name = kernel_symbols_find(&symbols->kernel, ip, &found.module, &found.offset);
    if (found.name)
        *ret = found;
    else
        symbols_unknown(symbols, "kernel", ret);
}

bool symbols_kernel_available(struct symbols *symbols, const char **ret_why)
{
    if (!symbols->kernel.loaded) {
        kernel_symbols_load(&symbols->kernel, symbols->kallsyms_path);
        symbols->stats.symbols_dropped += symbols->kernel.dropped;
    }
    if (ret_why && !symbols->kernel.count)
        *ret_why = symbols->kernel.why;
    return symbols->kernel.count > 0;
}

static int symbols_process_fail(pid_t tgid, int code, struct error *err)
{
    if (code == -ESRCH)
        return error_set(
                err, code, "failed to name addresses of process %d: it is gone", (int)tgid);
    return error_set(err, code, "failed to name addresses of process %d: %s%s", (int)tgid,
            strerror(-code), code == -EACCES ? "; run as root" : "");
}

void symbols_follow(struct symbols *symbols)
{
    symbols->processes.follows = true;
}

void symbols_mapping(struct symbols *symbols, const struct mapping_event *event)
{
    processes_mapping(&symbols->processes, event);
}

uint32_t symbols_process_epoch(struct symbols *symbols, pid_t tgid, uint64_t start, uint64_t at_ns)
{
    struct symbol_process *process = processes_known(&symbols->processes, tgid, start);
    return process ? processes_epoch(&symbols->processes, process, at_ns) : 0;
}

int symbols_process_snapshot(
        struct symbols *symbols, pid_t tgid, const struct symbols_birth *birth, struct error *err)
{
    struct symbol_process *process;
    struct symbols_birth known = birth ? *birth : (struct symbols_birth){0};
    int code = processes_know(
            &symbols->processes, tgid, known.start, known.parent, known.at_ns, &process);
    if (code)
        return symbols_process_fail(tgid, code, err);
    processes_snapshot(&symbols->processes, process);
    if (!process->table.count && !process->table.past_count)
        // a zombie, a kernel thread, or just ended
        return symbols_process_fail(tgid, process->missed ? -EAGAIN : -ESRCH, err);
    return 0;
}

// The last part of a path, as long as it is not known by a file.
static const char *symbols_path_module(struct symbols *symbols, const char *path)
{
    const char *name = string_base_name(path);
    const char *kept = names_intern(&symbols->names, name, strcspn(name, " "));
    return kept ? kept : "[names full]";
}

// "libfoo.so+0x1234". Such names can be as many as addresses: they may fill half of the pool, so
// that known functions still find room.
static void symbols_numbered(
        struct symbols *symbols, const char *module, uint64_t address, struct symbol *ret)
{
    char text[SYMBOL_NAME_MAX];
    const char *name = NULL;
    int len = snprintf(text, sizeof(text), "%s+0x%llx", module, (unsigned long long)address);
    if (symbols->names.bytes <= symbols->names.bytes_max / 2)
        name = names_intern(&symbols->names, text, (size_t)len);
    else
        symbols->names.dropped++;
    ret->name = name ? name : module;
    ret->offset = address;
    ret->known = false;
}

static void symbols_named(struct symbols *symbols, const char *raw, size_t len, struct symbol *ret)
{
    char text[SYMBOL_NAME_MAX];
    size_t readable = symbol_name_readable(raw, len, text);
    const char *name = names_intern(&symbols->names, text, readable);
    ret->name = name ? name : "[names full]";
    ret->known = name != NULL;
}

// By its start, so that all addresses of one function are one name, and those of two are two.
static void symbols_nameless(
        struct symbols *symbols, struct symbol_file *file, uint64_t address, struct symbol *ret)
{
    uint64_t begin = address, end;
    bool function = elf_files_function(file, address, &begin, &end);
    symbols_numbered(symbols, file->module, begin, ret);
    if (function)
        ret->offset = address - begin;
}

// Is the address still in a function of which the symbol table does not say how long it is?
// Unwinding information does: another one may have begun since, or that one ended.
static bool symbols_within(struct symbol_file *file, uint64_t begin, uint64_t address)
{
    uint64_t function_begin, function_end;
    if (elf_files_function(file, address, &function_begin, &function_end))
        return function_begin <= begin;
    return !elf_files_function(file, begin, &function_begin, &function_end);
}

// Looked up, not remembered.
static void symbols_ask_file(
        struct symbols *symbols, struct symbol_file *file, uint64_t address, struct symbol *ret)
{
    char raw[ELF_NAME_MAX];
    uint64_t offset = 0;
    bool sized = false;
    size_t len = elf_table_find(&file->table, address, raw, sizeof(raw), &offset, &sized);
    if (len && (sized || symbols_within(file, address - offset, address))) {
        symbols_named(symbols, raw, len, ret);
        ret->offset = offset;
    } else {
        symbols_nameless(symbols, file, address, ret);
    }
}

static void symbols_in_file(struct symbols *symbols, struct symbol_file *file,
        const struct symbol_process *process, const struct mapping *mapping, uint64_t ip,
        struct symbol *ret)
{
    uint64_t address, file_offset = ip - mapping->start + mapping->offset;
    *ret = (struct symbol){.module = file->module, .build_id = file->build_id};
    if (!elf_image_address(&file->image, file_offset, &address)) {
        symbols_numbered(symbols, file->module, file_offset, ret);
        return;
    }
    struct symbols_recent *recent =
            &symbols->recent[((address ^ file->generation) * 0x9e3779b97f4a7c15ULL >> 40) %
                    SYMBOLS_RECENT];
    if (recent->generation != file->generation || recent->address != address) {
        elf_files_load(&symbols->files, file, process->ended ? 0 : process->tgid, mapping->path);
        symbols_ask_file(symbols, file, address, ret);
        *recent = (struct symbols_recent){
                address, file->generation, ret->known, ret->name, ret->offset};
    }
    ret->name = recent->name;
    ret->offset = recent->offset;
    ret->known = recent->known;
}

static bool symbols_in_perf_map(
        struct symbols *symbols, struct symbol_process *process, uint64_t ip, struct symbol *ret)
{
    char raw[SYMBOL_NAME_MAX];
    uint64_t offset = 0;
    processes_read_perf_map(&symbols->processes, process, false);
    size_t len =
            process->perf_map ? perf_map_find(process->perf_map, ip, raw, sizeof(raw), &offset) : 0;
    if (!len)
        return false;
    const char *name = names_intern(&symbols->names, raw, len);
    *ret = (struct symbol){.name = name ? name : "[names full]",
            .module = "[jit]",
            .offset = offset,
            .known = name != NULL};
    return true;
}

static void symbols_in_process(struct symbols *symbols, struct symbol_process *process,
        uint64_t at_ns, uint64_t ip, struct symbol *ret)
{
    struct mapping *mapping = mapping_table_find(&process->table, ip, at_ns);
    if (!mapping && processes_read_maps(&symbols->processes, process, false))
        mapping = mapping_table_find(&process->table, ip, at_ns);
    *ret = (struct symbol){.name = "[anon]", .module = "[anon]"};
    if (!mapping)
        return;
    if (mapping->kind == MAPPING_SPECIAL) {
        ret->name = ret->module = mapping->path;
        return;
    }
    if (mapping->kind == MAPPING_JIT) {
        ret->name = ret->module = "[jit]";
        if (symbols_in_perf_map(symbols, process, ip, ret) || !mapping_is_memory_file(mapping))
            return;
    }
    struct symbol_file *file = processes_file(&symbols->processes, process, mapping);
    if (file) {
        symbols_in_file(symbols, file, process, mapping, ip, ret);
    } else if (mapping->kind != MAPPING_JIT) {
        ret->module = symbols_path_module(symbols, mapping->path);
        symbols_numbered(symbols, ret->module, ip - mapping->start + mapping->offset, ret);
    }
}

void symbols_process_lookup_at(struct symbols *symbols, pid_t tgid, uint64_t start, uint64_t at_ns,
        uint64_t ip, struct symbol *ret)
{
    struct symbol_process *process;
    symbols->stats.lookups++;
    if (processes_get(&symbols->processes, tgid, start, &process)) {
        symbols_unknown(symbols, "[ended]", ret);
        return;
    }
    symbols_in_process(symbols, process, at_ns, ip, ret);
    symbols->stats.unknown += !ret->known;
}

static void symbols_code_in_file(const struct symbol_file *file, const struct mapping *mapping,
        uint64_t ip, struct symbols_code *ret)
{
    uint64_t file_offset = ip - mapping->start + mapping->offset;
    for (uint32_t i = 0; i < file->image.segment_count; i++) {
        const struct elf_segment *one = &file->image.segments[i];
        if (file_offset < one->offset || file_offset - one->offset >= one->file_bytes)
            continue;
        ret->file = file->generation;
        ret->fd = file->fd;
        ret->address = one->address + (mapping->offset - one->offset);
        ret->segment_begin = one->address;
        ret->segment_end = one->address + one->bytes;
        ret->segment = i;
        return;
    }
}

bool symbols_process_code(struct symbols *symbols, pid_t tgid, uint64_t start, uint64_t at_ns,
        uint64_t ip, struct symbols_code *ret)
{
    struct symbol_process *process;
    if (processes_get(&symbols->processes, tgid, start, &process))
        return false;
    struct mapping *mapping = mapping_table_find(&process->table, ip, at_ns);
    if (!mapping && processes_read_maps(&symbols->processes, process, false))
        mapping = mapping_table_find(&process->table, ip, at_ns);
    if (!mapping)
        return false;
    *ret = (struct symbols_code){.begin = mapping->start, .end = mapping->end};
    struct symbol_file *file = NULL;
    if (mapping->kind == MAPPING_FILE || mapping->kind == MAPPING_VDSO)
        file = processes_file(&symbols->processes, process, mapping);
    if (file)
        symbols_code_in_file(file, mapping, ip, ret);
    return true;
}

void symbols_stats(const struct symbols *symbols, struct symbols_stats *ret)
{
    *ret = symbols->stats;
    ret->strings_dropped = symbols->names.dropped;
    ret->files_open = elf_files_open_count(&symbols->files);
    ret->processes = 0;
    for (uint32_t i = 0; i < symbols->processes.processes_max; i++)
        ret->processes += symbols->processes.slots[i].tgid != 0;
    ret->bytes_strings = symbols->names.bytes;
    ret->bytes_kernel = kernel_symbols_bytes(&symbols->kernel);
}
