// SPDX-License-Identifier: Apache-2.0
// Instead of libFuzzer: runs the target once with each file of a folder, in a child each, so that
// one that ends it does not hide the others. `replay_NAME FOLDER…` or single files. 0: all of them
// went through.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/fuzz/fuzz.h"

enum { REPLAY_SECONDS_MAX = 60 }; // of an input under ASan; the slowest takes 2 s

// for mutators, which are not called here
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max)
{
    (void)data, (void)size_max;
    return size;
}

static int replay_count, replay_failed;

static void replay_file(const char *path)
{
    size_t size = 0;
    uint8_t *data = fuzz_read(path, &size);
    replay_count++;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(REPLAY_SECONDS_MAX);
        uint8_t *exact = malloc(size ? size : 1); // a read behind its end is seen
        fuzz_require(exact != NULL, "memory");
        memcpy(exact, data, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
        exit(0);
    }
    free(data);
    int status = 0;
    fuzz_require(pid > 0 && waitpid(pid, &status, 0) == pid, "a child");
    if (status == 0)
        return;
    replay_failed++;
    fuzz_sweep(pid);
    printf("FAIL %s: %s %d\n", path, WIFSIGNALED(status) ? "signal" : "exit",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void replay(const char *path)
{
    struct stat info;
    struct dirent **entries = NULL;
    fuzz_require(stat(path, &info) == 0, path);
    if (!S_ISDIR(info.st_mode)) {
        replay_file(path);
        return;
    }
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char *file = xasprintf("%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            replay_file(file);
        free(file);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    printf("%d inputs, %d failed\n", replay_count, replay_failed);
    return replay_failed || !replay_count; // no input: nothing was tested
}
