// SPDX-License-Identifier: Apache-2.0
// Ranks by time: who was late when, in words, drawn in the terminal and in Markdown, as JSON.
// Internal to reports/render. The caller frees texts.
#ifndef UPGATE_REPORTS_STALLS_HEAT_H
#define UPGATE_REPORTS_STALLS_HEAT_H

#include <jansson.h>

#include "reports/analyse/stalls/stalls.h"
#include "reports/render/text/table.h"

// "Ranks by time: how long the others waited for each rank, over 10 s in 24 parts; most for rank
// 1: 21.3 % of the part from 3.33 s to 3.75 s"; NULL: there is nothing to tell.
char *stalls_heat_head(const struct stall_heat *heat);
// "rank 37 on node-4, GPU-1a2b3c4d, worst of 8"
char *stalls_heat_label(const struct stall_heat *heat, const struct stall_heat_row *row);

// where it does not fit, its head alone; nothing where there is none
void stalls_heat_table(struct table *table, const struct stall_heat *heat);
void stalls_heat_markdown(struct strbuf *out, const struct stall_heat *heat);
// {uuid, name, device} of a rank; NULL: it has none
json_t *stalls_gpu_json(const struct stall_gpu *gpu);
json_t *stalls_heat_json(const struct stall_heat *heat); // of upgate.stalls/1; null: there is none

#endif
