// SPDX-License-Identifier: Apache-2.0
// The parts of a report: text on a screen, numbers, GitHub's files, the progress display.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strings.h"
#include "contracts/metrics.h"
#include "reports/render/text/numbers.h"
#include "reports/render/text/screen.h"
#include "reports/render/verdict/cell.h"
#include "reports/render/verdict/progress.h"
#include "tests/unit/runner.h"

static void check_clean(const char *raw, bool utf8, const char *want)
{
    char *clean = screen_clean(raw, utf8);
    CHECK_STR(clean, want);
    free(clean);
}

TEST(clean_text_moves_no_cursor)
{
    check_clean("dlrm-train", true, "dlrm-train");
    check_clean("a\nb\tc\rd", true, "a b c d");
    check_clean("\033[2J\033[1;31mred\033[0m", true, "red");
    check_clean("\033]0;title\aafter", true, "after");
    check_clean("\033]8;;http://x\033\\link", true, "link");
    check_clean("run 'a\033]0;b': 3 ranks are missing", true, "run 'a0;b': 3 ranks are missing");
    check_clean("cut \033[", true, "cut ");
    check_clean("bell\a back\b del\x7f", true, "bell? back? del?");
    check_clean("\xc2\x9b"
                "31m",
            true, "?31m"); // CSI as one C1 character
    check_clean("\xe2\x80\xae"
                "abc",
            true, "?abc"); // right-to-left override
    check_clean("caf\xc3\xa9", true, "caf\xc3\xa9");
    check_clean("caf\xc3\xa9", false, "caf?");
    check_clean("bad \xff\xc3", true, "bad \xef\xbf\xbd\xef\xbf\xbd");
    check_clean("\xc0\xaf overlong", true, "\xef\xbf\xbd\xef\xbf\xbd overlong");
}

TEST(columns_count_what_is_seen)
{
    CHECK_INT(screen_columns("abc"), 3);
    CHECK_INT(screen_columns("caf\xc3\xa9"), 4);
    CHECK_INT(screen_columns("cafe\xcc\x81"), 4);             // combining accent
    CHECK_INT(screen_columns("\xe6\xbc\xa2\xe5\xad\x97"), 4); // two ideographs
}

static void check_fit(const char *text, int columns, bool utf8, const char *want)
{
    char *fit = screen_fit(text, columns, utf8);
    CHECK_STR(fit, want);
    CHECK(screen_columns(fit) <= columns);
    free(fit);
}

TEST(long_names_lose_their_middle)
{
    check_fit("transformer-train", 17, true, "transformer-train");
    check_fit("transformer-train", 9, true, "tran\xe2\x80\xa6rain");
    check_fit("transformer-train", 9, false, "tran~rain");
    check_fit("\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2", 4, false, "\xe6\xbc\xa2~");
    check_fit("ab", 1, false, "~");
    check_fit("ab", 0, false, "");
}

static void check_wrap(const char *text, int width, int first, int rest, const char *want)
{
    struct strbuf out = {0};
    screen_wrap(&out, text, width, first, rest);
    CHECK_STR(out.text, want);
    strbuf_free(&out);
}

TEST(text_wraps_at_words)
{
    check_wrap("one two three four five six", 24, 4, 4, "one two three four\n    five six\n");
    check_wrap("a margin of about 2 % more", 24, 4, 4, "a margin of about\n    2 % more\n");
    check_wrap("", 24, 4, 4, "\n");
    check_wrap("aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd", 24, 4, 4,
            "aaaaaaaaaabbbbbbbbbb\n    ccccccccccdddddddddd\n");
}

// Some 10 ms; a look at the rest of the text for every line took more than two minutes.
TEST(a_long_text_wraps_in_linear_time)
{
    enum { BYTES = 1 << 20 };
    char *text = xcalloc(BYTES + 1, 1);
    memset(text, 'x', BYTES);
    struct strbuf out = {0};
    alarm(30);
    screen_wrap(&out, text, 80, 4, 4);
    CHECK(out.len > BYTES);
    strbuf_free(&out);
    char *fit = screen_fit(text, 20, false);
    alarm(0);
    CHECK_STR(fit, "xxxxxxxxxx~xxxxxxxxx");
    free(fit);
    free(text);
}

static struct report_cell cell_of(const char *unit, double a, double b)
{
    return (struct report_cell){.unit = (char *)unit,
            .median_a = a,
            .median_b = b,
            .ratio = b / a,
            .ci_lower = NAN,
            .ci_upper = NAN,
            .margin = 0.02,
            .gating = true};
}

static void check_medians(
        const char *unit, double a, double b, const char *want_a, const char *want_b)
{
    char got_a[NUMBERS_SIZE], got_b[NUMBERS_SIZE];
    struct report_cell cell = cell_of(unit, a, b);
    cell_medians(&cell, got_a, got_b);
    CHECK_STR(got_a, want_a);
    CHECK_STR(got_b, want_b);
}

TEST(medians_share_a_unit)
{
    check_medians("ns", NAN, NAN, "-", "-");
    check_medians("ns", 12304000, NAN, "12.30 ms", "-");
    check_medians("ns", INFINITY, INFINITY, "-", "-");
    check_medians("ns", 12304000, 12931000, "12.30 ms", "12.93 ms");
    check_medians("ns", 950123, 1021000, "950 us", "1021 us");
    check_medians("ns", 812, 790, "812 ns", "790 ns");
    check_medians("ns", 812, 95000000, "812 ns", "95.00 ms"); // too far apart
    check_medians("ns", NAN, 12931000, "-", "12.93 ms");
    check_medians("ns", NAN, NAN, "-", "-");
    check_medians("ns", 0, 12931000, "0 ns", "12.93 ms");
    check_medians("bytes", 1612709888, 1613758464, "1.502 GiB", "1.503 GiB");
    check_medians("bytes", 1000, 1001, "1000 B", "1001 B");
    check_medians("1/s", 10402.6, 9894.8, "10.40 k/s", "9.89 k/s");
    check_medians("1/s", 3.25, 3.5, "3.250 /s", "3.500 /s");
    check_medians("ratio", 0.91, 0.87, "0.9100", "0.8700");
}

static void check_share(double a, double b, const char *want_a, const char *want_b)
{
    char got_a[NUMBERS_SIZE], got_b[NUMBERS_SIZE];
    struct report_cell cell = cell_of("ratio", a, b);
    cell.metric = "slow_steps";
    cell_medians(&cell, got_a, got_b);
    CHECK_STR(got_a, want_a);
    CHECK_STR(got_b, want_b);
}

TEST(slow_steps_are_a_share_of_the_time)
{
    check_share(0, 0.4978, "0 %", "49.8 %");
    check_share(0.0042, 0.0051, "0.42 %", "0.51 %");
    check_share(0.0042, 0.13, "0.42 %", "13.00 %");
    check_share(0.000012, 0.51, "0.001 %", "51.0 %"); // too far apart for the same decimals
    check_share(0, 0, "0 %", "0 %");
    check_share(NAN, 0.004, "-", "0.40 %");
}

TEST(the_legend_says_what_slow_steps_and_warm_up_are)
{
    struct report_cell cells[2] = {cell_of("ns", 1, 1), cell_of("ns", 1, 1)};
    char *text = cell_steps_legend(cells, 2);
    CHECK_STR(text, "");
    free(text);
    cells[1].metric = "warm_up_time";
    text = cell_steps_legend(cells, 2);
    CHECK_STR(text,
            " warm_up_time is what the warm-up takes beyond steady steps; its change is "
            "that of the time of a run.");
    free(text);
    cells[0].metric = "slow_steps";
    text = cell_steps_legend(cells, 2);
    CHECK_CONTAINS(text, "that slow steps lose, warm_up_time is what the warm-up takes");
    free(text);
}

static void check_interval(double lower, double ratio, double upper, double margin,
        const char *want_change, const char *want_interval)
{
    char text[NUMBERS_SIZE];
    struct report_cell cell = cell_of("ns", 1, ratio);
    cell.ci_lower = lower;
    cell.ci_upper = upper;
    cell.margin = margin;
    CHECK_STR(cell_change(&cell, text), want_change);
    CHECK_STR(cell_interval(&cell, text), want_interval);
}

TEST(a_bound_is_shown_on_its_side_of_the_margin)
{
    check_interval(1.0462, 1.0514, 1.0563, 0.02, "+5.1 %", "+4.6 to +5.6");
    check_interval(1.0049, 1.0096, 1.01996, 0.02, "+1.0 %", "+0.5 to +1.996");
    check_interval(1.0204, 1.0256, 1.0301, 0.02, "+2.6 %", "+2.04 to +3.0");
    check_interval(0.9999, 1.0001, 1.0003, 0.001, "+0.01 %", "-0.01 to +0.03");
    check_interval(1.39, 1.5275, 1.68, NAN, "+53 %", "+39 to +68");
    check_interval(1.0115, 1.144, 1.2829, 0.02, "+14 %", "+1 to +28");
    check_interval(0.99996, 1.00001, 1.00004, 0.02, "0.0 %", "0.0 to 0.0");
    check_interval(NAN, NAN, NAN, 0.02, "-", "-");
    // So is the change, which is read first.
    check_interval(1.02005, 1.0204, 1.0209, 0.02, "+2.04 %", "+2.005 to +2.1");
    check_interval(0.9902, 1.0196, 1.0489, 0.02, "+1.96 %", "-1.0 to +4.9");
}

TEST(a_margin_is_told_as_it_was_set)
{
    static const struct {
        double margin;
        const char *want;
    } cases[] = {{0.02, "2 %"}, {0.0125, "1.25 %"}, {0.125, "12.5 %"}, {0.333, "33.3 %"},
            {1e-6, "0.0001 %"}, {NAN, "-"}};
    char text[NUMBERS_SIZE];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct report_cell cell = cell_of("ns", 1, 1);
        cell.margin = cases[i].margin;
        CHECK_STR(cell_margin(&cell, text), cases[i].want);
        cell.gating = false;
        CHECK_STR(cell_margin(&cell, text), "-");
    }
    CHECK_STR(numbers_fraction(0.0124, text), "1.2 %"); // what was measured
    CHECK_STR(numbers_fraction(12.34, text), "1234 %");
    CHECK_STR(numbers_fraction(9.996, text), "1000 %");
}

static void check_remark(struct report_cell cell, const char *want)
{
    char *remark = cell_remark(&cell);
    CHECK_STR(remark, want);
    free(remark);
}

TEST(a_remark_does_not_say_the_numbers_twice)
{
    struct report_cell cell = {.pairs = 28,
            .pairs_needed = 34,
            .mde = 0.031,
            .confirmed = -1,
            .verdict = REPORT_VERDICT_INCONCLUSIVE};
    cell.reason = "2.6 % slower: ratio 1.0263 (0.9881 to 1.0651) at 28 pairs, and the margin of 5 "
                  "% lies inside: "
                  "some 34 pairs would settle it";
    cell.news = "the margin of 5 % lies inside: some 34 pairs would settle it";
    cell.told = METRIC_TOLD_NEED;
    check_remark(cell,
            "the margin of 5 % lies inside: some 34 pairs would settle it; 28 pairs can see >= 3.1 %");
    cell.news = "other words"; // which are told as they are, whatever they say
    check_remark(cell, "other words; 28 pairs can see >= 3.1 %");
    cell.news = NULL;
    cell.told = 0;
    cell.reason = "the interval is wide";
    check_remark(cell, "the interval is wide; needs ~34 pairs; 28 pairs can see >= 3.1 %");
    cell.reason = "ratio 1.1 at 28 pairs";
    check_remark(cell, "ratio 1.1 at 28 pairs; needs ~34 pairs; 28 pairs can see >= 3.1 %");
    cell = (struct report_cell){.verdict = REPORT_VERDICT_FAIL,
            .confirmed = 1,
            .confirm_pairs = 10,
            .reason = "slower"};
    check_remark(cell, "slower; confirmed on 10 fresh pairs");
    cell.told = METRIC_TOLD_FRESH;
    check_remark(cell, "slower");
    cell.verdict = REPORT_VERDICT_PASS;
    check_remark(cell, "");
}

TEST(endings_are_words)
{
    char text[NUMBERS_SIZE];
    struct report_crash crash = {.state = "crashed", .exit_code = -1, .exit_signal = 11};
    CHECK_STR(crash_ending(&crash, text), "killed by signal 11 (SIGSEGV)");
    crash = (struct report_crash){.state = "crashed", .exit_code = 3, .exit_signal = -1};
    CHECK_STR(crash_ending(&crash, text), "exit code 3");
    crash.state = "timeout";
    CHECK_STR(crash_ending(&crash, text), "timed out");
    crash.state = "oom";
    CHECK_STR(crash_ending(&crash, text), "killed: out of memory");
}

TEST(counts_and_times)
{
    char text[NUMBERS_SIZE];
    CHECK_STR(numbers_count(28400, text), "28,400");
    CHECK_STR(numbers_count(999, text), "999");
    CHECK_STR(numbers_count(-1234567, text), "-1,234,567");
    CHECK_STR(numbers_delta(1.2e6, text), "+1.2 ms");
    CHECK_STR(numbers_delta(-3e3, text), "-3 us");
    CHECK_STR(numbers_delta(-0.2, text), "0");
    CHECK_STR(numbers_delta(NAN, text), "-");
    CHECK_STR(numbers_duration(59400000000, text), "59 s");
    CHECK_STR(numbers_duration(1450000000000, text), "24 min 10 s");
    CHECK_STR(numbers_duration(3900000000000, text), "1 h 05 min");
    CHECK_STR(numbers_time(1795262400000000000, text), "2026-11-21 12:00 UTC");
}

// --- progress: stderr of a child of the runner is replaced by a pipe or a terminal ---------------

static struct progress_cell progress_cells[] = {
        {"step_time", "fail", 1.0514, 1.0462, 1.0563}, {"peak_memory", "-", NAN, NAN, NAN}};

static struct progress_state progress_of(int pair, int target, int look)
{
    return (struct progress_state){.workload = "dlrm\033[2J-train",
            .workload_idx = 1,
            .workload_count = 5,
            .phase = "pairs",
            .pair = pair,
            .pairs_target = target,
            .look_idx = look,
            .look_count = 4,
            .elapsed_ns = 130000000000,
            .remaining_ns = 600000000000,
            .cells = progress_cells,
            .cell_count = 2};
}

// What was written to fd so far.
static char *progress_read(int fd)
{
    struct strbuf text = {0};
    char chunk[4096];
    ssize_t got;
    while ((got = read(fd, chunk, sizeof chunk)) > 0)
        strbuf_add_bytes(&text, chunk, (size_t)got);
    return strbuf_take(&text);
}

TEST(progress_without_a_terminal_is_a_line_a_look)
{
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    progress_start(5, true);
    for (int pair = 0; pair < 14; pair++) {
        struct progress_state state = progress_of(pair, pair < 10 ? 10 : 14, pair >= 10);
        progress_update(&state);
        progress_update(&state);
    }
    struct progress_state decided = progress_of(14, 0, 1);
    progress_update(&decided);
    progress_stop();
    char *text = progress_read(ends[0]);
    CHECK_STR(text,
            "upgate: [2/5] dlrm-train: pairs, up to pair 10 (look 1 of 4); step_time fail "
            "+5.1 % (+4.6 to +5.6); "
            "2 min 10 s so far, about 10 min 00 s left\n"
            "upgate: [2/5] dlrm-train: pairs, up to pair 14 (look 2 of 4); step_time fail "
            "+5.1 % (+4.6 to +5.6); "
            "2 min 10 s so far, about 10 min 00 s left\n");
    free(text);
}

TEST(progress_that_is_off_says_nothing)
{
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    struct progress_state state = progress_of(1, 10, 0);
    progress_update(&state); // never started
    progress_stop();
    progress_start(5, false);
    progress_update(&state);
    progress_stop();
    char *text = progress_read(ends[0]);
    CHECK_STR(text, "");
    free(text);
}

static int progress_terminal(int columns)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (master < 0 || grantpt(master) || unlockpt(master))
        runner_skip("no pseudo-terminal here");
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = 24};
    CHECK(ioctl(terminal, TIOCSWINSZ, &size) == 0 && dup2(terminal, STDERR_FILENO) >= 0);
    setenv("TERM", "xterm", 1);
    return master;
}

TEST(progress_on_a_terminal_redraws_and_clears)
{
    int master = progress_terminal(100);
    progress_start(5, true);
    struct progress_state state = progress_of(3, 10, 0);
    progress_update(&state);
    char *first = progress_read(master);
    CHECK_STR(first,
            "[2/5] dlrm-train: pairs, pair 4 of 10, look 1 of 4; 2 min 10 s so far, about "
            "10 min 00 s left\r\n"
            "  step_time          fail          +5.1 % (+4.6 to +5.6)\r\n"
            "  peak_memory        open          -\r\n");
    progress_update(&state); // the same again: not drawn
    log_info("a message");
    char *second = progress_read(master);
    CHECK_STR(second, "\r\033[3A\033[Jupgate: a message\r\n");
    progress_update(&state);
    free(progress_read(master));
    progress_stop();
    char *last = progress_read(master);
    CHECK_STR(last, "\r\033[3A\033[J");
    log_info("after");
    char *after = progress_read(master);
    CHECK_STR(after, "upgate: after\r\n");
    free(first);
    free(second);
    free(last);
    free(after);
}

TEST(progress_on_a_narrow_terminal_does_not_wrap)
{
    int master = progress_terminal(40);
    progress_start(5, true);
    struct progress_state state = progress_of(3, 10, 0);
    progress_update(&state);
    char *text = progress_read(master);
    for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n"))
        CHECK(screen_columns(line) < 40);
    progress_stop();
    free(text);
}
