// SPDX-License-Identifier: Apache-2.0
// docs/rollout.md: prose and the tables of keys. Reads the tables only, writes Markdown.
#include <stdio.h>

#include "harness/canary/plan/rollout_internal.h"

static const char rollout_docs_head[] =
        "<!-- Made from harness/canary/plan/rollout_tables.c by `upgate --print-docs docs`; edit there. -->\n"
        "# The rollout plan\n\n"
        "A YAML file says how `upgate canary run ROLLOUT.yaml` shifts live traffic to a candidate, what it is judged by, and how it goes\n"
        "back. Whatever is wrong in it is refused with line and column and the nearest known word, exit code 2:\n"
        "`rollout.yaml:7:14: unknown key 'saok' of a stage; did you mean 'soak'?`\n"
        "`upgate canary run --dry-run ROLLOUT.yaml` shows what became of it, every default filled in; `upgate canary plan` says what each\n"
        "stage can see.\n\n"
        "```yaml\n"
        "name: ranker-2.6\n"
        "traffic:\n"
        "  haproxy: {socket: /run/haproxy/admin.sock, backend: ranker, baseline: old, candidate: new}\n"
        "sources:\n"
        "  - haproxy_log: {listen: \"127.0.0.1:5514\"}\n"
        "stages:\n"
        "  - {percent: 1, soak: 30s, requests: 200}\n"
        "  - {percent: 25, soak: 30s}\n"
        "  - {percent: 50, soak: 30s}\n"
        "  - {percent: 100, soak: 60s}\n"
        "windows: [{days: mon-thu, from: \"09:00\", to: \"16:00\", zone: Europe/Berlin}]\n"
        "freeze: [\"2026-12-20/2027-01-02\"]\n"
        "gate:\n"
        "  metrics: {error_rate: {margin: 50%}, rejected_rate: {margin: 50%}, latency_p50: {margin: 10%}, latency_p99: {margin: 10%}, wrong_answers: {limit: 0}}\n"
        "```\n\n"
        "- A stage passes when it was judged for its soak, the candidate had its requests, every gated metric passed and no tripwire\n"
        "  fired. At 100 % no baseline is left to compare with: there the soak holds, the tripwires, and what the baseline was before: twice\n"
        "  as slow, or four times the errors, for 30 s goes back. Smaller differences are seen only beside a baseline: in a stage of 99 %,\n"
        "  and what is slower under load only in one of 50 %, where both arms have as much to do. A plan without a stage from 50 % on is told so.\n"
        "- A changed plan of a rollout that has begun is refused, with the keys that changed.\n"
        "- Relative paths are relative to the directory upgate is started in, not to the plan's.\n"
        "- Numbers carry their unit: `30s`, `10min`, `2%`, `200/s`, `8GiB`.\n";

void rollout_print_markdown(void *stream)
{
    fputs(rollout_docs_head, stream);
    schema_print_markdown(rollout_fields, "Keys", stream);
}
