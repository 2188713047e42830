// SPDX-License-Identifier: Apache-2.0
// What an interpreter says of itself, and what a store has of a side: merged with the facts of a
// process, compared with the other side's and printed. The input: two documents, parted by a line
// "---", each a probe's answer or, where it has "schema", a fingerprint.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/fingerprint/fingerprint.h"
#include "harness/fingerprint/table.h"
#include "tests/fuzz/fuzz.h"

static json_t *take(struct fuzz_input *input)
{
    static const char mark[] = "\n---\n";
    const uint8_t *end = memmem(input->data, input->size, mark, sizeof mark - 1);
    size_t len = end ? (size_t)(end - input->data) : input->size;
    json_t *json = json_loadb((const char *)input->data, len, 0, NULL);
    input->data += end ? len + sizeof mark - 1 : len;
    input->size -= end ? len + sizeof mark - 1 : len;
    return json;
}

// As fingerprint_process() makes them: that side of the merge is our own.
static const char process_text[] =
        "{\"process\": {\"libraries\": ["
        "{\"key\": \"libopenblas\", \"role\": \"blas\", \"name\": \"OpenBLAS\", \"path\": \"/usr/lib/libopenblas.so.0\","
        " \"version\": \"0.3.21\", \"build_id\": \"aa01\", \"version_source\": \"contents\"},"
        "{\"key\": \"libcublas\", \"role\": \"cublas\", \"name\": \"cuBLAS\", \"path\":"
        " \"/v/site-packages/nvidia/cublas/lib/libcublas.so.12\", \"version\": \"12\", \"build_id\": null,"
        " \"version_source\": \"file name\"}],"
        "\"environment\": {\"OMP_NUM_THREADS\": \"1\"}, \"pid\": 4711}, \"host\": {\"memory\": {\"swappiness\": 60}}, \"missing\": {}}";

static json_t *side(struct fuzz_input *input)
{
    json_t *said = take(input);
    if (said && json_object_get(said, "schema"))
        return said;
    json_t *process = json_loads(process_text, 0, NULL);
    fuzz_require(process != NULL, "a document of ours");
    json_t *document = fingerprint_merge(process, said);
    json_decref(process);
    json_decref(said);
    return document;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    json_t *a = side(&input), *b = side(&input), *differences = NULL;
    struct error err = {0};
    size_t noise = 0;
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    fuzz_require(stream != NULL, "memory");
    for (int all = 0; all < 2; all++) {
        const struct table_opts opts = {.width = 60, .all = all};
        fingerprint_print(stream, a, "side", &opts);
    }
    if (fuzz_check(fingerprint_diff(a, b, &differences, &noise, &err), &err) == 0) {
        const struct table_opts opts = {.width = 60};
        fingerprint_print_diff(stream, differences, noise, "old", "new", &opts);
        json_decref(differences);
    }
    fclose(stream);
    free(text);
    json_decref(a);
    json_decref(b);
    return 0;
}
