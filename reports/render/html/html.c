// SPDX-License-Identifier: Apache-2.0
// Puts the HTML report together: data document, its size, the page around it; see html.h and
// html/page/DATA.md.
#include "reports/render/html/html.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/html/html_document.h"
#include "reports/render/page/page.h"

static const char *html_member(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

// What the tab is called, and the sentence for readers without scripts; both are made of checked
// UTF-8.
static char *html_compose(const json_t *document)
{
    const json_t *verdict = json_object_get(document, "verdict"),
                 *sides = json_object_get(document, "sides");
    const char *word = html_member(verdict, "word"),
               *a = json_string_value(json_array_get(sides, 0)),
               *b = json_string_value(json_array_get(sides, 1));
    char *title =
        *word ? xasprintf("upgate: %s, %s against %s", word, b, a) : xasprintf("upgate: %s", a);
    char *sentence = *word ? xasprintf("Verdict: %s. %s", word, html_member(verdict, "reason"))
                           : xstrdup(html_member(verdict, "reason"));
    char *json = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(9));
    char *text = page_make(PAGE_VERDICT, title, sentence, json);
    free(title);
    free(sentence);
    free(json);
    return text;
}

// Smaller and smaller shares for what can be cut, until the file is below its limit: one round for
// a normal run.
static int html_fit(struct store *store, char **ret_text, struct error *err)
{
    size_t page = page_bytes(PAGE_VERDICT);
    for (int round = 0; round < 3; round++) {
        struct html_limits limits = {.bytes = ((size_t)HTML_BYTES_MAX - page) >> 2 * round,
                                     .cut = round > 0};
        json_t *document = html_document(store, &limits, err);
        if (!document)
            return err->code;
        char *text = html_compose(document);
        json_decref(document);
        if (strlen(text) < HTML_BYTES_MAX || round == 2) {
            *ret_text = text;
            return 0;
        }
        free(text);
    }
    return 0;
}

// Another one as soon as somebody else has written to the store.
static int64_t html_version(struct store *store)
{
    int64_t version = 0;
    store_get_int(store, &version, NULL, "PRAGMA data_version", "");
    return version;
}

int html_make(struct store *store, char **ret_text, struct error *err)
{
    struct error local = {0};
    *ret_text = NULL;
    if (page_missing(PAGE_VERDICT))
        return error_set(err, -ENOSYS, "failed to report as HTML: %s", page_missing(PAGE_VERDICT));
    // The harness may judge again while we read. A transaction would keep that out, but within one
    // operations are read row by row (launch_trace_scan.h): a minute instead of seconds for twenty
    // million. So it is read again when it has changed.
    int rc = 0;
    for (int round = 0; round < 3; round++) {
        int64_t before = html_version(store);
        free(*ret_text);
        *ret_text = NULL;
        rc = html_fit(store, ret_text, &local);
        if (rc || html_version(store) == before)
            break;
    }
    return rc ? error_set(err, rc, "%s", local.text) : 0;
}
