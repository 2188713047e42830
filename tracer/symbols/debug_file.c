// SPDX-License-Identifier: Apache-2.0
// Chooses the sources of a symbol table. A debug file is believed only if its build-id is that of
// the running file, so a leftover of another version never names anything. Decompression is bounded
// in memory and in output, because the file belongs to the traced process. All are opened by
// common/target/file.h.
#include "tracer/symbols/debug_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef UPGATE_HAVE_LZMA
#include <lzma.h>
#endif

#include "common/strings.h"
#include "common/target/file.h"

enum { DEBUG_PATH_MAX = 4096 };
#define DEBUG_TARGET_PATH "/usr/lib/debug" // in the root of a target

// The file that was opened, if it carries the build-id, else -1. Takes fd, which may be -1.
static int debug_checked(int fd, const char *build_id)
{
    struct elf_image image;
    if (fd < 0)
        return -1;
    if (elf_image_read(fd, &image) || strcmp(image.build_id, build_id)) {
        close(fd);
        return -1;
    }
    return fd;
}

// Whether the path leads us to this very file: in another root it may lead us anywhere.
static bool debug_is_here(int fd, const char *path)
{
    struct stat own;
    int here = target_file_status(fd, &own) == 0
            ? target_file_open_known(path, own.st_dev, own.st_ino)
            : -1;
    if (here >= 0)
        close(here);
    return here >= 0;
}

// Where the file at hand may have a debug file, best first. False: there is no such place.
static bool debug_candidate(const struct elf_image *image, const char *debug_link,
        const struct debug_search *search, const char *root, int i, char ret[DEBUG_PATH_MAX])
{
    const char *slash = search->path ? strrchr(search->path, '/') : NULL;
    int len = 0;
    if (i == 0)
        len = snprintf(ret, DEBUG_PATH_MAX, "%s/.build-id/%.2s/%s.debug", root, image->build_id,
                image->build_id + 2);
    else if (*debug_link && slash && !strchr(debug_link, '/'))
        len = snprintf(ret, DEBUG_PATH_MAX, "%s%.*s/%s%s", i < 3 ? root : "",
                (int)(slash - search->path), search->path, i % 2 ? "" : ".debug/", debug_link);
    return len > 0 && len < DEBUG_PATH_MAX;
}

// the latter: not beside the file itself
enum { DEBUG_CANDIDATES = 5, DEBUG_CANDIDATES_BY_ROOT = 3 };

// What the root of a process has for a file of it. Its own link is resolved there, and nowhere
// else.
static int debug_find_inside(
        const struct elf_image *image, const char *debug_link, const struct debug_search *search)
{
    char path[DEBUG_PATH_MAX];
    int fd = -1;
    for (int i = 0; fd < 0 && i < DEBUG_CANDIDATES && *search->silent < DEBUG_SILENT_MAX; i++) {
        if (!debug_candidate(image, debug_link, search, DEBUG_TARGET_PATH, i, path))
            continue;
        int found = target_file_open(search->proc, search->tgid, path, 0);
        if (found < 0 && errno == EAGAIN) {
            ++*search->silent;
            break;
        }
        fd = debug_checked(found, image->build_id);
    }
    return fd;
}

static int debug_find_here(const struct elf_image *image, const char *debug_link,
        const struct debug_search *search, bool here)
{
    char path[DEBUG_PATH_MAX];
    int fd = -1, count = here ? DEBUG_CANDIDATES : DEBUG_CANDIDATES_BY_ROOT;
    for (int i = 0; fd < 0 && i < count; i++)
        if (debug_candidate(image, debug_link, search, search->debug_path, i, path))
            fd = debug_checked(target_file_open_here(path, 0), image->build_id);
    if (fd < 0 && search->cache_path &&
            snprintf(path, sizeof path, "%s/%s/debuginfo", search->cache_path, image->build_id) <
                    DEBUG_PATH_MAX)
        // empty where no server had one
        fd = debug_checked(target_file_open_here(path, 0), image->build_id);
    return fd;
}

static int debug_find(const struct elf_image *image, const struct elf_sections *sections,
        int image_fd, const struct debug_search *search)
{
    if (strlen(image->build_id) < 4)
        return -1;
    // A file of ours, and the vdso, which has no path, is everybody's: what a process with a root
    // of its own has for it would name it for all.
    bool here = search->path && (*search->path != '/' || debug_is_here(image_fd, search->path));
    int fd = search->tgid && !here ? debug_find_inside(image, sections->debug_link, search) : -1;
    return fd >= 0 ? fd : debug_find_here(image, sections->debug_link, search, here);
}

static size_t debug_add(
        struct elf_table *table, const struct elf_image *image, int fd, uint32_t count_max)
{
    struct elf_sections sections;
    elf_sections_read(fd, &sections);
    return elf_table_add(
            table, image, fd, true, &sections.symtab, &sections.symtab_names, count_max);
}

#ifdef UPGATE_HAVE_LZMA

enum {
    DEBUG_XZ_MEMORY_MAX = 12 << 20, // xz -6, what find-debuginfo uses, needs 9 MiB
    DEBUG_XZ_OUTPUT_MAX = 16 << 20, // libpython3.12 of Fedora: 0.6 MB
    DEBUG_XZ_INPUT_MAX = 8 << 20,
    DEBUG_XZ_CHUNK = 64 << 10,
};

static bool debug_write(int fd, const uint8_t *bytes, size_t len)
{
    return !len || write(fd, bytes, len) == (ssize_t)len;
}

// The stream in a range of the file, decompressed into a memory file; false if any of it is wrong.
static bool debug_decompress(
        int from, const struct elf_range *range, int to, uint8_t *in, uint8_t *out)
{
    lzma_stream stream = LZMA_STREAM_INIT;
    uint64_t taken = 0;
    bool good = lzma_stream_decoder(&stream, DEBUG_XZ_MEMORY_MAX, 0) == LZMA_OK;
    lzma_ret state = LZMA_OK;
    while (good && state == LZMA_OK) {
        if (!stream.avail_in && taken < range->bytes) {
            uint64_t left = range->bytes - taken;
            stream.avail_in = left < DEBUG_XZ_CHUNK ? (size_t)left : DEBUG_XZ_CHUNK;
            stream.next_in = in;
            good = !elf_read(from, in, stream.avail_in, range->offset + taken);
            taken += stream.avail_in;
        }
        stream.next_out = out;
        stream.avail_out = DEBUG_XZ_CHUNK;
        state = good ? lzma_code(&stream, taken < range->bytes ? LZMA_RUN : LZMA_FINISH)
                     : LZMA_DATA_ERROR;
        good = good && (state == LZMA_OK || state == LZMA_STREAM_END) &&
                stream.total_out <= DEBUG_XZ_OUTPUT_MAX &&
                debug_write(to, out, DEBUG_XZ_CHUNK - stream.avail_out);
    }
    lzma_end(&stream);
    return good && state == LZMA_STREAM_END;
}

static void debug_add_compressed(struct elf_table *table, const struct elf_image *image, int from,
        const struct elf_range *range, uint32_t count_max)
{
    if (!range->bytes || range->bytes > DEBUG_XZ_INPUT_MAX)
        return;
    int fd = memfd_create("upgate-symbols", MFD_CLOEXEC);
    if (fd < 0)
        return;
    uint8_t *buffers = xcalloc(2, DEBUG_XZ_CHUNK);
    struct stat status;
    if (debug_decompress(from, range, fd, buffers, buffers + DEBUG_XZ_CHUNK) &&
            !fstat(fd, &status)) {
        if (debug_add(table, image, fd, count_max))
            table->memory_bytes += (uint64_t)status.st_size;
    } else {
        close(fd);
    }
    free(buffers);
}

#else

static void debug_add_compressed(struct elf_table *table, const struct elf_image *image, int from,
        const struct elf_range *range, uint32_t count_max)
{
    (void)table, (void)image, (void)from, (void)range, (void)count_max;
}

#endif

size_t debug_table_load(struct elf_table *table, const struct elf_image *image, int fd,
        const struct debug_search *search, uint32_t count_max)
{
    struct elf_sections sections;
    elf_sections_read(fd, &sections);
    if (sections.symtab.bytes)
        elf_table_add(table, image, fd, false, &sections.symtab, &sections.symtab_names, count_max);
    if (!table->count) {
        int debug = debug_find(image, &sections, fd, search);
        if (debug >= 0)
            debug_add(table, image, debug, count_max);
    }
    if (!table->count) {
        elf_table_add(table, image, fd, false, &sections.dynsym, &sections.dynsym_names, count_max);
        debug_add_compressed(table, image, fd, &sections.debug_data, count_max);
    }
    elf_table_sort(table);
    return table->count;
}

char *debug_cache_path(void)
{
    static const char name[] = "debuginfod_client";
    const char *own = getenv("DEBUGINFOD_CACHE_PATH"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (own && *own == '/')
        return xstrdup(own);
    if (cache && *cache == '/')
        return xasprintf("%s/%s", cache, name);
    return home && *home == '/' ? xasprintf("%s/.cache/%s", home, name) : NULL;
}
