// SPDX-License-Identifier: Apache-2.0
// The only file that is compiled anew when the commit changes: commit.h is made in every build by
// cmake/commit.cmake.
#include "harness/verbs/version.h"

#include "commit.h"

const char *version_text(void)
{
    return *UPGATE_COMMIT ? "upgate " UPGATE_VERSION " (" UPGATE_COMMIT ")"
                          : "upgate " UPGATE_VERSION " (commit unknown)";
}

const char *version_date(void)
{
    return UPGATE_COMMIT_DATE;
}
