// SPDX-License-Identifier: Apache-2.0
// What --resume compares of sides that are images: scripts that are mounted lie on this machine,
// the others are the image's.
#include "harness/run/inputs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/runner.h"

static void script(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

// A directory with a script, in which the case goes on; its real path.
static void enter(char dir[PATH_MAX])
{
    static char template[] = "/tmp/upgate-test-inputs-XXXXXX";
    CHECK_INT(chdir(runner_directory(template)), 0);
    CHECK(getcwd(dir, PATH_MAX));
    script("work.sh", "#!/bin/sh\ntrue\n");
}

// Both sides are one image; mount NULL: nothing goes in.
static json_t *describe(char *mount, char *workdir, char *word)
{
    char *mounts[] = {mount, NULL}, *command[] = {"sh", word, NULL};
    struct plan_side side = {
            .image = "stack:1", .mounts = mount ? mounts : NULL, .workdir = workdir};
    struct plan_workload workload = {.command = command};
    const struct plan plan = {.sides = {side, side}, .workloads = &workload, .workload_count = 1};
    return inputs_describe(&plan);
}

// The files are this one, NULL: none; the directory matters, or does not.
static void check_inputs(json_t *inputs, const char *file, const char *dir)
{
    json_t *files = json_object_get(inputs, "files");
    const char *told = json_string_value(json_object_get(inputs, "directory"));
    CHECK_INT(json_object_size(files), file ? 1 : 0);
    if (file)
        CHECK(json_object_get(files, file));
    CHECK_INT(told != NULL, dir != NULL);
    if (told && dir)
        CHECK_STR(told, dir);
    json_decref(inputs);
}

TEST(a_mounted_script_is_compared)
{
    char dir[PATH_MAX], file[PATH_MAX + 16], mount[PATH_MAX + 16];
    enter(dir);
    snprintf(file, sizeof file, "%s/work.sh", dir);
    snprintf(mount, sizeof mount, "%s:/job/:ro", dir);
    check_inputs(describe(".", NULL, "work.sh"), file, dir);
    // the container begins where upgate does
    check_inputs(describe(dir, NULL, "work.sh"), file, dir);
    check_inputs(describe(mount, "/job", "work.sh"), file, NULL);
    check_inputs(describe(".:/job", NULL, "/job/work.sh"), file, dir); // which directory that is
    json_t *before = describe(".", NULL, "work.sh");
    script("work.sh", "#!/bin/sh\nfalse\n");
    json_t *now = describe(".", NULL, "work.sh");
    char *changes = inputs_changes(before, now);
    CHECK_CONTAINS(changes, "work.sh' was changed");
    free(changes);
    json_decref(before);
    json_decref(now);
}

TEST(what_the_image_has_is_not_looked_for_here)
{
    char dir[PATH_MAX], file[PATH_MAX + 16], mount[PATH_MAX + 16];
    enter(dir);
    snprintf(file, sizeof file, "%s/work.sh", dir);
    snprintf(mount, sizeof mount, "%s:/job", dir);
    check_inputs(describe(NULL, NULL, "work.sh"), NULL, NULL);
    check_inputs(describe(NULL, NULL, file), NULL, NULL);
    check_inputs(describe("/usr:/data", NULL, "work.sh"), NULL, NULL);
    check_inputs(describe(mount, NULL, "work.sh"), NULL, NULL); // of the image's own directory
    check_inputs(describe(mount, NULL, "/jobs/work.sh"), NULL, NULL);
    check_inputs(describe("gone", NULL, "work.sh"), NULL, dir); // said when the image is opened
}
