// SPDX-License-Identifier: Apache-2.0
#include "harness/verbs/command_line.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

json_t *command_line_json(int argc, char **argv)
{
    json_t *list = json_array();
    json_array_append_new(list, json_string("upgate"));
    for (int i = 0; i < argc; i++) {
        char *word = xstrdup(argv[i]);
        string_make_utf8(word, strlen(word));
        json_array_append_new(list, json_string(word));
        free(word);
    }
    return list;
}

char *command_line_text(int argc, char **argv)
{
    json_t *list = command_line_json(argc, argv);
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text ? text : xstrdup("[]");
}
