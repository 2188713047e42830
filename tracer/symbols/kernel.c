// SPDX-License-Identifier: Apache-2.0
// Parses kallsyms into a packed, sorted table. kallsyms has no sizes: a symbol reaches to the next
// one, but never far beyond its module, so that an address in a module that was loaded later is
// unknown instead of wrong.
#include "tracer/symbols/kernel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "tracer/symbols/demangle.h"

enum {
    KERNEL_SYMBOLS_MAX = 600000, // distributions have 110,000 to 250,000 text symbols
    KERNEL_NAMES_BYTES_MAX = 24 << 20,
    KERNEL_MODULES_MAX = 1024,
    KERNEL_SYMBOL_BYTES_MAX = 256 << 10, // the largest function of 6.18 has 60 KiB
    KERNEL_LAST_BYTES_MAX = 16 << 10,    // the last symbol of a module
};

struct kernel_symbol {
    uint64_t address;
    uint32_t name;
} __attribute__((packed));

struct kernel_load {
    struct kernel_symbols *kernel;
    size_t capacity, names_capacity;
    uint64_t lines, nonzero;
    bool unsorted;
};

// Index of a module's name; 0 is the kernel, also for modules beyond the maximum.
static uint32_t kernel_module(struct kernel_symbols *kernel, const char *name)
{
    if (!*name)
        return 0;
    for (uint32_t i = kernel->module_count; i-- > 1;)
        if (!strcmp(kernel->modules[i], name))
            return i;
    if (kernel->module_count == KERNEL_MODULES_MAX)
        return 0;
    snprintf(kernel->modules[kernel->module_count], sizeof(*kernel->modules), "%s", name);
    return kernel->module_count++;
}

static void kernel_add(
        struct kernel_load *load, uint64_t address, const char *name, const char *module)
{
    struct kernel_symbols *kernel = load->kernel;
    size_t len = symbol_name_plain(name, strlen(name)), need = len + 3;
    if (kernel->count == KERNEL_SYMBOLS_MAX ||
            kernel->names_bytes + need > KERNEL_NAMES_BYTES_MAX) {
        kernel->dropped++;
        return;
    }
    kernel->all = vector_reserve(
            kernel->all, &load->capacity, kernel->count + (size_t)1, sizeof(*kernel->all));
    kernel->names =
            vector_reserve(kernel->names, &load->names_capacity, kernel->names_bytes + need, 1);
    uint32_t module_idx = kernel_module(kernel, module);
    char *to = kernel->names + kernel->names_bytes;
    to[0] = (char)(module_idx & 255);
    to[1] = (char)(module_idx >> 8);
    memcpy(to + 2, name, len);
    to[2 + len] = '\0';
    load->unsorted |= kernel->count && kernel->all[kernel->count - 1].address > address;
    kernel->all[kernel->count++] = (struct kernel_symbol){address, (uint32_t)kernel->names_bytes};
    kernel->names_bytes += need;
}

// "ffffffff81000000 T _stext" or "ffffffffc0400000 t nvidia_ioctl\t[nvidia]"
static void kernel_line(struct kernel_load *load, char *line)
{
    char *at, *module = "", *name;
    uint64_t address = strtoull(line, &at, 16);
    if (at == line || *at != ' ' || !at[1] || at[2] != ' ')
        return;
    load->lines++;
    load->nonzero += address != 0;
    name = at + 3;
    if (!address || !strchr("tTwW", at[1])) // weak symbols of the kernel are functions; V is data
        return;
    char *end = name + strcspn(name, " \t\n");
    if (*end) {
        module = end + strspn(end, " \t\n");
        module[strcspn(module, " \t\n")] = '\0';
        *end = '\0';
    }
    if (*name)
        kernel_add(load, address, name, module);
}

// Aliases stay in the order of the file, because the kernel prints the first one in its own traces.
static bool kernel_before(const struct kernel_symbol *a, const struct kernel_symbol *b)
{
    return a->address != b->address ? a->address < b->address : a->name < b->name;
}

static void kernel_explain(struct kernel_load *load, const char *path)
{
    struct kernel_symbols *kernel = load->kernel;
    char *restrict_text = string_read_file("/proc/sys/kernel/kptr_restrict", 16, NULL);
    if (load->lines && !load->nonzero)
        snprintf(kernel->why, sizeof(kernel->why),
                "kernel addresses in '%s' are all zero (kernel.kptr_restrict is %d): kernel "
                "frames have no names; run as root with CAP_SYSLOG, and with "
                "kernel.kptr_restrict below 2",
                path, restrict_text ? atoi(restrict_text) : -1);
    else
        snprintf(kernel->why, sizeof(kernel->why),
                "'%s' has no text symbols: kernel frames have no names; the kernel needs "
                "CONFIG_KALLSYMS",
                path);
    free(restrict_text);
}

void kernel_symbols_load(struct kernel_symbols *kernel, const char *path)
{
    struct kernel_load load = {.kernel = kernel};
    char *line = NULL;
    size_t room = 0;
    kernel->loaded = true;
    FILE *file = fopen(path, "re");
    if (!file) {
        snprintf(kernel->why, sizeof(kernel->why),
                "failed to open '%s': %s: kernel frames have no names", path, strerror(errno));
        return;
    }
    setvbuf(file, NULL, _IOFBF, 64 << 10);
    kernel->modules = xcalloc(KERNEL_MODULES_MAX, sizeof(*kernel->modules));
    snprintf(kernel->modules[0], sizeof(*kernel->modules), "kernel");
    kernel->module_count = 1;
    while (getline(&line, &room, file) > 0)
        kernel_line(&load, line);
    free(line);
    fclose(file);
    if (!kernel->count) {
        kernel_explain(&load, path);
        return;
    }
    if (load.unsorted)
        sort_in_place(kernel->all, kernel->count, x, y, kernel_before(x, y));
    kernel->all = xrealloc(kernel->all, kernel->count * sizeof(*kernel->all));
    kernel->names = xrealloc(kernel->names, kernel->names_bytes);
    kernel->modules = xrealloc(kernel->modules, kernel->module_count * sizeof(*kernel->modules));
}

static uint32_t kernel_module_of(const struct kernel_symbols *kernel, uint32_t idx)
{
    const unsigned char *name = (const unsigned char *)kernel->names + kernel->all[idx].name;
    return name[0] | (uint32_t)name[1] << 8;
}

const char *kernel_symbols_find(const struct kernel_symbols *kernel, uint64_t ip,
        const char **ret_module, uint64_t *ret_offset)
{
    uint32_t low = (uint32_t)search_first(i, kernel->count, kernel->all[i].address > ip);
    if (!low)
        return NULL;
    uint32_t idx = low - 1;
    while (idx && kernel->all[idx - 1].address == kernel->all[low - 1].address)
        idx--;
    uint64_t offset = ip - kernel->all[idx].address;
    uint32_t module = kernel_module_of(kernel, idx);
    bool last = low == kernel->count || kernel_module_of(kernel, low) != module;
    const char *name = kernel->names + kernel->all[idx].name + 2;
    if (offset >= (last ? KERNEL_LAST_BYTES_MAX : KERNEL_SYMBOL_BYTES_MAX) ||
            !strcmp(name, "_etext") || !strcmp(name, "_einittext"))
        return NULL;
    *ret_module = kernel->modules[module];
    *ret_offset = offset;
    return name;
}

uint64_t kernel_symbols_bytes(const struct kernel_symbols *kernel)
{
    return kernel->count * sizeof(*kernel->all) + kernel->names_bytes +
            kernel->module_count * sizeof(*kernel->modules);
}

void kernel_symbols_free(struct kernel_symbols *kernel)
{
    free(kernel->all);
    free(kernel->names);
    free(kernel->modules);
    *kernel = (struct kernel_symbols){0};
}
