// SPDX-License-Identifier: Apache-2.0
// Steps by a range of NVTX. Its functions for ranges, domains and registered strings become ours in
// every library of the program that has an NVTX; the others stay without effect, as without a tool.
//
// A step is an outermost range of the name: of the thread that pushed it until that thread pops it,
// or from its start until its id is ended by any. Ranges of the name within it, and of other
// threads meanwhile, are not counted.
#include "tracer/inject/steps/steps.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "contracts/spool.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/session.h"
#include "tracer/inject/spool/spool_writer.h"
#include "tracer/inject/steps/nvtx_abi.h"

#define DOMAINS_MAX 128 // distinct ones; what is in the others is not seen
#define STRINGS_MAX 512 // registered ones, distinct; the others are not recorded

enum { RECORD_START = 1, RECORD_END = 2, RECORD_MARK = 3 }; // of struct ug_rec_range

enum open { OPEN_NONE, OPEN_BUSY, OPEN_PUSHED, OPEN_STARTED };

struct domain {
    char name[UG_RANGE_BYTES];
    bool is_ours; // of the rule
};

struct string {
    char text[UG_RANGE_BYTES];
    bool is_ours;
};

struct name { // of a range
    const char *text;
    bool is_ours;
};

static struct {
    pthread_mutex_t lock; // of the domains and the strings
    struct domain domains[DOMAINS_MAX];
    struct string strings[STRINGS_MAX];
    unsigned domain_count, string_count;
    // The one range that is a step now. Written by whoever made it BUSY.
    _Atomic uint32_t open; // enum open
    _Atomic uintptr_t thread;
    const struct domain *domain; // of it, NULL: the default one
    uint32_t level; // ranges that its thread has pushed in its domain since, and itself
    _Atomic uint64_t id;
    _Atomic uint64_t last_id;
} ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

// What stands for strings and domains that there is no room for.
static const char registered_ours, registered_other;

// ---- names ----

static const char *domain_name(const struct domain *domain)
{
    return domain == NULL ? NULL : domain->name;
}

// What we gave for a domain. Anything else is of no domain that we know: ret is false.
static bool domain_of(const void *handle, const struct domain **ret_domain)
{
    const struct domain *domain = handle;

    *ret_domain = domain;
    return domain == NULL ||
            (domain >= ranges.domains && domain < ranges.domains + DOMAINS_MAX &&
                    ((uintptr_t)domain - (uintptr_t)ranges.domains) % sizeof(*domain) == 0);
}

static bool is_domain_ours(const struct domain *domain)
{
    return domain == NULL ? step_range_matches_domain(steps_range(), NULL) : domain->is_ours;
}

// As UTF-8, cut; of NULL: empty.
static const char *narrow(const wchar_t *wide, char text[UG_RANGE_BYTES + 1])
{
    size_t bytes = 0;

    for (; wide != NULL && *wide != 0 && bytes + 4 <= UG_RANGE_BYTES; wide++) {
        uint32_t c = (uint32_t)*wide;

        if (c < 0x80) {
            text[bytes++] = (char)c;
        } else if (c < 0x800) {
            text[bytes++] = (char)(0xc0 | c >> 6);
            text[bytes++] = (char)(0x80 | (c & 0x3f));
        } else if (c < 0x10000) {
            text[bytes++] = (char)(0xe0 | c >> 12);
            text[bytes++] = (char)(0x80 | (c >> 6 & 0x3f));
            text[bytes++] = (char)(0x80 | (c & 0x3f));
        } else if (c < 0x110000) {
            text[bytes++] = (char)(0xf0 | c >> 18);
            text[bytes++] = (char)(0x80 | (c >> 12 & 0x3f));
            text[bytes++] = (char)(0x80 | (c >> 6 & 0x3f));
            text[bytes++] = (char)(0x80 | (c & 0x3f));
        }
    }
    text[bytes] = '\0';
    return text;
}

// NULL text: it has none that we know.
static struct name name_of(const struct domain *domain, const char *text)
{
    struct name name = {.text = text};

    if (text == NULL || !steps_on())
        return name;
    name.is_ours = is_domain_ours(domain) && step_range_matches_name(steps_range(), text);
    if (!name.is_ours)
        steps_saw(text, domain_name(domain));
    return name;
}

static struct name name_of_string(const void *handle)
{
    const struct string *string = handle;

    if (handle == &registered_ours)
        return (struct name){.is_ours = true};
    if (string < ranges.strings || string >= ranges.strings + STRINGS_MAX ||
            ((uintptr_t)string - (uintptr_t)ranges.strings) % sizeof(*string) != 0)
        return (struct name){0};
    return (struct name){string->text, string->is_ours};
}

static const char *text_of_attributes(
        const struct nvtx_attributes *attributes, char text[UG_RANGE_BYTES + 1])
{
    if (attributes == NULL || attributes->size < sizeof(*attributes))
        return NULL;
    return attributes->message_type == NVTX_MESSAGE_ASCII   ? attributes->message.ascii
            : attributes->message_type == NVTX_MESSAGE_WIDE ? narrow(attributes->message.wide, text)
            : attributes->message_type == NVTX_MESSAGE_REGISTERED
            ? name_of_string(attributes->message.registered).text
            : NULL;
}

static struct name name_of_attributes(const struct domain *domain,
        const struct nvtx_attributes *attributes, char text[UG_RANGE_BYTES + 1])
{
    if (attributes != NULL && attributes->size >= sizeof(*attributes) &&
            attributes->message_type == NVTX_MESSAGE_REGISTERED)
        return name_of_string(attributes->message.registered); // looked at when it was registered
    return name_of(domain, text_of_attributes(attributes, text));
}

// ---- the recording ----

// Beside the steps, while a recorder wants ranges: libcupti, which would give them, cannot serve
// NVTX as well. what and id: as struct ug_rec_range.
static void record(const struct domain *domain, uint32_t what, uint64_t id, const char *text)
{
    uint32_t kinds = inject_kinds(), name = 0, place = 0;
    struct ug_rec_range *out;
    uint64_t at_gpu;

    if ((kinds & UG_WANT_NVTX) == 0)
        return;
    if ((kinds & UG_WANT_NOTHING_KEPT) != 0) {
        spool_count(UG_PRODUCER_NVTX);
        return;
    }
    at_gpu = session_timestamp();
    if (what != RECORD_END && text != NULL) { // strings may write, and so come first
        name = spool_string(text, strlen(text));
        place = domain == NULL || domain->name[0] == '\0'
                ? 0
                : spool_string(domain->name, strlen(domain->name));
    }
    out = spool_reserve(UG_PRODUCER_NVTX, sizeof(*out));
    if (out == NULL)
        return;
    *out = (struct ug_rec_range){.head = {UG_REC_RANGE, sizeof(*out), spool_tid()},
            .at_gpu = at_gpu,
            .id = id,
            .name = name,
            .domain = place,
            .what = what};
    spool_publish(sizeof(*out));
}

// ---- the step ----

static bool take(void)
{
    uint32_t none = OPEN_NONE;

    return steps_on() && atomic_compare_exchange_strong(&ranges.open, &none, OPEN_BUSY);
}

// BUSY. May wait at the gate.
static void begin(const struct domain *domain)
{
    const struct step_range *range = steps_range();
    char found[200];

    if (domain == NULL || domain->name[0] == '\0')
        snprintf(found, sizeof(found), "range '%.80s%s'", range->name, range->is_prefix ? "*" : "");
    else
        snprintf(found, sizeof(found), "range '%.80s%s' of domain '%.60s'", range->name,
                range->is_prefix ? "*" : "", domain->name);
    steps_begin(found);
}

static void end(void)
{
    steps_end();
    atomic_store_explicit(&ranges.thread, 0, memory_order_relaxed);
    atomic_store_explicit(&ranges.open, OPEN_NONE, memory_order_release);
}

static uintptr_t self(void)
{
    return (uintptr_t)pthread_self();
}

static bool is_inside(const struct domain *domain)
{
    return atomic_load_explicit(&ranges.thread, memory_order_relaxed) == self() &&
            atomic_load_explicit(&ranges.open, memory_order_relaxed) == OPEN_PUSHED &&
            ranges.domain == domain;
}

static int push(const struct domain *domain, struct name name)
{
    if (is_inside(domain)) {
        ranges.level++;
    } else if (name.is_ours && take()) {
        ranges.domain = domain;
        ranges.level = 1;
        begin(domain);
        atomic_store_explicit(&ranges.thread, self(), memory_order_relaxed);
        atomic_store_explicit(&ranges.open, OPEN_PUSHED, memory_order_release);
    }
    record(domain, RECORD_START, 0, name.text); // behind the gate: a wait there is none of its time
    return NVTX_NO_LEVEL;
}

static int pop(const struct domain *domain)
{
    record(domain, RECORD_END, 0, NULL);
    if (is_inside(domain) && --ranges.level == 0) {
        atomic_store_explicit(&ranges.open, OPEN_BUSY, memory_order_relaxed);
        end();
    }
    return NVTX_NO_LEVEL;
}

static uint64_t range_start(const struct domain *domain, struct name name)
{
    uint64_t id = atomic_fetch_add(&ranges.last_id, 1) + 1;

    if (name.is_ours && take()) {
        atomic_store_explicit(&ranges.id, id, memory_order_relaxed);
        begin(domain);
        atomic_store_explicit(&ranges.open, OPEN_STARTED, memory_order_release);
    }
    record(domain, RECORD_START, id, name.text);
    return id;
}

static void range_end(uint64_t id)
{
    uint32_t started = OPEN_STARTED;

    record(NULL, RECORD_END, id, NULL);
    if (atomic_load_explicit(&ranges.open, memory_order_acquire) == OPEN_STARTED &&
            atomic_load_explicit(&ranges.id, memory_order_relaxed) == id &&
            atomic_compare_exchange_strong(&ranges.open, &started, OPEN_BUSY))
        end();
}

// A mark is recorded, and is nothing else.
static void mark(const struct domain *domain, const char *text)
{
    record(domain, RECORD_MARK, 0, text);
}

// ---- what NVTX calls ----

static void on_mark_a(const char *text)
{
    mark(NULL, text);
}

static void on_mark_w(const wchar_t *wide)
{
    char text[UG_RANGE_BYTES + 1];

    mark(NULL, narrow(wide, text));
}

static void on_mark_ex(const struct nvtx_attributes *attributes)
{
    char text[UG_RANGE_BYTES + 1];

    mark(NULL, text_of_attributes(attributes, text));
}

static void on_domain_mark_ex(const void *handle, const struct nvtx_attributes *attributes)
{
    char text[UG_RANGE_BYTES + 1];
    const struct domain *domain;

    if (domain_of(handle, &domain))
        mark(domain, text_of_attributes(attributes, text));
}

static int on_push_a(const char *text)
{
    return push(NULL, name_of(NULL, text));
}

static int on_push_w(const wchar_t *wide)
{
    char text[UG_RANGE_BYTES + 1];

    return push(NULL, name_of(NULL, narrow(wide, text)));
}

static int on_push_ex(const struct nvtx_attributes *attributes)
{
    char text[UG_RANGE_BYTES + 1];

    return push(NULL, name_of_attributes(NULL, attributes, text));
}

static int on_pop(void)
{
    return pop(NULL);
}

static uint64_t on_start_a(const char *text)
{
    return range_start(NULL, name_of(NULL, text));
}

static uint64_t on_start_w(const wchar_t *wide)
{
    char text[UG_RANGE_BYTES + 1];

    return range_start(NULL, name_of(NULL, narrow(wide, text)));
}

static uint64_t on_start_ex(const struct nvtx_attributes *attributes)
{
    char text[UG_RANGE_BYTES + 1];

    return range_start(NULL, name_of_attributes(NULL, attributes, text));
}

static int on_domain_push_ex(const void *handle, const struct nvtx_attributes *attributes)
{
    char text[UG_RANGE_BYTES + 1];
    const struct domain *domain;

    return domain_of(handle, &domain) ? push(domain, name_of_attributes(domain, attributes, text))
                                      : NVTX_NO_LEVEL;
}

static int on_domain_pop(const void *handle)
{
    const struct domain *domain;

    return domain_of(handle, &domain) ? pop(domain) : NVTX_NO_LEVEL;
}

static uint64_t on_domain_start_ex(const void *handle, const struct nvtx_attributes *attributes)
{
    char text[UG_RANGE_BYTES + 1];
    const struct domain *domain;

    return domain_of(handle, &domain)
            ? range_start(domain, name_of_attributes(domain, attributes, text))
            : range_start(NULL, (struct name){0});
}

static void on_domain_end(const void *handle, uint64_t id)
{
    (void)handle;
    range_end(id);
}

// One of each text and kind; what there is no room for has no text, and is ours or is not.
static const void *on_register_a(const void *handle, const char *text)
{
    const struct domain *domain;
    struct name name = domain_of(handle, &domain) ? name_of(domain, text) : (struct name){0};
    struct string *string = NULL;

    pthread_mutex_lock(&ranges.lock);
    for (unsigned i = 0; i < ranges.string_count && string == NULL; i++)
        if (ranges.strings[i].is_ours == name.is_ours &&
                strncmp(ranges.strings[i].text, text == NULL ? "" : text, UG_RANGE_BYTES - 1) == 0)
            string = &ranges.strings[i];
    if (string == NULL && ranges.string_count < STRINGS_MAX) {
        string = &ranges.strings[ranges.string_count++];
        snprintf(string->text, sizeof(string->text), "%s", text == NULL ? "" : text);
        string->is_ours = name.is_ours;
    }
    pthread_mutex_unlock(&ranges.lock);
    return string != NULL  ? (const void *)string
            : name.is_ours ? &registered_ours
                           : &registered_other;
}

static const void *on_register_w(const void *handle, const wchar_t *wide)
{
    char text[UG_RANGE_BYTES + 1];

    return on_register_a(handle, narrow(wide, text));
}

// One that was made before is itself again, and what there is no room for is one without a name.
static const void *on_create_a(const char *name)
{
    struct domain *domain = NULL;

    pthread_mutex_lock(&ranges.lock);
    for (unsigned i = 0; i < ranges.domain_count && domain == NULL; i++)
        if (strncmp(ranges.domains[i].name, name == NULL ? "" : name, UG_RANGE_BYTES - 1) == 0)
            domain = &ranges.domains[i];
    if (domain == NULL && ranges.domain_count < DOMAINS_MAX) {
        domain = &ranges.domains[ranges.domain_count++];
        snprintf(domain->name, sizeof(domain->name), "%s", name == NULL ? "" : name);
        domain->is_ours = step_range_matches_domain(steps_range(), domain->name);
    }
    pthread_mutex_unlock(&ranges.lock);
    return domain == NULL ? &registered_other : (const void *)domain;
}

static const void *on_create_w(const wchar_t *name)
{
    char text[UG_RANGE_BYTES + 1];

    return on_create_a(narrow(name, text));
}

// ---- install ----

struct hook {
    unsigned id;
    nvtx_function function;
};

static void install(const struct nvtx_callbacks *callbacks, int module, const struct hook *hooks,
        size_t hook_count)
{
    nvtx_function **table = NULL;
    unsigned count = 0;

    if (callbacks->functions(module, &table, &count) != 1 || table == NULL)
        return;
    for (size_t i = 0; i < hook_count; i++)
        if (hooks[i].id < count && table[hooks[i].id] != NULL)
            __atomic_store_n(table[hooks[i].id], hooks[i].function, __ATOMIC_RELEASE);
}

void ranges_install(const void *(*export_table)(uint32_t id))
{
    static const struct hook core[] = {
            {NVTX_MARK_EX, (nvtx_function)on_mark_ex},
            {NVTX_MARK_A, (nvtx_function)on_mark_a},
            {NVTX_MARK_W, (nvtx_function)on_mark_w},
            {NVTX_RANGE_START_EX, (nvtx_function)on_start_ex},
            {NVTX_RANGE_START_A, (nvtx_function)on_start_a},
            {NVTX_RANGE_START_W, (nvtx_function)on_start_w},
            {NVTX_RANGE_END, (nvtx_function)range_end},
            {NVTX_RANGE_PUSH_EX, (nvtx_function)on_push_ex},
            {NVTX_RANGE_PUSH_A, (nvtx_function)on_push_a},
            {NVTX_RANGE_PUSH_W, (nvtx_function)on_push_w},
            {NVTX_RANGE_POP, (nvtx_function)on_pop},
    };
    static const struct hook core2[] = {
            {NVTX_DOMAIN_MARK_EX, (nvtx_function)on_domain_mark_ex},
            {NVTX_DOMAIN_RANGE_START_EX, (nvtx_function)on_domain_start_ex},
            {NVTX_DOMAIN_RANGE_END, (nvtx_function)on_domain_end},
            {NVTX_DOMAIN_RANGE_PUSH_EX, (nvtx_function)on_domain_push_ex},
            {NVTX_DOMAIN_RANGE_POP, (nvtx_function)on_domain_pop},
            {NVTX_DOMAIN_REGISTER_A, (nvtx_function)on_register_a},
            {NVTX_DOMAIN_REGISTER_W, (nvtx_function)on_register_w},
            {NVTX_DOMAIN_CREATE_A, (nvtx_function)on_create_a},
            {NVTX_DOMAIN_CREATE_W, (nvtx_function)on_create_w},
    };
    const struct nvtx_callbacks *callbacks =
            export_table == NULL ? NULL : export_table(NVTX_EXPORT_CALLBACKS);

    if (callbacks == NULL || callbacks->bytes < sizeof(*callbacks) || callbacks->functions == NULL)
        return;
    install(callbacks, NVTX_MODULE_CORE, core, sizeof(core) / sizeof(core[0]));
    install(callbacks, NVTX_MODULE_CORE2, core2, sizeof(core2) / sizeof(core2[0]));
}

void ranges_child(void)
{
    pthread_mutex_init(&ranges.lock, NULL);
    atomic_store(&ranges.open, OPEN_NONE);
    atomic_store(&ranges.thread, 0);
}
