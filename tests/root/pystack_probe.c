// SPDX-License-Identifier: Apache-2.0
// The Python stack reader at the end of a pipe, for pystack_live.py: `pystack_probe PID` opens the
// process and answers each line of stdin with one line of JSON. Exit 3: it could not be opened,
// with the reason.
//
//   walk TID     {"flags": N, "frames": [[function, file, line, first_line], ...]} or {"error": N}
//   gil          {"tid": N}
//   time TID N   {"ns": N, "reads": N, ...}: CPU time and system calls of one walk, the mean of N
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tracer/pystack/pystack.h"

static struct pystack_frame frames[PYSTACK_FRAMES_MAX];

static json_t *failure(int code, const struct error *err)
{
    return json_pack("{s:i, s:s}", "error", -code, "text", err->text);
}

static json_t *walk(struct pystack *ps, pid_t tid)
{
    struct error err;
    size_t count = 0;
    unsigned flags = 0;
    int code = pystack_walk(ps, tid, frames, PYSTACK_FRAMES_MAX, &count, &flags, &err);
    if (code < 0)
        return failure(code, &err);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list,
                json_pack("[s, s, i, i]", frames[i].function, frames[i].file, frames[i].line,
                        frames[i].first_line));
    return json_pack("{s:i, s:o}", "flags", (int)flags, "frames", list);
}

static json_t *gil(struct pystack *ps)
{
    struct error err;
    pid_t tid = 0;
    int code = pystack_gil_holder(ps, &tid, &err);
    return code < 0 ? failure(code, &err) : json_pack("{s:i}", "tid", (int)tid);
}

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static json_t *timed(struct pystack *ps, pid_t tid, int times)
{
    struct pystack_stats before, after;
    size_t count = 0;
    pystack_stats_read(ps, &before);
    int64_t start = cpu_ns();
    for (int i = 0; i < times; i++)
        pystack_walk(ps, tid, frames, PYSTACK_FRAMES_MAX, &count, NULL, NULL);
    int64_t spent = cpu_ns() - start;
    pystack_stats_read(ps, &after);
    return json_pack("{s:I, s:I, s:I, s:I}", "ns", (json_int_t)(spent / times), "reads",
            (json_int_t)((after.reads - before.reads) / (uint64_t)times), "walks",
            (json_int_t)(after.walks - before.walks), "frames", (json_int_t)count);
}

static json_t *answer(struct pystack *ps, const char *line)
{
    int tid = 0, times = 0;
    if (sscanf(line, "walk %d", &tid) == 1)
        return walk(ps, tid);
    if (sscanf(line, "time %d %d", &tid, &times) == 2 && times > 0)
        return timed(ps, tid, times);
    return gil(ps);
}

int main(int argc, char **argv)
{
    struct pystack *ps = NULL;
    struct error err;
    char line[256];
    if (argc != 2)
        return 2;
    int code = pystack_open((pid_t)strtol(argv[1], NULL, 10), &ps, &err);
    if (code < 0) {
        printf("{\"error\": %d}\n%s\n", -code, err.text);
        return 3;
    }
    printf("{\"version\": \"%s\"}\n", pystack_version(ps));
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        json_t *reply = answer(ps, line);
        char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
        puts(text ? text : "{\"error\": 0}");
        fflush(stdout);
        free(text);
        json_decref(reply);
    }
    pystack_close(ps);
    return 0;
}
