#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The injected library against the fake CUDA: the player plays a story, spool_dump records, expect.py judges.

usage: mock.py CASE     (environment: MOCK_BUILD directory of the built fakes, MOCK_INJECT the library under test)
"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import expect  # noqa: E402

MOCK = pathlib.Path(os.environ["MOCK_BUILD"])
INJECT = os.environ["MOCK_INJECT"]
SANITIZED = bool(os.environ.get("MOCK_SANITIZED"))
processes = []
SECONDS = 60  # of any wait here: a machine may be busy, a failure is told by what was waited for
WANT = {"kernels": 1, "nodes": 2, "sync": 4, "memory": 8, "nvtx": 16, "overhead": 32}
OFTEN = {"UPGATE_INJECT_FLUSH_MS": "50"}  # for waiting for what CUPTI gives back: usually once a second
ALL = 0x7d  # all but graph nodes
CUDA = {"11.8": 11080, "12.4": 12040, "12.9": 12090, "13.0": 13000}


def check(holds, sentence):
    if not holds:
        raise AssertionError(sentence)


def holds(wrong):
    check(not wrong, "\n  ".join(wrong))


class Player:
    """A workload under the library."""

    def __init__(self, story, version="13.0", env=None, inject=INJECT, file_bytes=None, **options):
        self.lines = []
        fake = MOCK / f"cupti-{version}"
        full = {name: value for name, value in os.environ.items() if not name.startswith(("FAKE_", "UPGATE_", "CUDA"))}
        full.update(LD_LIBRARY_PATH=str(fake), FAKE_CUDA_VERSION=str(CUDA[version]),
                    ASAN_OPTIONS="detect_leaks=0", TSAN_OPTIONS="halt_on_error=1 exitcode=66 atexit_sleep_ms=0")
        full["CUDA_INJECTION64_PATH"] = inject
        full.update(env or {})
        self.process = subprocess.Popen(
            [MOCK / "player", story, *(f"{name}={value}" for name, value in options.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE if file_bytes else None, env=full, text=True,
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))) if file_bytes else None)
        processes.append(self.process)
        self.pid = self.process.pid
        self.ready = self.until("ready")

    def until(self, kind):
        for text in self.process.stdout:
            if not text.startswith("{") or not text.endswith("\n"): # the last words of one that was stopped
                continue
            line = json.loads(text)
            self.lines.append(line)
            if line["type"] == kind:
                return line
        raise AssertionError(f"the player ended ({self.process.wait()}) before it said '{kind}'")

    def say(self):
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the player ended too early, with {self.process.wait(SECONDS)}") from None

    def play(self):
        self.say()
        return self.until("played")

    def end(self, status=0):
        """To its end; what the fake and the manners say."""
        self.say()
        self.lines += [json.loads(line) for line in self.process.stdout if line.startswith("{")]
        got = self.process.wait(SECONDS)
        check(got == status, f"the player ended with {got}, not {status}")
        check(self.of("cuda")[-1]["retained"] == 0, "a context of the workload's is held")
        return self.of("fake")[-1]

    def of(self, kind):
        return [line for line in self.lines if line["type"] == kind]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)


class Recorder:
    """spool_dump, which plays the recorder."""

    def __init__(self, pid, *arguments, kinds=ALL):
        self.where = tempfile.NamedTemporaryFile(prefix="upgate-mock-")
        self.process = subprocess.Popen(
            [MOCK / "spool_dump", str(pid), "--out", self.where.name, "--kinds", str(kinds), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(self.process)
        self.states = []
        for text in self.process.stdout:
            line = json.loads(text)
            self.states.append(line)
            if line["type"] in ("asked", "error"):
                break
        check(self.states and self.states[-1]["type"] == "asked", f"the recorder said {self.states}")

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
        return self.wait()

    def wait(self):
        """Until it ends of itself."""
        self.states += [json.loads(line) for line in self.process.stdout]
        check(self.process.wait(SECONDS) == 0, f"the recorder failed: {self.states}")
        return expect.Dump(expect.load_lines(self.where.name))


def records_seen(pid, producer):
    """header.counts[producer].seen."""
    at = 584 + 16 * producer
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(fd).startswith("/memfd:upgate-spool"):
            with open(fd, "rb") as spool:
                return int.from_bytes(spool.read(at + 8)[at:], "little")
    return 0


def kernels_seen(pid):
    """Of UG_PRODUCER_KERNEL, which the library counts when CUPTI gives a buffer back."""
    return records_seen(pid, 0)


def wait_for_kernels(pid, count):
    deadline = time.monotonic() + SECONDS
    while kernels_seen(pid) < count:
        check(time.monotonic() < deadline, f"{kernels_seen(pid)} kernels seen, waiting for {count}")
        time.sleep(0.02)


def fake_is_content(fake):
    check(fake["wrong"] == "", f"CUPTI was misused: {fake['wrong']}")


def record(story, env=None, version="13.0", kinds=ALL, at_end=True, **options):
    """One story from beginning to end: the dump, the player."""
    player = Player(story, version, env, **options)
    recorder = Recorder(player.pid, kinds=kinds)
    check(recorder.states[-1]["state"] == "active", f"not active: {recorder.states}")
    player.played = player.play()
    dump = recorder.stop()
    player.fake = player.end()
    fake_is_content(player.fake)
    check(player.fake["abandoned"] == 0 and player.fake["waiting"] == 0,
          f"records left in CUPTI's buffers at the end: {player.fake}")
    return dump, player


def nobody_waited(played):
    """Launches take 1 us here, 50 on two busy cores; had they waited for a reader it would be milliseconds."""
    check(played["ns_mean"] < 1_000_000, f"a launch took {played['ns_mean']} ns in the mean")


def everything(version):
    dump, player = record("mixed", version=version, threads=3, n=240, streams=3, contexts=2,
                          context="after" if version == "12.9" else "before")
    holds(expect.check_all(dump, player.lines))
    check(dump.header["driver_version"] == CUDA[version], f"driver {dump.header['driver_version']}")
    check(f"cupti-{version}" in dump.header["cupti_path"] or "libcupti.so" in dump.header["cupti_path"],
          dump.header["cupti_path"])
    kernel = dump.of("kernel")[0]
    for field, value in {"registers": 42, "static_shared_bytes": 1024, "dynamic_shared_bytes": 2048, "local_bytes": 16,
                         "cluster_x": 2, "channel": 7 | 1 << 24}.items():
        check(kernel[field] == value, f"{field} of a kernel is {kernel[field]}, not {value}")
    check(dump.header["unknown_records"] == 0, "records unknown")
    return dump


def case_cupti_118():
    check(everything("11.8").header["cupti_version"] == 18, "version")


def case_cupti_124():
    check(everything("12.4").header["cupti_version"] == 22, "version")


def case_cupti_129():
    check(everything("12.9").header["cupti_version"] == 28, "version")


def case_cupti_130():
    dump = everything("13.0")
    check(dump.header["cupti_version"] == 130001 and dump.header["per_thread_buffers"] in (0, 1), dump.header)
    check(len(dump.of("device")) >= 1 and dump.of("device")[0]["sm_count"] == 132, f"devices: {dump.of('device')}")


def case_graph_nodes():
    dump, player = record("mixed", kinds=ALL | WANT["nodes"], threads=2, n=200)
    holds(expect.check_all(dump, player.lines, nodes=True))


def case_graph_origins():
    """Each node of a graph is told when it is captured and when it is cloned: a kernel leads to the moment of its capture."""
    dump, player = record("graphs", kinds=ALL | WANT["nodes"] | 1 << 7, n=1000)
    holds(expect.check_all(dump, player.lines, nodes=True))
    nodes = {r["node"]: r for r in dump.of("graph_node")}
    made = [t for t in player.of("graph_make")]
    check(len(nodes) == 2 * sum(t["nodes"] for t in made), f"{len(nodes)} nodes told")
    for kernel in dump.of("kernel"):
        clone = nodes.get(kernel["graph_node"])
        origin = clone and nodes.get(clone["original"])
        check(origin is not None and origin["original"] == 0, f"{kernel} leads to {clone}, {origin}")
        t = next(t for t in made if t["graph"] == kernel["graph"])
        check(t["before"] <= origin["at_ns"] <= clone["at_ns"] <= t["after"] and origin["tid"] == t["tid"],
              f"{origin} was not made between {t['before']} and {t['after']}")
    dump, _ = record("graphs", kinds=ALL, n=200)
    check(not dump.of("graph_node"), "nodes told that nobody asked for")


def case_worker():
    """Buffers are completed on a thread of CUPTI's, their records backwards."""
    dump, player = record("mixed", {"FAKE_CUPTI_DELIVER": "worker", "FAKE_CUPTI_SHUFFLE": "1"}, threads=4, n=400)
    holds(expect.check_all(dump, player.lines))


def case_early():
    """Switched on by the environment, before the first call; the recorder comes later."""
    player = Player("launches", env={"UPGATE_TRACE": "1"}, n=500, context="after")
    recorder = Recorder(player.pid, kinds=ALL)
    player.play()
    dump = recorder.stop()
    fake_is_content(player.end())
    holds(expect.check_whole(dump) + expect.check_kernels(dump, player.lines))


def case_clock():
    """A clock of the GPU that runs 300 ppm fast and an hour ahead: calls stay within what the program measured."""
    player = Player("endless", env={"FAKE_CUPTI_PPM": "300", "FAKE_CUPTI_OFFSET_NS": "3600000000000"})
    recorder = Recorder(player.pid)
    player.say()
    time.sleep(1.2)
    deadline = time.monotonic() + SECONDS
    while records_seen(player.pid, 9) < 24:  # UG_PRODUCER_OTHER: ten clock samples a second, and about ten names, streams and devices
        check(time.monotonic() < deadline, f"{records_seen(player.pid, 9)} clock samples and names in {SECONDS} s")
        time.sleep(0.02)
    player.say()
    player.until("played")
    dump = recorder.stop()
    fake_is_content(player.end())
    samples = dump.of("clock")
    check(len(samples) >= 4, f"{len(samples)} clock samples in 1.2 s or more")
    slope = expect.clock_of(dump)[0]
    check(abs(slope - 1 / 1.0003) < 30e-6, f"slope {slope}")
    holds(expect.check_whole(dump) + expect.check_clock(dump) + expect.check_launches(dump))


def case_calls():
    """Each launch has one call, of its thread, on the clock: from the first one on or late, buffers per thread or not."""
    for when in ("before", "after"):
        for per_thread in ("0", "1"):
            env = {"UPGATE_INJECT_PER_THREAD": per_thread, "UPGATE_TRACE": str(ALL) if when == "after" else ""}
            player = Player("mixed", env=env, threads=2, n=200, context=when)
            recorder = Recorder(player.pid)
            player.play()
            dump = recorder.stop()
            fake = player.end()
            fake_is_content(fake)
            wrong = expect.check_all(dump, player.lines)
            check(not wrong, f"contexts made {when}, buffers per thread {per_thread}: " + "\n  ".join(wrong))
            check(fake["per_thread"] == dump.header["per_thread_buffers"] == int(per_thread), f"{fake}")
            doubled = len(dump.of("call")) - len({c["correlation"] for c in dump.of("call")})
            check(doubled == 0, f"{doubled} calls told twice")


def case_zero_times():
    dump, player = record("launches", {"FAKE_CUPTI_ZERO": "7"}, n=700)
    zero = [r for r in dump.of("kernel") if r["start_gpu"] == 0 and r["end_gpu"] == 0]
    check(len(zero) == 100, f"{len(zero)} kernels without times, not 100")
    holds(expect.check_whole(dump) + expect.check_kernels(dump, player.lines))


def case_unknown_kinds():
    """Records of a kind nobody knows: counted, and the workload lives."""
    dump, player = record("launches", {"FAKE_CUPTI_UNKNOWN": "97"}, n=2000)
    check(dump.header["unknown_records"] > 0, "no unknown record counted")
    holds(expect.check_whole(dump) + expect.check_counts(dump) + expect.check_times(dump))


def case_kinds_refused():
    """Kinds that CUPTI does not give are missing in have_kinds and named; the others go on."""
    player = Player("mixed", env={"FAKE_CUPTI_FAIL": "49,38"}, n=200)
    recorder = Recorder(player.pid)
    state = [s for s in recorder.states if s["type"] == "state"][-1]
    check(state["state"] == "active" and not state["have_kinds"] & (WANT["sync"] | WANT["memory"]) and
          state["have_kinds"] & WANT["kernels"] and "49" in state["reason"], f"{state}")
    player.play()
    dump = recorder.stop()
    fake_is_content(player.end())
    holds(expect.check_kernels(dump, player.lines))
    check(not dump.of("sync"), "records of a kind that is off")


def case_held():
    """Another profiler has CUPTI: tracing refuses, says so, and the workload goes on."""
    player = Player("launches", env={"FAKE_CUPTI_HELD": "1"}, n=200)
    recorder = Recorder(player.pid)
    state = [s for s in recorder.states if s["type"] == "state"][-1]
    check(state["state"] == "refused" and "another profiler" in state["reason"], f"{state}")
    player.play()
    dump = recorder.stop()
    fake = player.end()
    fake_is_content(fake)
    check(fake["callbacks"] == 0 and fake["records"] == 0 and not dump.of("kernel"), f"{fake}")


def case_no_cupti():
    player = Player("launches", env={"UPGATE_CUPTI": "/nonexistent/libcupti.so.13"}, n=50)
    recorder = Recorder(player.pid)
    state = [s for s in recorder.states if s["type"] == "state"][-1]
    check(state["state"] == "refused" and "libcupti" in state["reason"], f"{state}")
    player.play()
    recorder.stop()
    player.end()


def case_mapped():
    """The libcupti that the process has mapped is the one in use, whatever the path offers."""
    own = MOCK / "cupti-12.9" / "libcupti.so.12"
    player = Player("launches", env={"PLAYER_CUPTI": str(own)}, n=50)
    recorder = Recorder(player.pid)
    player.play()
    dump = recorder.stop()
    fake_is_content(player.end())
    check(dump.header["cupti_version"] == 28, f"CUPTI {dump.header['cupti_version']}, {dump.header['cupti_path']}")
    holds(expect.check_kernels(dump, player.lines))


def case_cupti_drops():
    """What CUPTI itself loses is asked for and told."""
    dump, player = record("launches", {"FAKE_CUPTI_DROP": "20"}, n=2000)
    check(dump.header["cupti_dropped"] == player.fake["lost"] > 0,
          f"CUPTI lost {player.fake['lost']}, told {dump.header['cupti_dropped']}")


def case_stale_names():
    """Another kernel's name at the address of one whose module is gone."""
    dump, player = record("modules", n=500)
    holds(expect.check_kernels(dump, player.lines))


def case_names_gone():
    """A kernel whose name is not there any more has none, or the one it had; the others keep theirs."""
    dump, player = record("gone", n=300)
    lost = [r for r in dump.of("kernel") if r["name"] in (None, "_Z4gonev")]
    check(len(lost) == 5, f"{len(lost)} kernels without a name")
    told = [t for t in player.lines if t.get("name") != "_Z4gonev"]
    named = expect.Dump([r for r in dump.lines if r not in lost])
    holds(expect.check_whole(named) + expect.check_kernels(named, told) + expect.check_counts(dump))


def case_fork():
    dump, player = record("forks", n=300)
    told = [(c["status"], c["signal"]) for c in player.of("child")]
    check(told == [(41, 0), (42, 0), (44, 0), (43, 0), (45, 0)], f"children ended with {told}")
    holds(expect.check_all(dump, player.lines))


def case_dlclose():
    dump, player = record("closes", n=300)
    holds(expect.check_kernels(dump, player.lines))


def case_launch_hook():
    """The functions for the Python extension: told of every launch, in it, once, and its records arrive."""
    dump, player = record("hooks", kinds=ALL | 1 << 7 | 1 << 8, n=300)
    said = player.of("hooks")[-1]
    check(said["heard"] == 300 and said["wrong"] == 0 and said["put_failed"] == 0 and
          said["correlation_outside"] == 0, f"{said}")
    told = {t["correlation"] for t in player.of("kernel")}
    stacks = dump.of("launch_stack")
    check({s["correlation"] for s in stacks} == told and len(stacks) == 300, f"{len(stacks)} stacks of {len(told)}")
    check(all(s["frames"] == ["leaf (model.py:7)", "root (main.py:1)"] and s["tid"] for s in stacks), f"{stacks[0]}")
    holds(expect.check_whole(dump) + expect.check_counts(dump))


def case_rival():
    """Another tool registers buffer callbacks before and after us: its buffers are left alone, ours may be lost to it."""
    env = {"PLAYER_CUPTI": str(MOCK / "cupti-13.0" / "libcupti.so.13")}
    player = Player("rivals", env=env, n=300)
    recorder = Recorder(player.pid, kinds=WANT["kernels"])
    player.play()
    dump = recorder.stop()
    fake = player.end()
    fake_is_content(fake)
    rival = player.of("rival")[-1]
    check(rival["own"] >= 1 and rival["foreign_back"] >= 1, f"the rival saw nothing: {rival}")
    check(len(dump.of("kernel")) >= 300, f"{len(dump.of('kernel'))} kernels of the 300 that were ours")
    holds(expect.check_whole(dump) + expect.check_counts(dump) + expect.check_times(dump))


def case_nvtx_modules():
    """NVTX of each library in the process is given to CUPTI once, whenever it came; and not at all when it is not wanted."""
    _, player = record("nvtx", n=50)
    check(player.fake["nvtx"] == 2, f"{player.fake['nvtx']} modules with NVTX given to CUPTI, not 2")
    _, player = record("nvtx", kinds=WANT["kernels"], n=50)
    check(player.fake["nvtx"] == 0, "NVTX given to CUPTI that nobody asked for")


def case_exit_flush():
    """A process that ends while it is recorded: everything it did is in the spool, and the state says so."""
    player = Player("launches", n=1000, threads=2)
    recorder = Recorder(player.pid)
    player.play()
    player.end()
    dump = recorder.wait()
    check(dump.header["state"] == "ended", dump.header["state"])
    holds(expect.check_all(dump, player.lines))


def case_exit_middle():
    """exit() while other threads launch: no crash, no hang."""
    player = Player("endless", env=OFTEN, threads=3, exit="middle")
    recorder = Recorder(player.pid)
    player.say()
    wait_for_kernels(player.pid, 100)
    player.say()
    got = player.process.wait(SECONDS)
    check(got == 7, f"the player ended with {got}")
    dump = recorder.wait()
    check(dump.header["state"] == "ended" and dump.of("kernel"), dump.header)
    holds(expect.check_whole(dump) + expect.check_counts(dump))


def case_exit_start():
    """exit() while the recorder's wish to begin is being fulfilled: the exit waits for it, not for long."""
    player = Player("launches", env={"FAKE_CUPTI_SLOW_MS": "500"}, n=100)
    player.play()
    recorder = subprocess.Popen([MOCK / "spool_dump", str(player.pid), "--out", os.devnull, "--kinds", str(ALL)],
                                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    processes.append(recorder)
    maps = pathlib.Path(f"/proc/{player.pid}/maps")
    deadline = time.monotonic() + SECONDS
    while "libcupti" not in maps.read_text():
        check(time.monotonic() < deadline, "nobody loads libcupti")
        time.sleep(0.005)
    time.sleep(0.05)
    player.end()
    recorder.wait(SECONDS)


def case_kill():
    """kill -9: a recorder that has the spool mapped reads what was in it."""
    player = Player("endless", env=OFTEN, threads=2)
    recorder = Recorder(player.pid)
    player.say()
    wait_for_kernels(player.pid, 101)
    time.sleep(0.05)
    player.kill()
    dump = recorder.wait()
    check(len(dump.of("kernel")) > 100, f"{len(dump.of('kernel'))} kernels")
    holds(expect.check_whole(dump) + expect.check_times(dump))


def case_toggle():
    """On, off, on, off while launches go on; off is off."""
    player = Player("endless", env=OFTEN, threads=3)
    player.say()
    for _ in range(3):
        before = kernels_seen(player.pid)
        recorder = Recorder(player.pid)
        wait_for_kernels(player.pid, before + 200)
        dump = recorder.stop()
        check(dump.header["state"] == "dormant", dump.header)
        check(len(dump.of("kernel")) > 50, f"{len(dump.of('kernel'))} kernels of a session")
        holds(expect.check_whole(dump) + expect.check_times(dump) + expect.check_launches(dump, share=0.9))
        time.sleep(0.2)
    time.sleep(1.5)  # until CUPTI is let go: at a call of the workload's half a second later, or when that has the CPU again
    watcher = Recorder(player.pid, "--passive", "--seconds", "0.3")
    quiet = watcher.wait()
    check(not quiet.of("kernel") and not quiet.of("call"), "records while it is off")
    player.say()
    player.until("played")
    fake = player.end()
    fake_is_content(fake)
    check(fake["subscribed"] == 0 and fake["kinds_on"] == 0 and fake["finalizes"] >= 1,
          f"CUPTI is still in use: {fake}")


def case_dormant():
    """Never asked for: no subscriber, no CUPTI at all."""
    player = Player("launches", n=500)
    watcher = Recorder(player.pid, "--passive", "--seconds", "0.2")
    player.play()
    check(0 < spool_kb(player.pid) <= 64, f"a dormant spool takes {spool_kb(player.pid)} kB of memory")
    dump = watcher.wait()
    fake = player.end()
    check(fake["loaded"] == 0 and dump.header["state"] == "dormant" and not dump.of("kernel"), f"{fake} {dump.header}")


def case_no_spool():
    """A limit of file sizes: the program runs as it would, and says once why it cannot be recorded."""
    player = Player("launches", file_bytes=1 << 20, n=500)
    player.play()
    check(spool_kb(player.pid) == 0, "there is a spool")
    player.end()
    told = player.process.stderr.read()
    check(told.count(f"upgate: the GPU side of process {player.pid} cannot be recorded") == 1, f"stderr: {told}")
    check("File too large" in told and "ulimit -f" in told, f"stderr: {told}")


def memory_kb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0


def spool_kb(pid):
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(fd).startswith("/memfd:upgate-spool"):
            return os.stat(fd).st_blocks // 2
    return 0


def wait_for_spool(pid, kb, seconds):
    """Until it has so little memory: the header's, and what threads that live have begun."""
    deadline = time.monotonic() + seconds
    while spool_kb(pid) > kb:
        check(time.monotonic() < deadline, f"the spool still has {spool_kb(pid)} kB after {seconds} s")
        time.sleep(0.05)


def case_memory_back():
    """Off again, the buffers' memory goes back to the system: a burst is not paid for until the program ends."""
    player = Player("flood", n=60000, threads=4)
    recorder = Recorder(player.pid, "--count", "--sleepy", kinds=WANT["kernels"])
    before = memory_kb(player.pid)
    player.play()
    full = spool_kb(player.pid)
    dump = recorder.stop()
    after = memory_kb(player.pid)
    wait_for_spool(player.pid, 128, SECONDS)
    fake_is_content(player.end())
    check(after < before, f"{after} kB after a recording, {before} at its beginning")
    check(full > 16 << 10, f"the burst left {full} kB in the spool")
    holds(expect.check_whole(dump) + expect.check_counts(dump))


def case_full():
    """Nobody reads: what finds no room is dropped and counted, and no launch waits for anybody."""
    player = Player("flood", n=120000, threads=4)
    recorder = Recorder(player.pid, "--sleepy", "--count", kinds=WANT["kernels"])
    played = player.play()
    dump = recorder.stop()
    fake_is_content(player.end())
    check(dump.header["counts"]["kernel"]["dropped"] > 0, f"nothing was dropped: {dump.header}")
    holds(expect.check_whole(dump) + expect.check_counts(dump))
    check(dump.header["counts"]["kernel"]["seen"] == 480000, f"{dump.header['counts']}")
    nobody_waited(played)


def case_crowd():
    """More threads than segments: no thread is left out for ever, and the kernels of all find room."""
    player = Player("crowd", env={"UPGATE_INJECT_PER_THREAD": "0"}, n=30, threads=400)
    recorder = Recorder(player.pid, kinds=WANT["kernels"])
    player.play()
    dump = recorder.stop()
    fake_is_content(player.end())
    holds(expect.check_whole(dump) + expect.check_counts(dump))
    callers = {call["tid"] for call in dump.of("call")}
    dropped = {kind: count["dropped"] for kind, count in dump.header["counts"].items()}
    check(len(callers) == 400, f"calls of {len(callers)} threads of 400; dropped {dropped}")
    check(dropped["kernel"] < 1200, f"dropped {dropped}") # of 12,000; none but in an unlucky moment


def case_hoard():
    """CUPTI holds its buffers: static ones are handed out meanwhile, counted, and nobody waits."""
    player = Player("flood", env={"FAKE_CUPTI_DELIVER": "worker", "FAKE_CUPTI_HOARD": "1"}, n=20000, threads=4)
    recorder = Recorder(player.pid, "--count", kinds=WANT["kernels"])
    played = player.play()
    dump = recorder.stop()
    fake = player.end()
    fake_is_content(fake)
    check(dump.header["cupti_buffers_discarded"] > 0, f"the library was not short of buffers: {dump.header}")
    holds(expect.check_counts(dump))
    nobody_waited(played)


def case_takeover():
    """A recorder that died is followed by one that wants other kinds, before the library has noticed."""
    player = Player("endless", env=OFTEN, threads=2)
    player.say()
    Recorder(player.pid, "--die", "--seconds", "0.1", kinds=WANT["kernels"]).process.wait(SECONDS)
    before = kernels_seen(player.pid)
    recorder = Recorder(player.pid)
    wait_for_kernels(player.pid, before + 200)
    dump = recorder.stop()
    check(dump.header["state"] == "dormant" and len(dump.of("kernel")) > 50, f"{dump.header}")
    holds(expect.check_whole(dump))
    player.say()
    player.until("played")
    fake_is_content(player.end())


def case_kinds_only():
    """What nobody asked for is not recorded."""
    dump, player = record("mixed", kinds=WANT["kernels"], threads=2, n=200)
    check(not any(dump.of(kind) for kind in ("sync", "memory", "range", "overhead", "launch_stack", "graph_node")),
          "records of other kinds")
    holds(expect.check_whole(dump) + expect.check_counts(dump) + expect.check_kernels(dump, player.lines) +
          expect.check_copies(dump, player.lines) + expect.check_launches(dump))


def case_nop():
    """The library that measures its own hooks sees everything and keeps nothing."""
    path = pathlib.Path(INJECT)
    player = Player("launches", inject=str(path.with_name("libupgate_inject_nop.so")), n=500)
    recorder = Recorder(player.pid)
    player.play()
    dump = recorder.stop()
    fake_is_content(player.end())
    check(dump.header["counts"]["kernel"]["seen"] == 500 and not dump.of("kernel") and not dump.of("call"),
          f"{dump.header['counts']}")


def case_manners():
    """Inside of callbacks: no allocation, no lock, no file."""
    if SANITIZED:
        print("the sanitizers have malloc and locks of their own: looked at in the plain builds")
        return 77
    for env in ({}, {"FAKE_CUPTI_DELIVER": "worker"}):
        _, player = record("mixed", env, threads=4, n=2000)
        manners = player.of("manners")[-1]
        check(all(manners[place]["visits"] > 0 for place in ("call", "request", "complete")), f"{manners}")
        for place in ("call", "request", "complete"):
            for what in ("memory", "lock", "file"):
                check(manners[place][what] == 0,
                      f"{manners[place][what]} calls of {what} in '{place}', the first {manners[place][what + '_first']}")
    return 0


def case_stale_recorder():
    """A recorder that died: off again after UG_SPOOL_STALE_NS of silence, and the next one can switch it on."""
    player = Player("endless", env=OFTEN)
    player.say()
    recorder = Recorder(player.pid, "--die", "--seconds", "0.1")
    recorder.process.wait(SECONDS)
    watcher = Recorder(player.pid, "--passive", "--sleepy", "--count", "--seconds", "90")
    for text in watcher.process.stdout:
        if json.loads(text).get("state") == "dormant":
            break
    else:
        raise AssertionError("still active 90 s after its recorder died")
    check(spool_kb(player.pid) > 2048, f"{spool_kb(player.pid)} kB in the spool that nobody read")
    wait_for_spool(player.pid, 128, SECONDS)  # also what nobody will read
    watcher.stop()
    before = kernels_seen(player.pid)
    recorder = Recorder(player.pid)
    wait_for_kernels(player.pid, before + 200)
    dump = recorder.stop()
    check(len(dump.of("kernel")) > 50, "no kernels for the next recorder")
    player.say()
    player.until("played")
    fake_is_content(player.end())


def main():
    case = globals().get(f"case_{sys.argv[1]}") if len(sys.argv) == 2 else None
    if case is None:
        print(f"usage: mock.py {'|'.join(n[5:] for n in globals() if n.startswith('case_'))}", file=sys.stderr)
        return 2
    started = time.monotonic()
    try:
        status = case() or 0
    except AssertionError as err:
        print(f"FAILED  {sys.argv[1]}: {err}")
        return 1
    finally:
        for process in processes:
            process.kill() # what is over already does not mind
    print(f"{sys.argv[1]}: {time.monotonic() - started:.1f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
