// SPDX-License-Identifier: Apache-2.0
#include "tracer/inject/cupti/nvtx.h"

#include <pthread.h>
#include <stdbool.h>

#include "tracer/inject/inject.h"
#include "tracer/inject/steps/steps.h"

#define MODULES_MAX 64 // libraries with an NVTX of their own; those beyond are not traced

typedef const void *(*nvtx_table_fn)(uint32_t id);

// Called by NVTX; 1: accepted.
UG_EXPORT int InitializeInjectionNvtx2(nvtx_table_fn export_table);

// The lock is held for the length of a loop, never over a call into libcupti.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    nvtx_table_fn table;
    bool is_served;
} modules[MODULES_MAX];
static int module_count;
static int (*serve)(nvtx_table_fn table);

// A module that still waits, NULL: none.
static nvtx_table_fn module_next(int (**ret_serve)(nvtx_table_fn table))
{
    nvtx_table_fn table = NULL;
    pthread_mutex_lock(&lock);
    *ret_serve = serve;
    for (int i = 0; serve != NULL && table == NULL && i < module_count; i++) {
        if (!modules[i].is_served) {
            modules[i].is_served = true;
            table = modules[i].table;
        }
    }
    pthread_mutex_unlock(&lock);
    return table;
}

static void modules_serve(void)
{
    int (*by)(nvtx_table_fn table) = NULL;
    for (nvtx_table_fn table = module_next(&by); table != NULL; table = module_next(&by))
        by(table);
}

void nvtx_forward(const struct cupti *cupti)
{
    pthread_mutex_lock(&lock);
    serve = cupti == NULL ? NULL : cupti->nvtx_initialize;
    pthread_mutex_unlock(&lock);
    modules_serve();
}

void nvtx_forget(void)
{
    pthread_mutex_lock(&lock);
    serve = NULL;
    for (int i = 0; i < module_count; i++)
        modules[i].is_served = false;
    pthread_mutex_unlock(&lock);
}

void nvtx_child(void)
{
    pthread_mutex_init(&lock, NULL);
    serve = NULL;
}

int InitializeInjectionNvtx2(nvtx_table_fn export_table)
{
    if (steps_rule() == STEPS_NVTX) {
        steps_look();
        ranges_install(export_table);
        return 1;
    }
    pthread_mutex_lock(&lock);
    if (module_count < MODULES_MAX)
        modules[module_count++].table = export_table;
    pthread_mutex_unlock(&lock);
    modules_serve();
    return 1;
}
