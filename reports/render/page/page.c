// SPDX-License-Identifier: Apache-2.0
// The pieces of each page (page.cmake cut them where title, sentence and data go), taken in by the
// assembler: half a megabyte as a C array would cost the compiler more than the rest of this room.
#include "reports/render/page/page.h"

#include <string.h>

#include "common/strings.h"

enum { PAGE_PIECES = 4 };

struct page_piece {
    const char *begin, *end;
};

// begin_N … end_N; the section is read-only data on every ELF target.
#define PIECE(page, n, file) \
    __asm__(".pushsection .rodata\n" \
            ".balign 16\n" \
            ".hidden page_" #page "_begin_" #n "\n.globl page_" #page "_begin_" #n "\npage_" #page \
            "_begin_" #n ":\n" \
            ".incbin \"" file "." #n "\"\n" \
            ".hidden page_" #page "_end_" #n "\n.globl page_" #page "_end_" #n "\npage_" #page \
            "_end_" #n ":\n" \
            ".byte 0\n" \
            ".popsection\n"); \
    extern const char page_##page##_begin_##n[], page_##page##_end_##n[];
#define PIECES(page, file) \
    PIECE(page, 0, file) PIECE(page, 1, file) PIECE(page, 2, file) PIECE(page, 3, file)
#define PLACE(page, n) \
    { \
        page_##page##_begin_##n, page_##page##_end_##n \
    }
#define PLACES(page) \
    { \
        PLACE(page, 0), PLACE(page, 1), PLACE(page, 2), PLACE(page, 3) \
    }

#ifdef PAGE_FILE_VERDICT
PIECES(verdict, PAGE_FILE_VERDICT)
#endif
#ifdef PAGE_FILE_ROLLOUT
PIECES(rollout, PAGE_FILE_ROLLOUT)
#endif

static const struct page_piece page_pieces[PAGE_COUNT][PAGE_PIECES] = {
#ifdef PAGE_FILE_VERDICT
        [PAGE_VERDICT] = PLACES(verdict),
#endif
#ifdef PAGE_FILE_ROLLOUT
        [PAGE_ROLLOUT] = PLACES(rollout),
#endif
};

const char *page_missing(enum page page)
{
    static const char *const packages[PAGE_COUNT] = {
            [PAGE_VERDICT] =
                    "this upgate was built without the page: node-d3, libjs-jquery or libjs-jquery-datatables was not installed",
            [PAGE_ROLLOUT] = "this upgate was built without the page: node-d3 was not installed",
    };
    return page_pieces[page][0].begin ? NULL : packages[page];
}

size_t page_bytes(enum page page)
{
    size_t sum = 0;
    for (int i = 0; i < PAGE_PIECES; i++)
        sum += (size_t)(page_pieces[page][i].end - page_pieces[page][i].begin);
    return sum;
}

// In a script element nothing but "</script" and "<!--" has a meaning, and in a JSON text "<"
// stands in strings only. U+2028 and U+2029 end a line for old readers of JavaScript.
static void page_add_json(struct strbuf *out, const char *json)
{
    for (const char *from = json;; json++) {
        const char *as = NULL;
        size_t len = 1;
        if (*json == '<')
            as = "\\u003c";
        else if (strncmp(json, "\xe2\x80\xa8", 3) == 0)
            as = "\\u2028", len = 3;
        else if (strncmp(json, "\xe2\x80\xa9", 3) == 0)
            as = "\\u2029", len = 3;
        else if (*json)
            continue;
        strbuf_add_bytes(out, from, (size_t)(json - from));
        if (!*json)
            return;
        strbuf_add_bytes(out, as, strlen(as));
        from = json + len;
        json += len - 1;
    }
}

static void page_add_escaped(struct strbuf *out, const char *text)
{
    for (; *text; text++) {
        const char *as = *text == '&' ? "&amp;"
                : *text == '<'        ? "&lt;"
                : *text == '>'        ? "&gt;"
                : *text == '"'        ? "&quot;"
                                      : NULL;
        strbuf_add_bytes(out, as ? as : text, as ? strlen(as) : 1);
    }
}

static void page_add_piece(struct strbuf *out, const struct page_piece *piece)
{
    strbuf_add_bytes(out, piece->begin, (size_t)(piece->end - piece->begin));
}

char *page_make(enum page page, const char *title, const char *sentence, const char *json)
{
    const struct page_piece *pieces = page_pieces[page];
    struct strbuf out = {0};
    page_add_piece(&out, &pieces[0]);
    page_add_escaped(&out, title);
    page_add_piece(&out, &pieces[1]);
    page_add_escaped(&out, sentence);
    page_add_piece(&out, &pieces[2]);
    page_add_json(&out, json);
    page_add_piece(&out, &pieces[3]);
    return strbuf_take(&out);
}
