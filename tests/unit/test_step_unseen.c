// SPDX-License-Identifier: Apache-2.0
// Why there are no steps, in words, from what processes say that they saw; whatever stands there.
#include "harness/steps/unseen.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/runner.h"

static char path[64];

static struct ug_step_looks *looks_of(struct reader **ret_reader)
{
    struct reader_opts opts = {.slot_count = 1, .ring_records = 2};
    struct error err = {0};
    snprintf(path, sizeof path, "/dev/shm/upgate-test-unseen-%d", (int)getpid());
    CHECK(reader_create(ret_reader, path, &opts, &err) == 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *page = mmap(NULL, UG_STEP_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    return (void *)(page + UG_STEP_LOOKS_OFFSET);
}

static void say(
        struct ug_step_looks *looks, int at, uint32_t state, uint32_t distance, const char *text)
{
    struct ug_step_near *near = &looks->near[at];
    near->state = state;
    near->distance = distance;
    snprintf(near->text, sizeof near->text, "%s", text);
}

static void check_words(const struct reader *reader, const char *step, const char *want)
{
    char *words = unseen_why(reader, step);
    CHECK_STR(words, want);
    free(words);
}

TEST(what_was_seen)
{
    struct reader *reader = NULL;
    struct ug_step_looks *looks = looks_of(&reader);
    check_words(reader, "nvtx:step", "no range 'step': no process of it has called NVTX");
    check_words(reader, "graph", "no CUDA graph was replayed: no process of it uses CUDA");
    looks->processes = 1;
    check_words(reader, "nvtx:step", "no range 'step': none was begun");
    check_words(reader, "graph", "no CUDA graph was replayed");
    looks->seen = 5;
    say(looks, 0, UG_NEAR_NAME, 7, "forward");
    say(looks, 3, UG_NEAR_NAME, 1, "steps");
    say(looks, 4, UG_NEAR_NAME, 0, "step@train");
    say(looks, 5, UG_NEAR_NAME, 0, "step@train"); // of another process
    say(looks, 6, UG_NEAR_BUSY, 0, "half");
    say(looks, 22, UG_NEAR_NAME, 8, "backward");
    check_words(reader, "nvtx:step",
            "no range 'step' among the 5 that were seen; near: step@train, steps, forward");
    say(looks, 7, UG_NEAR_WHY, 0, "no libcupti");
    check_words(reader, "graph", "no CUDA graph was replayed: no libcupti");
    reader_free(reader);
}

TEST(whatever_stands_there)
{
    struct reader *reader = NULL;
    struct ug_step_looks *looks = looks_of(&reader);
    memset(looks, 0xff, sizeof *looks);
    check_words(reader, "nvtx:step", "no range 'step' among the 4294967295 that were seen");
    for (uint32_t i = 0; i < UG_STEP_NEAR_MAX; i++) {
        looks->near[i].state = UG_NEAR_NAME + i % 2;
        // without an end
        memset(looks->near[i].text, i % 3 ? '\033' : '\n', sizeof looks->near[i].text);
    }
    char *words = unseen_why(reader, "nvtx:step");
    for (char *at = words; *at; at++)
        CHECK(*at >= ' ' && *at < 127);
    free(words);
    CHECK(truncate(path, 0) == 0);
    check_words(reader, "graph", "no CUDA graph was replayed: no process of it uses CUDA");
    reader_free(reader);
}
