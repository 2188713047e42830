// SPDX-License-Identifier: Apache-2.0
// A harness of nothing but the step protocol, for the end-to-end tests: runs a command, holds it in
// blocks of steps, and prints what it marked, one JSON object a line. Not the run loop of upgate.
//     step_host BLOCK REQUEST_BITS COMMAND...     BLOCK: steps, 0 = no gate, closed = held for ever

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "harness/steps/reader.h"
#include "harness/steps/unseen.h"

static void print_take(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
}

static void print_record(void *arg, uint32_t slot_idx, const struct ug_step_record *record)
{
    static const char *const kinds[] = {"?", "step", "loss", "phase", "hold", "note"};

    (void)arg;
    print_take(json_pack("{ss si si sI sI sI ss so}", "kind", kinds[record->kind % 6], "slot",
            (int)slot_idx, "step", (int)record->step, "begin_ns", (json_int_t)record->begin_ns,
            "end_ns", (json_int_t)record->end_ns, "sched_ns", (json_int_t)record->sched_ns, "name",
            record->name, "value",
            record->value - record->value == 0 ? json_real(record->value) : json_null()));
}

static void print_bytes(void *arg, uint32_t slot_idx, const struct reader_bytes *bytes)
{
    char *hex = calloc(1, 2 * bytes->payload_bytes + 1);

    (void)arg;
    for (uint64_t i = 0; hex != NULL && i < bytes->payload_bytes; i++) {
        snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)bytes->payload)[i]);
    }
    print_take(json_pack("{ss si si si si sI ss ss}", "kind", "bytes", "bytes_kind",
            (int)bytes->kind, "slot", (int)slot_idx, "step", (int)bytes->step, "dtype",
            (int)bytes->dtype, "count", (json_int_t)bytes->count, "name", bytes->name, "hex", hex));
    free(hex);
}

static void drain(struct reader *reader)
{
    struct error err = {0};

    for (uint32_t i = 0; i < reader_slot_count(reader); i++) {
        if (reader_drain(reader, i, print_record, print_bytes, NULL, &err) < 0) {
            fprintf(stderr, "step_host: %s\n", err.text);
        }
    }
}

static int run(struct reader *reader, uint32_t block, pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        int64_t deadline_ns = clock_monotonic_ns() + 20000000;

        if (block > 0 && reader_wait_held(reader, 1, deadline_ns) == 0) {
            drain(reader);
            reader_grant(reader, block);
        } else {
            drain(reader);
            clock_sleep_until_ns(deadline_ns);
        }
    }
    drain(reader);
    return status;
}

int main(int argc, char **argv)
{
    struct reader_opts opts = {.open = argc > 1 && strcmp(argv[1], "0") == 0};
    struct error err = {0};
    struct reader *reader;
    char path[64];
    pid_t pid;
    int status;

    if (argc < 4) {
        fprintf(stderr, "step_host: BLOCK REQUEST_BITS COMMAND...\n");
        return 2;
    }
    snprintf(path, sizeof(path), "/dev/shm/upgate-step-host-%d", (int)getpid());
    if (reader_create(&reader, path, &opts, &err) < 0) {
        fprintf(stderr, "step_host: %s\n", err.text);
        return 4;
    }
    reader_request(reader, (uint32_t)atoi(argv[2]));
    setenv("UPGATE_STEPS", path, 1);
    pid = fork();
    if (pid == 0) {
        execvp(argv[3], &argv[3]);
        _exit(127);
    }
    status = run(reader, (uint32_t)atoi(argv[1]), pid);
    if (getenv("UPGATE_STEP") != NULL) {
        char *why = unseen_why(reader, getenv("UPGATE_STEP"));

        print_take(json_pack("{ss ss}", "kind", "unseen", "text", why));
        free(why);
    }
    for (uint32_t i = 0; i < reader_slot_count(reader); i++) {
        struct reader_counters counters;

        if (reader_counters(reader, i, &counters) == 0) {
            print_take(json_pack("{ss si sI sI sI sI}", "kind", "counters", "slot", (int)i,
                    "dropped", (json_int_t)counters.records_dropped, "bytes_dropped",
                    (json_int_t)counters.bytes_dropped, "truncated", (json_int_t)counters.truncated,
                    "misplaced", (json_int_t)counters.misplaced));
        }
    }
    print_take(json_pack("{ss si}", "kind", "exit", "status", status));
    reader_free(reader);
    return 0;
}
