// SPDX-License-Identifier: Apache-2.0
// The host's certificates: one small SQLite file in the user's state directory, shared by all runs
// on this machine. Several processes may read and write it at once. A file that cannot be read is
// no certificate, with the reason; it never stops a run.
#ifndef UPGATE_GATE_CERTIFICATE_H
#define UPGATE_GATE_CERTIFICATE_H

#include <stdint.h>

#include "common/error.h"
#include "harness/plan/plan.h"

enum { CERTIFICATE_TEXT = 64 };

struct certificate {
    char scope[CERTIFICATE_TEXT]; // "host", or the hash of a workload
    enum plan_interleave interleave;
    int64_t made_wall_ns, aa_pairs, gates, false_fails;
    double upper_bound; // 95 %, Clopper-Pearson, on the false-fail rate
    char method[16];    // "direct" or "re-split"
    double pair_sd;     // NAN: not known
    int64_t seed;       // of the re-splits
    char source_run[CERTIFICATE_TEXT];
};

// $UPGATE_STATE_DIR/calibration.db, else $XDG_STATE_HOME/upgate/…, else ~/.local/state/upgate/…;
// the caller frees. NULL: no home.
char *certificate_path(void);
// Makes the directory. A damaged file is put aside as calibration.db.damaged and made anew.
int certificate_save(const char *path, const char *host_key, const struct certificate *certificate,
                     struct error *err);
// -ENOENT: none for this host, scope and interleave. Other errors: the file cannot be read.
int certificate_find(const char *path, const char *host_key, const char *scope,
                     enum plan_interleave interleave, struct certificate *ret_certificate,
                     struct error *err);

#endif
