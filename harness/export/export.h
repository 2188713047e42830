// SPDX-License-Identifier: Apache-2.0
// `upgate export`: the tables and stable views of a store, a file each in a directory, for other
// tools. The store is only read, all of it as it is at one moment. The directory has its name when
// it is whole: until then it is NAME.partial, which the next export to NAME takes away where it was
// killed.
#ifndef UPGATE_HARNESS_EXPORT_EXPORT_H
#define UPGATE_HARNESS_EXPORT_EXPORT_H

#include <signal.h>

#include "harness/export/tables.h"

struct export_opts {
    const char *store, *dir;           // dir: is not there, or is empty
    const char *wanted;                // "gap,v_cell"; NULL: all
    bool parquet;                      // else CSV
    const char *python;                // for Parquet; NULL: python3
    bool dry_run;                      // all checks, no file
    const volatile sig_atomic_t *stop; // not 0: ended now
};

// *ret: what was written; rows and bytes of each. -EINVAL: bad input, no DuckDB; -EBUSY: the store
// is being written; -EBADMSG: it is damaged; else -errno. Nothing has the name of the directory
// then. tables_free in any case.
ERROR_CHECKED int export_run(const struct export_opts *opts, struct tables *ret, struct error *err);

#endif
