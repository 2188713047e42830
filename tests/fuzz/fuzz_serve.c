// SPDX-License-Identifier: Apache-2.0
// Requests to `upgate canary serve`, as they come from the network: a byte of method and state, the
// target up to a line end, the body. Whatever comes: an answer of a known status, valid JSON where
// it says so, no success to Flagger from a rollout without a verdict.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "harness/canary/serve/answers.h"
#include "harness/canary/serve/token.h"
#include "tests/fuzz/fuzz.h"

static const char token_line[] = "0123456789abcdef\n";

static struct answers *answers_of(int state)
{
    static const char *const states[] = {"running", "promoted", "rolled_back", "paused"};
    struct snapshot *snapshot = snapshot_new("ranker");
    struct verdict_clock now = {.wall_ns = INT64_C(1700000000000000000), .monotonic_ns = 1};
    struct snapshot_stage stages[] = {{.name = "aa", .result = "passed", .begun = true},
            {.number = 1, .name = "5%", .begun = true}};
    if (state) {
        snapshot->kind = SNAPSHOT_ROLLOUT;
        snapshot->problem = NULL;
        snapshot->state = states[state - 1];
        snapshot->reason = "because";
        snapshot->controlled = snapshot->has_stage = true;
        snapshot->heartbeat_ns = now.wall_ns;
        snapshot->stage = 1;
        snapshot->stages = stages;
        snapshot->stage_count = 2;
    }
    struct answers *answers = answers_new(snapshot, &now);
    snapshot_free(snapshot);
    return answers;
}

static void check_answer(const struct call *call, const struct answer *answer, int state)
{
    static const int known[] = {200, 400, 403, 404, 405, 409, 412, 414};
    int found = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        found |= known[i] == answer->status;
    fuzz_require(found, "a known status");
    fuzz_require(strlen(answer->body) == answer->body_len && answer->body_len,
            "a body as long as it says");
    fuzz_require((answer->status == 405) == (answer->allow != NULL), "405 says what is allowed");
    if (strcmp(answer->type, "application/json") == 0) {
        json_t *json = json_loadb(answer->body, answer->body_len, 0, NULL);
        fuzz_require(json != NULL, "valid JSON");
        json_decref(json);
    }
    if (call->method == CALL_POST && answer->status == 200 && state == 0 && answer->prepared >= 0)
        fuzz_require(memmem(call->target, call->target_len, "/event", 6) ||
                        memmem(call->target, call->target_len, "/post-rollout", 13) ||
                        memmem(call->target, call->target_len, "%", 1),
                "no success without a measurement");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct answers *answers[5];
    static struct tokens *tokens;
    if (!answers[0]) {
        struct error err = {0};
        for (int i = 0; i < 5; i++)
            answers[i] = answers_of(i);
        fuzz_write(fuzz_path("token"), token_line, sizeof token_line - 1);
        fuzz_require(tokens_load(fuzz_path("token"), &tokens, &err) == 0, "a token");
    }
    if (!size)
        return 0;
    int state = data[0] / 4 % 5;
    const char *target = (const char *)data + 1, *end = memchr(target, '\n', size - 1);
    size_t len = end ? (size_t)(end - target) : size - 1;
    struct call call = {.method = data[0] % 4,
            .target = target,
            .target_len = len,
            .body = end ? end + 1 : NULL,
            .body_len = end ? size - 2 - len : 0,
            .now = {.wall_ns = INT64_C(1700000000000000000), .monotonic_ns = 2}};
    struct answer answer;
    answers_give(answers[state], &call, &answer);
    check_answer(&call, &answer, state);
    if (answer.prepared < 0)
        free((void *)(uintptr_t)answer.body);
    answers_open(target, len, true);
    char *header = strndup(target, len);
    fuzz_require(header != NULL, "memory");
    // Only who has the token gets in: the input would have to have it, plain or in base64.
    if (tokens_allow(tokens, header))
        fuzz_require(strstr(header, "0123456789abcdef") || strncasecmp(header, "Basic ", 6) == 0,
                "the token");
    free(header);
    return 0;
}
