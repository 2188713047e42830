// SPDX-License-Identifier: Apache-2.0
#include "tests/mock/nccl_rig.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tracer/inject/inject.h"
#include "tracer/inject/nccl/nccl.h"
#include "tracer/inject/spool/spool_writer.h"

enum { RECORDS = 100000, TEXTS = 256 };

static struct ug_rec_nccl records[RECORDS];
static uint32_t count, kinds, starts;
static struct ug_spool_header header;
static char texts[TEXTS][64];
static uint32_t text_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void rig_kinds(uint32_t now)
{
    if (!now)
        nccl_kinds_changed(0);
    __atomic_store_n(&kinds, now, __ATOMIC_RELEASE);
    if (now)
        nccl_kinds_changed(now);
}

uint32_t rig_count(void)
{
    return __atomic_load_n(&count, __ATOMIC_ACQUIRE);
}

const struct ug_rec_nccl *rig_record(uint32_t index)
{
    static const struct ug_rec_nccl none;
    return index < rig_count() ? &records[index] : &none;
}

const char *rig_text(uint32_t id)
{
    return id && id <= text_count ? texts[id - 1] : "";
}

void rig_clear(void)
{
    pthread_mutex_lock(&lock);
    count = text_count = 0;
    memset(texts, 0, sizeof texts);
    pthread_mutex_unlock(&lock);
}

struct ug_spool_header *rig_header(void)
{
    return &header;
}

uint32_t rig_starts(void)
{
    return starts;
}

int inject_start(void)
{
    __atomic_fetch_add(&starts, 1, __ATOMIC_RELAXED);
    return 0;
}

uint32_t inject_kinds(void)
{
    return __atomic_load_n(&kinds, __ATOMIC_ACQUIRE);
}

struct ug_spool_header *spool_header(void)
{
    return &header;
}

uint32_t spool_tid(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

void spool_count(enum ug_spool_producer producer)
{
    __atomic_fetch_add(&header.counts[producer].seen, 1, __ATOMIC_RELAXED);
}

void *spool_reserve(enum ug_spool_producer producer, size_t bytes)
{
    spool_count(producer);
    pthread_mutex_lock(&lock); // until it is published
    if (bytes == sizeof(records[0]) && count < RECORDS)
        return &records[count];
    __atomic_fetch_add(&header.counts[producer].dropped, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    return NULL;
}

void spool_drop(enum ug_spool_producer producer)
{
    spool_count(producer);
    __atomic_fetch_add(&header.counts[producer].dropped, 1, __ATOMIC_RELAXED);
}

void spool_publish(size_t bytes)
{
    (void)bytes;
    __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

uint32_t spool_string(const char *text, size_t bytes)
{
    uint32_t id = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < text_count && !id; i++)
        if (strlen(texts[i]) == bytes && !memcmp(texts[i], text, bytes))
            id = i + 1;
    if (!id && text_count < TEXTS && bytes < sizeof(texts[0])) {
        memcpy(texts[text_count], text, bytes);
        id = ++text_count;
    }
    pthread_mutex_unlock(&lock);
    return id;
}
