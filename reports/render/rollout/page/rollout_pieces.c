// SPDX-License-Identifier: Apache-2.0
// The pieces of the page (page.cmake cut them), taken in by the assembler, as in html_page.c.
#include "reports/render/rollout/page/rollout_pieces.h"

#ifdef ROLLOUT_PAGE
// begin_N … end_N; the section is read-only data on every ELF target.
#define PIECE(n)                                                                                                              \
    __asm__(".pushsection .rodata\n"                                                                                          \
            ".balign 16\n"                                                                                                    \
            ".hidden rollout_piece_begin_" #n "\n.globl rollout_piece_begin_" #n "\nrollout_piece_begin_" #n ":\n"            \
            ".incbin \"" ROLLOUT_PAGE "." #n "\"\n"                                                                           \
            ".hidden rollout_piece_end_" #n "\n.globl rollout_piece_end_" #n "\nrollout_piece_end_" #n ":\n"                  \
            ".byte 0\n"                                                                                                       \
            ".popsection\n");                                                                                                 \
    extern const char rollout_piece_begin_##n[], rollout_piece_end_##n[];

PIECE(0)
PIECE(1)
PIECE(2)
PIECE(3)

const char *rollout_piece(int index, size_t *ret_size)
{
    static const struct {
        const char *begin, *end;
    } pieces[ROLLOUT_PIECES] = {
        {rollout_piece_begin_0, rollout_piece_end_0},
        {rollout_piece_begin_1, rollout_piece_end_1},
        {rollout_piece_begin_2, rollout_piece_end_2},
        {rollout_piece_begin_3, rollout_piece_end_3},
    };
    if (index < 0 || index >= ROLLOUT_PIECES)
        return NULL;
    *ret_size = (size_t)(pieces[index].end - pieces[index].begin);
    return pieces[index].begin;
}
#else
const char *rollout_piece(int index, size_t *ret_size)
{
    (void)index;
    *ret_size = 0;
    return NULL;
}
#endif
