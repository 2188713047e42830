// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them. What was not measured is a dash, never 0.
"use strict";
UP.dash = "–";
// Three to four digits say as much as a measurement holds.
UP.digits = (value, digits) => {
    const size = Math.abs(value);
    const places = size === 0 ? 0 : Math.max(0, Math.min(6, (digits || 3) - 1 - Math.floor(Math.log10(size))));
    return size >= 1e15 ? value.toExponential(2) : d3.format("," + "." + places + "f")(value).replace("-", "\u2212");
};
UP.signed = (value, write) => {
    const text = write(Math.abs(value));
    return (!/[1-9]/.test(text) ? "" : value > 0 ? "+" : value < 0 ? "\u2212" : "") + text; // what rounds to 0 has no sign
};
UP.scaled = (value, steps) => {
    const size = Math.abs(value);
    const step = steps.find(([least]) => size >= least) || steps[steps.length - 1];
    return UP.digits(value / step[1], size / step[1] >= 1000 ? 4 : 3) + "\u202f" + step[2];
};
UP.ns = value => (UP.num(value) === null ? UP.dash
    : UP.scaled(value, [[1e9, 1e9, "s"], [1e6, 1e6, "ms"], [1e3, 1e3, "µs"], [0, 1, "ns"]]));
UP.bytes = value => (UP.num(value) === null ? UP.dash
    : UP.scaled(value, [[2 ** 40, 2 ** 40, "TiB"], [2 ** 30, 2 ** 30, "GiB"], [2 ** 20, 2 ** 20, "MiB"], [2 ** 10, 2 ** 10, "KiB"], [0, 1, "B"]]));
UP.rate = value => (UP.num(value) === null ? UP.dash : UP.scaled(value, [[1e9, 1e9, "G/s"], [1e6, 1e6, "M/s"], [1e4, 1e3, "k/s"], [0, 1, "/s"]]));
UP.signedNs = value => (UP.num(value) === null ? UP.dash : UP.signed(value, UP.ns));
UP.signedBytes = value => (UP.num(value) === null ? UP.dash : UP.signed(value, UP.bytes));
// Numbers that are compared or summed by eye have one unit and as many places: of `most`, told to about `resolution`.
UP.fixedNs = (most, resolution) => {
    const [unit, word] = Math.abs(most) >= 1e9 ? [1e9, "s"] : Math.abs(most) >= 1e6 ? [1e6, "ms"] : Math.abs(most) >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    const places = unit === 1 ? 0 : Math.max(0, Math.min(6, Math.ceil(Math.log10(unit / Math.max(1e-3, Math.abs(resolution))) - 0.35)));
    const write = d3.format(",." + places + "f");
    return value => (UP.num(value) === null ? UP.dash : write(value / unit).replace("-", "\u2212") + "\u202f" + word);
};
UP.count = value => (UP.num(value) === null ? UP.dash : UP.digits(value, Math.abs(value) >= 100 ? 4 : 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, ""));
UP.integer = value => (UP.num(value) === null ? UP.dash : d3.format(",.0f")(value));
UP.value = (value, unit) => UP.pick({ns: UP.ns, bytes: UP.bytes, "1/s": UP.rate}, unit,
                                    other => (UP.num(other) === null ? UP.dash : UP.digits(other, 4)))(value);
UP.percent = (share, digits) => (UP.num(share) === null ? UP.dash
    : Math.abs(share) >= 10 ? UP.digits(share, 3) + "×" : UP.digits(100 * share, digits || (Math.abs(share) >= 0.1 ? 3 : 2)) + "\u202f%");
UP.trimmed = share => (UP.num(share) === null ? UP.dash : UP.digits(100 * share, 4).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + "\u202f%"); // what was set, not measured
UP.signedPercent = (share, digits) => (UP.num(share) === null ? UP.dash : UP.signed(share, value => UP.percent(value, digits)));
// Change and interval with the places that the interval's width is worth, and those that tell its ends from the margin's.
UP.limit = cell => (UP.num(cell.margin) === null ? null : cell.direction === "higher" ? 1 / (1 + cell.margin) : 1 + cell.margin);
UP.changes = (lo, hi, limit) => {
    const wide = UP.num(lo) === null || UP.num(hi) === null ? null : 100 * Math.abs(hi - lo);
    let places = wide === null || !(wide > 0) ? null : Math.max(0, Math.min(4, 1 - Math.floor(Math.log10(wide))));
    const shown = ratio => (100 * (ratio - 1)).toFixed(places), alike = end => end !== limit && shown(end) === shown(limit);
    while (places !== null && places < 4 && UP.num(limit) !== null && (alike(lo) || alike(hi)))
        places++;
    const write = d3.format(",." + (places || 0) + "f");
    return ratio => (places === null || Math.abs(ratio) >= 10 ? UP.change(ratio) : UP.num(ratio) === null ? UP.dash
        : UP.signed(ratio - 1, share => write(100 * share) + "\u202f%"));
};
UP.change = ratio => (UP.num(ratio) === null ? UP.dash : UP.signedPercent(ratio - 1));
UP.interval = (lo, hi, write) => (UP.num(lo) === null || UP.num(hi) === null ? null : write(lo) + " to " + write(hi));
UP.plural = (count, word, more) => UP.integer(count) + " " + (count === 1 ? word : more || word + "s");
// A metric's value: slow steps are a share of the time.
UP.cellValue = (cell, value) => (cell.metric === "slow_steps" ? UP.percent(value) : UP.value(value, cell.unit));
UP.metrics = {step_time: "Typical step", mean_step_time: "Mean step", slow_steps: "Slow steps", warm_up_time: "Warm-up", first_step_time: "First step", startup_time: "Start-up",
              recompiles: "Graphs compiled, over the first step's", latency_p50: "Typical latency (p50)", latency_p99: "Tail latency (p99)"};
UP.metric = name => UP.pick(UP.metrics, name, null) || UP.clean(name).replace(/_/g, " ").replace(/\b(gpu|cpu|fp64)\b/g, word => word.toUpperCase()).replace(/^./, letter => letter.toUpperCase());

// Words and colours of the classes a step's time falls into; other words get their own.
UP.classes = {gpu_compute: "GPU compute", comm_exposed: "Exposed communication", copy: "Copies", launch_bound: "Launch-bound", host_run: "Host runs",
              host_stalled: "Host stalled", data_wait: "Data wait", idle: "Idle", phase: "Phase", stall: "Stall", python: "Python",
              sync: "Waits for the device", call: "Call"};
UP.classTitle = word => UP.pick(UP.classes, word, UP.short(word, 30));
UP.classColour = word => "var(--c-" + (UP.pick(UP.classes, word, null) ? word : "other") + ")";

// What a contribution means, in plain words: [slower, faster].
UP.plain = {
    kernel_slower: ["A GPU kernel takes longer", "A GPU kernel got faster"], kernel_added: ["A GPU kernel is new", "A GPU kernel is new"],
    kernel_removed: ["A GPU kernel is gone", "A GPU kernel is gone"],
    kernel_replaced: ["A GPU kernel was replaced by a slower one", "A GPU kernel was replaced by a faster one"],
    cpu_function_slower: ["A function takes longer", "A function got faster"], cpu_function_added: ["A function is new", "A function is new"],
    cpu_function_removed: ["A function is gone", "A function is gone"],
    cpu_function_replaced: ["A function was replaced by a slower one", "A function was replaced by a faster one"],
    host_stall: ["The host is held up longer", "The host is held up less"],
    launch_gap: ["The GPU waits longer for the host to launch work", "The GPU waits less for the host to launch work"],
    sync_added: ["The host waits for the GPU more", "The host waits for the GPU less"], memcpy: ["Copies take longer", "Copies take less"],
    comm_exposed: ["More communication is not hidden behind compute", "More communication is hidden behind compute"],
    data_wait: ["The step waits longer for its data", "The step waits less for its data"],
    python_overhead: ["More time in Python", "Less time in Python"], compile: ["Compilation takes longer", "Compilation takes less"],
    cold_start: ["The first step takes longer", "The first step takes less"],
    memory_alloc: ["Allocating and freeing memory takes longer", "Allocating and freeing memory takes less"],
    clock_throttle: ["The clock is lower", "The clock is higher"],
    parallelism: ["Less runs at the same time", "More runs at the same time"],
    code_added: ["New, with all that it causes", "New, with all that it causes"], code_removed: ["Gone, with all that it caused", "Gone, with all that it caused"],
    native_code: ["Native code takes longer", "Native code got faster"],
    code_moved: ["Moved into the first step, with all that it causes", "Moved out of the first step, with all that it caused"],
    code_repeated: ["Runs more often, with all that it causes", "Runs less often, with all that it caused"],
};
UP.plainWords = item => {
    const before = UP.num(item.a_ns) > 0, after = UP.num(item.b_ns) > 0;
    if (item.kind === "memcpy" && UP.num(item.a_ns) !== null && UP.num(item.b_ns) !== null && before !== after)
        return after ? "Copies are new" : "Copies are gone";
    const words = UP.pick(UP.plain, item.kind, null);
    return words ? words[item.delta_ns < 0 ? 1 : 0] : UP.short(item.title || item.kind, 60);
};
