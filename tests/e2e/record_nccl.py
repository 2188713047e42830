#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate record` of a program with NCCL, against the fake CUDA and the fake NCCL of tests/mock: from the environment that upgate
sets to the rows of v_nccl_op."""
import os
import sys

SOURCE, BUILD = os.environ["UPGATE_SOURCE"], os.environ["UPGATE_BUILD"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "root"), os.path.join(SOURCE, "tests", "e2e")]
sys.dont_write_bytecode = True

import record_gpu
from record_gpu import FAKE, LIBRARY, MOCK, UPGATE, Player, check, prepared_env, run

PLAYER = os.path.join(MOCK, "nccl_player")
CUPTI = {"UPGATE_CUPTI": FAKE["PLAYER_CUPTI"]}
ROUNDS, HASH = 20, 0x8000000000000007 - (1 << 64)  # as SQLite's signed integer


def check_rows(case, player, ends):
    """A row a rank and collective, as the player says."""
    truth = player.truth("reduce")
    assert len(truth) == 3 * ROUNDS
    for rank in (0, 1):
        rows = case.rows("SELECT bytes, algorithm, protocol, channels, enqueued_ns, kernel_start_ns, kernel_end_ns, ended_ns, sequence "
                         "FROM v_nccl_op WHERE rank = %d ORDER BY sequence" % rank)
        assert len(rows) == len(truth) + (rank == 0), len(rows)
        for line, row in zip(truth, rows):
            assert row[:4] == (line["bytes"], line["algorithm"], line["protocol"], line["channels"]), (row, line)
            enqueued, start, end, ended = row[4:8]
            assert line["begin"] <= enqueued <= line["end"], (row, line)
            if ends:
                assert enqueued <= start < end <= ended <= line["end"], (row, line)
            else:
                assert (start, end, ended) == (None, None, None), row
        if rank == 0:
            assert rows[-1][7] is None, rows[-1]  # in flight when the program ended
        assert [row[8] - rows[0][8] for row in rows] == list(range(len(rows)))
    assert case.rows("SELECT DISTINCT function, datatype, communicator, communicator_name, ranks, peer, plugin_version FROM nccl_op") == [
        ("AllReduce", "ncclFloat32", HASH, "default_pg", 2, None, 5)]
    assert case.rows("SELECT DISTINCT nccl_version FROM gpu_process") == [(22809,)]
    assert case.rows("SELECT seen, kept, dropped FROM ledger WHERE producer = 'gpu.nccl'") == [(6 * ROUNDS + 1, 6 * ROUNDS + 1, 0)]
    assert case.rows("PRAGMA foreign_key_check") == []


def test_from_the_start(case):
    player = Player(case, UPGATE, "record", "-o", case.db, "--", PLAYER, env=CUPTI)
    player.go_recorded(case)
    player.played()
    code, out, err = player.close()
    assert code == 0, err
    check_rows(case, player, True)


def test_a_prepared_process(case):
    player = Player(case, PLAYER, env={**CUPTI, **prepared_env(case)})
    recorder = case.record("--pid", str(player.pid))
    case.wait_until("active", lambda: record_gpu.spool_word(player.pid, record_gpu.STATE_AT) == record_gpu.ACTIVE)
    player.go()
    player.played()
    code, out, err = player.close()
    assert code == 0, err
    check(case.finish(recorder), 0, "GPU side of 1 process:")
    check_rows(case, player, False)


def main():
    for path in (UPGATE, PLAYER, LIBRARY):
        if not os.path.exists(path):
            print("not built: " + path)
            return 77
    failed = 0
    for name, test in sorted(globals().items()):
        if name.startswith("test_") and sys.argv[1:] in ([], [name[5:]]):
            text, bad = run(name, test)
            print(text, flush=True)
            failed += bad
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
