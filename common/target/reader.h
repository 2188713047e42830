// SPDX-License-Identifier: Apache-2.0
// A process of ours that looks up, opens and reads files whose file system may not answer: a dead
// server's, or one that a program serves which has stopped. Who waits for such can be killed at
// best, and often not even that; so it is this process that waits, and whoever asks it gives up in
// time. It is forked at the first question, has nothing open but its end of a socket, and ends when
// that closes. Where it was started early (target_reader_start), those that take its place are as
// small as it was then. Safe to use from several threads, one question at a time. Only
// common/target/file.c asks.
#ifndef UPGATE_COMMON_TARGET_READER_H
#define UPGATE_COMMON_TARGET_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    TARGET_PATH_MAX = 4096 + 64,
    TARGET_READ_MAX = 64 << 10,    // a message of a socket has room for it
    TARGET_MESSAGE_MAX = 32 << 10, // of netlink: the kernel makes none that is longer
};

enum target_what {
    TARGET_OPEN,        // path, inside the root of pid
    TARGET_OPEN_CACHED, // the same, where no file system has to be asked for the way
    TARGET_OPEN_MAPPED, // begin, end, else path
    TARGET_OPEN_HERE,   // path
    TARGET_OPEN_KNOWN,  // path, if device and inode are its
    TARGET_OPEN_MEMORY, // path
    TARGET_STATUS,      // of the descriptor: struct stat
    TARGET_READ,        // of the descriptor
    TARGET_TEXT,        // of the file at path
    TARGET_CONVERSE, // over the descriptor: `offset` bytes of path, for what is answered to them at
                     // once
};

struct target_question {
    enum target_what what;
    pid_t pid;
    uint64_t begin, end;
    dev_t device; // 0: not known
    ino_t inode;
    uint64_t offset; // TARGET_CONVERSE: how many bytes of `path` are sent
    size_t len;      // at most TARGET_READ_MAX
    int64_t wait_ms; // for the answer; 0: a second
    bool quiet;      // that there is none is no news (target_reader_silent)
    char proc[256], path[TARGET_PATH_MAX];
};

struct target_answer {
    ssize_t result;
    int code;          // errno
    int fd;            // to be passed on; -1: none
    const char *bytes; // `result` of them, of the answering side
};

// Answers in the process. fd: of the question, or -1; it stays open until the next one.
typedef void target_serve(
        const struct target_question *question, int fd, struct target_answer *ret);

// The answer's result, with errno; its fd into ret_fd (NULL: none is expected), its bytes into
// ret_bytes. -1, EAGAIN: there was no answer in time, or there was none for another question about
// the same device lately (or file, where that is not known; of what a process has mapped whose mmap
// lock was held then: about that process, too), or all waiting together has taken its share of
// time.
ssize_t target_reader_ask(target_serve *serve, const struct target_question *question, int fd,
        int *ret_fd, void *ret_bytes);
// CPU time of the process, and of those that it took the place of. It waits for nobody.
int64_t target_reader_cpu_ns(void);
// The file of the last question that had no answer in time, "" where only its device is known;
// NULL: there was none. The caller's.
char *target_reader_silent(void);
// Forks it now, beside a process that forks those that come after it, and forgets which file that
// was. prepare (NULL: nothing) is called in both: system calls only.
void target_reader_start(target_serve *serve, void (*prepare)(void));

#endif
