// SPDX-License-Identifier: Apache-2.0
// docs/plan.md: prose, the tables of keys, the metrics. Reads the tables only, writes Markdown.
#include <stdio.h>

#include "harness/plan/plan_internal.h"

static const char plan_docs_head[] =
        "<!-- Made from harness/plan/plan_tables.c by `upgate --print-docs docs`; edit there. -->\n"
        "# The plan\n\n"
        "A YAML file says what `upgate ab PLAN.yaml` runs on which sides, and how it is judged. "
        "Whatever\n"
        "is wrong in it is refused with line and column and the nearest known word, exit code 2:\n"
        "`plan.yaml:4:15: unknown key 'modle' of a workload; did you mean 'model'?`\n"
        "`upgate ab --dry-run PLAN.yaml` shows what became of it, every default filled in.\n\n"
        "```yaml\n"
        "baseline:  {name: torch-1.13, python: /usr/bin/python3, env: {OMP_NUM_THREADS: \"1\"}}\n"
        "candidate: {name: torch-2.x,  python: envs/b/bin/python}\n"
        "workloads:\n"
        "  - {name: dlrm-train, model: dlrm, mode: train, steps: 200}\n"
        "  - {name: mine, command: [\"{python}\", train.py, --steps, \"{steps}\"], steps: 300}\n"
        "schedule: {looks: [10, 14, 20, 28], block: 20ms, timeout: 10min}\n"
        "gate:\n"
        "  alpha: 0.01\n"
        "  metrics: {step_time: {margin: 2%}, first_step_time: {observe: true}}\n"
        "```\n\n"
        "- Relative paths are kept as they are written and mean what they mean in your shell: relative "
        "to\n"
        "  the directory upgate is started in, not to the plan's.\n"
        "- A side with `python` and without `models` runs the reference workloads in that "
        "interpreter,\n"
        "  another one runs native programs. Both sides must be of the same kind.\n"
        "- Numbers carry their unit: `20ms`, `10min`, `2%`, `200/s`.\n"
        "- Placeholders are replaced wherever they stand in a word of a command. Other braces stay: "
        "JSON,\n"
        "  `${VAR}`. A lower-case word in braces that is no placeholder is refused, unless the word of "
        "the\n"
        "  command is code (it has spaces, quotes or parentheses) and it resembles none.\n"
        "- Anchors, aliases and merge keys (`<<`) work. Several documents in a file, tags of other\n"
        "  programs and files above 1 MiB are refused.\n"
        "- A look at n pairs can decide only when 2^-n is at most alpha over the number of looks: 9 "
        "pairs\n"
        "  for alpha 0.01 and four looks.\n";

static const char plan_docs_metrics[] =
        "\n## Metrics\n\n"
        "Without `metrics`, a workload is gated on: training and commands with step calls "
        "`step_time`,\n"
        "`mean_step_time`, `throughput`, `slow_steps`, `warm_up_time`, `peak_memory`; inference "
        "`latency_p50`,\n"
        "`latency_p99` and the same but `step_time` and `throughput`, where requests do not arrive by a schedule "
        "(closed loop)\n"
        "as training (name `latency_p99` where its tail counts); without step calls `total_time`, `cpu_time`,\n"
        "`peak_memory`. And `peak_gpu_memory` where the baseline uses a GPU and tells of it: PyTorch does, in turns of "
        "steps.\n"
        "With `metrics`, only those named gate, unless observed; but `step_time` brings `mean_step_time`, `slow_steps` and\n"
        "`warm_up_time` along, with its own margin, where they are not named. Where no time is gated, or no output was\n"
        "recorded that could be compared, a pass says so.\n\n"
        "| metric | unit | better | margin | one launch contributes |\n|---|---|---|---|---|\n";

void plan_print_markdown(void *stream)
{
    FILE *file = stream;
    fputs(plan_docs_head, file);
    schema_print_markdown(plan_fields, "Keys", file);
    fputs(plan_docs_metrics, file);
    for (int id = 0; id < METRIC_COUNT; id++)
        fprintf(file, "| `%s` | %s | %s | %.3g%% | %s |\n", metric_infos[id].name,
                metric_infos[id].unit, metric_infos[id].direction,
                metric_infos[id].margin_default * 100, metric_infos[id].help);
}
