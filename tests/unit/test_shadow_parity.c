// SPDX-License-Identifier: Apache-2.0
// When two answers to one request are the same: numbers by the baseline's rms, the rest exactly;
// NaN, shapes, ignored members, depth.
#include "harness/canary/shadow/shadow_parity.h"
#include "harness/canary/shadow/shadow_requests.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "reports/analyse/parity.h"
#include "tests/unit/runner.h"

static struct shadow_compared parity(const char *a, const char *b, const struct shadow_rule *rule)
{
    const struct shadow_rule usual = {.limit = parity_spread_limit(0, NAN)};
    struct shadow_answer first = {200, a, strlen(a)}, second = {200, b, strlen(b)};
    struct shadow_compared compared;
    shadow_compare(&first, &second, rule ? rule : &usual, &compared);
    CHECK((compared.what == NULL) == compared.equal);
    return compared;
}

static void parity_is(const char *a, const char *b, bool equal, const char *what)
{
    struct shadow_compared compared = parity(a, b, NULL);
    if (compared.equal != equal)
        runner_fail(
                __FILE__, __LINE__, "%s and %s: %s", a, b, compared.what ? compared.what : "equal");
    if (what)
        CHECK_CONTAINS(compared.what, what);
    shadow_compared_clear(&compared);
}

TEST(equal)
{
    parity_is("{\"id\": 7, \"scores\": [0.25, 0.5]}", "{\"scores\": [0.25, 0.5], \"id\": 7}", true,
            NULL);
    parity_is("", "", true, NULL);
    parity_is("plain text, not a number: NaN", "plain text, not a number: NaN", true, NULL);
    parity_is("{\"say\": \"NaN or Infinity\"}", "{\"say\": \"NaN or Infinity\"}", true, NULL);
    parity_is("[]", " [ ] ", true, NULL);
}

TEST(numbers_in_units_of_the_rms)
{
    // twice as large, and nothing beside 100
    parity_is("{\"scores\": [100.0, 0.0001]}", "{\"scores\": [100.0, 0.0002]}", true, NULL);
    parity_is("{\"scores\": [1.0, 1.0]}", "{\"scores\": [1.0009, 1.0]}", true, NULL);
    parity_is("{\"scores\": [1.0, 1.0]}", "{\"scores\": [1.002, 1.0]}", false,
            ".scores[] differs by 0.0014");
    // a field by itself
    parity_is("{\"a\": 0.5, \"b\": 100.0}", "{\"a\": 0.6, \"b\": 100.0}", false, ".a differs");
    // of nothing any difference is all of it
    parity_is("{\"a\": 0.0}", "{\"a\": 0.0001}", false, ".a differs");
    // a number that was whole by chance
    parity_is("{\"a\": 1}", "{\"a\": 1.0000001}", true, NULL);
    struct shadow_compared compared = parity("[[3.0, 4.0]]", "[[3.0, 4.5]]", NULL);
    // rms of the difference over rms: both over two elements
    CHECK_DBL(compared.distance, 0.5 / 5, 1e-12);
    shadow_compared_clear(&compared);
}

// One wrong row of many must not drown in all of them.
TEST(one_row_of_many)
{
    struct strbuf a = {0}, b = {0};
    for (int i = 0; i < 6400; i++) {
        strbuf_add(&a, "%s%.4f", i ? "," : "[", 1.0);
        strbuf_add(&b, "%s%.4f", i ? "," : "[", i >= 640 && i < 704 ? 1.005 : 1.0);
    }
    strbuf_add(&a, "]");
    strbuf_add(&b, "]");
    struct shadow_compared compared = parity(a.text, b.text, NULL);
    CHECK(!compared.equal); // 0.0005 over all, 0.005 in the chunk
    CHECK_DBL(compared.distance, 0.005, 1e-9);
    shadow_compared_clear(&compared);
    strbuf_free(&a);
    strbuf_free(&b);
}

TEST(whole_numbers_exactly)
{
    parity_is("{\"id\": 1000000}", "{\"id\": 1000001}", false, ".id is 1000000 and 1000001");
    parity_is("{\"class\": [1, 2]}", "{\"class\": [1, 3]}", false, ".class[]");
}

TEST(shape)
{
    parity_is("{\"a\": 1, \"b\": 2}", "{\"a\": 1}", false, ".b is missing");
    parity_is("{\"a\": 1}", "{\"a\": 1, \"b\": 2}", false, ".b is new");
    parity_is("{\"a\": [1.5]}", "{\"a\": [1.5, 2.5]}", false, "1 elements and 2");
    parity_is("{\"a\": \"x\"}", "{\"a\": \"y\"}", false, "another text");
    parity_is("{\"a\": 1.5}", "{\"a\": null}", false, "another type");
    parity_is("{\"a\": true}", "{\"a\": false}", false, "another type");
    parity_is("{}", "<html>", false, "answer of the candidate is no JSON");
    parity_is("abc", "abd", false, "3 bytes and 3");
}

TEST(nan_is_wrong)
{
    struct shadow_compared compared = parity("{\"s\": [1.0, 2.0]}", "{\"s\": [NaN, 2.0]}", NULL);
    CHECK(!compared.equal && compared.nan[1] && !compared.nan[0] && isnan(compared.distance));
    CHECK_CONTAINS(compared.what, "NaN or Infinity in the answer of the candidate");
    shadow_compared_clear(&compared);
    compared = parity("{\"s\": NaN}", "{\"s\": NaN}", NULL); // both: wrong all the same
    CHECK(!compared.equal && compared.nan[0] && compared.nan[1]);
    shadow_compared_clear(&compared);
    compared = parity("{\"s\": 1.5}", "{\"s\": -Infinity}", NULL);
    CHECK(!compared.equal && compared.nan[1]);
    shadow_compared_clear(&compared);
    parity_is("{\"s\": 1.5}", "{\"s\": 1e999}", false, "no JSON");
}

TEST(status)
{
    const struct shadow_rule rule = {.limit = parity_spread_limit(0, NAN)};
    struct shadow_answer a = {200, "{}", 2}, b = {404, "{}", 2};
    struct shadow_compared compared;
    shadow_compare(&a, &b, &rule, &compared);
    CHECK_STR(compared.what, "status 200 and 404");
    shadow_compared_clear(&compared);
}

TEST(ignored)
{
    const char *const names[] = {"model", NULL}, *const paths[] = {".meta.time", ".list[].t", NULL};
    const struct shadow_rule rule = {
            .limit = parity_spread_limit(0, NAN), .ignore = names, .paths = paths};
    struct shadow_compared compared = parity(
            "{\"model\": \"a\", \"meta\": {\"time\": 1, \"x\": 2}, \"list\": [{\"t\": 1}]}",
            "{\"model\": \"b\", \"meta\": {\"time\": 9, \"x\": 2}, \"list\": [{\"t\": 2}]}", &rule);
    CHECK(compared.equal);
    shadow_compared_clear(&compared);
    compared = parity(
            "{\"meta\": {\"time\": 1, \"x\": 2}}", "{\"meta\": {\"time\": 1, \"x\": 3}}", &rule);
    CHECK(!compared.equal);
    CHECK_STR(compared.path, ".meta.x");
    shadow_compared_clear(&compared);
    compared = parity("{\"model\": \"a\"}", "{}", &rule);
    CHECK(compared.equal);
    shadow_compared_clear(&compared);
}

TEST(hostile)
{
    struct strbuf deep = {0};
    for (int i = 0; i < 200; i++)
        strbuf_add(&deep, "[");
    for (int i = 0; i < 200; i++)
        strbuf_add(&deep, "]");
    parity_is(deep.text, deep.text, false, "deeper than");
    strbuf_free(&deep);
    struct strbuf wide = {0};
    for (int i = 0; i < 2000; i++)
        strbuf_add(&wide, "%s\"f%d\": 0.5", i ? ", " : "{", i);
    strbuf_add(&wide, "}");
    parity_is(wide.text, wide.text, false, "more than 1000 fields");
    strbuf_free(&wide);
    parity_is("{\"a\": \"\\\"NaN\"}", "{\"a\": \"\\\"NaN\"}", true, NULL);
    const struct shadow_rule rule = {.limit = parity_spread_limit(0, NAN)};
    struct shadow_answer a = {200, "{\"a\"\0: 1}", 9}, b = {200, "{\"a\"\0: 1}", 9};
    struct shadow_compared compared;
    shadow_compare(&a, &b, &rule, &compared);
    CHECK(compared.equal); // no JSON, byte by byte
    shadow_compared_clear(&compared);
}

static int requests_of(
        const char *text, const char *const *methods, size_t *ret_count, struct error *err)
{
    char path[] = "/tmp/upgate-requests-XXXXXX";
    int fd = mkstemp(path);
    struct shadow_request *requests = NULL;
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    *ret_count = 0;
    int rc = shadow_requests_load(path, methods, &requests, ret_count, err);
    for (size_t i = 0; rc == 0 && i < *ret_count; i++)
        shadow_request_clear(&requests[i]);
    free(requests);
    unlink(path);
    return rc;
}

TEST(requests)
{
    const char *const post[] = {"POST", NULL};
    struct error err = {0};
    size_t count = 0;
    const char *two =
            "{\"method\": \"GET\", \"path\": \"/health\"}\n\n{\"method\": \"POST\", \"path\": \"/score\", \"body\": {\"id\": 1}}\n";
    CHECK_INT(requests_of(two, NULL, &count, &err), 0);
    CHECK_INT(count, 1); // what changes nothing only
    CHECK_INT(requests_of(two, post, &count, &err), 0);
    CHECK_INT(count, 1);
    CHECK_INT(
            requests_of("{\"method\": \"POST\", \"path\": \"/\"}\n", NULL, &count, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "none of a method that the plan allows");
    CHECK_INT(requests_of("{\"method\": \"GET\", \"path\": \"/ok\"}\n{\"method\": \"GET\"}\n", NULL,
                      &count, &err),
            -EINVAL);
    CHECK_CONTAINS(err.text, ":2: no request");
    CHECK_INT(requests_of("{\"method\": \"GET\", \"path\": \"/a b\"}\n", NULL, &count, &err),
            -EINVAL);
    CHECK_INT(requests_of(
                      "{\"method\": \"GET\", \"path\": \"/a\\r\\nHost: x\"}\n", NULL, &count, &err),
            -EINVAL);
    // a path, behind our host
    CHECK_INT(requests_of("{\"method\": \"GET\", \"path\": \"//evil\"}\n", NULL, &count, &err), 0);
    CHECK_INT(requests_of("no json\n", NULL, &count, &err), -EINVAL);
    CHECK_INT(shadow_requests_load("/nonexistent/requests", NULL, NULL, NULL, &err), -EINVAL);
    CHECK(!shadow_request_valid("get", "/", 0) && !shadow_request_valid("GET", "x", 0) &&
            !shadow_request_valid("GET", "/\x80", 0));
    CHECK(shadow_request_valid("PATCH", "/a?b=c", 10) &&
            !shadow_request_valid("POST", "/", (size_t)1 << 30));
}
