// SPDX-License-Identifier: Apache-2.0
// Flagger's webhooks (read in version 1.44: a status above 202 is a refusal; 5xx and 429 are tried
// again and lose their text, so a refusal is 403, 409 or 412 here). A confirm hook that is refused
// waits; pre-rollout and rollout count as a failed check; rollback goes back on 200, and nothing
// but a fail is one.
#include <jansson.h>
#include <string.h>

#include "harness/canary/serve/answers_parts.h"

enum hook_rule { HOOK_PASS, HOOK_INCREASE, HOOK_ROLLBACK, HOOK_NOTE };

static const struct {
    const char *name;
    enum hook_rule rule;
} hooks[] = {
        {"confirm-rollout", HOOK_PASS},
        {"pre-rollout", HOOK_PASS},
        {"rollout", HOOK_PASS},
        {"confirm-promotion", HOOK_PASS},
        {"confirm-traffic-increase", HOOK_INCREASE},
        {"rollback", HOOK_ROLLBACK},
        {"event", HOOK_NOTE},
        {"post-rollout", HOOK_NOTE},
};

// {"name", "namespace", "phase", "checksum", "metadata": {…}}: what must be there. *ret_stage:
// metadata.stage, of *ret_json.
static bool payload_parse(const struct call *call, json_t **ret_json, const char **ret_stage)
{
    json_t *json = call->body ? json_loadb(call->body, call->body_len, JSON_REJECT_DUPLICATES, NULL)
                              : NULL;
    const char *name = json_string_value(json_object_get(json, "name"));
    json_t *metadata = json_object_get(json, "metadata");
    bool ok = name && *name && json_is_string(json_object_get(json, "phase")) &&
            (!metadata || json_is_object(metadata) || json_is_null(metadata));
    *ret_json = json;
    *ret_stage = json_string_value(json_object_get(metadata, "stage"));
    return ok;
}

static int refusal(const struct verdict *verdict)
{
    if (verdict->kind != VERDICT_INCONCLUSIVE || verdict->why == VERDICT_COLLECTS)
        return 403;
    return verdict->why == VERDICT_HELD ? 409 : 412;
}

static int status_of(const struct answers *answers, enum hook_rule rule, int entry, bool staged)
{
    const struct verdict *verdict = &answers->entries[entry].verdict;
    switch (rule) {
    case HOOK_NOTE:
        return 200;
    case HOOK_ROLLBACK:
        return verdict->kind == VERDICT_FAIL ? 200 : 403;
    case HOOK_INCREASE:
        if (!staged && entry == ANSWERS_WHOLE && answers->wants_more)
            return 200;
        break;
    case HOOK_PASS:
        break;
    }
    return verdict->kind == VERDICT_PASS ? 200 : refusal(verdict);
}

void answers_flagger(const struct answers *answers, const struct call *call,
        const struct target *target, struct answer *ret)
{
    size_t hook = 0;
    while (hook < sizeof hooks / sizeof *hooks && strcmp(hooks[hook].name, target->parts[3]) != 0)
        hook++;
    if (hook == sizeof hooks / sizeof *hooks) {
        answer_text(ret, 404,
                "no such hook; there are confirm-rollout, pre-rollout, rollout, confirm-traffic-increase, "
                "confirm-promotion, rollback, event and post-rollout\n");
        return;
    }
    if (!answer_method_is(call, false, true, ret)) // a GET of a probe is no webhook
        return;
    json_t *json = NULL;
    const char *stage = NULL, *asked = target_get(target, "stage", NULL);
    if (!payload_parse(call, &json, &stage)) {
        answer_text(ret, 400,
                "not the payload of a Flagger webhook: a JSON object with name and phase\n");
    } else {
        stage = asked ? asked : stage;
        int entry = answers_entry_of(answers, call, stage, ret);
        if (entry >= 0)
            answer_prepared(ret, status_of(answers, hooks[hook].rule, entry, stage != NULL),
                    answers, entry, false);
    }
    json_decref(json);
}
