// SPDX-License-Identifier: Apache-2.0
// What upgate and its program in a container (inside.c) say to each other, over a stream socket of
// the same machine. The container: hello, with its environment behind it. upgate: start, with the
// words behind it and the output's descriptor as SCM_RIGHTS. The container: events, until upgate
// lets go by an end of file.
#ifndef UPGATE_HARNESS_IMAGE_INSIDE_H
#define UPGATE_HARNESS_IMAGE_INSIDE_H

#include <stdint.h>

#define INSIDE_DIR "/.upgate" // in the container: where its program and its socket are put
#define INSIDE_PROGRAM INSIDE_DIR "/start"
#define INSIDE_SOCKET INSIDE_DIR "/socket"

enum {
    INSIDE_MAGIC = 0x64697375,       // "usid"
    INSIDE_TEXT_BYTES_MAX = 8 << 20, // of an environment, or of the words of a start
    INSIDE_CPU_BYTES = 128           // cpu_set_t
};

struct inside_hello {
    uint32_t magic;
    int32_t pid;                      // as the container knows it
    uint32_t uid;                     // likewise
    int32_t glibc_major, glibc_minor; // of the image; 0 = it has none
    uint32_t musl;                    // it has musl's loader
    int32_t ptrace_error;             // 0 = a process may trace its child
    int32_t seccomp;                  // mode: 0 off, 2 filter; -1 = not told
    int64_t shm_bytes;                // size of its /dev/shm; -1 = none
    uint32_t gpu;                     // a device node of a GPU is there
    uint32_t env_bytes;               // of "NAME=value\0…", behind this
};

struct inside_start {
    uint32_t magic;
    uint32_t argc, envc;
    uint32_t text_bytes; // behind this: the directory ("" = stay), the words, the environment, each
                         // with its NUL
    uint8_t cpus[INSIDE_CPU_BYTES];
};

enum inside_what { INSIDE_RUNNING, INSIDE_FAILED, INSIDE_ENDED };
enum inside_where {
    INSIDE_AT_START,
    INSIDE_AT_WORKDIR,
    INSIDE_AT_STEPS,
    INSIDE_AT_PROGRAM,
    INSIDE_AT_LOADER
};

struct inside_event {
    uint32_t what;              // enum inside_what
    int32_t where, error;       // FAILED: enum inside_where, errno
    int32_t status;             // ENDED: as waitpid has it
    int64_t cpu_ns, peak_bytes; // ENDED: of the program
    int64_t before_exec_bytes;  // RUNNING: what it held just before
};

#endif
