// SPDX-License-Identifier: Apache-2.0
// The page of a rollout's report as it was built into the program, in four pieces like reports/render/html/page/html_page.h: piece 0,
// title, piece 1, one sentence for readers without scripts, piece 2, the data document (DATA.md), piece 3. Read only; any thread.
#ifndef UPGATE_RENDER_ROLLOUT_PIECES_H
#define UPGATE_RENDER_ROLLOUT_PIECES_H

#include <stddef.h>

enum { ROLLOUT_PIECES = 4 };

const char *rollout_piece(int index, size_t *ret_size); // NULL: built without node-d3

#endif
