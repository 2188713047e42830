// SPDX-License-Identifier: Apache-2.0
// A file of reduced ranks: the body, behind magic and version; with them and with the checksum it
// is a file. What is taken for one has one form only, can be added, and makes a table. The first
// byte says whether it is added to itself, which must be refused.
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/reduce/reduced_table.h"
#include "tests/fuzz/fuzz.h"

static void read_table(const struct reduced *reduced)
{
    struct reduced_table table;
    reduced_table_make(reduced, &table);
    fuzz_require(table.count == reduced->member_count, "a row of each rank");
    for (size_t i = 0; i < table.count; i++)
        fuzz_require(table.rows[i].host && !(table.rows[i].step_p50_ns > table.rows[i].step_p99_ns),
                "a row that can be");
    reduced_table_free(&table);
}

static void add(const struct reduced *reduced, int twice)
{
    struct reduced sum = {0};
    struct error err = {0};
    struct strbuf first = {0}, second = {0};
    fuzz_require(reduced_add(&sum, reduced, &err) == 0, "what is read can be added to nothing");
    fuzz_require(
            reduced_encode(reduced, &first, &err) == 0 && reduced_encode(&sum, &second, &err) == 0,
            "what is read is not too large");
    fuzz_require(first.len == second.len && memcmp(first.text, second.text, first.len) == 0,
            "and is the same then");
    if (twice && reduced->member_count)
        fuzz_require(fuzz_check(reduced_add(&sum, reduced, &err), &err) < 0, "nobody counts twice");
    strbuf_free(&first);
    strbuf_free(&second);
    reduced_free(&sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t head[] = {'U', 'G', 'R', 'D', REDUCED_VERSION};
    struct fuzz_input input = {data, size};
    struct reduced reduced;
    struct error err = {0};
    struct strbuf again = {0};
    int twice = (int)(fuzz_take(&input, 1) & 1);
    size_t body = sizeof head + input.size;
    uint8_t *file = malloc(body + 8);
    memcpy(file, head, sizeof head);
    if (input.size)
        memcpy(file + sizeof head, input.data, input.size);
    uint64_t sum = reduced_checksum(file, body);
    for (size_t i = 0; i < 8; i++)
        file[body + i] = (uint8_t)(sum >> (8 * i));
    if (fuzz_check(reduced_decode(file, body + 8, "fuzz", &reduced, &err), &err) == 0) {
        fuzz_require(reduced_encode(&reduced, &again, &err) == 0, "what is read is not too large");
        fuzz_require(
                again.len == body + 8 && memcmp(again.text, file, again.len) == 0, "one form only");
        add(&reduced, twice);
        read_table(&reduced);
        reduced_free(&reduced);
        strbuf_free(&again);
    }
    free(file);
    return 0;
}
