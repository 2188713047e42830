// SPDX-License-Identifier: Apache-2.0
// Reads the tokens and compares them in constant time: every comparison goes over TOKEN_MAX bytes
// of every token.
#include "harness/canary/serve/token.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/strings.h"

enum { TOKEN_FILE_MAX = 16384, BASIC_MAX = 2 * TOKEN_MAX }; // bytes; of the decoded "user:password"

struct token {
    uint8_t bytes[TOKEN_MAX]; // filled up with zeros
    size_t len;
};
struct tokens {
    struct token tokens[TOKENS_MAX];
    int count;
};

static int take_line(struct tokens *tokens, const char *path, int line, const char *text,
        size_t len, struct error *err)
{
    if (tokens->count == TOKENS_MAX)
        return error_set(
                err, -EINVAL, "'%s' has more than %d tokens; a line is a token", path, TOKENS_MAX);
    if (len < TOKEN_MIN || len > TOKEN_MAX)
        return error_set(err, -EINVAL,
                "%s:%d: a token has %d to %d characters; `openssl rand -hex 32` makes one", path,
                line, TOKEN_MIN, TOKEN_MAX);
    for (size_t i = 0; i < len; i++)
        if (!isgraph((unsigned char)text[i]))
            return error_set(err, -EINVAL, "%s:%d: a token has printable characters without spaces",
                    path, line);
    struct token *token = &tokens->tokens[tokens->count++];
    memcpy(token->bytes, text, len);
    token->len = len;
    return 0;
}

int tokens_load(const char *path, struct tokens **ret_tokens, struct error *err)
{
    size_t len = 0;
    char *text = string_read_file(path, TOKEN_FILE_MAX, &len);
    if (!text)
        return error_set(err, errno == ENOENT ? -EINVAL : -errno,
                "failed to read the token file '%s': %s", path, strerror(errno));
    struct tokens *tokens = xcalloc(1, sizeof *tokens);
    int rc = strlen(text) == len
            ? 0
            : error_set(err, -EINVAL, "'%s' is no token file: it has a NUL", path),
        line = 0;
    for (char *next, *at = text; rc == 0 && at; at = next) {
        next = strchr(at, '\n');
        if (next)
            *next++ = 0;
        size_t end = strlen(at);
        while (end && isspace((unsigned char)at[end - 1]))
            end--;
        line++;
        if (end)
            rc = take_line(tokens, path, line, at, end, err);
    }
    explicit_bzero(text, len);
    free(text);
    if (rc == 0 && !tokens->count)
        rc = error_set(err, -EINVAL, "'%s' has no token; `openssl rand -hex 32` makes one", path);
    if (rc) {
        tokens_free(tokens);
        return rc;
    }
    *ret_tokens = tokens;
    return 0;
}

void tokens_free(struct tokens *tokens)
{
    if (tokens)
        explicit_bzero(tokens, sizeof *tokens);
    free(tokens);
}

static bool tokens_compare(const struct tokens *tokens, const char *text, size_t len)
{
    uint8_t given[TOKEN_MAX] = {0};
    unsigned found = 0;
    memcpy(given, text, len < TOKEN_MAX ? len : TOKEN_MAX);
    for (int i = 0; i < tokens->count; i++) {
        unsigned differs = 0;
        for (size_t k = 0; k < TOKEN_MAX; k++)
            differs |= (unsigned)(given[k] ^ tokens->tokens[i].bytes[k]);
        differs |= tokens->tokens[i].len != len;
        found |= !differs;
    }
    explicit_bzero(given, sizeof given);
    return found;
}

static int base64_digit(char digit)
{
    return digit >= 'A' && digit <= 'Z'    ? digit - 'A'
            : digit >= 'a' && digit <= 'z' ? digit - 'a' + 26
            : digit >= '0' && digit <= '9' ? digit - '0' + 52
            : digit == '+'                 ? 62
            : digit == '/'                 ? 63
                                           : -1;
}

// Bytes of ret that were filled; 0: not base64, or too much of it.
static size_t base64_decode(const char *text, char *ret, size_t size)
{
    uint32_t bits = 0;
    size_t len = 0;
    int held = 0;
    for (; *text && *text != '='; text++) {
        int digit = base64_digit(*text);
        if (digit < 0)
            return 0;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            if (len == size)
                return 0;
            ret[len++] = (char)(bits >> held);
        }
    }
    return text[strspn(text, "=")] ? 0 : len;
}

bool tokens_allow(const struct tokens *tokens, const char *authorization)
{
    bool allowed = false;
    char basic[BASIC_MAX];
    if (authorization && strncasecmp(authorization, "Bearer ", 7) == 0) {
        const char *token = authorization + 7 + strspn(authorization + 7, " ");
        allowed = tokens_compare(tokens, token, strlen(token));
    } else if (authorization && strncasecmp(authorization, "Basic ", 6) == 0) {
        size_t len = base64_decode(
                authorization + 6 + strspn(authorization + 6, " "), basic, sizeof basic);
        const char *colon = memchr(basic, ':', len);
        if (colon)
            allowed = tokens_compare(tokens, colon + 1, len - (size_t)(colon + 1 - basic));
        explicit_bzero(basic, sizeof basic);
    }
    return allowed;
}
