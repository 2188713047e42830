// SPDX-License-Identifier: Apache-2.0
#include "tracer/inject/reason.h"

#include <stdio.h>
#include <string.h>

#include "tracer/inject/inject.h"

static char reason[UG_SPOOL_REASON_BYTES];

void reason_clear(void)
{
    memset(reason, 0, sizeof(reason));
}

void reason_add(const char *text)
{
    size_t used = strlen(reason);
    inject_debug("note: %s", text);
    snprintf(reason + used, sizeof(reason) - used, "%s%s", used > 0 ? "; " : "", text);
}

void reason_cupti(const struct cupti *cupti, const char *what, int result)
{
    char text[UG_SPOOL_REASON_BYTES];
    const char *name = NULL;
    if (cupti->get_result_string == NULL || cupti->get_result_string(result, &name) != CUPTI_OK ||
            name == NULL)
        name = "unknown error";
    snprintf(text, sizeof(text), "%s: %s (%d)", what, name, result);
    reason_add(text);
}

const char *reason_text(void)
{
    return reason;
}
