# SPDX-License-Identifier: Apache-2.0
"""The tables of ci/gpu/compilers, on a terminal and in a page."""
import json
import os
import re
import statistics

WHAT = ("registers", "spill", "local", "shared", "instructions")
BEGIN, END = "<!-- ci/gpu/compilers: %s -->", "<!-- end of ci/gpu/compilers: %s -->"  # of what the tables are: compiled, timed


def short(kernel):
    """norm_forward<bf16 128 4 0 1>, without the name of a shape."""
    for long, new in (("__nv_bfloat16", "bf16"), ("__half", "f16"), ("float", "f32"), ("true", "1"), ("false", "0")):
        kernel = re.sub(r"\b%s\b" % long, new, kernel)
    kernel = re.sub(r"<\w+_shape<(.*?)>\s*>", r"<\1>", kernel)
    return re.sub(r"[ ,]+", " ", kernel)


def differs(row, names, what):
    return [name for name in names[1:] if name in row["sides"] and names[0] in row["sides"] and
            any(row["sides"][name][key] != row["sides"][names[0]][key] for key in what)]


def cell(row, name, base):
    if name not in row["sides"]:
        return "-"
    mine, first = row["sides"][name], row["sides"].get(base, {})
    words = "/".join("%d%s" % (mine[key], "*" if first and mine[key] != first[key] else "") for key in WHAT)
    return words + (" =" if first and name != base and mine["code"] == first["code"] else "") + (" !" if mine["warnings"] else "")


def spills(rows, names):
    said = []
    for row in rows:
        for name in names[1:]:
            more = row["sides"].get(name, {}).get("spill", 0) - row["sides"].get(names[0], {}).get("spill", 0)
            if more > 0:
                said.append("%s of %s, %s: %s spills %d bytes, %s %d" % (row["kernel"], row["file"], row["arch"], name,
                                                                       row["sides"][name]["spill"], names[0], row["sides"][names[0]]["spill"]))
    return said


def counts(rows, names):
    """A line for each architecture and side."""
    lines = []
    for arch in sorted({row["arch"] for row in rows}, reverse=True):
        of = [row for row in rows if row["arch"] == arch]
        for name in names[1:]:
            both = [row for row in of if name in row["sides"] and names[0] in row["sides"]]
            same = sum(row["sides"][name]["code"] == row["sides"][names[0]]["code"] for row in both)
            taken = [sum(name in differs(row, [names[0], name], (key,)) for row in both) for key in WHAT]
            lines.append((arch, name, len(both), same, *taken))
    return lines


def table(rows, names, differences):
    shown = [row for row in rows if not differences or differs(row, names, WHAT[:-1])]
    lines = ["%s; *: not as by %s; =: the same machine code; !: ptxas warns" % ("/".join(WHAT), names[0])]
    form = "%-7s %-62s" + " %-24s" * len(names)
    lines.append((form % ("", "kernel", *names)).rstrip())
    lines += [(form % (row["arch"], row["kernel"], *(cell(row, name, names[0]) for name in names))).rstrip() for row in shown]
    for row in rows:
        for name in names:
            for words in row["sides"].get(name, {}).get("warnings", []):
                lines.append("%s, %s: %s" % (row["kernel"], name, words))
    for arch, name, count, same, *taken in counts(rows, names):
        lines.append("%s: %d kernels by %s, %d the same machine code; others than by %s: %s" % (
            arch, count, name, same, names[0], ", ".join("%s of %d" % (key, number) for key, number in zip(WHAT, taken))))
    return "\n".join(lines)


def interval(ratios):
    """Median, and the values between which it lies with 95 %, by their order."""
    ordered, count = sorted(ratios), len(ratios)
    tail, low = 0.5 ** count, 0
    step = tail
    while low < count // 2:
        step = step * (count - low) / (low + 1)
        if tail + step > 0.025:
            break
        tail, low = tail + step, low + 1
    return statistics.median(ordered), ordered[low], ordered[count - 1 - low]


def ratios(row, name):
    """Of one side's times to the program's, each with the one taken beside it."""
    return interval([mine / first for mine, first in zip(row["sides"][name], row["sides"]["program"])])


def has_own(row, own):
    """The side launched kernels of its own compiler, all of this tree's that the launch has."""
    return row["replaced"] and set(row["replaced"]) <= set(own)


def timing_cells(row, names, own, bold):
    """The ratio of each side; marked where 1 is not in its interval. own: the kernels that each side has."""
    cells = []
    for name in names:
        middle, low, high = ratios(row, name)
        if not has_own(row, own[name]):
            cells.append("not its own kernel")
            continue
        cells.append(("%.3f (%.3f to %.3f)" if round(low, 3) <= 1 <= round(high, 3) else bold) % (middle, low, high))
    return cells


def timing_head(names):
    return ("%-20s %-62s %10s" + " %24s" * len(names)) % ("kernel", "shape", "us", *names)


def timing_row(row, names, own):
    cells = timing_cells(row, names, own, "%.3f (%.3f to %.3f) *")
    return ("%-20s %-62s %10.1f" + " %24s" * len(names)) % (row["kernel"], row["shape"], row["ns"] / 1e3, *cells)


def json_of(line):
    """{} of a line that is for people."""
    try:
        return json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return {}


def read_timings(path):
    """The head, the device, the rows of a run, and its checks."""
    with open(path, encoding="utf-8") as file:
        lines = [json_of(line) for line in file]
    return (next(line for line in lines if "program" in line), next((line for line in lines if "device" in line), {}),
            [line for line in lines if "kernel" in line and "sides" in line], [line for line in lines if line.get("mode") == "quick"])


def markdown(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def compiled(rows, compilers):
    names = [side.name for side in compilers]
    text = ["## What each compiler makes of the kernels", "",
            "`ci/gpu/compilers --write docs/UPGRADES.md`, no GPU needed. %s. Registers and the rest are a thread's, as ptxas tells them; "
            "instructions are counted in the machine code." % "; ".join("%s: %s" % (side.name, side.version) for side in compilers), "",
            "How many kernels come out otherwise than by %s:" % names[0], ""]
    text += markdown(("architecture", "side", "kernels", "same machine code", *WHAT), counts(rows, names))
    if len(names) > 2:
        text += ["The same beside %s, which leaves out what comes of two ways to compile:" % names[1], ""]
        text += markdown(("architecture", "side", "kernels", "same machine code", *WHAT), counts(rows, names[1:]))
    spilled = spills(rows, names)
    text += ["Kernels that spill more than by %s:%s" % (names[0], "" if spilled else " none."), ""]
    text += ["* " + line.replace("<", "\\<") for line in spilled] + ([""] if spilled else [])
    shown = [row for row in rows if differs(row, names, WHAT[:-1])]
    text += ["Kernels that differ in more than their instructions (%s; \\*: not as by %s), %d of %d:" %
             (" / ".join(WHAT), names[0], len(shown), len(rows)), ""]
    text += markdown(("", "kernel", *names), [(row["arch"], "`%s`" % row["kernel"], *(cell(row, name, names[0]).replace("*", "\\*") for name in names))
                                              for row in shown])
    warned = [(row["kernel"], name, words) for row in rows for name in names for words in row["sides"].get(name, {}).get("warnings", [])]
    if warned:
        text += ["What ptxas warns of:", ""] + ["* `%s`, %s: %s" % one for one in warned] + [""]
    return text


def timed(path):
    text = ["## How fast what they make is", ""]
    head, device, shapes, checks = read_timings(path)
    names = [name for name in head["sides"] if name != head["program"]]
    text += ["`ci/gpu/compilers --run PACK --timings FILE`, and `ci/gpu/compilers --timings FILE --write docs/UPGRADES.md`: %s, driver %s. One process; each launch by all sides in turns, %d times, the order of the sides another one each time. "
             "us: the median by %s. Ratio: the side's time to that, median of the pairs, and its 95 %% interval; **bold**: 1 is not in it. "
             "Kernels of CUB and of libraries are %s's on every side." % (device.get("device", "?"), device.get("driver", "?"),
                                                                       len(shapes[0]["sides"]["program"]) if shapes else 0, head["program"], head["program"]), ""]
    if checks:
        wrong = sum(check["failures"] for check in checks)
        text += ["Each side's kernels against float64 before that: %d cases, %d wrong." % (sum(check["cases"] for check in checks), wrong), ""]
    text += markdown(("kernel", "shape", "us", *names), [(row["kernel"], row["shape"], "%.1f" % (row["ns"] / 1e3),
                                                          *timing_cells(row, names, head["own"], "**%.3f (%.3f to %.3f)**")) for row in shapes])
    for name in names:
        moved = [(ratios(row, name)[0], "%s %s" % (row["kernel"], row["shape"])) for row in shapes if has_own(row, head["own"][name])]
        if moved:
            text += ["* %s: %.3f (%s) to %.3f (%s), median %.3f" % (name, *min(moved), *max(moved), statistics.median(one[0] for one in moved))]
    return text + [""]


def write(path, part, lines):
    """Between the part's marks in the page, which are put at its end when it has none."""
    begin, end = BEGIN % part, END % part
    text = "\n".join([begin, "", *lines, end])
    page = "# Upgrades: what two versions make of the same workload\n"
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            page = file.read()
    page = page[:page.index(begin)] + text + page[page.index(end) + len(end):] if begin in page else page.rstrip() + "\n\n" + text + "\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
