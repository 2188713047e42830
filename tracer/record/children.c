// SPDX-License-Identifier: Apache-2.0
// Children of the target out of /proc/PID/task/TID/children. One that ends between two looks is
// missed, and its own children, which init inherits, with it.
#include "tracer/record/children.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"

enum { CHILDREN_MAX = 4096, CHILDREN_DEPTH = 8, CHILDREN_FILE_MAX = 1 << 16 };

struct children {
    struct tasks *tasks;
    uint32_t found[CHILDREN_MAX];
    size_t count;
};

static void children_of_thread(struct children *children, uint32_t tgid, const char *tid)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%u/task/%s/children", tgid, tid);
    char *text = string_read_file(path, CHILDREN_FILE_MAX, NULL);
    for (char *at = text, *end; at && *at && children->count < CHILDREN_MAX; at = end) {
        uint32_t child = (uint32_t)strtoul(at, &end, 10);
        if (end == at)
            break;
        if (!tasks_is_target(children->tasks, child))
            children->found[children->count++] = child;
    }
    free(text);
}

static void children_of_process(void *context, struct task_process *process)
{
    char path[64];
    tasks_read_again(process);
    snprintf(path, sizeof path, "/proc/%u/task", process->tgid);
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            children_of_thread(context, process->tgid, entry->d_name);
    if (dir)
        closedir(dir);
}

void children_search(struct tasks *tasks)
{
    struct children *children = xcalloc(1, sizeof *children);
    children->tasks = tasks;
    for (int depth = 0; depth < CHILDREN_DEPTH; depth++) {
        children->count = 0;
        tasks_each_target(tasks, children_of_process, children);
        for (size_t i = 0; i < children->count; i++)
            tasks_target(tasks, children->found[i]);
        if (!children->count)
            break;
    }
    free(children);
}
