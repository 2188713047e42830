// SPDX-License-Identifier: Apache-2.0
#include "harness/verbs/shard_options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/render/text/json_text.h"
#include "reports/render/text/screen.h"

int64_t shard_values_restart(const struct shard_values *values)
{
    return values->restart_given ? (int64_t)values->restart : -1;
}

json_t *shard_ranks_json(const struct merge_rank *ranks, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *item = json_pack("{si}", "rank", (int)ranks[i].rank);
        json_object_set_new(item, "why", render_json_text(ranks[i].why));
        json_array_append_new(list, item);
    }
    return list;
}

void shard_say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args), *clean = screen_clean(text, screen_locale_utf8());
    va_end(args);
    puts(clean);
    free(text);
    free(clean);
}
