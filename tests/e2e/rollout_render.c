// SPDX-License-Identifier: Apache-2.0
// For the test of the rollout's reports: rollout_render STORE.db OUT.{html,md,json} or
// rollout_render STORE.db - for the status.
#include <stdio.h>
#include <string.h>

#include "reports/render/rollout/rollout_view.h"

int main(int argc, char **argv)
{
    struct rollout_view *view = NULL;
    struct error err = {0};
    if (argc != 3) {
        fputs("usage: rollout_render STORE.db OUT\n", stderr);
        return 2;
    }
    int rc = rollout_view_load(argv[1], &view, &err);
    if (rc == 0 && strcmp(argv[2], "-") == 0)
        rollout_view_status(view, stdout, false);
    else if (rc == 0)
        rc = rollout_view_write(view, argv[2], &err);
    rollout_view_free(view);
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    return error_exit_code(rc);
}
