// SPDX-License-Identifier: Apache-2.0
// Tokens of `upgate canary serve`: files, headers, and what lets nobody in.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/canary/serve/token.h"
#include "tests/unit/runner.h"

static int load(const char *text, size_t len, struct tokens **ret_tokens, struct error *err)
{
    char path[] = "/tmp/upgate-token-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, len) == (ssize_t)len);
    int rc = tokens_load(path, ret_tokens, err);
    CHECK(!rc || !strstr(err->text, "secret")); // whatever is wrong with it, it is not printed
    close(fd);
    unlink(path);
    return rc;
}

TEST(files)
{
    static const char *const wrong[] = {"", "\n\n", "short-secret\n",
            "a secret with spaces in it\n", "0123456789abcdef\nsecret-secret\n",
            "secret-secret-secret-\001\n"};
    struct tokens *tokens = NULL;
    struct error err = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_INT(load(wrong[i], strlen(wrong[i]), &tokens, &err), -EINVAL);
    CHECK_INT(load("secret-secret-secret\0x", 22, &tokens, &err), -EINVAL);
    char many[9 * 17 + 1] = "", longer[300];
    for (int i = 0; i < 9; i++)
        strcat(many, "0123456789abcdef\n");
    CHECK_INT(load(many, strlen(many), &tokens, &err), -EINVAL);
    memset(longer, 'a', sizeof longer);
    CHECK_INT(load(longer, 257, &tokens, &err), -EINVAL);
    CHECK_INT(tokens_load("/no/such/file", &tokens, &err), -EINVAL);
    CHECK(tokens == NULL);
    CHECK_INT(load(longer, 256, &tokens, &err), 0);
    tokens_free(tokens);
    tokens_free(NULL);
}

TEST(headers)
{
    struct tokens *tokens = NULL;
    struct error err = {0};
    const char *text = "0123456789abcdef  \r\n\nsecond-second-second";
    CHECK_INT(load(text, strlen(text), &tokens, &err), 0);
    static const char *const right[] = {"Bearer 0123456789abcdef", "bearer  second-second-second",
            "Basic dXBnYXRlOjAxMjM0NTY3ODlhYmNkZWY=", "Basic OjAxMjM0NTY3ODlhYmNkZWY="};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        CHECK(tokens_allow(tokens, right[i]));
    static const char *const wrong[] = {"", "Bearer", "Bearer ", "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0", "Bearer 0123456789abcdef ", "Bearer 0123456789ABCDEF",
            "0123456789abcdef", "Basic", "Basic ", "Basic :", "Basic dXBnYXRl", "Basic !!!!",
            "Digest 0123456789abcdef", "Basic MDEyMzQ1Njc4OWFiY2RlZg==",
            "Basic dXBnYXRlOjAxMjM0NTY3ODlhYmNkZQ==", "Basic dXBnYXRlOjAxMjM0NTY3ODlhYmNkZWY=x",
            "Bearer 0123456789abcdef\n\nsecond-second-second"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(!tokens_allow(tokens, wrong[i]));
    CHECK(!tokens_allow(tokens, NULL));
    char longer[2000] = "Bearer ";
    memset(longer + 7, 'a', sizeof longer - 8);
    longer[sizeof longer - 1] = 0;
    CHECK(!tokens_allow(tokens, longer));
    memcpy(longer, "Basic ", 6);
    CHECK(!tokens_allow(tokens, longer));
    tokens_free(tokens);
}
