#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The native reference workloads as the harness starts them: what they print, what they record, what
the same seed gives, how the -O1 and -O3 builds compare, and that every planted fault is one.

Runs dlrm, dlrm-cached, dlrm-sharded, transformer, hstu, vision, ddp, fsdp and allreduce of $UPGATE_BUILD, at --size small; records through step_host.
Times nothing: how exactly slow:P% is met is the business of ci/bench.
"""
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

BUILD = os.environ["UPGATE_BUILD"]
MODELS = ("dlrm", "dlrm-cached", "dlrm-sharded", "transformer", "hstu", "vision", "ddp", "fsdp", "allreduce")
SEVERAL = ("dlrm-sharded", "ddp", "fsdp", "allreduce")  # of two ranks, unless told otherwise
FIELDS = {"model", "mode", "dtype", "device", "size", "ranks", "threads", "steps", "samples", "loss_first",
          "loss_last", "checksum"}
CACHED_FIELDS = {"cache_hits", "cache_misses", "new_ids"}  # of dlrm-cached too
SHARDED_FIELDS = {"table_pieces", "row_pieces", "column_pieces"}  # of dlrm-sharded too
MORE_FIELDS = {"dlrm-cached": CACHED_FIELDS, "dlrm-sharded": SHARDED_FIELDS}
FAILURES = []


def check(what, got, want):
    if got != want:
        FAILURES.append(what)
        print("FAIL %s: got %r, expected %r" % (what, got, want), flush=True)


def program(name, build="native"):
    return os.path.join(BUILD, "reference_models", build, name)


def clean_env():
    env = dict(os.environ)
    for name in ("UPGATE_STEPS", "RANK", "WORLD_SIZE"):
        env.pop(name, None)
    return env


def start(name, *options, build="native", size="small"):
    """(exit code, stdout, stderr), as text."""
    done = subprocess.run([program(name, build), "--size", size, *options], env=clean_env(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def result(name, *options, **more):
    code, out, err = start(name, *options, **more)
    what = "%s %s" % (name, " ".join(options))
    check(what + ": exit", (code, err), (0, ""))
    check(what + ": one line", out.count("\n"), 1)
    try:
        return json.loads(out)
    except ValueError:
        check(what + ": JSON", out, "one JSON object")
        return dict.fromkeys(FIELDS | CACHED_FIELDS | SHARDED_FIELDS)


def recorded(name, *options, block="0"):
    """What step_host says that the program recorded, and then what the program printed: objects."""
    host = os.path.join(BUILD, "tests", "e2e", "step_host")
    with tempfile.NamedTemporaryFile() as own:  # two writers on one pipe would cut each other's lines
        done = subprocess.run([host, block, "0", "sh", "-c", 'exec "$@" >"$0"', own.name, program(name),
                               "--size", "small", *options],
                              env=clean_env(), stdout=subprocess.PIPE, timeout=200)
        lines = done.stdout.decode().splitlines() + own.read().decode().splitlines()
    return [json.loads(line) for line in lines]


def of(records, kind, **want):
    return [r for r in records
            if r.get("kind") == kind and all(r[key] == value for key, value in want.items())]


def case_results():
    for name in MODELS:
        for mode in ("train", "infer"):
            for dtype in ("float32", "float64"):
                got = result(name, "--mode", mode, "--steps", "5", "--dtype", dtype)
                what = "%s %s %s" % (name, mode, dtype)
                check(what + ": fields", set(got), FIELDS | MORE_FIELDS.get(name, set()))
                check(what + ": said", (got["model"], got["mode"], got["dtype"], got["steps"]),
                      (name, mode, dtype, 5))
                check(what + ": loss", [got[key] is not None for key in ("loss_first", "loss_last")],
                      [mode == "train"] * 2)
                check(what + ": samples", got["samples"] % 5 == 0 and got["samples"] > 0, True)


def case_same_seed():
    for name in MODELS:
        for mode in ("train", "infer"):
            options = ("--mode", mode, "--steps", "5")
            first = result(name, *options, "--seed", "3")
            what = "%s %s" % (name, mode)
            check(what + ": again", result(name, *options, "--seed", "3"), first)
            check(what + ": slowed", result(name, *options, "--seed", "3", "--plant", "slow:30%"), first)
            other = result(name, *options, "--seed", "4")
            check(what + ": other seed", other["checksum"] != first["checksum"], True)
            threads = [result(name, *options, "--seed", "3", "--threads", "3") for _ in range(2)]
            check(what + ": 3 threads twice", threads[0], threads[1])


def case_decode():
    """Prefill and decode: a phase each; fewer bytes than a window. What other models refuse."""
    options = ("--mode", "infer", "--decode", "4", "--steps", "3")
    check("decode: phases", {r["name"] for r in of(recorded("transformer", *options), "phase")}, {"data", "prefill", "decode"})
    for name, words, wanted in (("transformer", ("--mode", "infer", "--decode", "32"), "32 bytes to decode are too many"),
                                ("transformer", ("--decode", "4"), "--decode is for --mode infer"),
                                ("dlrm", ("--mode", "infer", "--decode", "4"), "--decode is the transformer's"),
                                ("vision", ("--device", "cuda"), "this program has no CUDA; vision of reference_models/native-cuda"),
                                ("vision", ("--mode", "infer", "--decode", "4"), "--decode is the transformer's"),
                                ("dlrm", ("--device", "cuda"), "this program has no CUDA")):
        code, out, err = start(name, *words, "--steps", "1")
        check("%s %s" % (name, " ".join(words)), (code, out, wanted in err), (2, "", True))


def case_cached():
    """Losses, answers and parameters do not depend on how many rows fit; what is fetched again does."""
    for mode in ("train", "infer"):
        options = ("--mode", mode, "--steps", "10", "--seed", "3")
        own, least, whole = (result("dlrm-cached", *options, "--cache", rows) for rows in ("0", "256", "4000"))
        for rows, other in (("256", least), ("4000", whole)):
            keys = ("loss_first", "loss_last", "checksum")
            check("dlrm-cached %s, %s rows" % (mode, rows), [other[key] for key in keys], [own[key] for key in keys])
        check("dlrm-cached %s: what is never evicted is fetched once" % mode, whole["cache_misses"], whole["new_ids"])
        check("dlrm-cached %s: the same ids" % mode, own["new_ids"], whole["new_ids"])
        # In ten steps the size's own rows hardly have to leave.
        check("dlrm-cached %s: a smaller cache evicts: %s" % (mode, least), least["cache_misses"] > least["new_ids"], True)
        if mode == "train":
            notes = {r["name"]: r["value"] for r in of(recorded("dlrm-cached", *options), "note")}
            check("dlrm-cached: notes", {key: notes.get(key) for key in CACHED_FIELDS}, {key: own[key] for key in CACHED_FIELDS})
    for name, words, wanted in (("dlrm-cached", ("--cache", "255"), "a cache of 255 rows is too small"),
                                ("dlrm-cached", ("--cache", "some"), "failed to read --cache"),
                                ("dlrm-cached", ("--device", "cuda"), "this program has no CUDA; dlrm-cached of reference_models/native-cuda"),
                                ("dlrm", ("--cache", "500"), "only dlrm-cached has a cache")):
        records = recorded(name, *words, "--steps", "3")
        code, out, err = start(name, *words, "--steps", "3")
        check("%s %s" % (name, " ".join(words)), (code, out, wanted in err), (2, "", True))
        check("%s %s: no step" % (name, " ".join(words)), of(records, "step"), [])


def case_ranks():
    """However many there are, they begin with the same parameters, and sharded ones train as whole ones do, up to rounding."""
    firsts, lasts = set(), set()
    for ranks in ("1", "2", "3", "4"):
        got = {name: result(name, "--steps", "5", "--ranks", ranks) for name in ("ddp", "fsdp")}
        firsts |= {one["loss_first"] for one in got.values()}
        lasts.add(got["ddp"]["loss_last"])
        check("ddp and fsdp, %s ranks: %s" % (ranks, got),
              math.isclose(got["ddp"]["loss_last"], got["fsdp"]["loss_last"], rel_tol=1e-6), True)
        check("ranks of the result", [one["ranks"] for one in got.values()], [int(ranks)] * 2)
    check("one first loss for all numbers of ranks", len(firsts), 1)
    check("and a last one for each: they average over more", len(lasts), 4)
    plain = result("ddp", "--steps", "5", "--ranks", "3")
    for plant in ("root", "buckets"):
        check("ddp, %s: the same bits" % plant, result("ddp", "--steps", "5", "--ranks", "3", "--plant", plant), plain)
    for name, words, wanted in (("ddp", ("--ranks", "65"), "1 to 64"), ("fsdp", ("--ranks", "0"), "--ranks"),
                                ("ddp", ("--mode", "infer", "--decode", "4"), "--decode is the transformer's"),
                                ("fsdp", ("--device", "cuda"), "fsdp of reference_models/native-cuda has"),
                                ("allreduce", ("--device", "cuda"), "allreduce is the CPU's only"),
                                ("fsdp", ("--plant", "root"), "are planted in ddp"), ("fsdp", ("--plant", "buckets"), "are planted in ddp"),
                                ("ddp", ("--mode", "infer", "--plant", "buckets"), "are planted in training"),
                                ("allreduce", ("--plant", "buckets"), "are planted in ddp"),
                                ("allreduce", ("--mode", "infer", "--decode", "4"), "--decode is the transformer's")):
        code, out, err = start(name, *words, "--steps", "1")
        check("%s %s: %r" % (name, " ".join(words), err), (code, out, wanted in err, err.count("\n")), (2, "", True, 1))


def pieces(got):
    return [got[key] for key in ("table_pieces", "row_pieces", "column_pieces")]


def case_sharded():
    """Wherever the tables are the losses are the same, up to rounding; how many ranks there are changes no bit of what one of them answers."""
    options = ("--steps", "8", "--dtype", "float64", "--ranks", "2", "--budget")
    whole, rows, columns, own = (result("dlrm-sharded", *options, budget) for budget in ("80000", "36800", "31000", "35.9375K"))
    check("dlrm-sharded: placements", [pieces(whole), pieces(rows), pieces(columns)], [[3, 0, 0], [2, 2, 0], [1, 2, 2]])
    check("dlrm-sharded: a budget in K", own, rows)
    check("dlrm-sharded: the budget that there is without one", result("dlrm-sharded", *options[:-1]), rows)
    for name, other in (("rows", rows), ("columns", columns)):
        for key in ("loss_first", "loss_last"):
            check("dlrm-sharded, %s: %s" % (name, key), math.isclose(other[key], whole[key], rel_tol=1e-10), True)
    notes = {r["name"]: r["value"] for r in of(recorded("dlrm-sharded", *options, "31000"), "note", slot=0)}
    check("dlrm-sharded: notes", {key: notes.get(key) for key in SHARDED_FIELDS}, {key: columns[key] for key in SHARDED_FIELDS})
    answers = [result("dlrm-sharded", "--mode", "infer", "--steps", "4", "--ranks", ranks, "--budget", "80000") for ranks in ("1", "2", "5")]
    check("dlrm-sharded: answers of one rank among others", len({one["checksum"] for one in answers}), 1)
    check("dlrm-sharded, 16 ranks", pieces(result("dlrm-sharded", "--steps", "2", "--ranks", "16")), [0, 32, 2])
    small = ("--ranks", "2", "--budget", "1000")
    check("dlrm-sharded: no step", of(recorded("dlrm-sharded", *small, "--steps", "3"), "step"), [])
    for name, words, wanted in (("dlrm-sharded", small, "the tables take 58880 bytes with their optimizer state, 2 ranks have 1000 each"),
                                ("dlrm-sharded", ("--mode", "infer") + small, "--budget: the tables take 58880 bytes"),
                                ("dlrm-sharded", ("--budget", "0"), "failed to read --budget: must be at least 1 byte"),
                                ("dlrm-sharded", ("--ranks", "65"), "1 to 64"),
                                ("dlrm-sharded", ("--device", "cuda"), "dlrm-sharded is the CPU's only"),
                                ("dlrm-sharded", ("--plant", "root"), "dlrm-sharded has nothing of the kind"),
                                ("ddp", ("--budget", "12M"), "only dlrm-sharded has tables to place")):
        code, out, err = start(name, *words, "--steps", "1")
        check("%s %s: %r" % (name, " ".join(words), err), (code, out, wanted in err, err.count("\n")), (2, "", True, 1))


def case_dead_rank():
    """A rank that is killed from outside ends the others and the program, as itself."""
    for name in ("dlrm-sharded", "ddp", "fsdp"):
        work = subprocess.Popen([program(name), "--size", "small", "--steps", "1000000", "--ranks", "3"], env=clean_env(), stdout=subprocess.PIPE)
        children = wait_for_children(work, 3)
        check(name + ": ranks", len(children), 3)
        if len(children) != 3:
            work.kill()
            work.communicate()
            continue
        time.sleep(0.2)  # in their steps
        os.kill(children[1], signal.SIGKILL)
        out = work.communicate(timeout=60)[0]
        check(name + ": a killed rank", (work.returncode, out), (-signal.SIGKILL, b""))
        check(name + ": nobody is left", those_left(children), [])


def case_builds():
    """Two builds of one source: the same sums, and losses that differ by rounding at most."""
    for name in MODELS:
        fast, slow = (result(name, "--steps", "8", build=build) for build in ("native", "native-O1"))
        for key in ("loss_first", "loss_last"):
            check("%s -O1 and -O3: %s" % (name, key),
                  math.isclose(fast[key], slow[key], rel_tol=1e-4), True)
        if name == "allreduce":
            check("allreduce -O1 and -O3", fast["checksum"], slow["checksum"])


def case_learning():
    for name, steps, ratio in (("dlrm", 120, 0.92), ("transformer", 60, 0.7), ("hstu", 400, 0.8), ("ddp", 120, 0.9)):
        got = result(name, "--steps", str(steps))
        check("%s learns: %s" % (name, got), got["loss_last"] < ratio * got["loss_first"], True)


def case_text_fallback():
    code, out, err = start("transformer", "--steps", "3", "--text", "/nonexistent")
    check("no texts: exit", code, 0)
    check("no texts: said", "'/nonexistent'" in err and "generated text" in err, True)
    other = result("transformer", "--steps", "3") if os.path.isdir("/usr/share/common-licenses") else {}
    check("no texts: other inputs", json.loads(out)["checksum"] != other.get("checksum"), True)


def case_bad_arguments():
    for options, words in ((("--mode", "trian"), "train"), (("--steps", "0"), "--steps"),
                           (("--sede", "1"), "--seed"), (("--ranks", "100"), "--ranks"),
                           (("--plant", "slwo:5%"), "slow"), (("extra",), "extra")):
        for name in MODELS:
            code, out, err = start(name, *options)
            what = "%s %s" % (name, " ".join(options))
            check(what + ": exit and stdout", (code, out), (2, ""))
            check(what + ": %r" % err, words in err and err.startswith(name + ": "), True)
    code, out, err = start("dlrm", "--help")
    check("--help", (code, "--plant" in out, err), (0, True, ""))


def check_records(name, records, mode, steps, slots):
    what = "%s %s records" % (name, mode)
    phases = {"dlrm": ["data", "forward", "backward", "optimizer"],
              "allreduce": ["data", "reduce_scatter", "all_gather", "check"]}
    expected = phases.get(name, phases["dlrm"])
    if mode == "infer" and name != "allreduce":
        expected = expected[:2]
    check(what + ": steps", len(of(records, "step")), steps * slots)
    check(what + ": losses", len(of(records, "loss")), steps * slots if mode == "train" else 0)
    check(what + ": phases", [r["name"] for r in of(records, "phase", slot=0, step=2)], expected)
    check(what + ": scheduled", all((r["sched_ns"] > 0) == (mode == "infer")
                                    for r in of(records, "step")), True)
    outputs = of(records, "bytes", slot=0)
    check(what + ": outputs", [(r["name"], r["step"]) for r in outputs],
          [("output", step) for step in range(4)])
    check(what + ": output size", all(0 < r["count"] <= 4096 and len(r["hex"]) == 8 * r["count"]
                                      for r in outputs), True)
    for lost in of(records, "counters"):
        check(what + ": nothing lost", [lost[key] for key in ("dropped", "bytes_dropped", "truncated",
                                                              "misplaced")], [0, 0, 0, 0])
    check(what + ": exit", of(records, "exit")[0]["status"], 0)


def case_records():
    for name in MODELS:
        slots = 3 if name in SEVERAL else 1
        more = ("--ranks", "3") if name in SEVERAL else ()
        for mode in ("train", "infer"):
            records = recorded(name, "--mode", mode, "--steps", "6", *more)
            check_records(name, records, mode, 6, slots)
            said = [r for r in records if "model" in r]
            if mode == "train":
                losses = [[r["value"] for r in of(records, "loss", slot=slot)] for slot in range(slots)]
                check("%s: recorded, of one rank, and printed" % name,
                      [said[0]["loss_first"], said[0]["loss_last"]] in [[one[0], one[-1]] for one in losses], True)
                others = name in ("dlrm-sharded", "ddp", "fsdp")
                check("%s: ranks that read something else" % name, len({one[0] for one in losses}), slots if others else 1)
        held = recorded(name, "--steps", "6", *more, block="2")
        check("%s: steps under a gate" % name, len(of(held, "step")), 6 * slots)


def case_parity():
    """The recorded outputs: float32 is near float64, and that is near itself in another build."""
    for name in ("dlrm", "transformer"):
        values = {}
        for dtype, code in (("float32", "f"), ("float64", "d")):
            records = recorded(name, "--mode", "infer", "--steps", "4", "--dtype", dtype)
            raw = bytes.fromhex(of(records, "bytes", step=3)[0]["hex"])
            values[dtype] = struct.unpack("<%d%s" % (len(raw) // struct.calcsize(code), code), raw)
        pairs = list(zip(values["float32"], values["float64"]))
        worst = max(abs(a - b) for a, b in pairs)
        spread = max(values["float64"]) - min(values["float64"])
        check("%s: dtypes near (%g of %g)" % (name, worst, spread), worst < 1e-5 * spread, True)
        check("%s: dtypes differ" % name, worst > 0, True)


def case_open_loop():
    """At 200 requests a second 40 requests take about 200 ms, whatever a request takes."""
    records = recorded("dlrm", "--mode", "infer", "--steps", "40", "--rate", "200/s")
    times = [r["sched_ns"] for r in of(records, "step")]
    check("arrivals in order", times, sorted(times))
    mean_ms = (times[-1] - times[0]) / 39e6
    check("mean gap of 5 ms is %g" % mean_ms, 2.5 < mean_ms < 8, True)
    again = [r["sched_ns"] for r in of(recorded("dlrm", "--mode", "infer", "--steps", "40", "--rate",
                                                "200/s"), "step")]
    check("the same arrivals", [b - a for a, b in zip(times, times[1:])],
          [b - a for a, b in zip(again, again[1:])])


def case_plants_that_end():
    for name in MODELS:
        code, out, err = start(name, "--steps", "6", "--plant", "crash:3")
        check(name + " crash", (code, out), (-signal.SIGSEGV, ""))
        code, out, err = start(name, "--steps", "6", "--plant", "exit:7")
        check(name + " exit:7", (code, out, "planted" in err), (7, "", True))
        code, out, err = start(name, "--steps", "6", "--plant", "nan:3")
        got = json.loads(out)
        check(name + " nan", (code, got["loss_first"] is None, got["loss_last"]), (0, False, None))
        records = recorded(name, "--steps", "6", "--plant", "nan:3")
        check(name + " nan from step 3", [r["value"] is None for r in of(records, "loss", slot=0)],
              [False] * 3 + [True] * 3)
        records = recorded(name, "--steps", "6", "--plant", "nostep")
        check(name + " nostep", (of(records, "step"), of(records, "exit")[0]["status"]), ([], 0))
        records = recorded(name, "--steps", "6", "--plant", "crash:3")
        check(name + " steps before the crash", {r["step"] for r in of(records, "step")}, {0, 1, 2})


def descendants(pid):
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open("/proc/%s/stat" % entry) as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid:
            found.append(int(entry))
    return found


def gone(pid):
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def wait_for_children(work, count):
    """They are forked one by one, and a busy machine takes its time."""
    deadline = time.monotonic() + 60
    while len(descendants(work.pid)) < count and work.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return descendants(work.pid)


def those_left(pids):
    """Of processes that are to end at once those that live on."""
    deadline = time.monotonic() + 15
    while not all(map(gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [pid for pid in pids if not gone(pid)]


def case_hang():
    for name in MODELS:
        work = subprocess.Popen([program(name), "--size", "small", "--steps", "6", "--plant", "hang:2"],
                                env=clean_env(), stdout=subprocess.PIPE)
        ranks = 2 if name in SEVERAL else 0
        wait_for_children(work, ranks)
        time.sleep(1)
        check(name + " hangs", work.poll(), None)
        children = descendants(work.pid)
        check(name + " ranks", len(children), ranks)
        work.kill()
        work.communicate()
        check(name + " leaves nobody behind", those_left(children), [])


def peak_memory(name, *options):
    """Peak resident bytes of one run."""
    pid = os.posix_spawn(program(name), [name, "--size", "small", *options], clean_env(),
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, used = os.wait4(pid, 0)
    check("%s %s" % (name, " ".join(options)), status, 0)
    return used.ru_maxrss * 1024


def case_leak_and_cold_start():
    for name in ("dlrm", "transformer"):
        # Both leak, as the peak of a child that is started here is at least that of its parent; up to
        # 6 times as much where a sanitizer shadows every byte.
        less, more = (peak_memory(name, "--steps", "32", "--plant", leak) for leak in ("leak:2M", "leak:3M"))
        check("%s leaks 32 MiB more: %d" % (name, more - less), 30 << 20 < more - less < 200 << 20, True)
    for name in MODELS:
        records = recorded(name, "--steps", "3", "--plant", "coldstart:60")
        phases = of(records, "phase", slot=0, name="compile")
        check(name + " compiles in step 0 only", [r["step"] for r in phases], [0])
        if phases:
            check(name + " for 60 ms", phases[0]["end_ns"] - phases[0]["begin_ns"] >= 60e6, True)


def main():
    cases = [value for name, value in sorted(globals().items()) if name.startswith("case_")]
    for case in cases:
        begin = time.monotonic()
        case()
        print("%s: %.1f s" % (case.__name__, time.monotonic() - begin), flush=True)
    print("%d checks failed" % len(FAILURES))
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
