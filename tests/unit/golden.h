// SPDX-License-Identifier: Apache-2.0
// Texts compared byte by byte with files of the tree. UPGATE_GOLDEN_UPDATE=1 rewrites the files;
// read the diff before you commit it. Paths are absolute: the working directory and the compiler's
// idea of __FILE__ do not matter.
#ifndef UPGATE_TESTS_UNIT_GOLDEN_H
#define UPGATE_TESTS_UNIT_GOLDEN_H

char *golden_path(const char *name); // below tests/; the caller frees
// below tests/; fails the case when it is not there; the caller frees
char *golden_read(const char *name);
// of tests/golden/; tells the first line that differs
void golden_compare(const char *got, const char *name);

#endif
