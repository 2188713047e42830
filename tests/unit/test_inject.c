// SPDX-License-Identifier: Apache-2.0
// The injected library in a program without CUDA: what it leaves alone while dormant, its manners
// at fork and exit, what the environment asks for, and the traps of CUPTI's versions. What it does
// with a CUPTI is in tests/mock.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contracts/inject_api.h"
#include "tests/unit/runner.h"
#include "tracer/inject/cupti/cupti_load.h"

#define WAIT_MS 10000

static struct loaded {
    const struct ug_inject_api *api;
    struct ug_spool_header *header;
    int spool_fd;
} library;

static int entries(const char *directory)
{
    int count = 0;
    DIR *list = opendir(directory);
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list))
        count += entry->d_name[0] != '.';
    closedir(list);
    return count;
}

static bool is_mapped(const char *name)
{
    char line[4400];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL)
        found = strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

static int spool_fd(void)
{
    for (int fd = 3; fd < 256; fd++) {
        char path[64], target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(path, target, sizeof target - 1);
        if (bytes > 0 && (target[bytes] = 0, strstr(target, UG_SPOOL_NAME)))
            return fd;
    }
    return -1;
}

// As cuInit does it.
static void load(void)
{
    void *handle = dlopen(UPGATE_INJECT_PATH, RTLD_NOW);
    CHECK(handle != NULL);
    int (*initialize)(void) = (int (*)(void))dlsym(handle, "InitializeInjection");
    ug_inject_api_fn api = (ug_inject_api_fn)dlsym(handle, UG_INJECT_API_SYMBOL);
    CHECK(initialize != NULL && api != NULL);
    CHECK_INT(initialize(), 1);
    library.api = api(UG_INJECT_API_VERSION);
    CHECK(library.api != NULL && api(99) == NULL);
    CHECK_INT(library.api->bytes, sizeof(struct ug_inject_api));
    library.spool_fd = spool_fd();
    CHECK(library.spool_fd >= 0);
    library.header = mmap(
            NULL, UG_SPOOL_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, library.spool_fd, 0);
    CHECK(library.header != MAP_FAILED);
}

static uint32_t state(void)
{
    return __atomic_load_n(&library.header->state, __ATOMIC_ACQUIRE);
}

// As a recorder does it; true once the library has acted.
static bool ask(uint32_t want, uint32_t kinds)
{
    struct ug_spool_header *header = library.header;
    header->want_state = want;
    header->want_kinds = kinds;
    uint32_t generation = __atomic_add_fetch(&header->generation, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &header->generation, FUTEX_WAKE, 1, NULL, NULL, 0);
    for (int ms = 0; ms < WAIT_MS; ms++) {
        if (__atomic_load_n(&header->done_generation, __ATOMIC_ACQUIRE) == generation)
            return true;
        usleep(1000);
    }
    return false;
}

TEST(dormant_is_one_sleeping_thread_and_a_spool)
{
    unsetenv("UPGATE_TRACE");
    int threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
    load();
    CHECK_INT(state(), UG_SPOOL_DORMANT);
    CHECK_INT(library.api->kinds(), 0);
    CHECK_INT(entries("/proc/self/task"), threads + 1);
    CHECK_INT(entries("/proc/self/fd"), files + 1);
    CHECK(!is_mapped("libcupti"));
    CHECK_INT(library.api->string("x", 1), 0);
    CHECK((fcntl(library.spool_fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST(a_second_cuinit_does_nothing)
{
    unsetenv("UPGATE_TRACE");
    load();
    int threads = entries("/proc/self/task");
    load();
    CHECK_INT(entries("/proc/self/task"), threads);
}

TEST(garbage_in_the_environment_is_no_wish)
{
    setenv("UPGATE_TRACE", "yes please", 1);
    load();
    CHECK_INT(state(), UG_SPOOL_DORMANT);
}

TEST(without_cupti_it_refuses_in_words)
{
    setenv("UPGATE_TRACE", "1", 1);
    setenv("UPGATE_CUPTI", "/nowhere/libcupti.so.13", 1);
    load();
    CHECK_INT(state(), UG_SPOOL_REFUSED);
    CHECK_CONTAINS(library.header->reason, "/nowhere/libcupti.so.13");
    CHECK_INT(library.header->have_kinds, 0);
    CHECK_INT(library.api->kinds(), 0);
}

TEST(nccl_alone_needs_no_cupti)
{
    setenv("UPGATE_TRACE", "0x40", 1);
    load();
    CHECK_INT(state(), UG_SPOOL_ACTIVE);
    CHECK_INT(library.header->have_kinds, UG_WANT_NCCL);
    CHECK_INT(library.api->kinds(), UG_WANT_NCCL);
    CHECK(!is_mapped("libcupti"));
}

TEST(switched_on_and_off_again)
{
    unsetenv("UPGATE_TRACE");
    load();
    for (int i = 0; i < 3; i++) {
        struct ug_rec_mark mark = {.head = {.type = UG_REC_MARK, .bytes = sizeof mark}};
        CHECK(ask(UG_SPOOL_ACTIVE, UG_WANT_NCCL));
        CHECK_INT(state(), UG_SPOOL_ACTIVE);
        CHECK(library.api->string("text", 4) > 0);
        CHECK_INT(library.api->put(UG_PRODUCER_PYTHON, &mark), 0);
        CHECK_INT(library.header->counts[UG_PRODUCER_PYTHON].seen, i + 1);
        CHECK(ask(UG_SPOOL_DORMANT, 0));
        CHECK_INT(state(), UG_SPOOL_DORMANT);
        CHECK_INT(library.api->put(UG_PRODUCER_PYTHON, &mark), -1);
        CHECK_INT(library.header->counts[UG_PRODUCER_PYTHON].seen, i + 1);
    }
}

TEST(only_counted_when_nothing_is_to_be_kept)
{
    unsetenv("UPGATE_TRACE");
    load();
    struct ug_rec_mark mark = {.head = {.type = UG_REC_MARK, .bytes = sizeof mark}};
    CHECK(ask(UG_SPOOL_ACTIVE, UG_WANT_NCCL | UG_WANT_NOTHING_KEPT));
    CHECK_INT(library.api->put(UG_PRODUCER_PYTHON, &mark), 0);
    CHECK_INT(library.header->counts[UG_PRODUCER_PYTHON].seen, 1);
    CHECK_INT(library.header->threads, 0);
}

static uint32_t heard;
static void hear(uint32_t kinds)
{
    __atomic_store_n(&heard, kinds + 1, __ATOMIC_RELEASE);
}

static bool wait_heard(uint32_t kinds)
{
    for (int ms = 0; ms < WAIT_MS; ms++) {
        if (__atomic_load_n(&heard, __ATOMIC_ACQUIRE) == kinds + 1)
            return true;
        usleep(1000);
    }
    return false;
}

TEST(a_listener_hears_every_change)
{
    unsetenv("UPGATE_TRACE");
    load();
    CHECK(ask(UG_SPOOL_ACTIVE, UG_WANT_NCCL));
    library.api->listen(hear);
    CHECK(wait_heard(UG_WANT_NCCL));
    CHECK(ask(UG_SPOOL_ACTIVE, UG_WANT_NCCL | UG_WANT_PYTHON));
    CHECK(wait_heard(UG_WANT_NCCL | UG_WANT_PYTHON));
    CHECK(ask(UG_SPOOL_DORMANT, 0));
    CHECK(wait_heard(0));
}

// Its thread sleeps. What that holds of a sanitizer's allocator at a fork, the child would wait for
// in vain.
static bool await_sleep(void)
{
    for (int ms = 0, asleep = 0; ms < WAIT_MS; ms++) {
        bool awake = false;
        DIR *tasks = opendir("/proc/self/task");
        for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
            char path[64], text[64] = "", *end;
            snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", entry->d_name);
            int fd = atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid()
                    ? open(path, O_RDONLY)
                    : -1;
            if (fd < 0)
                continue;
            ssize_t bytes = read(fd, text, sizeof text - 1);
            close(fd);
            end = bytes > 0 ? strrchr(text, ')') : NULL;
            awake = awake || end == NULL || end[1] != ' ' || end[2] != 'S';
        }
        closedir(tasks);
        asleep = awake ? 0 : asleep + 1;
        if (asleep == 3)
            return true;
        usleep(1000);
    }
    return false;
}

TEST(a_forked_child_has_nothing_of_it)
{
    setenv("UPGATE_TRACE", "0x40", 1);
    load();
    CHECK(await_sleep());
    pid_t child = fork();
    if (child == 0) {
        struct ug_rec_mark mark = {.head = {.type = UG_REC_MARK, .bytes = sizeof mark}};
        int is_clean = library.api->kinds() == 0 && entries("/proc/self/task") == 1 &&
                library.api->put(UG_PRODUCER_PYTHON, &mark) == -1;
        exit(is_clean ? 0 : 1); // with the handlers
    }
    int status = -1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK_INT(state(), UG_SPOOL_ACTIVE); // the child's end is not the parent's
    CHECK_INT(library.header->counts[UG_PRODUCER_PYTHON].seen, 0);
}

// A process that records and waits for a byte on `go`, then exits with 5; its spool is opened as a
// recorder opens it.
static pid_t start_other(int *ret_go)
{
    int ready[2], go[2], fd = -1;
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte = 0;
        setenv("UPGATE_TRACE", "0x40", 1);
        load();
        if (write(ready[1], &library.spool_fd, sizeof fd) != sizeof fd ||
                read(go[0], &byte, 1) != 1)
            _exit(1);
        exit(5);
    }
    char path[64];
    CHECK_INT(read(ready[0], &fd, sizeof fd), sizeof fd);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", child, fd);
    int spool = open(path, O_RDWR);
    CHECK(spool >= 0);
    library.header =
            mmap(NULL, UG_SPOOL_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, spool, 0);
    CHECK_INT(state(), UG_SPOOL_ACTIVE);
    *ret_go = go[1];
    return child;
}

TEST(exit_says_ended_and_keeps_the_status)
{
    int go = -1, status = 0;
    pid_t child = start_other(&go);
    CHECK_INT(write(go, "x", 1), 1);
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 5);
    CHECK_INT(state(), UG_SPOOL_ENDED);
}

TEST(after_a_crash_the_spool_stays_readable)
{
    int go = -1, status = 0;
    pid_t child = start_other(&go);
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(library.header->magic, UG_SPOOL_MAGIC);
    CHECK_INT(state(), UG_SPOOL_ACTIVE);
}

TEST(exports_the_entries_and_nothing_else)
{
    char line[256];
    int entries_seen = 0;
    FILE *nm = popen("nm -D --defined-only " UPGATE_INJECT_PATH " 2>/dev/null", "r");
    while (nm != NULL && fgets(line, sizeof line, nm) != NULL) {
        char kind = 0, name[128] = "";
        if (sscanf(line, "%*x %c %127s", &kind, name) != 2)
            continue;
        entries_seen++;
        bool is_known = !strcmp(name, "InitializeInjection") ||
                !strcmp(name, "InitializeInjectionNvtx2") || !strcmp(name, UG_INJECT_API_SYMBOL) ||
                !strncmp(name, "ncclProfiler_v", 14);
        if (!is_known)
            runner_fail(__FILE__, __LINE__, "exports %s", name);
    }
    if (nm == NULL || pclose(nm) != 0)
        runner_skip("no nm");
    CHECK(entries_seen >= 4);
}

TEST(traps_of_versions)
{
    CHECK_INT(cupti_quirks(18), QUIRK_NO_PER_THREAD | QUIRK_ONE_SESSION);
    CHECK_INT(cupti_quirks(22), QUIRK_ONE_SESSION);
    CHECK_INT(cupti_quirks(28), QUIRK_ONE_SESSION);
    CHECK(cupti_quirks(130000) & QUIRK_NO_DISABLE && cupti_quirks(130000) & QUIRK_NO_NVTX);
    CHECK_INT(cupti_quirks(130001), QUIRK_ONE_SESSION);
    CHECK_INT(cupti_quirks(130101), 0);
    CHECK_INT(cupti_quirks(130400), 0);
    for (uint32_t bit = QUIRK_NO_NVTX; bit <= QUIRK_SYNC_MISSING; bit <<= 1)
        CHECK(cupti_quirk_words(bit)[0] != 0);
}
