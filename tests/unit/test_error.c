// SPDX-License-Identifier: Apache-2.0
// Errors: text, prefix, exit codes.
#include <errno.h>

#include "common/error.h"
#include "tests/unit/runner.h"

TEST(set_and_prefix)
{
    struct error err = {0};
    CHECK_INT(error_set(&err, -EINVAL, "no %s", "side"), -EINVAL);
    CHECK_INT(error_prefix(&err, "plan '%s'", "x.yaml"), -EINVAL);
    CHECK_STR(err.text, "plan 'x.yaml': no side");
    CHECK_INT(error_set(NULL, -EIO, "dropped"), -EIO);
}

TEST(exit_codes)
{
    CHECK_INT(error_exit_code(0), 0);
    CHECK_INT(error_exit_code(-EINVAL), 2);
    CHECK_INT(error_exit_code(-ENOSPC), 4);
}

TEST(long_text_is_cut_not_overrun)
{
    struct error err = {0};
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    error_set(&err, -EIO, "%s", text);
    CHECK_INT(strlen(err.text), sizeof err.text - 1);
    error_prefix(&err, "%s", text);
    CHECK_INT(strlen(err.text), sizeof err.text - 1);
}
