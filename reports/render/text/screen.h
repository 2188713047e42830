// SPDX-License-Identifier: Apache-2.0
// Text on a screen: what a stream can show, how wide a text is, and text of unknown origin
// (workload names, stderr of workloads) made harmless: no control or escape sequence reaches the
// terminal.
#ifndef UPGATE_REPORTS_SCREEN_H
#define UPGATE_REPORTS_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/strings.h"

enum screen_style {
    SCREEN_STYLE_PLAIN,
    SCREEN_STYLE_BOLD,
    SCREEN_STYLE_DIM,
    SCREEN_STYLE_FAIL,         // red
    SCREEN_STYLE_INCONCLUSIVE, // yellow
    SCREEN_STYLE_PASS,         // green
    SCREEN_STYLE_BANNER_FAIL,  // the same on a coloured ground
    SCREEN_STYLE_BANNER_INCONCLUSIVE,
    SCREEN_STYLE_BANNER_PASS,
    SCREEN_STYLE_COUNT
};

int screen_fd_width(int fd, int fallback); // columns of the terminal behind fd, else fallback
bool screen_locale_utf8(void);             // by LC_ALL, LC_CTYPE, LANG

// Next code point of valid UTF-8 at *text, which moves on; broken bytes come as 0xFFFD, one each. 0
// at the end.
unsigned screen_next(const char **text);
int screen_columns(const char *text); // cells of a terminal that clean text takes

// A copy for one line (the caller frees): escape sequences vanish, control and direction-changing
// characters become '?', line ends and tabs a blank; what cannot be shown (utf8 false) becomes '?'.
char *screen_clean(const char *text, bool utf8);
// The copy cut in its middle to at most `columns`, marked by an ellipsis.
char *screen_fit(const char *text, int columns, bool utf8);

// Text in a style; reset after it. Without color the text alone.
void screen_style(struct strbuf *out, enum screen_style style, bool color, const char *text);
// Text, then blanks up to `columns` (right = blanks first).
void screen_pad(struct strbuf *out, const char *text, int columns, bool right);
void screen_repeat(struct strbuf *out, const char *text, int count);

// Words of clean text on lines of at most `width` columns, each line with a newline at its end. The
// first line starts at column `first`, where the cursor is already; the others are indented by
// `rest`.
void screen_wrap(struct strbuf *out, const char *text, int width, int first, int rest);

#endif
