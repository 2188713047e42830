// SPDX-License-Identifier: Apache-2.0
// The pieces of the page (page.cmake cut them), taken in by the assembler: half a megabyte as a C array would cost the
// compiler more than the rest of this room.
#include "reports/render/html/page/html_page.h"

#ifdef HTML_PAGE
// begin_N … end_N; the section is read-only data on every ELF target.
#define PIECE(n)                                                                                                              \
    __asm__(".pushsection .rodata\n"                                                                                          \
            ".balign 16\n"                                                                                                    \
            ".hidden html_page_begin_" #n "\n.globl html_page_begin_" #n "\nhtml_page_begin_" #n ":\n"                        \
            ".incbin \"" HTML_PAGE "." #n "\"\n"                                                                              \
            ".hidden html_page_end_" #n "\n.globl html_page_end_" #n "\nhtml_page_end_" #n ":\n"                              \
            ".byte 0\n"                                                                                                       \
            ".popsection\n");                                                                                                 \
    extern const char html_page_begin_##n[], html_page_end_##n[];

PIECE(0)
PIECE(1)
PIECE(2)
PIECE(3)

const char *html_page_piece(int index, size_t *ret_size)
{
    static const struct {
        const char *begin, *end;
    } pieces[HTML_PAGE_PIECES] = {
        {html_page_begin_0, html_page_end_0},
        {html_page_begin_1, html_page_end_1},
        {html_page_begin_2, html_page_end_2},
        {html_page_begin_3, html_page_end_3},
    };
    if (index < 0 || index >= HTML_PAGE_PIECES)
        return NULL;
    *ret_size = (size_t)(pieces[index].end - pieces[index].begin);
    return pieces[index].begin;
}

const char *html_page_missing(void)
{
    return NULL;
}
#else
const char *html_page_piece(int index, size_t *ret_size)
{
    (void)index;
    *ret_size = 0;
    return NULL;
}

const char *html_page_missing(void)
{
    return "this upgate was built without the HTML report: node-d3, libjs-jquery or libjs-jquery-datatables was not installed";
}
#endif
