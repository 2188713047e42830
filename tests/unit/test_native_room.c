// SPDX-License-Identifier: Apache-2.0
// Models ask for memory before they write it: the least of all limits decides, what does not fit is
// refused in words, and ranks that take at the same time count each other.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reference_models/native/arena.h"
#include "reference_models/native/model.h"
#include "reference_models/native/ranks/ranks.h"
#include "reference_models/native/room.h"
#include "reference_models/native/row_cache.h"
#include "runner.h"

static char root[] = "/tmp/upgate-room-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "we");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static uint64_t left_here(void)
{
    uint64_t left = 12345;
    return room_left(root, &left) ? left : 0;
}

TEST(the_least_of_all_limits_is_what_is_left)
{
    CHECK(runner_directory(root) != NULL);
    CHECK_INT(left_here(), 0); // nobody tells
    put("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:   800 kB\nInactive: 7 kB\n");
    CHECK_INT(left_here(), 800 << 10);
    put("proc/self/cgroup", "1:cpu:/x\n0::/job/step\n");
    CHECK_INT(left_here(), 800 << 10); // such a group is not seen here
    put("sys/fs/cgroup/job/step/memory.max", "max\n");
    put("sys/fs/cgroup/job/step/memory.current", "300000\n");
    put("sys/fs/cgroup/job/step/memory.stat", "active_file 1\ninactive_file 1\n");
    CHECK_INT(left_here(), 800 << 10);
    put("sys/fs/cgroup/job/memory.max", "500000\n");
    put("sys/fs/cgroup/job/memory.current", "400000\n");
    put("sys/fs/cgroup/job/memory.stat", "anon 250000\ninactive_file 100000\nactive_file 50000\n");
    CHECK_INT(left_here(), 250000); // of the group around it
    put("sys/fs/cgroup/job/memory.stat",
            "anon 50000\ninactive_file 100000\nactive_file 50000\nslab_reclaimable 200000\nslab_unreclaimable 7\n");
    CHECK_INT(left_here(), 450000); // names of files go, too
    put("sys/fs/cgroup/memory.max", "100\n");
    put("sys/fs/cgroup/memory.current", "400000\n");
    put("sys/fs/cgroup/memory.stat", "inactive_file 0\nactive_file 7\n");
    uint64_t left = 12345;
    CHECK(room_left(root, &left) && left == 0); // over its limit
    put("proc/self/cgroup", "0::/../job\n");
    CHECK_INT(left_here(), 800 << 10);
}

TEST(more_than_is_left_is_refused)
{
    struct error err = {0};
    CHECK_INT(room_take((size_t)1 << 60, "the tables", &err), -ENOMEM);
    CHECK_CONTAINS(err.text,
            "no room for the tables: they take 1099511627776 MiB of memory, and the machine and the limits of its control "
            "groups leave");
    CHECK_CONTAINS(err.text, "a smaller --size, --cache or --ranks?");
    CHECK_INT(error_exit_code(-ENOMEM), 4);
    CHECK_INT(room_take(4096, "the tables", &err), 0); // nothing of what was refused is counted
    room_taken(4096);
    void *memory = NULL;
    CHECK_INT(ranks_share((size_t)1 << 60, &memory, &err), -ENOMEM);
    CHECK_CONTAINS(err.text, "no room for what the ranks share");
}

TEST(an_arena_that_does_not_fit_ends_the_program_in_words)
{
    struct arena arena = {0};
    char text[512] = "";
    int ends[2], status = 0;
    CHECK_INT(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        arena_alloc(&arena, (size_t)1 << 30, (size_t)1 << 20);
        _exit(0);
    }
    close(ends[1]);
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    CHECK_CONTAINS(text, "no room for the arrays of the model: they take 10737");
    close(ends[0]);
    CHECK(arena_alloc(&arena, (size_t)32 << 20, 1) != NULL); // asked for, and there
    CHECK_INT(arena.unasked_bytes, 0);
    CHECK_INT(room_take((size_t)1 << 20, "the tables", NULL), 0);
    arena_free(&arena);
}

TEST(a_cache_that_does_not_fit_is_refused)
{
    struct model_opts opts = {.size = MODEL_SIZE_DEMO, .cache_rows = ROW_CACHE_SLOTS_MAX};
    struct error err = {0};
    struct model *model = NULL;
    uint64_t left;
    if (room_left("", &left) && left > (uint64_t)1 << 37)
        runner_skip("this machine has room for it");
    CHECK_INT(pool_new(1, &opts.pool, NULL), 0);
    CHECK_INT(dlrm_cached_ops_f32.create(&opts, &model, &err), -ENOMEM);
    CHECK_CONTAINS(err.text, "no room for the rows of the cache (--cache)");
    CHECK(model == NULL);
    pool_free(opts.pool);
}

// Each would fit alone: the second waits until the first has written what it took.
TEST(ranks_that_take_at_once_count_each_other)
{
    uint64_t left = 0;
    int ends[2], status = 0;
    char byte = 0;
    if (!room_left("", &left))
        runner_skip("nobody tells how much memory is left");
    CHECK_INT(room_share(NULL), 0);
    CHECK_INT(room_take(left / 8 * 5, "the first", NULL), 0);
    CHECK_INT(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(room_take(left / 8 * 5, "the second", NULL) == 0 && write(ends[1], "x", 1) == 1 ? 0
                                                                                              : 1);
    usleep(100000);
    CHECK_INT(waitpid(pid, &status, WNOHANG), 0);
    room_taken(left / 8 * 5);
    CHECK_INT(read(ends[0], &byte, 1), 1);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(ends[0]);
    close(ends[1]);
}
