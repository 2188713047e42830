// SPDX-License-Identifier: Apache-2.0
#include "tests/mock/manners.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/mock/fake.h"

enum offence { OFFENCE_MEMORY, OFFENCE_LOCK, OFFENCE_FILE, OFFENCE_COUNT };

static const char *const place_names[] = {"outside", "call", "request", "complete"};
static const char *const offence_names[] = {"memory", "lock", "file"};

static _Thread_local enum fake_where here;
static atomic_ulong offences[4][OFFENCE_COUNT], visits[4];
static _Atomic(const char *) first[4][OFFENCE_COUNT]; // which function

__attribute__((unused)) static void note(enum offence what, const char *function)
{
    if (here == FAKE_OUTSIDE)
        return;
    const char *none = NULL;
    atomic_fetch_add_explicit(&offences[here][what], 1, memory_order_relaxed);
    atomic_compare_exchange_strong(&first[here][what], &none, function);
}

static void arrive(enum fake_where where)
{
    here = where;
    atomic_fetch_add_explicit(&visits[where], 1, memory_order_relaxed);
}

void manners_watch(void)
{
    fake_cuda_watch(arrive);
}

void manners_report(FILE *out)
{
    fprintf(out, "{\"type\":\"manners\"");
    for (int place = 1; place < 4; place++) {
        fprintf(out, ",\"%s\":{\"visits\":%lu", place_names[place], atomic_load(&visits[place]));
        for (int what = 0; what < OFFENCE_COUNT; what++) {
            const char *function = atomic_load(&first[place][what]);
            fprintf(out, ",\"%s\":%lu,\"%s_first\":\"%s\"", offence_names[what],
                    atomic_load(&offences[place][what]), offence_names[what],
                    function ? function : "");
        }
        fprintf(out, "}");
    }
    fprintf(out, "}\n");
}

// The sanitizers have functions of these names of their own: the manners are looked at in the plain
// builds.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

void *malloc(size_t size)
{
    note(OFFENCE_MEMORY, "malloc");
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    note(OFFENCE_MEMORY, "calloc");
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    note(OFFENCE_MEMORY, "realloc");
    return __libc_realloc(memory, size);
}

void free(void *memory)
{
    if (memory)
        note(OFFENCE_MEMORY, "free");
    __libc_free(memory);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    note(OFFENCE_MEMORY, "aligned_alloc");
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    note(OFFENCE_MEMORY, "posix_memalign");
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

#define NEXT(type, name, ...) \
    static type (*volatile next)(__VA_ARGS__); \
    if (!next) \
    next = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    NEXT(int, "pthread_mutex_lock", pthread_mutex_t *);
    note(OFFENCE_LOCK, "pthread_mutex_lock");
    return next(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    NEXT(int, "pthread_mutex_trylock", pthread_mutex_t *);
    note(OFFENCE_LOCK, "pthread_mutex_trylock");
    return next(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *rwlock)
{
    NEXT(int, "pthread_rwlock_rdlock", pthread_rwlock_t *);
    note(OFFENCE_LOCK, "pthread_rwlock_rdlock");
    return next(rwlock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *rwlock)
{
    NEXT(int, "pthread_rwlock_wrlock", pthread_rwlock_t *);
    note(OFFENCE_LOCK, "pthread_rwlock_wrlock");
    return next(rwlock);
}

int sem_wait(sem_t *semaphore)
{
    NEXT(int, "sem_wait", sem_t *);
    note(OFFENCE_LOCK, "sem_wait");
    return next(semaphore);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = va_arg(args, int);
    va_end(args);
    note(OFFENCE_FILE, "open");
    return (int)syscall(SYS_openat, -100, path, flags, mode);
}

ssize_t read(int fd, void *buf, size_t size)
{
    note(OFFENCE_FILE, "read");
    return syscall(SYS_read, fd, buf, size);
}

ssize_t write(int fd, const void *buf, size_t size)
{
    note(OFFENCE_FILE, "write");
    return syscall(SYS_write, fd, buf, size);
}

int close(int fd)
{
    note(OFFENCE_FILE, "close");
    return (int)syscall(SYS_close, fd);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    note(OFFENCE_FILE, "mmap");
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

int munmap(void *address, size_t size)
{
    note(OFFENCE_FILE, "munmap");
    return (int)syscall(SYS_munmap, address, size);
}

int ftruncate(int fd, off_t size)
{
    note(OFFENCE_FILE, "ftruncate");
    return (int)syscall(SYS_ftruncate, fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    note(OFFENCE_FILE, "fallocate");
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(FILE *, "fopen", const char *, const char *);
    note(OFFENCE_FILE, "fopen");
    return next(path, mode);
}

#endif
