// SPDX-License-Identifier: Apache-2.0
// Reading live processes: what is found, and what happens when the process ends, was never there,
// is not ours, or has libraries that were replaced under it.
#include "harness/fingerprint/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "tests/unit/runner.h"

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
    free(path);
}

static void copy_file(const char *from, const char *to)
{
    size_t length = 0;
    char *content = string_read_file(from, 64 << 20, &length);
    FILE *file = fopen(to, "w");
    CHECK(content != NULL && file != NULL);
    CHECK_INT(fwrite(content, 1, length, file), length);
    fclose(file);
    free(content);
}

static const json_t *library_at(const json_t *document, const char *part_of_path)
{
    size_t index;
    json_t *library;
    json_array_foreach(json_object_get(json_object_get(document, "process"), "libraries"), index,
            library) if (strstr(text_of(library, "path"), part_of_path)) return library;
    return NULL;
}

TEST(own_process_is_read_whole)
{
    json_t *document = NULL;
    struct error err = {0};
    CHECK_INT(fingerprint_process(getpid(), &document, &err), 0);
    const json_t *process = json_object_get(document, "process");
    CHECK_CONTAINS(text_of(json_object_get(process, "exe"), "path"), "test_fingerprint_process");
    const json_t *libc = library_at(document, "libc.so.6");
    if (!libc)
        libc = library_at(document, "libc-2.");
    CHECK(libc != NULL);
    CHECK_STR(text_of(libc, "role"), "libc");
    CHECK_STR(text_of(libc, "name"), "glibc");
    char want[32];
    snprintf(want, sizeof(want), "%d.%d", __GLIBC__, __GLIBC_MINOR__);
    CHECK_STR(text_of(libc, "version"), want);
    CHECK_INT(strlen(text_of(libc, "build_id")), 40);
    CHECK(library_at(document, "test_fingerprint_process") ==
            NULL); // the program is no library of itself
    CHECK_INT(json_integer_value(json_object_get(process, "pid")), getpid());
    CHECK_INT(json_integer_value(json_object_get(process, "libraries_unreadable_count")), 0);
    const json_t *files = json_object_get(json_object_get(process, "rlimits"), "open_files");
    CHECK(json_object_get(files, "soft") != NULL);
    CHECK_STR(text_of(json_object_get(process, "scheduling"), "policy"), "other");
    CHECK(json_is_object(json_object_get(json_object_get(document, "host"), "kernel")));
    json_decref(document);
}

TEST(environment_is_that_of_the_start)
{
    json_t *document = NULL;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("OMP_NUM_THREADS", "3", 1);
        setenv("TORCH_TOKEN", "very-secret", 1);
        execlp("sleep", "sleep", "1000", NULL);
        _exit(127);
    }
    for (int i = 0; i < 6000; i++) { // until the exec is through: its environment comes last
        json_decref(document);
        document = NULL;
        const json_t *process = fingerprint_process(pid, &document, NULL)
                ? NULL
                : json_object_get(document, "process");
        const char *path = text_of(json_object_get(process, "exe"), "path");
        if (path && strstr(path, "sleep") &&
                text_of(json_object_get(process, "environment"), "OMP_NUM_THREADS"))
            break;
        usleep(10000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    const json_t *environment =
            json_object_get(json_object_get(document, "process"), "environment");
    CHECK_STR(text_of(environment, "OMP_NUM_THREADS"), "3");
    CHECK_STR(text_of(environment, "TORCH_TOKEN"), "[redacted]");
    char *dump = json_dumps(document, 0);
    CHECK(!strstr(dump, "very-secret"));
    free(dump);
    json_decref(document);
}

TEST(no_such_process)
{
    json_t *document = NULL;
    struct error err = {0};
    CHECK_INT(fingerprint_process(0x3fffffff, &document, &err), -ESRCH);
    CHECK(document == NULL);
    CHECK_CONTAINS(err.text, "there is none");
}

TEST(zombie_process)
{
    json_t *document = NULL;
    struct error err = {0};
    siginfo_t info;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    CHECK_INT(fingerprint_process(pid, &document, &err), -ESRCH);
    CHECK(document == NULL);
    waitpid(pid, NULL, 0);
}

static const char fake_stat[] = "77 (a ) name) S 1 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 5 1 0 %d 0 0 0 "
                                "0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0";

struct fake {
    char dir[64];
    const char *next_stat; // NULL: the process vanishes
};

static void make_fake(struct fake *fake)
{
    char text[512];
    strcpy(fake->dir, "/tmp/test_fingerprint.XXXXXX");
    CHECK(mkdtemp(fake->dir) != NULL);
    snprintf(text, sizeof(text), fake_stat, 100);
    write_file(fake->dir, "stat", text);
    char *maps = xasprintf("%s/maps", fake->dir);
    CHECK_INT(mkfifo(maps, 0600), 0);
    free(maps);
}

static void remove_fake(const struct fake *fake)
{
    char *command = xasprintf("rm -rf '%s'", fake->dir);
    CHECK_INT(system(command), 0);
    free(command);
}

// The process ends, and its pid is given to another, exactly while its memory map is being read.
static void *serve_maps(void *arg)
{
    const struct fake *fake = arg;
    char *path = xasprintf("%s/maps", fake->dir), *stat = xasprintf("%s/stat", fake->dir);
    FILE *maps = fopen(path, "w");
    if (fake->next_stat)
        write_file(fake->dir, "stat", fake->next_stat);
    else
        unlink(stat);
    fputs("1000-2000 r-xp 00000000 08:01 5    /no/such/lib.so.1.2\n", maps);
    fclose(maps);
    free(path);
    free(stat);
    return NULL;
}

static int read_fake(struct fake *fake, json_t **ret_process, json_t *missing, struct error *err)
{
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, serve_maps, fake), 0);
    int code = process_collect(fake->dir, missing, ret_process, err);
    pthread_join(thread, NULL);
    return code;
}

TEST(process_that_ends_while_it_is_read)
{
    json_t *missing = json_object(), *process = NULL;
    struct error err = {0};
    struct fake fake = {.next_stat = NULL};
    make_fake(&fake);
    CHECK_INT(read_fake(&fake, &process, missing, &err), -ESRCH);
    CHECK(process == NULL);
    CHECK_CONTAINS(err.text, "ended while being read");
    remove_fake(&fake);
    json_decref(missing);
}

TEST(pid_that_is_reused_while_it_is_read)
{
    json_t *missing = json_object(), *process = NULL;
    struct error err = {0};
    char other[512];
    snprintf(other, sizeof(other), fake_stat, 101);
    struct fake fake = {.next_stat = other};
    make_fake(&fake);
    CHECK_INT(read_fake(&fake, &process, missing, &err), -ESRCH);
    CHECK(process == NULL);
    remove_fake(&fake);
    json_decref(missing);
}

TEST(what_cannot_be_read_is_null_with_a_reason)
{
    json_t *missing = json_object(), *process = NULL;
    struct error err = {0};
    char same[512];
    snprintf(same, sizeof(same), fake_stat, 100);
    struct fake fake = {.next_stat = same};
    make_fake(&fake);
    CHECK_INT(read_fake(&fake, &process, missing, &err), 0);
    CHECK(json_is_null(json_object_get(process, "exe")));
    CHECK(json_is_null(json_object_get(process, "environment")));
    CHECK(text_of(missing, "process.exe") != NULL);
    CHECK(text_of(missing, "process.environment") != NULL);
    CHECK(text_of(missing, "process.rlimits") != NULL);
    const json_t *library = json_array_get(json_object_get(process, "libraries"), 0);
    CHECK_STR(text_of(library, "key"), "lib");
    CHECK_STR(text_of(library, "version"), "1.2"); // its name is still known
    CHECK(json_is_null(json_object_get(library, "build_id")));
    CHECK(json_is_null(json_object_get(library, "size_bytes")));
    CHECK_CONTAINS(text_of(library, "problem"), "No such file");
    CHECK_INT(json_integer_value(json_object_get(process, "libraries_unreadable_count")), 1);
    const json_t *scheduling =
            json_object_get(process, "scheduling"); // behind a name with a bracket
    CHECK_INT(json_integer_value(json_object_get(scheduling, "nice")), 5);
    CHECK(json_is_null(json_object_get(scheduling, "cpus")));
    remove_fake(&fake);
    json_decref(process);
    json_decref(missing);
}

TEST(process_of_another_user)
{
    if (geteuid())
        runner_skip("needs root, to become somebody else");
    pid_t owner = getpid();
    int fds[2];
    CHECK_INT(pipe(fds), 0);
    pid_t stranger = fork();
    if (stranger == 0) {
        json_t *document = NULL;
        struct error err = {0};
        if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
            _exit(1);
        int code = fingerprint_process(owner, &document, &err);
        if (write(fds[1], &code, sizeof(code)) < 0 || write(fds[1], err.text, sizeof(err.text)) < 0)
            _exit(1);
        _exit(0);
    }
    int code = 0;
    char text[sizeof(((struct error *)0)->text)] = "";
    CHECK_INT(read(fds[0], &code, sizeof(code)), sizeof(code));
    CHECK_INT(read(fds[0], text, sizeof(text)), sizeof(text));
    waitpid(stranger, NULL, 0);
    CHECK_INT(code, -EACCES);
    CHECK_CONTAINS(text, "CAP_SYS_PTRACE");
}

TEST(library_that_was_replaced)
{
    char path[] = "/tmp/test_fingerprint_lib.XXXXXX";
    int fd = mkstemp(path);
    char *name = xasprintf("%s.so.1.0", path), *newer = xasprintf("%s.new", path);
    close(fd);
    copy_file("/proc/self/exe", name);
    struct stat before;
    CHECK_INT(stat(name, &before), 0);
    fd = open(name, O_RDONLY);
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED);
    close(fd);
    copy_file(FIXTURE_PLAIN, newer); // an upgrade puts another file at the same path
    CHECK_INT(rename(newer, name), 0);

    json_t *document = NULL;
    CHECK_INT(fingerprint_process(getpid(), &document, NULL), 0);
    const json_t *library = library_at(document, name);
    CHECK(library != NULL);
    CHECK(json_is_true(json_object_get(library, "deleted")));
    CHECK(!text_of(library, "soname") || strcmp(text_of(library, "soname"), "libfixture.so.3"));
    if (!text_of(library, "problem")) // allowed to reach the old file by its address
        CHECK_INT(json_integer_value(json_object_get(library, "size_bytes")), before.st_size);
    else
        CHECK(json_is_null(json_object_get(library, "build_id")));
    json_decref(document);
    munmap(mapped, 4096);
    unlink(name);
    unlink(path);
    free(name);
    free(newer);
}

TEST(devices_and_data_are_not_opened_as_libraries)
{
    void *zero =
            mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open("/dev/zero", O_RDONLY), 0);
    CHECK(zero != MAP_FAILED);
    json_t *document = NULL;
    CHECK_INT(fingerprint_process(getpid(), &document, NULL), 0);
    CHECK(library_at(document, "/dev/zero") == NULL);
    CHECK(json_integer_value(
                  json_object_get(json_object_get(document, "process"), "other_files_count")) > 0);
    json_decref(document);
}
