# SPDX-License-Identifier: Apache-2.0
"""Lines of harness/export/rows.h to Parquet, by DuckDB. Text inside `upgate export`, which gives it to `python -I -c`; it reads the files
of its directory and nothing else, and loads nothing from the network.

    parquet.py             is there a DuckDB? prints its version
    parquet.py DIRECTORY   tables.json says which NAME.csv of what columns become NAME.parquet; each .csv goes when its .parquet is whole
"""
import json
import os
import site
import sys

EXIT_NO_DUCKDB = 3
OLDEST = [1, 1]  # has url_decode()
BUFFER_BYTES = 32000000  # DuckDB's own; it must hold the longest line
SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}


def load():
    # -I hides what `pip install --user` installed. Of root's nothing of the kind is looked for: his HOME may be somebody else's.
    if os.geteuid() != 0:
        sys.path.append(site.getusersitepackages())
    try:
        import duckdb
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_NO_DUCKDB)
    if [int(part) for part in duckdb.__version__.split(".")[:2]] < OLDEST:
        print("its duckdb %s is older than %d.%d" % (duckdb.__version__, *OLDEST), file=sys.stderr)
        sys.exit(EXIT_NO_DUCKDB)
    return duckdb


def quoted(name):
    return '"%s"' % name.replace('"', '""')


def value(name, kind):
    if kind == "VARCHAR":
        return "url_decode(%s) AS %s" % (quoted(name), quoted(name))
    if kind == "BLOB":
        return "unhex(%s) AS %s" % (quoted(name), quoted(name))
    return quoted(name)


def convert(db, table):
    """Names are of the schema of upgate, files lie in this directory: no SQL is made of what somebody else wrote."""
    line = table["line_bytes"] + 1
    names = ", ".join("'%s': '%s'" % (name.replace("'", "''"), "VARCHAR" if kind == "BLOB" else kind) for name, kind in table["columns"])
    db.execute(
        "COPY (SELECT %s FROM read_csv('%s.csv', auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', nullstr = '', "
        "allow_quoted_nulls = false, parallel = false, max_line_size = %d, buffer_size = %d, columns = {%s})) "
        "TO '%s.parquet' (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
        % (", ".join(value(*column) for column in table["columns"]), table["name"], max(line, BUFFER_BYTES // 16), max(2 * line, BUFFER_BYTES),
           names, table["name"]))
    rows = db.execute("SELECT num_rows FROM parquet_file_metadata('%s.parquet')" % table["name"]).fetchone()[0]
    if rows != table["rows"]:
        raise ValueError("%d rows became %d" % (table["rows"], rows))
    os.unlink(table["name"] + ".csv")


def main():
    duckdb = load()
    if len(sys.argv) < 2:
        print(duckdb.__version__)
        return 0
    os.chdir(sys.argv[1])
    os.umask(int(sys.argv[2], 8))
    with open("tables.json", encoding="utf-8") as file:
        tables = json.load(file)
    db = duckdb.connect(":memory:", config=SETTINGS)
    for table in tables:
        try:
            convert(db, table)
        except (duckdb.Error, OSError, ValueError) as error:
            print("%s: %s" % (table["name"], " ".join(str(error).split())[:250]), file=sys.stderr)
            return 1
    os.unlink("tables.json")
    return 0


sys.exit(main())
