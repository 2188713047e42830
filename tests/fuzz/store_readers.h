// SPDX-License-Identifier: Apache-2.0
// What `upgate gate`, `diff`, `stalls`, `report` and `canary` do with a store, without their words
// on the terminal.
#ifndef UPGATE_TESTS_FUZZ_STORE_READERS_H
#define UPGATE_TESTS_FUZZ_STORE_READERS_H

enum store_reader {
    STORE_READER_GATE = 1,
    STORE_READER_DIFF = 2,
    STORE_READER_STALLS = 4,
    STORE_READER_HTML = 8,
    STORE_READER_MARKDOWN = 16,
    STORE_READER_PFTRACE = 32,
    STORE_READER_JSON = 64,
    STORE_READER_JUNIT = 128,
    STORE_READER_GITHUB = 256,
    STORE_READER_ROLLOUT = 512,
    STORE_READER_COUNT = 10, // bits
    STORE_READER_ALL = (1 << STORE_READER_COUNT) - 1
};

// Ends the process where a reader leaves the contract: an error without a text, a JSON document
// that is none.
void store_readers_start(void); // before anything of SQLite
void store_readers_run(const char *path, unsigned readers);

#endif
