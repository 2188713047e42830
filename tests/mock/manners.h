// SPDX-License-Identifier: Apache-2.0
// Counts what the library under test calls while the fake CUPTI is inside of it: allocation, locks,
// files. The functions themselves are the player's own (interposed by being in the program), and
// pass everything on.
#ifndef UPGATE_TESTS_MOCK_MANNERS_H
#define UPGATE_TESTS_MOCK_MANNERS_H

#include <stdio.h>

void manners_watch(void); // from now on
void manners_report(FILE *out);

#endif
