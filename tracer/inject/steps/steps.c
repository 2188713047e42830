// SPDX-License-Identifier: Apache-2.0
// The rule, the steps, and what is said of them; the one place of the library that speaks the step
// protocol.
#define UG_STEP_VARIABLE "UPGATE_STEPS_INJECT"
#include "contracts/upgate_step.h"

#include "tracer/inject/steps/steps.h"

#include <pthread.h>
#include <stdatomic.h>

#include "contracts/step_cycle.h"
#include "tracer/inject/cupti/cupti_load.h"
#include "tracer/inject/inject.h"

// A step costs 0.2 us and its place in the store; what comes more often than 50,000 times a second
// is none.
#define QUICK_NS 20000u
#define QUICK_MANY 4096u // such steps, and half of all
#define FOUND_BYTES 200u // longer ones are not heard (harness/run/samples.c)
#define DEVICES_MAX 64

static struct {
    pthread_once_t once;
    enum steps_rule rule;
    struct step_range range;
    struct ug_step_looks *looks; // NULL: no file
    _Atomic bool is_off; // until the rule has been read, too: NVTX lets threads in before its first
                         // call has returned
    _Atomic bool is_told; // the rule
    _Atomic bool is_open;
    _Atomic bool is_watching;
    _Atomic int captures; // of graphs, under way
    bool is_undrained;    // and that was said
    uint64_t count, begin_ns, quick;
    char found[FOUND_BYTES];
} steps = {.once = PTHREAD_ONCE_INIT, .is_off = true};

// ---- the rule ----

static struct ug_step_looks *looks_map(void)
{
    const char *path = getenv(UG_STEP_VARIABLE);
    struct stat status;
    int fd = path == NULL || *path == '\0' ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *map = MAP_FAILED;

    if (fd < 0)
        return NULL;
    if (ug_impl_fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
            status.st_size >= (off_t)UG_STEP_HEADER_BYTES)
        map = mmap(NULL, UG_STEP_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return NULL;
    if (ug_impl_header_fault(map, (uint64_t)status.st_size) != NULL) {
        munmap(map, UG_STEP_HEADER_BYTES);
        return NULL;
    }
    return (struct ug_step_looks *)(void *)((char *)map + UG_STEP_LOOKS_OFFSET);
}

static void read_rule(void)
{
    const char *text = getenv("UPGATE_STEP");
    int saved_errno = errno;

    if (text != NULL && strncmp(text, UG_RANGE_RULE, strlen(UG_RANGE_RULE)) == 0 &&
            step_range_parse(text + strlen(UG_RANGE_RULE), &steps.range) == NULL)
        steps.rule = STEPS_NVTX;
    else if (text != NULL && strcmp(text, UG_GRAPH_RULE) == 0)
        steps.rule = STEPS_GRAPH;
    if (steps.rule != STEPS_NONE)
        steps.looks = looks_map();
    if (steps.looks == NULL)
        steps.rule = STEPS_NONE;
    if (steps.rule != STEPS_NONE && pthread_atfork(NULL, NULL, steps_child) == 0)
        atomic_store_explicit(&steps.is_off, false, memory_order_release);
    errno = saved_errno;
}

enum steps_rule steps_rule(void)
{
    pthread_once(&steps.once, read_rule);
    return steps.rule;
}

const struct step_range *steps_range(void)
{
    return &steps.range;
}

bool steps_on(void)
{
    return !atomic_load_explicit(&steps.is_off, memory_order_acquire);
}

// ---- what is told ----

static void tell(const char *name, const char *text)
{
    ug_step_text(UG_BYTES_TEXT, name, text, strlen(text));
}

// Ranks of a job on this machine, as launchers say it.
static void tell_ranks(void)
{
    static const char *const names[] = {
            "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t count = ug_impl_number(getenv(names[i]), '\0');

        if (count > 0 && count <= UG_STEP_SLOTS_MAX) {
            __atomic_store_n(&ug_step_state_v2.slot->ranks, (uint32_t)count, __ATOMIC_RELEASE);
            return;
        }
    }
}

void steps_give_up(const char *why)
{
    struct ug_step_state *s = &ug_step_state_v2;
    char rule[FOUND_BYTES];

    if (atomic_exchange(&steps.is_off, true))
        return;
    if (atomic_exchange(&steps.is_open, false) &&
            __atomic_load_n(&s->status, __ATOMIC_ACQUIRE) == UG_IMPL_ATTACHED) {
        __atomic_store_n(&s->owner, ug_impl_self(), __ATOMIC_RELAXED);
        ug_impl_abandon(s);
    }
    snprintf(rule, sizeof(rule), "!%s", why); // no rule begins so
    if (atomic_load(&steps.is_told))
        tell("steps_from", rule);
    else
        steps_why(why);
}

// A range that is never ended makes no step, and its program should not be told that it has none.
static void on_exit_of_process(void)
{
    char why[FOUND_BYTES];

    if (steps_on() && atomic_load(&steps.is_open) && steps.count == 0 && steps.rule == STEPS_NVTX) {
        snprintf(why, sizeof(why), "%.150s begins and never ends", steps.found);
        steps_give_up(why);
    }
}

void steps_are(const char *found)
{
    if (strcmp(found, steps.found) == 0)
        return;
    snprintf(steps.found, sizeof(steps.found), "%s", found);
    if (atomic_load(&steps.is_told))
        tell("steps_found", steps.found);
}

// Claims the slot.
static void tell_rule(const char *found)
{
    tell("steps_from", steps.rule == STEPS_NVTX ? "nvtx" : "graph");
    if (__atomic_load_n(&ug_step_state_v2.status, __ATOMIC_ACQUIRE) != UG_IMPL_ATTACHED) {
        atomic_store(&steps.is_off, true); // which the protocol has said on stderr
        return;
    }
    atomic_store(&steps.is_told, true);
    steps_are(found);
    tell_ranks();
    atexit(on_exit_of_process); // before the protocol's own, which was registered before
}

// ---- the device ----

static bool device_wait(const struct cuda *cuda, int ordinal)
{
    int device = 0, is_active = 0;
    unsigned flags = 0;
    void *context = NULL;

    if (cuda->device_get(&device, ordinal) != 0 ||
            cuda->primary_state(device, &flags, &is_active) != 0 || !is_active)
        return false;
    if (!atomic_load(&steps.is_watching) || cuda->primary_retain(&context, device) != 0)
        return true;
    if (cuda->context_push(context) == 0) {
        cuda->context_wait();
        cuda->context_pop(&context);
    }
    cuda->primary_release(device);
    return true;
}

static unsigned devices_active(const struct cuda *cuda, int count)
{
    unsigned active = 0;

    for (int i = 0; i < count && i < DEVICES_MAX; i++) {
        int device = 0, is_active = 0;
        unsigned flags = 0;

        if (cuda->device_get(&device, i) == 0 &&
                cuda->primary_state(device, &flags, &is_active) == 0)
            active += is_active != 0;
    }
    return active;
}

static void undrained(const char *why)
{
    char found[FOUND_BYTES];

    if (steps.is_undrained)
        return;
    steps.is_undrained = true;
    snprintf(found, sizeof(found), "%.120s (%s)", steps.found, why);
    steps_are(found);
}

// The block ends when the devices have done their work, not when the last kernel was queued. Not in
// a capture, nor where nobody would know of one.
static void drain(void *arg)
{
    struct cuda cuda = {0};
    void *context = NULL;
    int count = 0;
    bool is_active = false;

    (void)arg;
    if (atomic_load(&steps.captures) > 0 || cuda_load(&cuda) != 0 || cuda.context_get == NULL ||
            cuda.context_push == NULL || cuda.context_pop == NULL || cuda.context_wait == NULL ||
            cuda.device_count == NULL || cuda.device_get == NULL || cuda.primary_state == NULL ||
            cuda.primary_retain == NULL || cuda.primary_release == NULL ||
            cuda.device_count(&count) != 0)
        return;
    // Between two replays of one thread a GPU may wait for what the thread gives another one next.
    if (steps.rule == STEPS_GRAPH && devices_active(&cuda, count) > 1) {
        undrained("several GPUs in one process are not waited for");
        return;
    }
    if (atomic_load(&steps.is_watching) && cuda.context_get(&context) == 0 && context != NULL)
        cuda.context_wait(); // it need not be a runtime's
    // one may begin while another device is waited for
    for (int i = 0; i < count && i < DEVICES_MAX && atomic_load(&steps.captures) == 0; i++)
        is_active = device_wait(&cuda, i) || is_active;
    if (is_active && !atomic_load(&steps.is_watching))
        undrained("the GPU is not waited for: CUPTI cannot be used");
}

void steps_watch(bool is_watching)
{
    atomic_store(&steps.is_watching, is_watching);
}

void steps_captures(int change)
{
    if (atomic_fetch_add(&steps.captures, change) + change < 0) // one that began before we watched
        atomic_store(&steps.captures, 0);
}

// ---- steps ----

void steps_begin(const char *found)
{
    struct ug_step_state *s = &ug_step_state_v2;

    if (!atomic_load(&steps.is_told)) {
        tell_rule(found);
        ug_step_set_sync(drain, NULL);
    }
    if (!steps_on())
        return;
    ug_step_begin();
    steps.quick += s->begin_ns - steps.begin_ns < QUICK_NS;
    steps.begin_ns = s->begin_ns;
    atomic_store(&steps.is_open,
            __atomic_load_n(&s->status, __ATOMIC_ACQUIRE) == UG_IMPL_ATTACHED &&
                    __atomic_load_n(&s->owner, __ATOMIC_RELAXED) == ug_impl_self());
}

void steps_end(void)
{
    struct ug_step_state *s = &ug_step_state_v2;
    char why[FOUND_BYTES];

    if (!steps_on() || !atomic_exchange(&steps.is_open, false))
        return;
    // another thread may have begun it
    __atomic_store_n(&s->owner, ug_impl_self(), __ATOMIC_RELAXED);
    steps.count++;
    ug_step_end(1);
    if (steps.count == CYCLE_STEPS_MAX) {
        ug_step_note("steps_found_max", CYCLE_STEPS_MAX);
        atomic_store(&steps.is_off, true);
    } else if (steps.quick >= QUICK_MANY && steps.quick * 2 > steps.count) {
        snprintf(why, sizeof(why), "%.120s comes more than %u times a second", steps.found,
                1000000000u / QUICK_NS);
        steps_give_up(why);
    }
}

// ---- what was seen instead ----

#define NAMES_MAX 512u // distinct ones that are compared; those beyond are counted
#define OWN_MAX 4u     // entries of a process

static struct {
    pthread_mutex_t lock;
    _Atomic uint64_t hashes[NAMES_MAX];
    unsigned own[OWN_MAX], own_count;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

void steps_look(void)
{
    if (steps.looks != NULL)
        __atomic_fetch_add(&steps.looks->processes, 1, __ATOMIC_RELAXED);
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

// True: it is new, and there was room to remember it.
static bool remember(uint64_t hash)
{
    hash += hash == 0;
    for (unsigned i = 0; i < 32; i++) {
        _Atomic uint64_t *at = &seen.hashes[(hash + i) % NAMES_MAX];
        uint64_t there = atomic_load_explicit(at, memory_order_relaxed);

        if (there == hash)
            return false;
        if (there == 0 && atomic_compare_exchange_strong(at, &there, hash))
            return true;
        if (there == hash)
            return false;
    }
    return false;
}

// Edits from one to the other, of their first 63 bytes; a name within the other is near, too.
static uint32_t distance_of(const char *a, const char *b)
{
    uint8_t row[64];
    size_t length = strnlen(b, 63);

    for (size_t j = 0; j <= length; j++)
        row[j] = (uint8_t)j;
    for (size_t i = 0; a[i] != '\0' && i < 63; i++) {
        uint8_t diagonal = row[0];

        row[0] = (uint8_t)(i + 1);
        for (size_t j = 0; j < length; j++) {
            uint8_t above = row[j + 1], best = (uint8_t)(diagonal + (a[i] != b[j]));

            best = above + 1 < best ? (uint8_t)(above + 1) : best;
            row[j + 1] = row[j] + 1 < best ? (uint8_t)(row[j] + 1) : best;
            diagonal = above;
        }
    }
    return row[length] > 2 && (strstr(a, b) != NULL || strstr(b, a) != NULL) ? 2 : row[length];
}

static void write_near(struct ug_step_near *near, enum ug_step_near_state state, uint32_t distance,
        const char *text)
{
    __atomic_store_n(&near->state, UG_NEAR_BUSY, __ATOMIC_RELEASE);
    near->distance = distance;
    snprintf(near->text, sizeof(near->text), "%s", text);
    __atomic_store_n(&near->state, state, __ATOMIC_RELEASE);
}

// An entry that is ours: one of those nobody has, else the one that is furthest away. NULL: all are
// nearer, or taken.
static struct ug_step_near *near_take(uint32_t distance)
{
    struct ug_step_near *worst = NULL;
    uint32_t taken = seen.own_count < OWN_MAX
            ? __atomic_fetch_add(&steps.looks->taken, 1, __ATOMIC_RELAXED)
            : UINT32_MAX;

    if (taken < UG_STEP_NEAR_MAX) {
        seen.own[seen.own_count++] = taken;
        return &steps.looks->near[taken];
    }
    for (unsigned i = 0; i < seen.own_count; i++) {
        struct ug_step_near *near = &steps.looks->near[seen.own[i]];

        if (near->state == UG_NEAR_NAME && near->distance > distance &&
                (worst == NULL || near->distance > worst->distance))
            worst = near;
    }
    return worst;
}

static void near_put(enum ug_step_near_state state, uint32_t distance, const char *text)
{
    struct ug_step_near *near;

    pthread_mutex_lock(&seen.lock);
    near = near_take(distance);
    if (near != NULL)
        write_near(near, state, distance, text);
    pthread_mutex_unlock(&seen.lock);
}

void steps_saw(const char *name, const char *domain)
{
    char text[sizeof(((struct ug_step_near *)0)->text)];
    uint32_t count;

    if (steps.looks == NULL || atomic_load_explicit(&steps.is_told, memory_order_relaxed))
        return;
    if (!remember(hash_of(name) ^ (domain == NULL ? 0 : hash_of(domain) * 0x9e3779b97f4a7c15u)))
        return;
    snprintf(text, sizeof(text), "%s%s%s", name, domain == NULL || *domain == '\0' ? "" : "@",
            domain == NULL ? "" : domain);
    count = __atomic_load_n(&steps.looks->seen, __ATOMIC_RELAXED);
    if (count < UINT32_MAX / 2)
        __atomic_fetch_add(&steps.looks->seen, 1, __ATOMIC_RELAXED);
    near_put(UG_NEAR_NAME, distance_of(name, steps.range.name), text);
}

void steps_why(const char *why)
{
    if (steps.looks != NULL)
        near_put(UG_NEAR_WHY, 0, why);
}

// ---- fork ----

void steps_child(void)
{
    pthread_mutex_init(&seen.lock, NULL);
    memset(seen.own, 0, sizeof(seen.own));
    seen.own_count = 0;
    atomic_store(&steps.is_told, false);
    atomic_store(&steps.is_open, false);
    atomic_store(&steps.is_watching, false); // the parent's CUDA is not the child's
    atomic_store(&steps.captures, 0);
    steps.count = steps.quick = 0;
    steps.is_undrained = false;
    steps.found[0] = '\0';
    ranges_child();
    graphs_child();
}
