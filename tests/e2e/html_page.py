#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of the HTML report in headless Chromium: what is drawn, what a click, a key and a search do, that no text of a document
becomes HTML, and that nothing is fetched. Documents of html_data.py. Exit 77 without Chromium or without the page in the build."""
import json
import os
import re
import sys
import tempfile

import browser
import html_data

BUILD = os.environ.get("UPGATE_BUILD", "build/release")
FOLDER = os.path.join(BUILD, "reports/render/page")
failures = []


def check(what, good, seen=None):
    if not good:
        failures.append("%s%s" % (what, "" if seen is None else ": " + str(seen)[:300]))
        print("not ok  " + failures[-1])


def quiet(page, what):
    check(what + ": no console errors", not page.errors, page.errors[:3])
    check(what + ": nothing fetched but itself", all(url.startswith(("file:", "data:")) for url in page.requests), page.requests)


def count(page, selector):
    return page.eval("document.querySelectorAll(%r).length" % selector)


def text(page, selector):
    return page.eval("(document.querySelector(%r) || {textContent: ''}).textContent" % selector)


def draw_all(page):
    page.eval("UP.ensureIn(document.body)")
    page.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def colours(page, selector):
    """Distinct colours of a canvas, of every 3rd pixel."""
    return page.eval("(() => { const c = document.querySelector(%r), o = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true});"
                     "o.drawImage(c, 0, 0); const d = new Uint32Array(o.getImageData(0, 0, c.width, c.height).data.buffer);"
                     "const s = new Set(); for (let i = 0; i < d.length; i += 3) s.add(d[i]); return s.size; })()" % selector)


def legible():
    """Every colour of words has the contrast of WCAG 2 AA, 4.5, on what it stands on."""
    def light(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../reports/render/page/style.css"), encoding="utf-8") as file:
        style = file.read()
    for selector in (":root {", ':root[data-theme="dark"] {'):
        block = style[style.index(selector):]
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block[:block.index("}")]))
        pairs = [(word, "panel") for word in ("ink", "muted", "accent", "slower", "faster", "fail", "pass", "inconclusive", "a", "b")]
        for word, on in pairs + [(word, word + "-soft") for word in ("fail", "pass", "inconclusive")]:
            bright, dark = sorted((light(colours[word]), light(colours[on])), reverse=True)
            check("contrast of --%s on --%s, %s" % (word, on, selector), (bright + 0.05) / (dark + 0.05) >= 4.5, (bright + 0.05) / (dark + 0.05))


def first_screen(page):
    check("the verdict is a word", text(page, "h1").startswith("✕FAIL"), text(page, "h1"))
    bottom = page.eval("document.querySelector('.cause-list').getBoundingClientRect().bottom")
    check("the cause is on the first screen", bottom < 800, bottom)
    cause = re.sub(r"\s", " ", text(page, ".cause-main"))
    check("the cause in plain words", "A GPU kernel is new" in cause and "FillFunctor" in cause and "+1.92" in cause and "11 % of a step" in cause, cause)
    check("a late rank before all else, as text", text(page, ".cause-late") == "Rank 3 arrives last at 171 of 204 collectives, by 410 us: <i>function</i> gemm.", text(page, ".cause-late"))
    top = re.sub(r"\s", " ", text(page, ".cause-first"))
    check("the first step is on the first screen's side", "the first step takes 350 ms more (2.10 s → 2.45 s)" in top and "Slower first use: cuLibraryLoadData, +348 ms, in forward" in top, top)
    check("below the cause", page.eval("document.querySelector('.cause-first').previousElementSibling.classList.contains('cause')"))
    first = re.sub(r"\s", " ", text(page, "#w0-first"))
    missing = [word for word in ("cuLibraryLoadData", "+348", "0, 0", "350 ms, 346 ms", "load_module", "forward", "2.45 s") if word not in first]
    check("the first step's parts, launch by launch, and its phases", not missing, missing)
    check("the suspect", "torch 2.1.2 -> 2.2.0" in text(page, ".cause-suspect"))
    check("facts", count(page, ".facts dt") == 9, count(page, ".facts dt"))
    check("dots of pairs", count(page, "#w0-cells .gating svg.pairs circle.dot") == 28, count(page, "#w0-cells .gating svg.pairs circle.dot"))
    check("median, interval, band", all(count(page, "#w0-cells .gating svg ." + c) == 2 for c in ("median", "ci", "band")))
    check("unexplained workload says why", "No launch of this workload was traced" in text(page, "#w1 .unexplained"))
    check("parts without data are absent", not any(count(page, "#w1-" + part) for part in ("steps", "waterfall", "contributions", "timeline", "table", "flame0")))


def strip(page):
    """The example's strip: every step is drawn, a pair alone can be chosen, pointing tells a step."""
    draw_all(page)
    check("the strip is there, with its facts", "600 steps in 6 launches" in text(page, "#w0-steps .lead") and count(page, "#w0-steps svg.strip") == 1, text(page, "#w0-steps .lead"))
    check("it has a name that says what it shows", "Time of every step of 6 pairs of launches, logarithmic" in page.eval("document.querySelector('#w0-steps svg.strip').getAttribute('aria-label')"))
    check("the launches as a table", count(page, "#w0-steps details.alternative tbody tr") == 12)
    check("warm-up of each launch", count(page, "#w0-steps svg.strip rect.warm") == 12)
    check("a workload without steps has no strip", count(page, "#w1-steps") == 0)
    page.eval("(() => { const s = document.querySelector('#w0-steps select'); s.value = '2'; s.dispatchEvent(new Event('change')); })()")
    page.wait("document.querySelectorAll('#w0-steps svg.strip rect.warm').length === 2", "one pair alone")
    check("with the first steps of its blocks", count(page, "#w0-steps svg.strip circle.first") == 2 * 6, count(page, "#w0-steps svg.strip circle.first"))


def slow_steps(page, folder):
    """Slow steps decide: the first screen says so in a sentence, the strip shows each of them at any width."""
    page.open(html_data.write_page(FOLDER, html_data.slow(), os.path.join(folder, "slow.html")))
    draw_all(page)
    cause = re.sub(r"\s", " ", text(page, ".cause-steps"))
    check("the first screen names the cause", "Slow steps decide: new: 1 step in 250 takes 250 ms, the others 1.00 ms (old: none stands out); steps are equal otherwise (a typical one: 0.0 %)." in cause, cause)
    check("once, as the verdict has the reason", "every 250th" not in cause and "every 250th" in text(page, ".reason"), cause)
    check("above everything else", page.eval("document.querySelector('.cause-steps').getBoundingClientRect().bottom") < 500)
    rows = page.eval("Array.from(document.querySelectorAll('#w0-steps table.claims tbody tr'), row => row.textContent.replace(/\\s/g, ' '))")
    check("the claims in their order, in words", [row.split("  ")[0][:12] for row in rows] == ["Typical step", "Mean stepall", "Slow stepssh", "Warm-upwhat "], rows)
    check("slow steps are a share of the time, with their reason", len(rows) == 4 and "0 % → 49.8 %" in rows[2] and "every 250th" in rows[2], rows)
    for width in (1280, 360):
        page.size(width, 800)
        page.wait("Math.abs(document.querySelector('#w0-steps svg.strip').viewBox.baseVal.width - document.querySelector('#w0-steps .chart').clientWidth) < 2", "the strip fits")
        check("every slow step is marked at %d px" % width, count(page, "#w0-steps svg.strip circle.slow") == 8, count(page, "#w0-steps svg.strip circle.slow"))
        check("nothing is wider than %d px" % width, page.eval("document.documentElement.scrollWidth") <= width, page.eval("document.documentElement.scrollWidth"))
    tall = page.eval("(() => { const y = n => Number(n.getAttribute('cy')); const s = Array.from(document.querySelectorAll('#w0-steps svg.strip circle.slow')); return [Math.min(...s.map(y)), Math.max(...s.map(y))]; })()")
    ticks = page.eval("Array.from(document.querySelectorAll('#w0-steps svg.strip .tick-text'), node => node.textContent)")
    check("the axis is logarithmic: 1 ms and 250 ms are both seen", 0 < tall[0] and tall[1] < 30 and any(t.startswith("1\u202f") for t in ticks) and any(t.startswith("100\u202f") for t in ticks), (tall, ticks))
    page.size(1280, 900)
    draw_all(page)
    spot = page.place("#w0-steps svg.strip circle.slow")
    page.mouse("mouseMoved", spot[0], spot[1])
    page.wait("!document.getElementById('tooltip').hidden", "pointing at a slow step")
    tip = re.sub(r"\s", " ", text(page, "#tooltip"))
    check("tells launch, step and time", all(word in tip for word in ("new, pair 1", "step 49", "250 ms", "250 × the launch's median")), tip)
    page.mouse("mouseMoved", 5, 5)
    page.wait("document.getElementById('tooltip').hidden", "and leaving hides it")
    check("a long note of the calibration is whole and wraps", "planted" in text(page, "#trust") and page.eval("document.querySelector('#trust').scrollWidth <= document.querySelector('#trust').clientWidth"))
    page.eval("document.querySelector('#w0-steps select').value = '1'")
    page.eval("UP.print.begin()")
    check("paper has all pairs", page.eval("document.querySelectorAll('#w0-steps svg.strip rect.warm').length") == 20 and page.eval("document.querySelector('#w0-steps svg.strip').viewBox.baseVal.width") <= 680)
    page.eval("UP.print.end()")
    quiet(page, "slow steps")
    other = html_data.slow()
    cells = {cell["metric"]: cell for cell in other["workloads"][0]["cells"]}
    cells["slow_steps"]["verdict"] = "pass"
    cells["mean_step_time"].update(ratio=1.06, reason="6 of 10 launches are slower")
    cells["step_time"].update(ratio=1.011, ci_lower=1.005, ci_upper=1.017)
    cells["warm_up_time"].update(verdict="fail", ratio=1.21, median_a=8e6, median_b=2.24e9)
    page.open(html_data.write_page(FOLDER, other, os.path.join(folder, "mean.html")))
    cause = re.sub(r"\s", " ", text(page, ".cause-steps"))
    check("a mean that fails without slow steps", "The mean decides: the mean step of new takes longer, +6.0 %, though no single steps stand out" in cause and "6 of 10 launches are slower" in cause and "Slow steps decide" not in cause, cause)
    check("a warm-up that is longer", "until it is steady new loses 2.24 s, old 8.00 ms (a whole run: +21.0 %); a typical step stays within its margin (+1.1 %)." in cause, cause)
    for metric in ("mean_step_time", "warm_up_time"):
        cells[metric]["verdict"] = "pass"
    page.open(html_data.write_page(FOLDER, other, os.path.join(folder, "none.html")))
    check("steps that pass are no cause", count(page, ".cause-steps") == 0 and count(page, "#w0-steps table.claims .pill.pass") == 4)
    quiet(page, "mean and warm-up")
    made = {"headline": "rare-train: slow steps take 0 -> 0.98 ms of the mean step (+980 us): Function added: save_state +970 us", "answer": "Most of it is in checkpoint.",
            "metric": "slow_steps", "failed": True, "tail": False,
            "contributions": [{"title": "Function added", "label": "save_state", "where": "checkpoint", "suspects": ["torch 2.1.2 -> 2.2.0"], "delta_ns": 970e3, "share": 0.99,
                               "launches_ns": {"a": [0, 0], "b": [960e3, 980e3]}}]}
    other = html_data.slow()
    other["workloads"][0]["diff"] = {"slow_steps": made}
    page.open(html_data.write_page(FOLDER, other, os.path.join(folder, "made.html")))
    draw_all(page)
    cause, part = (re.sub(r"\s", " ", text(page, selector)) for selector in (".cause-steps", "#w0-slow"))
    check("what slow steps are made of is on the first screen", made["headline"] + ". Part by part" in cause and count(page, ".cause-steps a[href='#w0-slow']") == 1, cause)
    missing = [word for word in ("What slow steps are made of", "Most of it is in checkpoint.", "Function added", "save_state", "torch 2.1.2 -> 2.2.0", "+970", "99 %", "0, 0", "960 µs, 980 µs")
               if word not in part]
    check("and part by part below, launch by launch", not missing, (missing, part))
    quiet(page, "what slow steps are made of")


def waterfall(page):
    sums = page.eval("Array.from(document.querySelectorAll('#w0-waterfall .fall:not(.axis-row)')).map(row => [row.querySelector('.fall-delta').textContent, row.querySelector('.fall-sum').textContent])")
    number = [[float(re.sub(r"[^0-9.+-]", "", t.replace("\u2212", "-"))) if t else None for t in row] for row in sums]
    check("waterfall rows", len(number) == 8, sums)
    total = number[0][1]
    for delta, shown in number[1:-1]:
        total += delta
        check("running sum", abs(total - shown) < 0.03, (total, shown))
    check("the sums close", abs(number[-1][1] - number[-2][1]) < 0.011, number[-2:])
    parts = page.eval("Array.from(document.querySelectorAll('#w0-decomposition .stack')).map(s => s.children.length)")
    check("stacks of both sides", parts == [7, 7], parts)


def contributions(page):
    check("named contributions are listed", count(page, "#w0-contributions > .items > details.item") == 4)
    page.click("#w0-c1 > summary")
    page.wait("document.querySelector('#w0-c1').open && document.querySelectorAll('#w0-c1 .item-body li').length === 6", "a click opens the contribution")
    body = text(page, "#w0-c1 .item-body")
    check("its evidence, place and whole name", all(t in body for t in ("48 launches a step", "scaled_dot_product_attention", "at::native::FillFunctor<float>>", "interval")))
    page.click("#w0-c1 > summary")
    page.wait("!document.querySelector('#w0-c1').open", "a second click closes it")
    page.eval("document.querySelector('#w0-c2 > summary').focus()")
    page.key("Enter")
    page.wait("document.querySelector('#w0-c2').open", "Enter opens a contribution")
    page.click("#w0-waterfall .fall:nth-child(3) button")
    page.wait("document.querySelector('#w0-c1').open", "a bar's name leads to its contribution")


def timeline(page):
    draw_all(page)
    canvas = "#w0-timeline canvas"
    check("the timeline is drawn", colours(page, canvas) > 20, colours(page, canvas))
    view = "(() => { const t = UP.timelines[0].drawn; return [t.t0, t.t1]; })()"
    whole = page.eval(view)
    x, y, width, _ = page.place(canvas)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300, modifiers=2)
    page.wait("UP.timelines[0].drawn.t1 - UP.timelines[0].drawn.t0 < %f" % (0.9 * (whole[1] - whole[0])), "the wheel zooms")
    before = page.eval(view)
    page.mouse("mouseMoved", x, y)
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    page.mouse("mouseMoved", x - 150, y, button="left", buttons=1)
    page.mouse("mouseReleased", x - 150, y, button="left", clickCount=1)
    page.wait("UP.timelines[0].drawn.t0 > %f" % before[0], "dragging moves")
    after = page.eval(view)
    check("dragging keeps the zoom", abs((after[1] - after[0]) - (before[1] - before[0])) < 1, (before, after))
    page.eval("document.querySelector(%r).focus()" % canvas)
    page.key("+")
    page.wait("UP.timelines[0].drawn.t1 - UP.timelines[0].drawn.t0 < %f" % (0.7 * (after[1] - after[0])), "+ zooms")
    page.key("0")
    page.wait("UP.timelines[0].drawn.t1 - UP.timelines[0].drawn.t0 > %f" % (0.99 * (whole[1] - whole[0])), "0 fits")
    page.key(".")
    page.wait("document.querySelector('#w0-timeline .details code')", "a key chooses an event")
    page.key("ArrowDown")
    page.key("Escape")
    page.wait("!document.querySelector('#w0-timeline .details code')", "Escape clears it")
    # A click on the phase "backward" of the old side, in the middle of it.
    spot = page.eval("(() => { const t = UP.timelines[0].drawn, p = t.layout.rows[0], box = t.canvas.getBoundingClientRect(), i = 2, s = t.layout.plot / (t.t1 - t.t0);"
                     "return [box.x + t.layout.gutter + ((p.row.start[i] + p.row.end[i]) / 2 - t.t0) * s, box.y + p.y + 5]; })()")
    pixels = page.eval("(() => { const c = document.querySelector(%r), o = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true}), box = c.getBoundingClientRect();"
                       "o.drawImage(c, 0, 0); const at = y => Array.from(o.getImageData(Math.round(%f - box.x) + 150, Math.round(y), 1, 1).data).join(); const t = UP.timelines[0].drawn.layout.rows[0];"
                       "return [at(t.y + 8), at(t.y - 12)]; })()" % (canvas, spot[0]))
    check("a long event is a bar", pixels[0] != pixels[1], pixels)
    page.mouse("mouseMoved", *spot)
    page.wait("!document.getElementById('tooltip').hidden && document.getElementById('tooltip').textContent.startsWith('backward')", "hovering names the event")
    page.click_at(*spot)
    page.wait("document.querySelector('#w0-timeline .details code').textContent === 'backward'", "a click shows details")
    plain = colours(page, canvas)
    page.eval("document.querySelector('#w0-timeline input').focus()")
    page.type("gemm")
    page.wait("UP.timelines[0].drawn.marked && document.querySelector('#w0-timeline .tools [role=status]').textContent.includes('×')", "search highlights")
    page.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    check("highlighting changes the picture", colours(page, canvas) != plain)
    page.eval("document.querySelector('#w0-timeline details.alternative').open = true")
    page.wait("document.querySelectorAll('#w0-timeline details.alternative tbody tr').length > 10", "the timeline as a table")


def stalls(page):
    check("stalls of both sides", count(page, "#w0-stalls details.stall") == 2 and "torch-2.1" in text(page, "#w0-stalls h4"))
    page.click("#w0-stalls details.stall > summary")
    page.wait("document.querySelector('#w0-stalls details.stall').open", "a stall opens")
    check("with its advice", "pin the buffers" in text(page, "#w0-stalls details.stall[open]"))
    page.wait("document.querySelectorAll('#w0-stalls svg.heat .hot').length === 84", "ranks by time: a cell a rank and part that costs something")
    check("in words for who sees no map", page.eval("document.querySelector('#w0-stalls svg.heat').getAttribute('aria-label')").startswith("Ranks by time: how long")
          and count(page, "#w0-stalls svg.heat") == 1)
    rows = re.sub(r"\s", " ", page.eval("Array.from(document.querySelectorAll('#w0-stalls details.alternative tbody tr'), row => Array.from(row.cells, cell => cell.textContent).join(', ')).join('; ')"))
    check("and as a table", rows.startswith("rank 0, ") and "; rank 1, 7.61 %, 23.0 %, 1.03 s; rank 2, " in rows, rows)


def table(page):
    names = "Array.from(document.querySelectorAll('#w0-table tbody tr td:first-child .name')).map(n => n.textContent)"
    first = page.eval(names)
    check("the table is drawn, largest difference first", len(first) >= 15 and "FillFunctor" in first[0], first[:3])
    page.eval("document.querySelector('#w0-table input[type=search]').focus()")
    page.type("page faults")
    page.wait("document.querySelectorAll('#w0-table tbody tr').length === 1", "search filters")
    check("the right row is left", "minor page faults" in text(page, "#w0-table tbody"))
    page.eval("(() => { const i = document.querySelector('#w0-table input[type=search]'); i.value = 'FillFunctor<float>'; i.dispatchEvent(new Event('input')); })()")
    page.wait("document.querySelector('#w0-table tbody').textContent.includes('FillFunctor')", "search with < and >")
    page.eval("(() => { const i = document.querySelector('#w0-table input[type=search]'); i.value = ''; i.dispatchEvent(new Event('input')); })()")
    head = "#w0-table thead th:nth-child(4)"
    page.click(head)
    page.wait("document.querySelector(%r).getAttribute('aria-sort') === 'descending'" % head, "a heading sorts")
    cells = "Array.from(document.querySelectorAll('#w0-table tbody tr td:nth-child(4)')).map(n => parseFloat(n.textContent))"
    values = [value for value in page.eval(cells) if value is not None]
    check("sorted by the column", values == sorted(values, reverse=True) and len(values) > 10, values[:5])
    page.eval("document.querySelector(%r).focus()" % head)
    page.key("Enter")
    page.wait("document.querySelector(%r).getAttribute('aria-sort') === 'ascending'" % head, "Enter on a heading sorts the other way")


def flames(page):
    frames = "document.querySelectorAll('#w0-flame0 svg.flame g.frame').length"
    whole = page.eval(frames)
    check("frames are drawn", whole > 60, whole)
    fills = page.eval("new Set(Array.from(document.querySelectorAll('#w0-flame0 svg.flame rect')).map(r => getComputedStyle(r).fill)).size")
    check("the difference has colours", fills > 10, fills)
    page.click("#w0-flame0 svg.flame g.frame:nth-child(4) rect")
    page.wait("UP.flames[0].drawn.root !== 0 && document.querySelectorAll('#w0-flame0 g.frame.above').length > 0", "a click zooms")
    page.key("Escape")
    page.wait("UP.flames[0].drawn.root === 0 && %s === %d" % (frames, whole), "Escape shows the whole")
    page.key("ArrowDown")
    page.wait("UP.flames[0].drawn.chosen !== 0", "arrows move")
    page.click("#w0-flame0 .switch button[data-mode=a]")
    page.wait("document.querySelectorAll('#w0-flame0 g.flame-native').length > 5 && document.querySelector('#w0-flame0 .switch button[data-mode=a]').getAttribute('aria-pressed') === 'true'", "the old side alone")
    page.eval("document.querySelector('#w0-flame0 input').focus()")
    page.type("memset")
    page.wait("document.querySelectorAll('#w0-flame0 g.match').length > 0 && document.querySelector('#w0-flame0 .tools [role=status]').textContent.includes('%')", "search marks frames")


def keyboard_and_theme(page):
    draw_all(page)
    seen = []
    for _ in range(12):
        page.key("Tab")
        seen.append(page.eval("(document.activeElement.id || document.activeElement.className || document.activeElement.tagName) + ':' + document.activeElement.textContent.slice(0, 20)"))
    check("first Tab skips to the verdict", seen[0].startswith("skip"), seen)
    check("then the bar, then the theme, then the cause", any(s.startswith("theme") for s in seen) and seen.index(next(s for s in seen if s.startswith("theme"))) >= 8, seen)
    page.eval("document.activeElement.blur()")
    before = page.eval("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.wait("document.documentElement.dataset.theme === 'dark' && getComputedStyle(document.body).backgroundColor !== %r" % before, "the toggle darkens")
    check("the toggle says so", page.eval("document.getElementById('theme').getAttribute('aria-pressed')") == "true")
    unlabelled = page.eval("Array.from(document.querySelectorAll('svg:not([aria-label]), input:not([aria-label]), canvas:not([aria-label]), table.data:not(:has(caption))')).map(n => n.outerHTML.slice(0, 80))")
    check("charts, fields and tables have names", not unlabelled, unlabelled)
    bare = page.eval("Array.from(document.querySelectorAll('button')).filter(b => !b.textContent.trim() && !b.getAttribute('aria-label')).length")
    check("buttons have names", bare == 0, bare)
    order = page.eval("Array.from(document.querySelectorAll('h1, h2, h3, h4')).map(h => Number(h.tagName[1]))")
    check("headings descend one level at a time", order[0] == 1 and all(b - a <= 1 for a, b in zip(order, order[1:])), order)
    double = page.eval("(() => { const ids = Array.from(document.querySelectorAll('[id]')).map(n => n.id); return ids.filter((id, i) => ids.indexOf(id) !== i); })()")
    check("ids are unique", not double, double)


def hostile(page, folder):
    page.open(html_data.write_page(FOLDER, html_data.hostile(), os.path.join(folder, "hostile.html")))
    draw_all(page)
    page.eval("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    draw_all(page)
    for index in range(3):
        page.eval("Array.from(document.querySelectorAll('#main input[type=search]')).forEach((i, k) => { i.value = ['<img', '&lt;', 'proto'][%d]; i.dispatchEvent(new Event('input')); })" % index)
    page.eval("document.querySelectorAll('th').forEach(th => th.click())")
    draw_all(page)
    check("no script of a text ran", page.eval("window.hacked === undefined"))
    check("no element of a text exists", page.eval("document.querySelectorAll('main img:not(.paper), main script, main [onerror], main svg[onload], main iframe').length") == 0)
    check("the text is there as text", "<img src=x onerror=" in page.eval("document.getElementById('main').textContent"))
    check("no part failed", count(page, ".broken") == 0, text(page, ".broken"))
    check("the first workload has all parts", all(count(page, "#w0-" + part) == 1 for part in ("steps", "cells", "waterfall", "decomposition", "contributions", "timeline", "table", "flame0")))
    check("the page is not as long as its texts", page.eval("document.documentElement.scrollHeight") < 60000)
    quiet(page, "hostile")


def others(page, folder):
    page.open(html_data.write_page(FOLDER, html_data.small(), os.path.join(folder, "small.html")))
    check("a document of a verdict alone", text(page, "h1").startswith("?INCONCLUSIVE") and count(page, "main > section") == 1, count(page, "main > section"))
    for numbers, want in (("1.02004, 1.0602, 1.02)(1.02004", "+2.004 %"), ("1.005, 1.01996, 1.02)(1.01996", "+1.996 %"), ("1.157, 1.169, 1.02)(1.163", "+16.3 %"),
                          ("1.02, 1.04, 1.02)(1.02", "+2.0 %"), ("0.95, 0.97, null)(0.95", "\u22125.0 %")):
        told = page.eval("UP.changes(%s)" % numbers).replace("\u202f", " ")
        check("an end of an interval is told from that of the margin", told == want, (numbers, told))
    quiet(page, "small")
    breached = html_data.small()
    breached["trust"] = {"ok": False, "breaches": [{"producer": "bpf.gap", "kind": "records", "count": 17, "detail": "the ring was full"}], "ledger": []}
    page.open(html_data.write_page(FOLDER, breached, os.path.join(folder, "breached.html")))
    check("a breach leaves it open, as the verdict says, and fails nothing", count(page, "#trust .pill.inconclusive") == 1 and count(page, "#trust li.inconclusive") == 1
          and count(page, ".pill.fail, li.fail") == 0, text(page, "#trust"))
    quiet(page, "breached")
    recording = html_data.example(300)
    recording.update(sides=["recording", ""], verdict={"word": None, "reason": "A recording: nothing was compared."}, findings=[], parity=[], fingerprint=[])
    only = recording["workloads"] = recording["workloads"][:1]
    only[0].update(cells=[], diff=None, verdict=None)
    only[0]["timeline"]["sides"][1] = None
    for one in only[0]["flames"]:
        one["b"] = None
    page.open(html_data.write_page(FOLDER, recording, os.path.join(folder, "recording.html")))
    draw_all(page)
    check("a recording has one side", text(page, "h1") == "Recording" and not count(page, ".switch button[data-mode=diff]") and colours(page, "#w0-timeline canvas") > 10)
    quiet(page, "recording")
    doubtful = html_data.example(300)
    items = doubtful["workloads"][0]["diff"]["contributions"]
    for item in items[:2]:
        item["named"] = False
    page.open(html_data.write_page(FOLDER, doubtful, os.path.join(folder, "doubtful.html")))
    cause = text(page, ".cause")
    check("a small certain contribution is not called the cause", "Most of the difference is not explained" in cause and "not told from noise: vectorized" in cause and "Largest contribution" not in cause, cause)
    quiet_one = html_data.example(300)
    quiet_one.update(verdict={"word": "pass", "reason": "within the margins"}, workloads=quiet_one["workloads"][:1])
    quiet_one["workloads"][0]["verdict"] = "pass"
    quiet_one["how"] = [{"id": "diff", "title": "Diff", "text": "`upgate diff run.db` says it."}]
    diff = quiet_one["workloads"][0]["diff"]
    for item in diff["contributions"]:
        item["named"] = False
    diff["delta_ns"], diff["step_b_ns"] = 7000, diff["step_a_ns"] + 7000
    page.open(html_data.write_page(FOLDER, quiet_one, os.path.join(folder, "quiet.html")))
    check("a passing run says that nothing stands out", "Nothing stands out" in text(page, "#verdict") and count(page, ".cause:not(.cause-first)") == 0, text(page, "#verdict"))
    ticks = page.eval("Array.from(document.querySelectorAll('#w0-waterfall .tick'), tick => tick.textContent)")
    check("no two ticks read the same", len(ticks) > 2 and len(set(ticks)) == len(ticks), ticks)
    check("commands are set as such", text(page, "#how code") == "upgate diff run.db" and "`" not in text(page, "#how"), text(page, "#how")[:200])
    page.open(html_data.write_page(FOLDER, html_data.passing(), os.path.join(folder, "passing.html")))
    check("a passing run", text(page, "h1").startswith("✓PASS") and count(page, ".cause") == 0)
    quiet(page, "passing")
    broken = html_data.write_page(FOLDER, html_data.small(), os.path.join(folder, "broken.html"))
    with open(broken, encoding="utf-8") as file:
        content = file.read().replace('{"schema":"upgate.report/1"', '{"schema":"upgate.report/1', 1)
    with open(broken, "w", encoding="utf-8") as file:
        file.write(content)
    page.call("Page.navigate", url="file://" + os.path.abspath(broken))
    page.wait("document.querySelector('.broken')", "damaged data is said, not hidden")


def phone_and_paper(page, path):
    page.size(360, 740)
    page.media(prefers_color_scheme="dark", prefers_reduced_motion="reduce")
    page.open(path)
    draw_all(page)
    check("nothing is wider than the phone", page.eval("document.documentElement.scrollWidth") <= 360, page.eval("document.documentElement.scrollWidth"))
    check("dark by the system's wish", page.eval("UP.theme.current()") == "dark")
    check("cause on the phone's first screen", page.eval("document.querySelector('.cause-main').getBoundingClientRect().top") < 740)
    data = page.pdf(path + ".pdf")
    check("it prints, with the timeline as an image", data.startswith(b"%PDF") and len(data) > 50000 and b"/Subtype /Image" in data, len(data))
    page.eval("UP.print.begin()")
    check("charts that were closed are drawn too", count(page, ".cell-chart > .chart") == 6 and count(page, ".cell-chart > .chart:has(svg)") == 6, count(page, ".cell-chart > .chart:has(svg)"))
    check("paper shows contributions opened and the timeline as an image", page.eval("document.querySelector('#w0-c3').open && document.querySelector('#w0-timeline img.paper').src.startsWith('data:image/png') && UP.theme.current() === 'light'"))
    page.eval("UP.print.end()")
    check("and closes them again", page.eval("!document.querySelector('#w0-c3').open && UP.theme.current() === 'dark'"))
    quiet(page, "phone and paper")
    page.media()
    page.size(1280, 900)


def main():
    program = browser.find()
    if not program:
        print("skipped: no chromium")
        return 77
    if not os.path.exists(os.path.join(FOLDER, "verdict.html.0")):
        print("skipped: %s was built without the HTML report (node-d3, libjs-jquery, libjs-jquery-datatables)" % BUILD)
        return 77
    pieces = sum(os.path.getsize(os.path.join(FOLDER, "verdict.html.%d" % index)) for index in range(4))
    with open(os.path.join(os.environ.get("UPGATE_SOURCE", "."), "reports/render/html/page/example.json"), encoding="utf-8") as file:
        check("example.json is what html_data.py makes", json.load(file) == json.loads(json.dumps(html_data.example())))
    check("the page without data is below 700 KB", pieces < 700_000, pieces)
    with tempfile.TemporaryDirectory(prefix="upgate-html-") as folder, browser.Browser(program) as page:
        path = html_data.write_page(FOLDER, html_data.example(), os.path.join(folder, "example.html"))
        page.size(1280, 900)
        page.media(prefers_reduced_motion="reduce")
        page.open(path)
        for part in (first_screen, strip, waterfall, contributions, stalls, timeline, table, flames):
            part(page)
        quiet(page, "example")
        page.open(path)
        keyboard_and_theme(page)
        quiet(page, "example")
        phone_and_paper(page, path)
        slow_steps(page, folder)
        hostile(page, folder)
        others(page, folder)
        page.open(html_data.write_page(FOLDER, html_data.example(200_000), os.path.join(folder, "large.html")))
        draw_all(page)
        check("200,000 events are drawn", colours(page, "#w0-timeline canvas") > 10 and page.eval("UP.timelines[0].drawn.model.count") > 190_000)
        quiet(page, "large")
    legible()
    print("%d failures" % len(failures) if failures else "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
