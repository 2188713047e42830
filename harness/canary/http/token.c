// SPDX-License-Identifier: Apache-2.0
// What is secret: a bearer token out of a file, the parts of an address that nobody is told.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/canary/http/http.h"

enum { HTTP_TOKEN_BYTES_MAX = 16384 }; // servers refuse longer header lines

int http_token_read(const char *path, char **ret_token, struct error *err)
{
    size_t len = 0;
    char *text = string_read_file(path, HTTP_TOKEN_BYTES_MAX, &len);
    if (!text)
        return error_set(
                err, -errno, "failed to read the token file '%s': %s", path, strerror(errno));
    len = strlen(text);
    while (len && strchr(" \t\r\n", text[len - 1]))
        text[--len] = 0;
    for (const char *at = text; *at; at++)
        if (*at <= ' ' || *at > '~') { // it becomes part of a header line
            len = 0;
            break;
        }
    if (!len) {
        free(text);
        return error_set(err, -EINVAL,
                "the token file '%s' holds no token; one line of printable characters is wanted",
                path);
    }
    *ret_token = text;
    return 0;
}

char *http_url_plain(const char *url)
{
    const char *scheme = strstr(url, "://"), *host = scheme ? scheme + 3 : url;
    size_t len = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', len), *colon = memrchr(host, ':', len);
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    // "http://ann:se/cret@h", "http:/ann:secret@h": what stands there is no port, so a password may
    // follow that nobody has encoded.
    if (!at && colon && *host != '[' && (digits == 0 || colon + 1 + digits < host + len))
        at = strrchr(host, '@');
    const char *rest = at ? at + 1 : host;
    return xasprintf("%.*s%.*s", (int)(host - url), url, (int)strcspn(rest, "?#"), rest);
}
