# SPDX-License-Identifier: Apache-2.0
"""`ci/plants --stragglers`: one rank of a real distributed job is made late in one known way, the job is recorded with `upgate record`,
and what `upgate stalls` says is compared with reference_models/plants/stragglers.json: which rank it is, and why."""
import contextlib
import datetime
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import straggler_kinds as kinds
from undo import Undo

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("UPGATE_BUILD") or os.path.join(ROOT, "build", "release")
UPGATE = os.path.join(BUILD, "upgate")
PLANTS = os.path.join(ROOT, "reference_models", "plants")
PYTHON = os.environ.get("UPGATE_PLANTS_PYTHON") or os.path.join(ROOT, "envs", "candidate", "bin", "python")

WINDOW_S, START_S, COMMAND_S = 8.0, 240, 120
LATE_LEAST = 0.01  # of a step: a plant that costs less has not worked here, and is no question
SHARD_BYTES = 64 << 20
QUIET_S, QUIET_SHARE = 15, 0.3  # other work on this machine makes ranks late as well: it is waited for, so long
RIGHT, WRONG, NONE, QUIET, SKIPPED, FAILED = "right", "wrong", "not named", "not late", "skipped", "failed"


class Trouble(Exception):
    """The job or upgate could not be run; the text says why."""


def job_module():
    """What the job itself knows of its times and addresses; guests of ci/kernels have other plants only."""
    folder = os.path.join(PLANTS, "python")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("straggler")


def answers():
    with open(os.path.join(PLANTS, "stragglers.json"), encoding="utf-8") as file:
        return json.load(file)


class Job:
    """A running job; with Job(…) as job: …"""

    def __init__(self, undo, ranks, isolated=None):
        self.ranks, self.isolated = ranks, isolated
        self.folder = tempfile.mkdtemp(prefix="upgate-stragglers-", dir=BUILD)
        undo.later("tree", self.folder)
        with open(os.path.join(self.folder, "shards"), "wb") as file:
            for _ in range(SHARD_BYTES >> 22):
                file.write(os.urandom(4 << 20))
            os.fsync(file.fileno())
        self.tell({"kind": "clean"})
        self.errors = open(os.path.join(self.folder, "errors"), "w+", encoding="utf-8")
        words = [PYTHON, os.path.join(PLANTS, "python", "straggler.py"), "launch", str(ranks), self.folder]
        self.process = undo.begin(words + ([str(isolated)] if isolated is not None else []), stdout=subprocess.DEVNULL, stderr=self.errors)
        if isolated is not None:
            self.connect(undo)
        self.pids = [self.read("rank%d" % rank) for rank in range(ranks)]
        self.times = job_module().Times(os.path.join(self.folder, "times"), ranks)

    def connect(self, undo):
        """The isolated rank's network namespace, which ends with it, to ours."""
        pid = str(self.read("isolated"))
        undo.later("link", "upgate-late")
        inside = ["nsenter", "-t", pid, "-n", "ip"]
        for command in (["ip", "link", "add", "upgate-late", "type", "veth", "peer", "name", "eth0", "netns", pid],
                        ["ip", "address", "add", job_module().OUTSIDE + "/30", "dev", "upgate-late"], ["ip", "link", "set", "upgate-late", "up"],
                        [*inside, "link", "set", "lo", "up"], [*inside, "link", "set", "eth0", "up"],
                        [*inside, "address", "add", job_module().INSIDE + "/30", "dev", "eth0"]):
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise Trouble("%s: %s" % (" ".join(command), done.stderr.strip()))

    def tell(self, mode):
        path = os.path.join(self.folder, "mode")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(mode, file)
        os.replace(path + ".new", path)

    def read(self, name):
        """The number in a file that the job writes."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self.errors.seek(0)
                raise Trouble("the job ended: " + self.errors.read()[-500:])
            with contextlib.suppress(OSError, ValueError), open(os.path.join(self.folder, name), encoding="utf-8") as file:
                return int(file.read())
            time.sleep(0.05)
        raise Trouble("the job did not start in %d s" % START_S)

    def record(self, keep=None):
        """The upgate.stalls/1 document, and when the recording began and ended."""
        store = keep or os.path.join(self.folder, "run.db")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(store)
        begin = time.monotonic()
        command([UPGATE, "record", "--pid", str(self.process.pid), "--duration", "%dms" % (WINDOW_S * 1000), "-o", store])
        end = time.monotonic()
        return json.loads(command([UPGATE, "stalls", store, "--format", "json"])), begin, end


def command(words):
    verb = "upgate " + words[1]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        raise Trouble("%s took longer than %d s" % (verb, COMMAND_S)) from None
    if done.returncode:
        raise Trouble("%s: exit %d: %s" % (verb, done.returncode, (done.stderr.strip().splitlines() or ["no message"])[-1]))
    return done.stdout


# ---- was it right? ---------------------------------------------------------------------------------

def measured(job, answer, begin, end):
    """What the ranks noted: (the median step, how much longer each rank was waited for than the others in the mean, as a share of it)."""
    steps = sorted(job.times.steps(begin, end), key=lambda one: max(one[0]))
    if len(steps) < 10:
        raise Trouble("the job made %d steps" % len(steps))
    ends = [max(came) for came, _ in steps]
    lengths = sorted(b - a for a, b in zip(ends, ends[1:]))
    step_s = lengths[len(lengths) // 2]
    if answer.get("late") == "transfer":
        late = [sum(min(left) - max(came) for came, left in steps)] * job.ranks
    else:
        waited = [sum(waited_for(came, rank) for came, _ in steps) for rank in range(job.ranks)]
        late = [one - (sum(waited) - one) / (job.ranks - 1) for one in waited]
    return step_s, [one / len(steps) / step_s for one in late]


def waited_for(came, rank):
    return max(0.0, came[rank] - max(at for one, at in enumerate(came) if one != rank))


def judge(result, answer, document, culprits):
    late = [stall for stall in document["stalls"] if stall["cause"] == "straggler"]
    ranks = [stall["culprit"]["rank"] for stall in late]
    if late:
        result.update(named=ranks, what=late[0]["culprit"]["what"], found=late[0]["share"])
        result["chain"] = [link["to"]["pid"] for link in late[0].get("chain") or []]
    if "named" not in answer:
        result["rank_is"] = WRONG if late else RIGHT
        return
    if result["late"] < LATE_LEAST:
        result["rank_is"] = QUIET
        return
    result["rank_is"] = NONE if not late else RIGHT if set(ranks) == {result["rank"]} else WRONG
    if result["rank_is"] == NONE:
        return
    own = next((stall for stall in late if stall["culprit"]["rank"] == result["rank"]), None)
    says = own is not None and re.search(answer["named"], own["culprit"]["what"] or "") is not None
    if says and answer.get("culprit"):
        says = any(link["to"]["pid"] in culprits for link in own.get("chain") or [])
    result["cause_is"] = RIGHT if says else WRONG


class Busy:
    """share(): of this machine's CPUs, what others than these processes and our children that ended took since."""

    def __init__(self, pids):
        self.pids, self.since, self.before = pids, time.monotonic(), self.ticks(pids)

    @staticmethod
    def ticks(pids):
        with open("/proc/stat", encoding="ascii") as file:
            fields = list(map(int, file.readline().split()[1:9]))
        took = os.times()
        ours = (took.children_user + took.children_system) * os.sysconf("SC_CLK_TCK")
        for pid in pids:
            with contextlib.suppress(OSError), open("/proc/%d/stat" % pid, encoding="utf-8") as file:
                ours += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
        return sum(fields) - fields[3] - fields[4] - ours

    def share(self):
        ticks = self.ticks(self.pids) - self.before
        return max(0.0, ticks / os.sysconf("SC_CLK_TCK") / (time.monotonic() - self.since) / os.cpu_count())


def await_quiet(job):
    """Not for ever."""
    deadline = time.monotonic() + QUIET_S
    busy = Busy(job.pids)
    time.sleep(1)
    while busy.share() > QUIET_SHARE and time.monotonic() < deadline:
        busy = Busy(job.pids)
        time.sleep(1)


def of_loader(job, rank):
    """The workers of a rank's data loader: its children."""
    with open("/proc/%d/task/%d/children" % (job.pids[rank], job.pids[rank]), encoding="ascii") as file:
        return list(map(int, file.read().split()))


def run(job, kind, size, seed, keep=None):
    answer = answers()["kinds"][kind]
    rank = job.isolated if job.isolated is not None else seed % job.ranks
    result = {"kind": kind, "size": size, "ranks": job.ranks, "seed": seed, "rank": rank, "rank_is": FAILED, "cause_is": None, "named": [],
              "what": None, "busy": None, "machine": machine(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}
    try:
        await_quiet(job)
        with Undo() as undo:
            culprits = kinds.plant(undo, job, kind, rank, answer["sizes"][size])
            busy = Busy(job.pids + culprits + of_loader(job, rank))
            document, begin, end = job.record(keep and os.path.join(keep, "%s-%s-%d-%d.db" % (kind, size, job.ranks, seed)))
            result["busy"] = busy.share()
            if kind == "loader":
                culprits = of_loader(job, rank)
            result["step_s"], result["late_of"] = measured(job, answer, begin, end)
            result["late"] = result["late_of"][rank]
        judge(result, answer, document, culprits)
    except kinds.Lacking as lacking:
        result.update(rank_is=SKIPPED, what=str(lacking))
    except (Trouble, OSError) as trouble:
        result["what"] = str(trouble)
    job.tell({"kind": "clean"})
    time.sleep(1)
    return result


# ---- tables ----------------------------------------------------------------------------------------

HEAD = "%-11s %-7s %5s %4s %8s %8s %6s %-10s %-6s %s" % ("kind", "size", "ranks", "late", "step", "waited", "others", "rank", "cause", "said")


def said(result):
    named = ", ".join("rank %s" % rank for rank in result["named"])
    return "%s: %s" % (named, result["what"]) if named else result["what"] or "-"


def describe(result):
    step = "%.0f ms" % (1000 * result["step_s"]) if result.get("step_s") else "-"
    late = "%.1f %%" % (100 * result["late"]) if result.get("late") is not None and not is_clean(result["kind"]) else "-"
    others = "%.0f %%" % (100 * result["busy"]) if result["busy"] is not None else "-"
    return "%-11s %-7s %5d %4s %8s %8s %6s %-10s %-6s %s" % (result["kind"], result["size"], result["ranks"], "-" if is_clean(result["kind"]) else result["rank"],
                                                      step, late, others, result["rank_is"], result["cause_is"] or "-", said(result))


def is_clean(kind):
    """Nobody is to be named."""
    return "named" not in answers()["kinds"][kind]


def share(part, whole):
    return "%d of %d (%.0f %%)" % (part, whole, 100 * part / whole) if whole else "0 of 0"


def score(results):
    """A sentence about runs in which a rank was late."""
    asked = [r for r in results if not is_clean(r["kind"]) and r["rank_is"] in (RIGHT, WRONG, NONE)]
    text = "rank right in %s, another rank named in %d, nobody in %d; cause right in %s" % (
        share(sum(r["rank_is"] == RIGHT for r in asked), len(asked)), sum(r["rank_is"] == WRONG for r in asked),
        sum(r["rank_is"] == NONE for r in asked), share(sum(r["rank_is"] == RIGHT and r["cause_is"] == RIGHT for r in asked), len(asked)))
    return text


def summary(results):
    """Sentences; what ran while others had the machine as well stands apart."""
    known, lines = answers()["kinds"], []
    for crowded in (False, True):
        some = [r for r in results if r["busy"] is not None and (r["busy"] > QUIET_SHARE) == crowded]
        where = "beside other work (more than %.0f %% of the CPUs)" % (100 * QUIET_SHARE) if crowded else "on a quiet machine"
        for held in (False, True):
            kinds_of = [r for r in some if known[r["kind"]].get("held_out", False) == held]
            if any(r["rank_is"] in (RIGHT, WRONG, NONE) and not is_clean(r["kind"]) for r in kinds_of):
                lines.append("%s, %s: %s." % ("Kinds held out" if held else "Kinds on which the analysis was tuned", where, score(kinds_of)))
        clean = [r for r in some if is_clean(r["kind"]) and r["rank_is"] in (RIGHT, WRONG)]
        if clean:
            lines.append("Clean runs, %s: nobody named in %s." % (where, share(sum(r["rank_is"] == RIGHT for r in clean), len(clean))))
    return "\n".join(lines)


PAGE = """<!-- Made by {command}; edit ci/plant_stragglers.py and reference_models/plants/stragglers.json. -->
# Planted stragglers

Does `upgate stalls` name the rank that comes late, and why? [straggler.py](../reference_models/plants/python/straggler.py) is a DDP job over
gloo whose step of about 0.1 s mostly waits (of `busy` it computes all the time); one rank is made late in one known way, the job is attached to for {window:g} s, and the answer is
compared with [stragglers.json](../reference_models/plants/stragglers.json). `waited` is what the ranks themselves measured: how long the others waited
for this one, as a share of a step (of the network: how long the transfer took). The rank is right when it is the only one named; the cause when function, file and
the culprit's process are those of the answer. `others` is the share of the CPUs that was taken by neither the job nor the recorder: it makes ranks late as well. Runs in which the plant cost less than {least:.0f} % of a step are no question.

In a job that its GPUs pace a late rank costs more than `lost` says, which is for how long the others waited: a step got longer by twice as much, as what they
transfer no longer lies beside their backward pass. None of the jobs here uses GPUs.

{sections}
Not planted:

{absent}
"""

SECTION = """Made by `{command}`, {date}, on {machine}.

{summary}

| kind | what it is | size | ranks | runs | others | waited | rank right | wrong | nobody | cause right | said last |
|---|---|---|---|---|---|---|---|---|---|---|---|
{rows}
{absent}"""


def rows(results):
    for kind, answer in answers()["kinds"].items():
        for size, number in answer["sizes"].items():
            for ranks in sorted({r["ranks"] for r in results}):
                runs = [r for r in results if (r["kind"], r["size"], r["ranks"]) == (kind, size, ranks) and r["rank_is"] not in (SKIPPED, FAILED, QUIET)]
                if not runs:
                    continue
                waited = sorted(r["late"] for r in runs)[len(runs) // 2]
                yield "| %s%s | %s | %s | %d | %d | %.0f %% | %s | %d | %d | %d | %s | %s |" % (
                    kind, " (held out)" if answer.get("held_out") else "", answer["what"], "%g %s" % (number, answer["unit"]) if number else "-", ranks,
                    len(runs), 100 * sorted(r["busy"] for r in runs)[len(runs) // 2], "-" if is_clean(kind) else "%.1f %%" % (100 * waited), sum(r["rank_is"] == RIGHT for r in runs),
                    sum(r["rank_is"] == WRONG for r in runs), sum(r["rank_is"] == NONE for r in runs),
                    "-" if is_clean(kind) else sum(r["rank_is"] == RIGHT and r["cause_is"] == RIGHT for r in runs), said(runs[-1]).replace("|", " "))


def machine():
    return "%d CPUs, Linux %s" % (os.cpu_count(), os.uname().release)


def command_of(results):
    there = {r["kind"] for r in results}
    names = "--all" if there == set(answers()["kinds"]) else " ".join(sorted(there))
    return "ci/plants --stragglers %s --ranks %s" % (names, ",".join(map(str, sorted({r["ranks"] for r in results}))))


def section(results):
    """Of the runs of one machine."""
    lines = ["- %s %s, %d ranks, %s: %s" % (r["kind"], r["size"], r["ranks"], verdict, r["what"] or "%.1f %% of a step" % (100 * r["late"]))
             for verdict in (QUIET, SKIPPED, FAILED) for r in results if r["rank_is"] == verdict]
    return SECTION.format(command=command_of(results), date=results[-1]["date"], machine=results[-1]["machine"],
                          summary=summary(results).replace("\n", "\n\n"), rows="\n".join(rows(results)),
                          absent="\nNot in the table:\n\n%s\n" % "\n".join(lines) if lines else "")


def page(results):
    machines = list(dict.fromkeys(r["machine"] for r in results))
    return PAGE.format(command="ci/plants --stragglers", window=WINDOW_S, least=100 * LATE_LEAST,
                       sections="\n".join(section([r for r in results if r["machine"] == one]) for one in machines),
                       absent="\n".join("- %s: %s" % one for one in answers()["absent"].items()))


def lacks():
    if not os.path.exists(PYTHON):
        return "no Python with torch at envs/candidate; ci/setup --envs makes it"
    if not os.access(UPGATE, os.X_OK):
        return "no '%s'; build it, or name the build directory in UPGATE_BUILD" % UPGATE
    return "recording needs root" if os.geteuid() else None


def table():
    """The kinds as a Markdown table."""
    lines = ["| kind | what it is | sizes |", "|---|---|---|"]
    for kind, answer in answers()["kinds"].items():
        lines.append("| %s | %s | %s |" % (kind, answer["what"], ", ".join("%s: %g %s" % (size, number, answer["unit"])
                                                                         for size, number in answer["sizes"].items() if number) or "-"))
    return "\n".join(lines)


def jobs_of(names, counts):
    """(ranks, the isolated rank, kinds): those that one job can serve."""
    known = [name for name in answers()["kinds"] if name in names]
    for ranks in counts:
        yield ranks, None, [name for name in known if name != "network"]
        yield ranks, ranks - 1, [name for name in known if name == "network"]


def runs_of(names, options):
    """(kind, size, seed), in rounds: what else the machine does meets all of them. The seed says which rank is late."""
    seed = options.seed
    for _ in range(options.count):
        for name in names:
            for size in answers()["kinds"][name]["sizes"]:
                if size == "-" or not options.sizes or size in options.sizes:
                    yield name, size, seed
                    seed += 1


def main(options, out):
    """options: names, ranks, sizes, count, seed, results, write, keep, json. The exit status."""
    if options.list:
        print(table(), file=out)
        return 0
    results, before = [], []
    if options.results and os.path.exists(options.results):
        with open(options.results, encoding="utf-8") as file:
            before = [json.loads(line) for line in file]
    print(HEAD, file=out, flush=True)
    for ranks, isolated, names in jobs_of(options.names, options.ranks):
        if not names:
            continue
        with Undo() as undo:
            job = Job(undo, ranks, isolated)
            for name, size, seed in runs_of(names, options):
                results.append(run(job, name, size, seed, options.keep))
                print(describe(results[-1]), file=out, flush=True)
                if options.results:
                    with open(options.results, "a", encoding="utf-8") as file:
                        file.write(json.dumps(results[-1]) + "\n")
    print(summary(before + results), file=out)
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            file.write(page(before + results))
    if options.json:
        print(json.dumps({"schema": "upgate.stragglers/1", "results": results}, indent=2))
    return 0 if all(r["rank_is"] in (RIGHT, QUIET, SKIPPED) and r["cause_is"] in (RIGHT, None) for r in results) else 1
