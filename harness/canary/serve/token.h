// SPDX-License-Identifier: Apache-2.0
// Bearer tokens: one a line of a file, each of them valid, so that a token can be changed without a
// gap. Never logged.
#ifndef UPGATE_HARNESS_CANARY_SERVE_TOKEN_H
#define UPGATE_HARNESS_CANARY_SERVE_TOKEN_H

#include <stdbool.h>

#include "common/error.h"

enum { TOKEN_MIN = 16, TOKEN_MAX = 256, TOKENS_MAX = 8 }; // characters of one; of them

struct tokens;
// -EINVAL: the file has no token, more than eight, or one shorter than 16 or longer than 256
// characters or with a space in it.
int tokens_load(const char *path, struct tokens **ret_tokens, struct error *err);
void tokens_free(struct tokens *tokens); // NULL ok; wipes them

// The value of an Authorization header: "Bearer TOKEN", or "Basic BASE64" with the token as the
// password, which is how Flagger's webhooks send one (https://upgate:TOKEN@host/…). NULL: no such
// header. Takes as long for a wrong token as for a right one.
bool tokens_allow(const struct tokens *tokens, const char *authorization);

#endif
