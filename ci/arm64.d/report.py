# SPDX-License-Identifier: Apache-2.0
"""The table of ci/arm64: rows that hold or do not, on the screen and in docs/ARM64.md. The last rows of each step are kept
beside the build, with their day: steps that were run one by one make one document."""
import datetime
import json
import os
import re
import time

MARK_BEGIN, MARK_END = "<!-- ci/arm64 --write: begin -->", "<!-- end -->"


def short(words, length=160):
    text = " ".join(words.split())
    return text if len(text) <= length else text[:length - 3] + "..."


STEPS = ("packages", "build", "tests", "guest", "mock")


class Table:
    def __init__(self, folder):
        self.rows, self.begin, self.steps = [], time.monotonic(), {}
        self.last, self.step = self.begin, STEPS[0]
        self.path = os.path.join(folder, "rows.json")

    def start(self, step):
        self.step, self.last = step, time.monotonic()

    def row(self, what, holds, text, seconds=None):
        now = time.monotonic()
        self.rows.append((what, "ok" if holds else "FAILED", now - self.last if seconds is None else seconds, short(text)))
        self.steps.setdefault(self.step, []).append(self.rows[-1])
        self.last = now
        print("%-34s %-6s %6.0f s  %s" % self.rows[-1], flush=True)

    def holds(self):
        return bool(self.rows) and all(row[1] == "ok" for row in self.rows)

    def show(self):
        bad = sum(row[1] != "ok" for row in self.rows)
        print("%d of %d rows hold, %.0f s" % (len(self.rows) - bad, len(self.rows), time.monotonic() - self.begin))

    def keep(self):
        """What is kept of all steps, with what was run now."""
        kept = {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
        for step, rows in self.steps.items():
            kept[step] = {"day": str(datetime.date.today()), "rows": rows}
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(kept, file)
        return kept

    def ctest(self, what, path, expected, status):
        """The tests that ctest ran, of what it printed: there also when it did not come to its end."""
        with open(path, encoding="utf-8", errors="replace") as file:
            told = dict(re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+) [. *]*(\w+).* +\d+\.\d+ sec$", file.read(), re.M))
        names = {state: [name for name in told if told[name] == state] for state in ("Passed", "Skipped")}
        failed = [name for name in told if told[name] not in names]
        text = "%d of %d passed" % (len(names["Passed"]), expected)
        text += ", skipped: %s" % ", ".join(names["Skipped"]) if names["Skipped"] else ""
        text += ", failed: %s; see build/arm64/tests.log" % ", ".join(failed) if failed else ""
        text += ", %d had not ended in time" % (expected - len(told)) if status is None else ""
        self.row(what, bool(names["Passed"]) and status == 0 and len(told) == expected and not failed, text)

    def guest(self, status, told, work):
        """What guest.py told, judged."""
        by = {}
        for line in told:
            by.setdefault(line["what"], []).append(line)
        kernel = (by.get("kernel") or [{}])[0]
        self.row("boot of %s" % kernel.get("release", "the kernel"), kernel.get("machine") == "aarch64",
                 "%s CPUs, pages of %s bytes, up after %.0f s" % (kernel.get("cpus"), kernel.get("page"), kernel["up_s"]) if kernel
                 else "no word of it: %s; see console.txt below build/arm64" % status, kernel.get("up_s", 0))
        for line in by.get("doctor", []):
            words = line["words"]
            capture = words.get("capture", ["", "nothing", ""])
            self.row("doctor", line["status"] in (0, 1) and words.get("tracing", [""])[0] == "ok" and capture[0] in ("ok", "limited"),
                     "%s; %s" % (words.get("tracing", ["", "no answer " + line["errors"], ""])[1], capture[1]), line["took_s"])
        for line in by.get("python", []):
            named, waits = line["named"], line["waits"]
            good = waits >= 20 and all(2 * named.get(kind, 0) >= waits for kind in ("kernel", "user")) and named.get("python", 0) > 0
            self.row("recording of a Python program", line["status"] == 0 and good and named.get("machine") == "aarch64",
                     "of %d long waits: %s" % (waits, ", ".join("%s frames %d" % (kind, named[kind]) for kind in ("kernel", "user", "python")))
                     if waits else line["errors"] or "no long waits", line["took_s"])
        for line in by.get("walks", []):
            # A thread that is awake between two waits may be anywhere.
            self.row("Python stacks from outside", line["threads"] == 2 and 10 * line["right"] >= 9 * line["asked"] > 0,
                     "%d of %d as they are" % (line["right"], line["asked"]), line["took_s"])
        for line in by.get("plant", []):
            culprit = line["culprit"] or {}
            said = "%s by %s" % (line["cause"] or "nothing", culprit.get("comm") or "nobody")
            # An innocent neighbour's victim may have been disturbed by what is not the plant: the emulator is slow.
            right = ("right", "not stalled") if line["innocent"] else ("right",)
            self.row("plant %s%s" % (line["plant"], ", innocent" if line["innocent"] else ""), line["verdict"] in right,
                     "%s: %s%s" % (line["verdict"], said, "; " + line["reason"] if line["reason"] else ""), line["took_s"])
        self.guest_tests(by.get("test", []), work["tests"])
        for line in by.get("log", []):
            self.row("kernel's log", not line["alarms"], "; ".join(line["alarms"]) or "%d lines, no alarm" % line["lines"], line["took_s"])
        once = int(work["recorder"])
        wanted = {"doctor": once, "python": once, "walks": once, "plant": len(work["plants"]), "log": 1, "end": 1}
        absent = [what for what, count in wanted.items() if len(by.get(what, [])) != count] + (["a whole line"] if "garbled" in by else [])
        if absent:
            self.row("end of the guest", False, "it did not tell: %s (%s); see console.txt below build/arm64" % (", ".join(absent), status))

    def guest_tests(self, lines, wanted):
        for what, prefix in (("unit tests on that kernel", "unit."), ("mock tests on that kernel", "mock.")):
            here = [line for line in lines if line["name"].startswith(prefix)]
            expected = sum(test["name"].startswith(prefix) for test in wanted)
            if not expected:
                continue
            passed = [line for line in here if line["status"] == 0]
            skipped = [line["name"] for line in here if line["status"] == 77]
            failed = ["%s (%s: %s)" % (line["name"], line["status"], " ".join(line["words"])) for line in here
                      if line["status"] not in (0, 77)]
            self.row(what, bool(passed) and len(here) == expected and not failed,
                     "%d of %d passed%s%s" % (len(passed), expected, ", skipped: " + ", ".join(skipped) if skipped else "",
                                              ", failed: " + "; ".join(failed) if failed else ""), sum(line["took_s"] for line in here))

    def write(self, path, need_kernel, not_emulated):
        kept = self.keep()
        lines = [MARK_BEGIN, "Written by `ci/arm64 --write`.", "", "| what | result | s | | day |", "|---|---|---|---|---|"]
        for step in STEPS:
            if step not in kept:
                raise OSError("%s is not written: the step '%s' was never run here" % (path, step))
            lines += ["| %s | %s | %.0f | %s | %s |" % (what, holds, seconds, text.replace("|", "\\|"), kept[step]["day"])
                      for what, holds, seconds, text in kept[step]["rows"]]
        for words, tests in (("Unit tests that qemu-user cannot run, and the guest does:", need_kernel),
                             ("Unit tests that are not run on arm64:", not_emulated)):
            lines += ["", words, "", "| test | why |", "|---|---|"] + ["| %s | %s |" % entry for entry in sorted(tests.items())]
        lines.append(MARK_END)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if MARK_BEGIN not in text or MARK_END not in text:
            raise OSError("%s has no place for the table: %s ... %s" % (path, MARK_BEGIN, MARK_END))
        text = re.sub(re.escape(MARK_BEGIN) + ".*?" + re.escape(MARK_END), lambda _: "\n".join(lines), text, flags=re.S)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
