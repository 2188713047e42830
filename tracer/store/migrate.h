// SPDX-License-Identifier: Apache-2.0
// Stores of older versions made to look like the present one.
#ifndef UPGATE_TRACER_STORE_MIGRATE_H
#define UPGATE_TRACER_STORE_MIGRATE_H

#include <sqlite3.h>
#include <stdbool.h>

// Make what contracts/schema.sql has and the file lacks: tables, views, columns, what a CHECK
// allows. In the file itself, with the new user_version, in one transaction; or, for readers, as
// temporary tables and views of this connection, so that an old store can be read from a read-only
// directory. Leaves the foreign keys of a writer's connection off: the caller switches them on. An
// SQLite code; the message is sqlite3_errmsg(db)'s.
int migrate(sqlite3 *db, const char *schema_sql, bool temporary);

// An empty database in memory with the schema; to be closed in any case. An SQLite code.
int migrate_open_present(const char *schema_sql, sqlite3 **ret);

// The views of the schema as temporary ones, where the file has others of their names or none. Not
// behind migrate(…, true), which makes them too.
int migrate_views(sqlite3 *db, const char *schema_sql);

#endif
