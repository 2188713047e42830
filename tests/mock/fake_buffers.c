// SPDX-License-Identifier: Apache-2.0
#include "tests/mock/fake_buffers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/mock/fake.h"

#define SLOT_COUNT 128 // of host threads; slot 0 is everybody's
#define QUEUE_MAX 512
#define UNKNOWN_KIND 77
#define HOARD_BYTES (64u << 10) // of a buffer that is held: CUPTI need not fill them

struct slot {
    pthread_mutex_t lock;
    uint8_t *buffer;
    size_t size, used, records, records_max;
};

struct full {
    uint8_t *buffer;
    size_t size, valid;
};

struct fake_behaviour fake_behaviour;

static struct slot slots[SLOT_COUNT] = {
        [0 ... SLOT_COUNT - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};
static _Atomic(fake_requested_fn) requested;
static _Atomic(fake_completed_fn) completed;
static atomic_int per_thread, zeroed, threads, in_callback_flushes;
static atomic_ulong appended, lost, lost_total, requests, completions, records_given, refused,
        abandoned;
static _Thread_local int own_slot;
static _Thread_local int in_complete;

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_changed = PTHREAD_COND_INITIALIZER;
static struct full queue[QUEUE_MAX];
static size_t queue_begin, queue_end; // of all that ever came
static size_t queue_done;
static bool has_worker;
static int kinds_on;

static pthread_mutex_t wrong_lock = PTHREAD_MUTEX_INITIALIZER;
static char wrong[1024];

void fake_wrong(const char *what)
{
    pthread_mutex_lock(&wrong_lock);
    if (!strstr(wrong, what) && strlen(wrong) + strlen(what) + 3 < sizeof(wrong)) {
        strcat(wrong, wrong[0] ? "; " : "");
        strcat(wrong, what);
    }
    pthread_mutex_unlock(&wrong_lock);
}

static size_t record_bytes(const uint8_t *record)
{
    uint32_t kind;
    memcpy(&kind, record, 4);
    if (kind == UNKNOWN_KIND)
        return 48;
    for (int i = 0; i < CUPTI_RECORD_COUNT; i++)
        if (fake_layout((enum cupti_record)i)->kind == kind)
            return fake_layout((enum cupti_record)i)->bytes;
    return 0;
}

// A child has our locks free, whoever held them when its parent forked: what hangs in a test is
// then the library.
static void lock_all(void)
{
    for (size_t i = 0; i < SLOT_COUNT; i++)
        pthread_mutex_lock(&slots[i].lock);
    pthread_mutex_lock(&queue_lock);
    pthread_mutex_lock(&wrong_lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&wrong_lock);
    pthread_mutex_unlock(&queue_lock);
    for (size_t i = 0; i < SLOT_COUNT; i++)
        pthread_mutex_unlock(&slots[i].lock);
}

__attribute__((constructor)) static void care_for_forks(void)
{
    pthread_atfork(lock_all, unlock_all, unlock_all);
}

// Backwards, in memory of our own: what CUPTI says is only that they are not in order.
static void shuffle(uint8_t *buffer, size_t valid)
{
    uint8_t *copy = malloc(valid);
    if (!copy)
        abort();
    size_t to = valid;
    for (size_t at = 0; at < valid;) {
        size_t bytes = record_bytes(buffer + at);
        to -= bytes;
        memcpy(copy + to, buffer + at, bytes);
        at += bytes;
    }
    memcpy(buffer, copy, valid);
    free(copy);
}

static void give_back(const struct full *full)
{
    if (fake_behaviour.shuffle)
        shuffle(full->buffer, full->valid);
    atomic_fetch_add(&completions, 1);
    fake_completed_fn done = atomic_load(&completed);
    in_complete++;
    fake_cuda_at(FAKE_IN_COMPLETE);
    done(NULL, 0, full->buffer, full->size, full->valid);
    fake_cuda_at(FAKE_OUTSIDE);
    in_complete--;
}

// With queue_lock. CUPTI holds a buffer as long as one of its records is not complete: a long
// kernel will do.
static bool is_hoarding(void)
{
    return fake_behaviour.hoard && kinds_on > 0 && queue_end - queue_begin < QUEUE_MAX;
}

void fake_buffers_kinds(int on)
{
    pthread_mutex_lock(&queue_lock);
    kinds_on = on;
    pthread_cond_broadcast(&queue_changed);
    pthread_mutex_unlock(&queue_lock);
}

static void *work(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&queue_lock);
    for (;;) {
        while (queue_begin == queue_end || is_hoarding())
            pthread_cond_wait(&queue_changed, &queue_lock);
        struct full full = queue[queue_begin++ % QUEUE_MAX];
        pthread_mutex_unlock(&queue_lock);
        give_back(&full);
        pthread_mutex_lock(&queue_lock);
        queue_done++;
        pthread_cond_broadcast(&queue_changed);
    }
    return NULL;
}

static void hand_over(struct full full)
{
    if (!fake_behaviour.worker) {
        give_back(&full);
        return;
    }
    pthread_mutex_lock(&queue_lock);
    if (!has_worker) {
        pthread_t thread;
        has_worker = pthread_create(&thread, NULL, work, NULL) == 0;
        pthread_detach(thread);
    }
    while (queue_end - queue_begin == QUEUE_MAX)
        pthread_cond_wait(&queue_changed, &queue_lock);
    queue[queue_end++ % QUEUE_MAX] = full;
    pthread_cond_broadcast(&queue_changed);
    pthread_mutex_unlock(&queue_lock);
}

static void look_at_new(struct slot *slot)
{
    if ((uintptr_t)slot->buffer % 8)
        fake_wrong("a buffer that is not aligned to 8");
    if (slot->size < 1024)
        fake_wrong("a buffer of less than 1 KiB");
    // While buffers are held the small static ones go round, to several threads at a time: of those
    // nothing can be said.
    if (atomic_load(&zeroed) && !(fake_behaviour.hoard && slot->size <= HOARD_BYTES))
        for (size_t i = 0; i < slot->size; i += 8) {
            uint64_t word;
            memcpy(&word, slot->buffer + i, 8);
            if (word) {
                fake_wrong("a buffer that was promised to be zeroed is not");
                break;
            }
        }
}

static bool request(struct slot *slot)
{
    fake_requested_fn ask = atomic_load(&requested);
    if (!ask)
        return false;
    size_t records_max = 0;
    slot->buffer = NULL;
    slot->size = slot->used = slot->records = 0;
    fake_cuda_at(FAKE_IN_REQUEST);
    ask(&slot->buffer, &slot->size, &records_max);
    fake_cuda_at(FAKE_OUTSIDE);
    atomic_fetch_add(&requests, 1);
    slot->records_max = records_max ? records_max : SIZE_MAX;
    if (!slot->buffer) {
        atomic_fetch_add(&refused, 1);
        fake_wrong("no buffer: CUPTI before 12.9 dies of it");
        return false;
    }
    look_at_new(slot);
    return true;
}

static void lose(void)
{
    atomic_fetch_add(&lost, 1);
    atomic_fetch_add(&lost_total, 1);
}

static void append_to(struct slot *slot, const void *record, size_t bytes)
{
    struct full full = {0};
    pthread_mutex_lock(&slot->lock);
    size_t room = fake_behaviour.hoard && slot->size > HOARD_BYTES ? HOARD_BYTES : slot->size;
    if (slot->buffer && (slot->used + bytes > room || slot->records >= slot->records_max)) {
        full = (struct full){slot->buffer, slot->size, slot->used};
        slot->buffer = NULL;
    }
    if (slot->buffer || request(slot)) {
        memcpy(slot->buffer + slot->used, record, bytes);
        slot->used += bytes;
        slot->records++;
        atomic_fetch_add(&records_given, 1);
    } else {
        lose();
    }
    pthread_mutex_unlock(&slot->lock);
    if (full.buffer)
        hand_over(full);
}

void fake_buffers_append(const void *record, size_t bytes, int is_host)
{
    unsigned long n = atomic_fetch_add(&appended, 1) + 1;
    if (fake_behaviour.drop && n % (unsigned long)fake_behaviour.drop == 0) {
        lose();
        return;
    }
    struct slot *slot = &slots[0];
    if (is_host && atomic_load(&per_thread)) {
        if (!own_slot)
            own_slot = 1 + atomic_fetch_add(&threads, 1) % (SLOT_COUNT - 1);
        slot = &slots[own_slot];
    }
    if (fake_behaviour.unknown && n % (unsigned long)fake_behaviour.unknown == 0) {
        uint32_t stranger[12] = {UNKNOWN_KIND};
        append_to(slot, stranger, sizeof(stranger));
    }
    append_to(slot, record, bytes);
}

void fake_buffers_flush(void)
{
    if (in_complete) {
        atomic_fetch_add(&in_callback_flushes, 1);
        fake_wrong("a flush in a buffer callback");
        return;
    }
    pthread_mutex_lock(&queue_lock);
    bool is_held = is_hoarding();
    pthread_mutex_unlock(&queue_lock);
    if (is_held)
        return; // a flush without force gives complete buffers only
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        pthread_mutex_lock(&slots[i].lock);
        struct full full = {slots[i].buffer, slots[i].size, slots[i].used};
        bool is_due = full.buffer && full.valid;
        if (is_due)
            slots[i].buffer = NULL;
        pthread_mutex_unlock(&slots[i].lock);
        if (is_due)
            hand_over(full);
    }
    if (!fake_behaviour.worker)
        return;
    pthread_mutex_lock(&queue_lock);
    size_t until = queue_end;
    while (queue_done < until)
        pthread_cond_wait(&queue_changed, &queue_lock);
    pthread_mutex_unlock(&queue_lock);
}

int fake_buffers_next(uint8_t *buffer, size_t valid, void **record)
{
    size_t at = 0;
    if (*record)
        at = (size_t)((uint8_t *)*record - buffer) + record_bytes(*record);
    if (at >= valid)
        return 12; // CUPTI_ERROR_MAX_LIMIT_REACHED
    size_t bytes = record_bytes(buffer + at);
    if (!bytes)
        return 21; // CUPTI_ERROR_INVALID_KIND
    *record = buffer + at;
    return 0;
}

int fake_buffers_register(fake_requested_fn ask, fake_completed_fn done)
{
    if (!ask || !done)
        return 1; // CUPTI_ERROR_INVALID_PARAMETER
    atomic_store(&completed, done);
    atomic_store(&requested, ask);
    return 0;
}

void fake_buffers_reset(void)
{
    atomic_store(&requested, NULL);
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        pthread_mutex_lock(&slots[i].lock);
        atomic_fetch_add(&abandoned, slots[i].buffer ? slots[i].records : 0);
        slots[i].buffer = NULL;
        pthread_mutex_unlock(&slots[i].lock);
    }
}

int fake_buffers_registered(void)
{
    return atomic_load(&requested) != NULL;
}

void fake_buffers_per_thread(int on)
{
    atomic_store(&per_thread, on);
}

void fake_buffers_zeroed(int on)
{
    atomic_store(&zeroed, on);
}

size_t fake_buffers_dropped(void)
{
    return atomic_exchange(&lost, 0);
}

void fake_buffers_report(FILE *out)
{
    size_t waiting = 0;
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        pthread_mutex_lock(&slots[i].lock);
        if (slots[i].buffer) { // still CUPTI's own: it may write there until the end of the process
            waiting += slots[i].records;
            memset(slots[i].buffer + slots[i].used, 0, slots[i].size - slots[i].used);
        }
        pthread_mutex_unlock(&slots[i].lock);
    }
    pthread_mutex_lock(&wrong_lock);
    fprintf(out,
            "\"records\":%lu,\"waiting\":%zu,\"abandoned\":%lu,\"lost\":%lu,\"requests\":%lu,"
            "\"completions\":%lu,"
            "\"refused\":%lu,\"per_thread\":%d,\"zeroed\":%d,\"wrong\":\"%s\"",
            atomic_load(&records_given), waiting, atomic_load(&abandoned), atomic_load(&lost_total),
            atomic_load(&requests), atomic_load(&completions), atomic_load(&refused),
            atomic_load(&per_thread), atomic_load(&zeroed), wrong);
    pthread_mutex_unlock(&wrong_lock);
}
