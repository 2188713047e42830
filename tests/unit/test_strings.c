// SPDX-License-Identifier: Apache-2.0
// Growing buffers, nearest words, reading files.
#include <errno.h>
#include <stdlib.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

TEST(strbuf_grows)
{
    struct strbuf buf = {0};
    for (int i = 0; i < 1000; i++)
        strbuf_add(&buf, "%d,", i);
    CHECK_INT(buf.len, 3890);
    CHECK_INT(strlen(buf.text), buf.len);
    char *text = strbuf_take(&buf);
    CHECK(!buf.text && strncmp(text, "0,1,2,", 6) == 0);
    free(text);
    text = strbuf_take(&buf);
    CHECK_STR(text, "");
    free(text);
}

TEST(nearest_word)
{
    static const char *const words[] = {"step_time", "throughput", "latency_p99", "peak_memory"};
    CHECK_STR(string_nearest("steptime", words, 4), "step_time");
    CHECK_STR(string_nearest("throughptu", words, 4), "throughput");
    CHECK_STR(string_nearest("latency_p90", words, 4), "latency_p99");
    CHECK(string_nearest("colour", words, 4) == NULL);
    char lengthy[200];
    memset(lengthy, 'a', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    CHECK(string_nearest(lengthy, words, 4) == NULL);
}

TEST(read_file)
{
    size_t len = 0;
    char *text = string_read_file("/proc/self/stat", 1 << 20, &len);
    CHECK(text && len == strlen(text) && len > 10);
    free(text);
    text = string_read_file("/proc/self/stat", 5, &len);
    CHECK_INT(len, 5);
    free(text);
    CHECK(string_read_file("/proc/none", 5, NULL) == NULL);
    CHECK_INT(errno, ENOENT);
}

static const char *made_utf8(const char *bytes, size_t len)
{
    static char text[100];
    memcpy(text, bytes, len);
    text[len] = 0;
    string_make_utf8(text, len);
    return text;
}

TEST(make_utf8)
{
    CHECK_STR(made_utf8("plain \t\n", 8), "plain \t\n");
    CHECK_STR(made_utf8("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9),
            "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    CHECK_STR(made_utf8("a\0b", 3), "a?b");
    CHECK_STR(made_utf8("\xff\xfe|\x80|\xc3", 6), "??|?|?"); // foreign, alone, cut
    CHECK_STR(made_utf8("\xc0\xaf|\xe0\x80\xaf|\xf0\x80\x80\x80", 11), "??|???|????"); // overlong
    CHECK_STR(made_utf8("\xed\xa0\x80|\xf4\x90\x80\x80", 8), "???|????"); // surrogate, too large
    CHECK_STR(made_utf8("\xed\x9f\xbf\xf4\x8f\xbf\xbf", 7), "\xed\x9f\xbf\xf4\x8f\xbf\xbf");
    CHECK_STR(made_utf8("\xe2\x82", 2), "??");
    CHECK_STR(made_utf8("", 0), "");
}

TEST(an_empty_text_that_was_added_is_there)
{
    struct strbuf buf = {0};
    strbuf_add(&buf, "%s", "");
    CHECK_STR(buf.text, "");
    CHECK_INT(buf.len, 0);
    strbuf_free(&buf);
}

static void check_plain(const char *raw, const char *want)
{
    char *text = xstrdup(raw);
    string_make_plain(text, strlen(text));
    CHECK_STR(text, want);
    free(text);
}

TEST(plain_text_moves_no_cursor)
{
    check_plain("caf\xc3\xa9\nline", "caf\xc3\xa9\nline");
    check_plain("\033[2J\033]0;t\a", "?[2J?]0;t?");
    check_plain("cr\rbs\b del\x7f", "cr?bs? del?");
    check_plain("c1 \xc2\x9b"
                "31m",
            "c1 ??31m");
    check_plain("rtl \xe2\x80\xae"
                "abc \xe2\x81\xa6",
            "rtl ???abc ???");
    check_plain("bad \xff\xc3", "bad ??");
}

static void check_parts(const char *path, const char *folder, const char *name)
{
    char *own = string_folder(path);
    CHECK_STR(own, folder);
    CHECK_STR(string_base_name(path), name);
    free(own);
}

TEST(a_path_has_a_folder_and_a_name)
{
    check_parts("/data/run.db", "/data/", "run.db");
    check_parts("a/b/c", "a/b/", "c");
    check_parts("/run.db", "/", "run.db");
    check_parts("run.db", ".", "run.db");
    check_parts("a/", "a/", "");
}
