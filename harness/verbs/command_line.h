// SPDX-License-Identifier: Apache-2.0
// How upgate was called, for table run.
#ifndef UPGATE_VERBS_COMMAND_LINE_H
#define UPGATE_VERBS_COMMAND_LINE_H

#include <jansson.h>

// ["upgate", "VERB", …]: argv begins with the verb. What is not UTF-8 is made so. A new reference.
json_t *command_line_json(int argc, char **argv);
char *command_line_text(int argc, char **argv); // the same as text; the caller frees

#endif
