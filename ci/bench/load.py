#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What upgate-load can send from one core, beside wrk: HAProxy answers 200 by itself, on the other core. Open loop for
upgate-load (a rate that is held or not: how late it was says which), closed loop for wrk, as each is made. Also with JSON
requests whose answers are checked, against the native server. Wants an idle machine of 2 cores, a minute."""
import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "canary")]
import rig  # noqa: E402
import stage  # noqa: E402

TRIVIAL = """\
global
    maxconn 4000
    nbthread 1
    cpu-map 1/1 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend trivial
    bind 127.0.0.1:{port}
    http-request return status 200 content-type application/json string '{{}}'
"""
CONNECTIONS = 64


def trivial(folder):
    port = stage.free_port()
    path = os.path.join(folder, "trivial.cfg")
    with open(path, "w", encoding="utf-8") as file:
        file.write(TRIVIAL.format(port=port))
    server = stage.Process(folder, "trivial", ["haproxy", "-db", "-f", path])
    time.sleep(0.5)
    return server, port


def children_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def send(folder, port, rate, seconds, *options):
    """(account, CPU seconds of the client) of upgate-load on core 0."""
    before = children_s()
    path = os.path.join(folder, "load.json")
    subprocess.run(["taskset", "-c", "0", stage.LOAD, "--rate", str(rate), "--duration", "%ds" % seconds, "--connections", str(CONNECTIONS),
                    "--quiet", "--output", path] + list(options) + ["http://127.0.0.1:%d" % port], check=True)
    with open(path, encoding="utf-8") as file:
        return json.load(file), children_s() - before


def highest(folder, port, seconds):
    """The highest rate of a geometric search at which the median request was sent within a millisecond of its time."""
    best, rate = 0, 10000
    while rate < 400000:
        account, _cpu = send(folder, port, rate, seconds, "--get")
        if account["lag_ms"]["p50"] > 1 or account["failed"]:
            break
        best, rate = account["sent"] / account["seconds"], rate * 1.25
    return best


def wrk(port, seconds):
    out = subprocess.run(["taskset", "-c", "0", "wrk", "-t1", "-c%d" % CONNECTIONS, "-d%ds" % seconds, "http://127.0.0.1:%d/" % port],
                         capture_output=True, text=True, check=True).stdout
    return float(re.search(r"Requests/sec:\s*([0-9.]+)", out).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    args = parser.parse_args()
    if stage.missing():
        print("load: %s" % stage.missing(), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="upgate-") as folder, stage.stage() as up:
        server, port = trivial(folder)
        up.append(server)
        account, cpu_s = send(folder, port, 20000, args.seconds, "--get")
        best = highest(folder, port, args.seconds)
        other = wrk(port, args.seconds) if shutil.which("wrk") else None
        server.stop()
        scorer = stage.Server(folder, "native").ready()
        up.append(scorer)
        checked, checked_s = send(folder, scorer.port, 5000, args.seconds, "--reference", "native")
    rig.finish("upgate-load on one core, %d connections" % CONNECTIONS, [
        rig.row("asked for 20,000/s: sent", account["sent"] / account["seconds"], 19500, "/s", more_is_better=True),
        rig.row("  of its core", 100 * cpu_s / account["seconds"], None, " %"),
        rig.row("  late, median", account["lag_ms"]["p50"], 1, " ms"),
        rig.row("  failed", account["failed"], 0),
        rig.row("  latency, median", account["latency_ms"]["p50"], None, " ms"),
        rig.row("highest rate held (open loop)", best, 20000, "/s", more_is_better=True),
        rig.row("wrk, closed loop, the same server", other, None, "/s"),
        rig.row("JSON requests, answers checked: sent", checked["sent"] / checked["seconds"], None, "/s"),
        rig.row("  of its core", 100 * checked_s / checked["seconds"], None, " %"),
        rig.row("  failed", checked["failed"], 0),
        rig.row("  answers compared", checked["compared"]),
    ])


if __name__ == "__main__":
    sys.exit(main())
