// SPDX-License-Identifier: Apache-2.0
// Parquet by DuckDB, in a Python of the user's that has it. The program it runs is ours and part of
// this one (parquet.py, `python -I -c`): it sees the escaped lines of the tables (rows.h), never
// the store, and loads nothing from the network.
#ifndef UPGATE_HARNESS_EXPORT_PARQUET_H
#define UPGATE_HARNESS_EXPORT_PARQUET_H

#include <signal.h>

#include "harness/export/tables.h"

// Has this Python a DuckDB? python: path or name; NULL: python3. -EINVAL: no, and what to do.
ERROR_CHECKED int parquet_check(
        const char *python, const volatile sig_atomic_t *stop, struct error *err);
// In dir, which is dir_fd: NAME.csv of each table becomes NAME.parquet.
ERROR_CHECKED int parquet_make(const char *python, const char *dir, int dir_fd,
        const struct tables *tables, const volatile sig_atomic_t *stop, struct error *err);

#endif
