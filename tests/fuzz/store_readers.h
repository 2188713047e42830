// SPDX-License-Identifier: Apache-2.0
// What `upgate gate`, `diff`, `stalls` and `report` do with a store, without their words on the terminal.
#ifndef UPGATE_TESTS_FUZZ_STORE_READERS_H
#define UPGATE_TESTS_FUZZ_STORE_READERS_H

enum store_reader {
    STORE_READER_GATE = 1,
    STORE_READER_DIFF = 2,
    STORE_READER_STALLS = 4,
    STORE_READER_HTML = 8,
    STORE_READER_TEXTS = 16, // report's other forms
    STORE_READER_PFTRACE = 32,
    STORE_READER_ALL = 63
};

// Ends the process where a reader leaves the contract: an error without a text, a JSON document that is none.
void store_readers_run(const char *path, unsigned readers);

#endif
