// SPDX-License-Identifier: Apache-2.0
// Steps by a range of NVTX. Its functions for ranges, domains and registered strings become ours in every library of the program that
// has an NVTX; the others stay without effect, as without a tool.
//
// A step is an outermost range of the name: of the thread that pushed it until that thread pops it, or from its start until its
// id is ended by any. Ranges of the name within it, and of other threads meanwhile, are not counted.
#include "tracer/inject/steps/steps.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tracer/inject/steps/nvtx_abi.h"

#define DOMAINS_MAX 128 // distinct ones; what is in the others is not seen

enum open { OPEN_NONE, OPEN_BUSY, OPEN_PUSHED, OPEN_STARTED };

struct domain {
    char name[UG_RANGE_BYTES];
    bool is_ours; // of the rule
};

static struct {
    pthread_mutex_t lock; // of the domains
    struct domain domains[DOMAINS_MAX];
    unsigned domain_count;
    // The one range that is a step now. Written by whoever made it BUSY.
    _Atomic uint32_t open; // enum open
    _Atomic uintptr_t thread;
    const struct domain *domain; // of it, NULL: the default one
    uint32_t level;     // ranges that its thread has pushed in its domain since, and itself
    _Atomic uint64_t id;
    _Atomic uint64_t last_id;
} ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

// What stands for all strings that were registered: one that matches, and one that does not.
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
    return domain == NULL || (domain >= ranges.domains && domain < ranges.domains + DOMAINS_MAX &&
                              ((uintptr_t)domain - (uintptr_t)ranges.domains) % sizeof(*domain) == 0);
}

static bool is_domain_ours(const struct domain *domain)
{
    return domain == NULL ? step_range_matches_domain(steps_range(), NULL) : domain->is_ours;
}

// As UTF-8, cut.
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

static bool matches(const struct domain *domain, const char *name)
{
    if (name == NULL || !steps_on())
        return false;
    if (is_domain_ours(domain) && step_range_matches_name(steps_range(), name))
        return true;
    steps_saw(name, domain_name(domain));
    return false;
}

static bool matches_wide(const struct domain *domain, const wchar_t *name)
{
    char text[UG_RANGE_BYTES + 1];

    return name != NULL && matches(domain, narrow(name, text));
}

static bool matches_attributes(const struct domain *domain, const struct nvtx_attributes *attributes)
{
    if (attributes == NULL || attributes->size < sizeof(*attributes))
        return false;
    switch (attributes->message_type) {
    case NVTX_MESSAGE_ASCII:
        return matches(domain, attributes->message.ascii);
    case NVTX_MESSAGE_WIDE:
        return matches_wide(domain, attributes->message.wide);
    case NVTX_MESSAGE_REGISTERED:
        return attributes->message.registered == &registered_ours && is_domain_ours(domain);
    default:
        return false;
    }
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
        snprintf(found, sizeof(found), "range '%.80s%s' of domain '%.60s'", range->name, range->is_prefix ? "*" : "", domain->name);
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
           atomic_load_explicit(&ranges.open, memory_order_relaxed) == OPEN_PUSHED && ranges.domain == domain;
}

static int push(const struct domain *domain, bool is_match)
{
    if (is_inside(domain)) {
        ranges.level++;
    } else if (is_match && take()) {
        ranges.domain = domain;
        ranges.level = 1;
        begin(domain);
        atomic_store_explicit(&ranges.thread, self(), memory_order_relaxed);
        atomic_store_explicit(&ranges.open, OPEN_PUSHED, memory_order_release);
    }
    return NVTX_NO_LEVEL;
}

static int pop(const struct domain *domain)
{
    if (is_inside(domain) && --ranges.level == 0) {
        atomic_store_explicit(&ranges.open, OPEN_BUSY, memory_order_relaxed);
        end();
    }
    return NVTX_NO_LEVEL;
}

static uint64_t range_start(const struct domain *domain, bool is_match)
{
    uint64_t id = atomic_fetch_add(&ranges.last_id, 1) + 1;

    if (is_match && take()) {
        atomic_store_explicit(&ranges.id, id, memory_order_relaxed);
        begin(domain);
        atomic_store_explicit(&ranges.open, OPEN_STARTED, memory_order_release);
    }
    return id;
}

static void range_end(uint64_t id)
{
    uint32_t started = OPEN_STARTED;

    if (atomic_load_explicit(&ranges.open, memory_order_acquire) == OPEN_STARTED &&
        atomic_load_explicit(&ranges.id, memory_order_relaxed) == id &&
        atomic_compare_exchange_strong(&ranges.open, &started, OPEN_BUSY))
        end();
}

// ---- what NVTX calls ----

static int on_push_a(const char *name)
{
    return push(NULL, matches(NULL, name));
}

static int on_push_w(const wchar_t *name)
{
    return push(NULL, matches_wide(NULL, name));
}

static int on_push_ex(const struct nvtx_attributes *attributes)
{
    return push(NULL, matches_attributes(NULL, attributes));
}

static int on_pop(void)
{
    return pop(NULL);
}

static uint64_t on_start_a(const char *name)
{
    return range_start(NULL, matches(NULL, name));
}

static uint64_t on_start_w(const wchar_t *name)
{
    return range_start(NULL, matches_wide(NULL, name));
}

static uint64_t on_start_ex(const struct nvtx_attributes *attributes)
{
    return range_start(NULL, matches_attributes(NULL, attributes));
}

static int on_domain_push_ex(const void *handle, const struct nvtx_attributes *attributes)
{
    const struct domain *domain;

    return domain_of(handle, &domain) ? push(domain, matches_attributes(domain, attributes)) : NVTX_NO_LEVEL;
}

static int on_domain_pop(const void *handle)
{
    const struct domain *domain;

    return domain_of(handle, &domain) ? pop(domain) : NVTX_NO_LEVEL;
}

static uint64_t on_domain_start_ex(const void *handle, const struct nvtx_attributes *attributes)
{
    const struct domain *domain;

    return domain_of(handle, &domain) ? range_start(domain, matches_attributes(domain, attributes)) : range_start(NULL, false);
}

static void on_domain_end(const void *handle, uint64_t id)
{
    (void)handle;
    range_end(id);
}

static const void *on_register_a(const void *handle, const char *name)
{
    const struct domain *domain;

    return domain_of(handle, &domain) && matches(domain, name) ? &registered_ours : &registered_other;
}

static const void *on_register_w(const void *handle, const wchar_t *name)
{
    char text[UG_RANGE_BYTES + 1];

    return on_register_a(handle, narrow(name, text));
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

static void install(const struct nvtx_callbacks *callbacks, int module, const struct hook *hooks, size_t hook_count)
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
        {NVTX_RANGE_START_EX, (nvtx_function)on_start_ex}, {NVTX_RANGE_START_A, (nvtx_function)on_start_a},
        {NVTX_RANGE_START_W, (nvtx_function)on_start_w},   {NVTX_RANGE_END, (nvtx_function)range_end},
        {NVTX_RANGE_PUSH_EX, (nvtx_function)on_push_ex},   {NVTX_RANGE_PUSH_A, (nvtx_function)on_push_a},
        {NVTX_RANGE_PUSH_W, (nvtx_function)on_push_w},     {NVTX_RANGE_POP, (nvtx_function)on_pop},
    };
    static const struct hook core2[] = {
        {NVTX_DOMAIN_RANGE_START_EX, (nvtx_function)on_domain_start_ex},
        {NVTX_DOMAIN_RANGE_END, (nvtx_function)on_domain_end},
        {NVTX_DOMAIN_RANGE_PUSH_EX, (nvtx_function)on_domain_push_ex},
        {NVTX_DOMAIN_RANGE_POP, (nvtx_function)on_domain_pop},
        {NVTX_DOMAIN_REGISTER_A, (nvtx_function)on_register_a},
        {NVTX_DOMAIN_REGISTER_W, (nvtx_function)on_register_w},
        {NVTX_DOMAIN_CREATE_A, (nvtx_function)on_create_a},
        {NVTX_DOMAIN_CREATE_W, (nvtx_function)on_create_w},
    };
    const struct nvtx_callbacks *callbacks = export_table == NULL ? NULL : export_table(NVTX_EXPORT_CALLBACKS);

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
