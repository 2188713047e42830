// SPDX-License-Identifier: Apache-2.0
// Commands of hooks.
#include "harness/canary/traffic/hook.h"

#include <stdlib.h>
#include <string.h>

#include "common/child.h"
#include "common/containers/vector.h"
#include "common/strings.h"

char **hook_argv(char *const *command, const struct hook_word *words, int word_count)
{
    char **argv = NULL;
    int count = 0;
    for (; *command; command++) {
        struct strbuf text = {0};
        for (const char *at = *command; *at;) {
            int found = -1;
            size_t len = 0;
            for (int i = 0; found < 0 && *at == '{' && i < word_count; i++) {
                len = strlen(words[i].name);
                if (strncmp(at + 1, words[i].name, len) == 0 && at[1 + len] == '}')
                    found = i;
            }
            if (found >= 0)
                strbuf_add(&text, "%s", words[found].value);
            else
                strbuf_add_bytes(&text, at, 1);
            at += found >= 0 ? len + 2 : 1;
        }
        vector_push(argv, count, strbuf_take(&text));
    }
    vector_push(argv, count, NULL);
    return argv;
}

void hook_argv_free(char **argv)
{
    for (char **at = argv; at && *at; at++)
        free(*at);
    free(argv);
}

int hook_run(char *const *argv, int64_t deadline_ns, char **ret_output, struct error *err)
{
    struct child_end end;
    int rc = child_run(argv, &(struct child_opts){.deadline_ns = deadline_ns}, &end, err);
    if (rc)
        return rc;
    rc = child_judge(&end, argv[0], err);
    if (rc)
        free(end.output);
    else
        *ret_output = end.output;
    return rc;
}
