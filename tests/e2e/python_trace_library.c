// SPDX-License-Identifier: Apache-2.0
// Stands in for libupgate_inject.so (same name, same API of contracts/inject_api.h) so that the
// Python side can be tested and measured alone: records go to a buffer in memory, which the test
// reads through ctypes. Python is started as the real library does it: from a thread of C, by a
// line of text.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "contracts/inject_api.h"

#define BUFFER_BYTES (64u << 20)
#define TEXTS_MAX 65536
#define EXPORT __attribute__((visibility("default")))

const struct ug_inject_api *upgate_inject_api(uint32_t version);
const unsigned char *stub_records(void);
uint64_t stub_bytes(void);
const char *stub_text(uint32_t id);
void stub_clear(void);
void stub_launch(uint32_t correlation);
int stub_python(const char *directory, uint32_t kinds);

static unsigned char buffer[BUFFER_BYTES];
static _Atomic uint64_t used;
static char *texts[TEXTS_MAX]; // by id
static uint32_t text_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*_Atomic on_launch)(uint32_t correlation);
static _Atomic uint32_t on;
static _Thread_local uint32_t tid;

static uint32_t kinds(void)
{
    return on;
}

// Linear: the bench has few texts. The real one hashes.
static uint32_t string(const char *text, size_t text_bytes)
{
    uint32_t id = 0;

    pthread_mutex_lock(&lock);
    for (uint32_t i = 1; i <= text_count && id == 0; i++) {
        id = strlen(texts[i]) == text_bytes && memcmp(texts[i], text, text_bytes) == 0 ? i : 0;
    }
    if (id == 0 && text_count < TEXTS_MAX - 1) {
        id = ++text_count;
        texts[id] = strndup(text, text_bytes);
    }
    pthread_mutex_unlock(&lock);
    return id;
}

static int put(enum ug_spool_producer producer, const void *record)
{
    struct ug_rec_head head;
    uint64_t at;

    memcpy(&head, record, sizeof(head));
    if ((head.type == UG_REC_THREAD ? UG_PRODUCER_OTHER : UG_PRODUCER_PYTHON) != producer) {
        return -1;
    }
    if (on == 0) {
        return -1;
    }
    at = atomic_fetch_add(&used, head.bytes);
    if (at + head.bytes > BUFFER_BYTES) {
        return -1;
    }
    if (tid == 0) {
        tid = (uint32_t)syscall(SYS_gettid);
    }
    memcpy(buffer + at, record, head.bytes);
    if (head.tid == 0) {
        memcpy(buffer + at + offsetof(struct ug_rec_head, tid), &tid, sizeof(tid));
    }
    return 0;
}

static void set_on_launch(void (*launched)(uint32_t correlation))
{
    on_launch = launched;
}

static const struct ug_inject_api api = {
        .version = UG_INJECT_API_VERSION,
        .bytes = sizeof(api),
        .kinds = kinds,
        .string = string,
        .put = put,
        .on_launch = set_on_launch,
};

EXPORT const struct ug_inject_api *upgate_inject_api(uint32_t version)
{
    return version == UG_INJECT_API_VERSION ? &api : NULL;
}

EXPORT const unsigned char *stub_records(void)
{
    return buffer;
}

EXPORT uint64_t stub_bytes(void)
{
    return used;
}

EXPORT const char *stub_text(uint32_t id)
{
    return id == 0 || id > text_count ? NULL : texts[id];
}

EXPORT void stub_clear(void)
{
    used = 0;
}

EXPORT void stub_launch(uint32_t correlation)
{
    void (*launched)(uint32_t) = on_launch;

    if (launched != NULL) {
        launched(correlation);
    }
}

struct start {
    char line[8192];
    int rc;
};

static void *run(void *arg)
{
    int (*ensure)(void) = NULL, (*run_line)(const char *) = NULL;
    void (*release)(int) = NULL;
    struct start *start = arg;

    *(void **)&ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    *(void **)&release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
    *(void **)&run_line = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    if (ensure != NULL && release != NULL && run_line != NULL) {
        int state = ensure();

        start->rc = run_line(start->line);
        release(state);
    }
    return NULL;
}

// Called without the GIL (ctypes.CDLL). Returns what PyRun_SimpleString did.
EXPORT int stub_python(const char *directory, uint32_t want)
{
    struct start *start = calloc(1, sizeof(*start));
    pthread_t thread;
    int rc = -1;

    if (start == NULL) {
        return -1;
    }
    on = want;
    start->rc = -1;
    snprintf(start->line, sizeof(start->line),
            "try:\n exec(\"with open(DIRECTORY + '/upgate/_inject.py') as f: exec(f.read())\", "
            "{'DIRECTORY': '%s', 'KINDS': %u})\nexcept BaseException:\n pass\n",
            directory, want);
    if (pthread_create(&thread, NULL, run, start) == 0) {
        pthread_join(thread, NULL);
        rc = start->rc;
    }
    free(start);
    return rc;
}
