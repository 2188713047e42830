// SPDX-License-Identifier: Apache-2.0
// The text the language model reads: every regular file of a directory, joined in the order of
// their names; by default the licence texts that every Debian carries.
#ifndef UPGATE_NATIVE_TEXT_H
#define UPGATE_NATIVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define TEXT_PATH_DEFAULT "/usr/share/common-licenses"
#define TEXT_BYTES_MIN ((size_t)65536) // less than this is no corpus
#define TEXT_BYTES_MAX ((size_t)8 << 20)

struct text {
    unsigned char *bytes;
    size_t count;
    bool generated; // the directory holds no corpus: sentences of our own instead
    bool truncated; // there was more than TEXT_BYTES_MAX
};

// 0, with generated sentences when the directory is absent or holds too little; -ENOMEM otherwise.
// The caller frees with text_free.
int text_load(const char *path, struct text *ret_text, struct error *err);
void text_free(struct text *text);

#endif
