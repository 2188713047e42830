// SPDX-License-Identifier: Apache-2.0
// What a machine is known to see: kept in the host's state directory, one SQLite file for all runs.
// Shared by concurrent runs: SQLite's own locking, short transactions. A file that cannot be used
// is a reason; it never stops a run.
#ifndef UPGATE_GATE_CERTIFICATE_H
#define UPGATE_GATE_CERTIFICATE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "harness/plan/plan.h"

enum { CERTIFICATE_TEXT = PLAN_NAME_BYTES_MAX + 1 }; // the longest: the name of a workload

// Columns of table control (contracts/schema.sql says what they mean).
struct certificate {
    char scope[CERTIFICATE_TEXT]; // in the host's file: the hash of a workload; in a run: the name
                                  // of its own, or "host"
    char kind[CERTIFICATE_TEXT];
    enum plan_interleave interleave;
    enum metric_id metric;
    double margin;
    char *objection; // NULL: a certificate; owned
    int64_t made_wall_ns, aa_pairs;
    double aa_lower, aa_upper, mde, pair_sd; // NAN: not known
    double held, planted;                    // held NAN: not felt
    int64_t held_pairs;
    double held_lower, held_upper;
    int64_t gates, false_fails;
    double upper_bound;
    char source_run[CERTIFICATE_TEXT];
};

// What certificate_read reads, in this order.
#define CERTIFICATE_COLUMNS \
    "scope, kind, interleave, metric, margin, objection, made_wall_ns, aa_pairs, aa_lower, " \
    "aa_upper, mde, pair_sd, held, planted, held_pairs, held_lower, held_upper, gates, " \
    "false_fails, upper_bound, source_run"
// False: a metric or an interleave that this program does not know.
bool certificate_read(sqlite3_stmt *stmt, struct certificate *ret_certificate);
void certificates_free(struct certificate *certificates, int count);

// $UPGATE_STATE_DIR/calibration.db, else $XDG_STATE_HOME/upgate/…, else ~/.local/state/upgate/…;
// the caller frees. NULL: no home.
char *certificate_path(void);

// One A/A gate of one workload and run.
struct certificate_gate {
    const char *scope, *kind, *source_run;
    enum plan_interleave interleave;
    int64_t made_wall_ns;
    bool failed;
};
// Takes the place of what the workload had: its newest gate stands, certificate or none. *ret_gates
// and *ret_false_fails: of this host, kind and interleave, with this one. Makes the directory. A
// damaged file is put aside as calibration.db.damaged, one of certificates that could not fail
// (version 1) as calibration.db.old.
ERROR_CHECKED int certificate_save(const char *path, const char *host_key,
        const struct certificate_gate *gate, const struct certificate *certificates, int count,
        int64_t *ret_gates, int64_t *ret_false_fails, struct error *err);
// All of this host, newest first; the caller frees. -ENOENT: none. -ESTALE: a file of version 1.
int certificate_load(const char *path, const char *host_key, struct certificate **ret_certificates,
        int *ret_count, struct error *err);

#endif
