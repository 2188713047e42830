// SPDX-License-Identifier: Apache-2.0
// A reader of the spool for tests: maps the memfd of this process once more, as a recorder does
// from outside, drains what is committed, gives FULL segments back, and hands each record on.
#ifndef UPGATE_TESTS_UNIT_TEST_SPOOL_RIG_H
#define UPGATE_TESTS_UNIT_TEST_SPOOL_RIG_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contracts/spool.h"
#include "tests/unit/runner.h"

struct spool_rig {
    struct ug_spool_header *header;
    struct ug_spool_segment *segments;
    unsigned char *data;
    uint64_t sequence[UG_SPOOL_SEGMENT_COUNT]; // of the take that is being read
    uint32_t read[UG_SPOOL_SEGMENT_COUNT];
    uint64_t records, broken;
    bool hold; // never store FREE
    void (*each)(struct spool_rig *rig, const struct ug_rec_head *head);
    void *user;
};

// Descriptors of this process whose link names the spool.
__attribute__((unused)) static int spool_rig_fds(int *ret_fd)
{
    int found = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[300], link[300];
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length <= 0)
            continue;
        link[length] = 0;
        if (!strcmp(link, "/memfd:" UG_SPOOL_NAME " (deleted)")) {
            *ret_fd = atoi(entry->d_name);
            found++;
        }
    }
    if (folder)
        closedir(folder);
    return found;
}

__attribute__((unused)) static struct spool_rig *spool_rig_open(
        void (*each)(struct spool_rig *rig, const struct ug_rec_head *head), void *user)
{
    int fd = -1;
    struct stat stat = {0};
    static struct spool_rig one; // a case is a process, and has one spool
    struct spool_rig *rig = &one;
    CHECK_INT(spool_rig_fds(&fd), 1);
    CHECK_INT(fstat(fd, &stat), 0);
    rig->header = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(rig->header != MAP_FAILED && rig->header->magic == UG_SPOOL_MAGIC);
    CHECK_INT(rig->header->file_bytes, stat.st_size);
    rig->segments =
            (struct ug_spool_segment *)((unsigned char *)rig->header + UG_SPOOL_HEADER_BYTES);
    rig->data = (unsigned char *)rig->header + rig->header->data_offset;
    rig->each = each;
    rig->user = user;
    return rig;
}

static void spool_rig_segment(struct spool_rig *rig, uint32_t i)
{
    struct ug_spool_segment *segment = &rig->segments[i];
    uint32_t state = __atomic_load_n(&segment->state, __ATOMIC_ACQUIRE);
    if (state == UG_SEGMENT_FREE)
        return;
    uint64_t sequence = __atomic_load_n(&segment->sequence, __ATOMIC_ACQUIRE);
    if (sequence != rig->sequence[i]) {
        rig->sequence[i] = sequence;
        rig->read[i] = 0;
    }
    uint32_t committed = __atomic_load_n(&segment->committed, __ATOMIC_ACQUIRE);
    const unsigned char *data = rig->data + (size_t)i * UG_SPOOL_SEGMENT_BYTES;
    while (rig->read[i] < committed) {
        const struct ug_rec_head *head = (const void *)(data + rig->read[i]);
        if (head->bytes < sizeof *head || head->bytes % 8 ||
                head->bytes > committed - rig->read[i] || !head->type ||
                head->type >= UG_REC_TYPE_COUNT) {
            rig->broken++;
            rig->read[i] = committed;
            break;
        }
        rig->records++;
        if (rig->each)
            rig->each(rig, head);
        rig->read[i] += head->bytes;
    }
    if (state == UG_SEGMENT_FULL && !rig->hold) {
        __atomic_store_n(&segment->committed, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&segment->state, UG_SEGMENT_FREE, __ATOMIC_RELEASE);
    }
}

__attribute__((unused)) static void spool_rig_drain(struct spool_rig *rig)
{
    for (uint32_t i = 0; i < UG_SPOOL_SEGMENT_COUNT; i++)
        spool_rig_segment(rig, i);
}

__attribute__((unused)) static int spool_rig_count(const struct spool_rig *rig, uint32_t state)
{
    int count = 0;
    for (uint32_t i = 0; i < UG_SPOOL_SEGMENT_COUNT; i++)
        count += __atomic_load_n(&rig->segments[i].state, __ATOMIC_ACQUIRE) == state;
    return count;
}

#endif
