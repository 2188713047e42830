// SPDX-License-Identifier: Apache-2.0
// Which upgate this is, for `upgate --version` and the foot of man pages. The store has the version
// alone.
#ifndef UPGATE_VERBS_VERSION_H
#define UPGATE_VERBS_VERSION_H

// "upgate 0.1.0 (68a4179622a2-dirty)", "upgate 0.1.0 (commit unknown)"
const char *version_text(void);
const char *version_date(void); // of the commit, "2026-11-26"; "" when unknown

#endif
