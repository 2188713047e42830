#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How smooth the timeline of the HTML report is: headless Chromium (software rendering, no GPU) draws the same zoom and pan over
documents of 2,000 to 200,000 events (synthetic: tests/e2e/html_data.py). The view changes with every frame; "frame" is the time from
one to the next (16.7 ms is the screen's own rate), "draw" the page's part of it. Exit 1 when the median frame of 200,000 events is
33 ms and more.

    python3 ci/bench/html_timeline.py [--frames N]
"""

import argparse
import os
import statistics
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/e2e"))
import browser  # noqa: E402
import html_data  # noqa: E402

LIMIT_MS = 33
# From the whole to a hundredth, across, and out again, a new view every frame; answers [[ms since the frame before, ms of the draw]].
DRIVE = """(async () => {
    const t = UP.timelines[0].drawn, [a, b] = t.whole, span = b - a, times = [], frames = %d;
    const frame = () => new Promise(done => requestAnimationFrame(done));
    t.canvas.scrollIntoView({block: 'center'});
    for (let i = 0; i < 5; i++) await frame();
    let last = await frame();
    for (let i = 0; i < frames; i++) {
        const phase = i / frames, wide = span * (phase < 0.4 ? 1 - 0.99 * phase / 0.4 : phase < 0.6 ? 0.01 : 0.01 + 0.99 * (phase - 0.6) / 0.4);
        const from = a + (span - wide) * (0.5 + 0.4 * Math.sin(phase * 12));
        t.setView(from, from + wide);
        const now = await frame();
        times.push([now - last, t.lastMs]);
        last = now;
    }
    return times;
})()"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=200)
    frames = parser.parse_args().frames
    folder = os.path.join(os.environ.get("UPGATE_BUILD", os.path.join(ROOT, "build/release")), "reports/render/page")
    program = browser.find()
    if not program or not os.path.exists(os.path.join(folder, "verdict.html.0")):
        print("no chromium, or a build without the HTML report")
        return 2
    missed = False
    print("%9s %13s %12s %12s %12s %9s" % ("events", "frame median", "95 %", "draw best", "draw median", "95 %"))
    with tempfile.TemporaryDirectory() as work, browser.Browser(program, deadline=180) as page:
        page.size(1280, 900)
        for events in (2_000, 20_000, 200_000):
            page.open(html_data.write_page(folder, html_data.example(events), os.path.join(work, "%d.html" % events)))
            page.eval("UP.ensureIn(document.body)")
            real, times = page.eval("UP.timelines[0].drawn.model.count"), page.eval(DRIVE % frames)
            total, draw = sorted(t[0] for t in times), sorted(t[1] for t in times)
            median = statistics.median(total)
            print("%9d %10.1f ms %9.1f ms %9.1f ms %9.1f ms %6.1f ms" % (
                real, median, total[int(0.95 * len(total))], draw[0], statistics.median(draw), draw[int(0.95 * len(draw))]), flush=True)
            missed = missed or (events == 200_000 and median >= LIMIT_MS)
        if page.errors:
            print("errors: %s" % page.errors[:3])
            missed = True
    print("limit: a median frame below %d ms at 200,000 events: %s" % (LIMIT_MS, "missed" if missed else "met"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
