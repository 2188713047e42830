// SPDX-License-Identifier: Apache-2.0
// Text on a screen. Reads the environment and the terminal's size, writes into buffers only. Widths
// come from a short table of its own: wcwidth(3) answers by the process's locale, which stays "C"
// here.
#include "reports/render/text/screen.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SCREEN_WIDTH_MIN = 20, SCREEN_BROKEN = 0xfffd };

struct screen_range {
    unsigned first, last;
};

// Combining marks and joiners: no cell of their own.
static const struct screen_range screen_zero[] = {{0x300, 0x36f}, {0x483, 0x489}, {0x591, 0x5bd},
        {0x610, 0x61a}, {0x64b, 0x65f}, {0x200b, 0x200d}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f},
        {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
static const struct screen_range screen_wide[] = {{0x1100, 0x115f}, {0x2e80, 0x303e},
        {0x3041, 0xa4cf}, {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60},
        {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};
// C0, DEL, C1, and what reorders the text around it or hides in it.
static const struct screen_range screen_harmful[] = {{0x0, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c},
        {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
        {0xe0000, 0xe007f}};

static bool screen_in(const struct screen_range *ranges, size_t count, unsigned point)
{
    for (size_t i = 0; i < count; i++)
        if (point >= ranges[i].first && point <= ranges[i].last)
            return true;
    return false;
}
#define SCREEN_IN(ranges, point) screen_in(ranges, sizeof ranges / sizeof *ranges, point)

int screen_fd_width(int fd, int fallback)
{
    struct winsize size;
    if (!isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return fallback;
    return size.ws_col < SCREEN_WIDTH_MIN ? SCREEN_WIDTH_MIN : size.ws_col;
}

bool screen_locale_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

unsigned screen_next(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    if (!*s)
        return 0;
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    int len = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    unsigned point = len == 1 ? s[0] : s[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if (s[i] >> 6 != 2) {
            len = 0;
            break;
        }
        point = point << 6 | (s[i] & 0x3f);
    }
    if (len == 0 || point < least[len] || point > 0x10ffff ||
            (point >= 0xd800 && point <= 0xdfff)) {
        (*text)++;
        return SCREEN_BROKEN;
    }
    *text += len;
    return point;
}

static int screen_point_columns(unsigned point)
{
    return SCREEN_IN(screen_zero, point) ? 0 : SCREEN_IN(screen_wide, point) ? 2 : 1;
}

int screen_columns(const char *text)
{
    int columns = 0;
    for (unsigned point; (point = screen_next(&text));)
        columns += screen_point_columns(point);
    return columns;
}

// What follows an ESC that belongs to its sequence: CSI to its final byte, OSC to its end, else one
// byte. Of an OSC without an end the rest is text: a name must not hide what a line says behind it.
static const char *screen_skip_escape(const char *text)
{
    if (*text == '[') {
        text += 1 + strspn(text + 1, "0123456789:;<=>? !\"#$%&'()*+,-./");
        return *text >= 0x40 && *text <= 0x7e ? text + 1 : text;
    }
    if (*text == ']') {
        const char *end = text + strcspn(text, "\a\033\n");
        return *end == '\a' ? end + 1 : *end ? end : text + 1;
    }
    return *text > 0x20 && *text < 0x7f ? text + 1 : text;
}

char *screen_clean(const char *text, bool utf8)
{
    struct strbuf clean = {0};
    while (*text) {
        const char *begin = text;
        unsigned point = screen_next(&text);
        if (point == '\033')
            text = screen_skip_escape(text);
        else if (point == '\n' || point == '\t' || point == '\r')
            strbuf_add(&clean, " ");
        else if (SCREEN_IN(screen_harmful, point) || (!utf8 && point > 0x7f))
            strbuf_add(&clean, "?");
        else if (point == SCREEN_BROKEN)
            strbuf_add(&clean, "\xef\xbf\xbd");
        else
            strbuf_add_bytes(&clean, begin, (size_t)(text - begin));
    }
    return strbuf_take(&clean);
}

// Bytes of `text` that take at most `columns`.
static size_t screen_prefix(const char *text, int columns)
{
    const char *at = text;
    while (*at) {
        const char *next = at;
        columns -= screen_point_columns(screen_next(&next));
        if (columns < 0)
            break;
        at = next;
    }
    return (size_t)(at - text);
}

char *screen_fit(const char *text, int columns, bool utf8)
{
    int have = screen_columns(text);
    if (have <= columns)
        return xstrdup(text);
    const char *mark = utf8 ? "\xe2\x80\xa6" : "~"; // …
    int room = columns - 1, head = (room + 1) / 2, tail = room - head;
    if (room < 0)
        return xstrdup("");
    struct strbuf fit = {0};
    strbuf_add_bytes(&fit, text, screen_prefix(text, head));
    strbuf_add(&fit, "%s", mark);
    const char *end = text;
    for (int left = have; *end && left > tail;)
        left -= screen_point_columns(screen_next(&end));
    strbuf_add(&fit, "%s", end);
    return strbuf_take(&fit);
}

void screen_style(struct strbuf *out, enum screen_style style, bool color, const char *text)
{
    static const char *const codes[SCREEN_STYLE_COUNT] = {
            [SCREEN_STYLE_PLAIN] = NULL,
            [SCREEN_STYLE_BOLD] = "1",
            [SCREEN_STYLE_DIM] = "2",
            [SCREEN_STYLE_FAIL] = "1;31",
            [SCREEN_STYLE_INCONCLUSIVE] = "1;33",
            [SCREEN_STYLE_PASS] = "32",
            [SCREEN_STYLE_BANNER_FAIL] = "1;37;41",
            [SCREEN_STYLE_BANNER_INCONCLUSIVE] = "1;30;43",
            [SCREEN_STYLE_BANNER_PASS] = "1;30;42",
    };
    if (color && codes[style])
        strbuf_add(out, "\033[%sm%s\033[0m", codes[style], text);
    else
        strbuf_add(out, "%s", text);
}

void screen_repeat(struct strbuf *out, const char *text, int count)
{
    for (int i = 0; i < count; i++)
        strbuf_add(out, "%s", text);
}

void screen_pad(struct strbuf *out, const char *text, int columns, bool right)
{
    int blanks = columns - screen_columns(text);
    if (right)
        screen_repeat(out, " ", blanks);
    strbuf_add(out, "%s", text);
    if (!right)
        screen_repeat(out, " ", blanks);
}

// The next word; a per cent sign stays with its number.
static size_t screen_word(const char *text)
{
    size_t len = strcspn(text, " ");
    if (text[len] == ' ' && text[len + 1] == '%')
        len += 1 + strcspn(text + len + 1, " ");
    return len;
}

// Bytes of the word at the beginning of text that fit into `columns`, and how many columns they
// take. Looks no further, so that a text without blanks costs no more than one with.
static size_t screen_word_prefix(const char *text, size_t len, int columns, int *ret_columns)
{
    const char *at = text;
    *ret_columns = 0;
    while (at < text + len) {
        const char *next = at;
        int more = screen_point_columns(screen_next(&next));
        if (*ret_columns + more > columns)
            break;
        *ret_columns += more;
        at = next;
    }
    return (size_t)(at - text);
}

void screen_wrap(struct strbuf *out, const char *text, int width, int first, int rest)
{
    int column = first;
    bool begun = false; // a word stands on this line
    if (width < rest + SCREEN_WIDTH_MIN)
        width = rest + SCREEN_WIDTH_MIN;
    text += strspn(text, " ");
    size_t len = screen_word(text);
    while (*text) {
        int columns;
        size_t fits = screen_word_prefix(text, len, width - column - begun, &columns);
        if (fits < len && column > rest) { // the next line has more room
            strbuf_add(out, "\n");
            screen_repeat(out, " ", rest);
            column = rest;
            begun = false;
            fits = screen_word_prefix(text, len, width - column, &columns);
        }
        if (begun)
            strbuf_add(out, " ");
        strbuf_add_bytes(out, text, fits);
        column += columns + begun;
        begun = true;
        text += fits;
        len -= fits;
        if (len) { // longer than a line: the rest of it is the next word
            strbuf_add(out, "\n");
            screen_repeat(out, " ", rest);
            column = rest;
            begun = false;
            continue;
        }
        text += strspn(text, " ");
        len = screen_word(text);
    }
    strbuf_add(out, "\n");
}
