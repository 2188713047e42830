// SPDX-License-Identifier: Apache-2.0
// The cache of ELF files. 512 slots are searched one by one: that happens when maps are read, never
// in a lookup. Two limits, two ways out: too many files closes the oldest one; too much memory
// drops the oldest table and keeps its file open, so that it can be built again if it is deleted.
#include "tracer/symbols/elf_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/target/file.h"

static const int64_t elf_files_sweep_ns = INT64_C(30000000000);

void elf_files_init(struct elf_files *files, uint32_t files_max)
{
    files->files_max = files_max;
    files->slots = xcalloc(files_max, sizeof(*files->slots));
}

static uint64_t elf_files_table_bytes(const struct symbol_file *file)
{
    return file->table.count * sizeof(*file->table.symbols) + file->table.memory_bytes;
}

static void elf_files_unload(struct elf_files *files, struct symbol_file *file)
{
    files->stats->bytes_tables -= elf_files_table_bytes(file);
    elf_table_free(&file->table);
    file->loaded = false;
}

static void elf_files_close(struct elf_files *files, struct symbol_file *file)
{
    elf_files_unload(files, file);
    if (file->unwind)
        eh_file_close(file->unwind);
    free(file->unwind);
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    *file = (struct symbol_file){.fd = -1};
}

static struct symbol_file *elf_files_free_slot(struct elf_files *files)
{
    struct symbol_file *oldest = &files->slots[0];
    for (uint32_t i = 0; i < files->files_max; i++) {
        struct symbol_file *one = &files->slots[i];
        if (!one->generation)
            return one;
        if (one->used < oldest->used)
            oldest = one;
    }
    elf_files_close(files, oldest);
    files->stats->files_evicted++;
    return oldest;
}

static int64_t elf_files_changed_ns(const struct stat *status)
{
    return status->st_mtim.tv_sec * INT64_C(1000000000) + status->st_mtim.tv_nsec;
}

static struct symbol_file *elf_files_known(
        const struct elf_files *files, const struct stat *status, int64_t changed_ns)
{
    for (uint32_t i = 0; i < files->files_max; i++) {
        struct symbol_file *one = &files->slots[i];
        if (one->generation && one->device == status->st_dev && one->inode == status->st_ino &&
                one->changed_ns == changed_ns && one->bytes == (uint64_t)status->st_size)
            return one;
    }
    return NULL;
}

// "/usr/lib/libfoo.so.1 (deleted)" -> "libfoo.so.1"
static const char *elf_files_module(struct elf_files *files, const char *path)
{
    const char *name = string_base_name(path);
    size_t len = strlen(name), mark = strlen(" (deleted)");
    if (len > mark && !strcmp(name + len - mark, " (deleted)"))
        len -= mark;
    const char *kept = names_intern(files->names, name, len);
    return kept ? kept : "[names full]";
}

// False, EAGAIN: it cannot be read now.
static bool elf_files_fill(struct elf_files *files, struct symbol_file *file, const char *path)
{
    int code = elf_image_read(file->fd, &file->image);
    if (code == -EAGAIN) {
        elf_files_close(files, file);
        errno = EAGAIN;
        return false;
    }
    file->path = xstrdup(path);
    file->module = elf_files_module(files, path);
    if (code) {
        file->refused = true;
        files->stats->files_refused++;
        close(file->fd);
        file->fd = -1;
    } else if (*file->image.build_id) {
        file->build_id =
                names_intern(files->names, file->image.build_id, strlen(file->image.build_id));
    }
    return true;
}

// A deleted file takes its place on the disk as long as somebody holds it: those that nobody has
// asked for since the last sweep are let go. A process that still maps one opens it again.
static void elf_files_sweep(struct elf_files *files)
{
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns - files->swept_ns < elf_files_sweep_ns)
        return;
    for (uint32_t i = 0; i < files->files_max; i++) {
        struct symbol_file *one = &files->slots[i];
        struct stat status;
        if (one->generation && one->fd >= 0 && one->used <= files->swept_used &&
                target_file_status(one->fd, &status) == 0 && status.st_nlink == 0)
            elf_files_close(files, one);
    }
    files->swept_ns = now_ns;
    files->swept_used = files->used;
}

bool elf_files_adopt(struct elf_files *files, int fd, const char *path, struct file_ref *ret)
{
    struct stat status;
    if (target_file_status(fd, &status) || !S_ISREG(status.st_mode)) {
        int code = errno;
        close(fd);
        errno = code;
        return false;
    }
    int64_t changed_ns = elf_files_changed_ns(&status);
    elf_files_sweep(files);
    struct symbol_file *file = elf_files_known(files, &status, changed_ns);
    if (file) {
        close(fd);
    } else {
        file = elf_files_free_slot(files);
        // 32 bits: 4 billion adoptions until a generation comes back.
        *file = (struct symbol_file){.device = status.st_dev,
                .inode = status.st_ino,
                .bytes = (uint64_t)status.st_size,
                .changed_ns = changed_ns,
                .generation = ++files->generation,
                .fd = fd};
        if (!elf_files_fill(files, file, path))
            return false;
    }
    file->used = ++files->used;
    *ret = (struct file_ref){(uint32_t)(file - files->slots), file->generation};
    return true;
}

bool elf_files_known_as(
        const struct elf_files *files, const char *build_id, const char *path, struct file_ref *ret)
{
    for (uint32_t i = 0; build_id && i < files->files_max; i++) {
        const struct symbol_file *one = &files->slots[i];
        if (one->generation && one->build_id == build_id && !strcmp(one->path, path)) {
            *ret = (struct file_ref){i, one->generation};
            return true;
        }
    }
    return false;
}

bool elf_files_known_by(
        const struct elf_files *files, uint64_t device, uint64_t inode, struct file_ref *ret)
{
    struct stat status;
    for (uint32_t i = 0; inode && i < files->files_max; i++) {
        const struct symbol_file *one = &files->slots[i];
        if (!one->generation || one->fd < 0 || one->device != device || one->inode != inode)
            continue;
        *ret = (struct file_ref){i, one->generation};
        return target_file_status(one->fd, &status) == 0 &&
                elf_files_known(files, &status, elf_files_changed_ns(&status)) == one;
    }
    return false;
}

struct symbol_file *elf_files_get(struct elf_files *files, struct file_ref ref)
{
    if (!ref.generation || ref.slot >= files->files_max ||
            files->slots[ref.slot].generation != ref.generation)
        return NULL;
    files->slots[ref.slot].used = ++files->used;
    return &files->slots[ref.slot];
}

static void elf_files_on_growth(void *files, uint64_t bytes)
{
    elf_files_make_room(files, bytes, NULL);
}

void elf_files_load(struct elf_files *files, struct symbol_file *file, pid_t tgid, const char *path)
{
    if (file->loaded || file->refused)
        return;
    // One table may take half of the budget, so that two large libraries do not chase each other.
    uint64_t count_max = files->bytes_max / 2 / sizeof(struct elf_symbol);
    file->table = (struct elf_table){.make_room = elf_files_on_growth, .context = files};
    const struct debug_search search = {.path = path,
            .proc = files->proc,
            .tgid = tgid,
            .silent = &files->debug_silent,
            .debug_path = files->debug_path,
            .cache_path = files->cache_path};
    debug_table_load(&file->table, &file->image, file->fd, &search,
            count_max < UINT32_MAX ? (uint32_t)count_max : UINT32_MAX);
    file->loaded = true;
    files->stats->files_loaded++;
    files->stats->symbols_dropped += file->table.dropped;
    files->stats->bytes_tables += elf_files_table_bytes(file);
    elf_files_make_room(files, 0, file); // what was decompressed is known only now
}

bool elf_files_function(
        struct symbol_file *file, uint64_t address, uint64_t *ret_begin, uint64_t *ret_end)
{
    if (file->refused)
        return false;
    if (!file->unwind) {
        file->unwind = xcalloc(1, sizeof *file->unwind);
        if (eh_file_open(file->fd, file->unwind))
            eh_file_close(file->unwind); // it has none then
    }
    // What runs, runs in one function for long.
    if (address < file->function_begin || address >= file->function_end) {
        if (!eh_file_function(file->unwind, address, ret_begin, ret_end))
            return false;
        file->function_begin = *ret_begin;
        file->function_end = *ret_end;
    }
    *ret_begin = file->function_begin;
    *ret_end = file->function_end;
    return true;
}

void elf_files_make_room(struct elf_files *files, uint64_t bytes, const struct symbol_file *keep)
{
    while (files->stats->bytes_tables + bytes > files->bytes_max) {
        struct symbol_file *oldest = NULL;
        for (uint32_t i = 0; i < files->files_max; i++) {
            struct symbol_file *one = &files->slots[i];
            if (one->loaded && one != keep && elf_files_table_bytes(one) &&
                    (!oldest || one->used < oldest->used))
                oldest = one;
        }
        if (!oldest)
            return;
        elf_files_unload(files, oldest);
        files->stats->files_evicted++;
    }
}

uint64_t elf_files_open_count(const struct elf_files *files)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < files->files_max; i++) {
        const struct symbol_file *one = &files->slots[i];
        count += one->generation && one->fd >= 0;
        for (uint32_t j = 0; j < one->table.source_count; j++)
            count += one->table.sources[j].owned;
    }
    return count;
}

void elf_files_free(struct elf_files *files)
{
    for (uint32_t i = 0; files->slots && i < files->files_max; i++)
        if (files->slots[i].generation)
            elf_files_close(files, &files->slots[i]);
    free(files->slots);
    files->slots = NULL;
}
