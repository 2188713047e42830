// SPDX-License-Identifier: Apache-2.0
// The first screen: the verdict, one sentence why, and what took the time, in plain words; the bar above with the way through the page.
"use strict";
UP.verdicts = {pass: ["PASS", "✓"], fail: ["FAIL", "✕"], inconclusive: ["INCONCLUSIVE", "?"], unchecked: ["observed", "·"]};
UP.verdictWord = word => UP.pick(UP.verdicts, word, null);
UP.pill = word => {
    const known = UP.verdictWord(word);
    return known && UP.el("span", {class: "pill " + word}, UP.el("span", {"aria-hidden": "true", text: known[1] + " "}), known[0].toLowerCase());
};

// The contributions that tell, in their order: two lists, of losses and of gains, largest first.
UP.telling = diff => UP.list(diff && diff.contributions).filter(item => item && item.named && UP.num(item.delta_ns) !== null);

UP.parts.bar = (data, bar) => {
    const known = UP.verdictWord(data.verdict.word);
    UP.bar(bar, known ? UP.el("span", {class: "pill " + data.verdict.word, text: known[0].toLowerCase()}) : null,
           UP.list(data.workloads).map((workload, i) => ["w" + i, UP.short(UP.object(workload).name, 24)])
               .concat([["findings", "Findings"], ["parity", "Parity"], ["fingerprint", "Environments"], ["trust", "Trust"], ["how", "How"]]));
};

UP.causeLine = (item, diff, unit, scale) => {
    const width = Math.max(1.5, 100 * Math.abs(item.delta_ns) / scale);
    return UP.el("li", {},
                 UP.el("span", {class: "cause-name"}, /^(kernel|cpu_function)_/.test(item.kind) || !item.title ? null : UP.short(item.title, 40) + ": ", UP.name(item.label, 70), UP.clean(item.where).trim() ? UP.el("span", {class: "muted", text: "  " + UP.short(item.where, 50)}) : null),
                 UP.el("span", {class: "cause-bar", "aria-hidden": "true"},
                       UP.el("span", {class: item.delta_ns > 0 ? "slower" : "faster", style: {width: width + "%"}})),
                 UP.el("span", {class: "cause-number"}, UP.signedNs(item.delta_ns), UP.num(item.share) !== null
                       ? UP.el("span", {class: "muted", text: " " + UP.percent(item.share, 2)}) : null));
};

// How much of the difference the named contributions are, where they are not most of it; and what is larger than the largest of
// them, but not told from noise: a reader must not take a small certain thing for the cause of a large uncertain one.
UP.causeDoubt = (diff, telling, unit) => {
    const sum = d3.sum(telling, item => item.delta_ns), explained = diff.delta_ns ? sum / diff.delta_ns : null;
    const first = telling.length ? Math.abs(telling[0].delta_ns) : 0, sign = Math.sign(diff.delta_ns);
    const larger = UP.list(diff.contributions).filter(item => item && !item.named && UP.num(item.delta_ns) !== null && item.delta_ns * sign > Math.max(first, 0.1 * Math.abs(diff.delta_ns)))
        .sort((a, b) => Math.abs(b.delta_ns) - Math.abs(a.delta_ns)).slice(0, 2);
    const lines = [];
    if (telling.length && explained !== null && explained < 0.5)
        lines.push(UP.el("p", {}, UP.el("b", {text: "Most of the difference is not explained"}), ": what stands out of the noise is " + UP.signedNs(sum) + " a " + unit + ", " + UP.percent(Math.max(0, explained), 2) + " of it."));
    if (larger.length)
        lines.push(UP.el("p", {}, telling.length ? "Larger, but not told from noise: " : "Not told from noise, but largest: ", larger.map((item, i) => [i ? "; " : "", UP.name(item.label, 70, "code"), " " + UP.signedNs(item.delta_ns),
            Array.isArray(item.ci_ns) && UP.num(item.ci_ns[0]) !== null ? " (interval " + UP.interval(item.ci_ns[0], item.ci_ns[1], UP.signedNs) + ")" : "", UP.clean(item.where).trim() ? [" in ", UP.name(item.where, 60)] : ""]), "."));
    return lines;
};

// "Largest contribution": the answer, for who reads nothing else.
UP.cause = (workload, index) => {
    const diff = UP.object(workload.diff);
    const delta = UP.num(diff.delta_ns), unit = UP.clean(workload.unit) || "step";
    const telling = UP.telling(diff);
    if (!diff.contributions || delta === null)
        return null;
    const box = UP.el("section", {class: "cause " + (delta > 0 ? "is-slower" : "is-faster"), "aria-label": "What took the time in " + UP.short(workload.name, 40)});
    const ratio = UP.num(diff.step_a_ns) ? delta / diff.step_a_ns : null;
    box.append(UP.el("p", {class: "cause-head"}, UP.name(workload.name, 40, "strong"), ": a " + unit + " takes ",
                     UP.el("b", {text: UP.ns(Math.abs(delta)) + (delta > 0 ? " more" : " less")}),
                     ratio === null ? "" : " (" + UP.signedPercent(ratio) + ", " + UP.ns(diff.step_a_ns) + " → " + UP.ns(diff.step_b_ns) + ")"));
    if (!telling.length) {
        box.append(UP.el("p", {text: "No single contribution stands out of the noise."}), ...UP.causeDoubt(diff, telling, unit));
        return box;
    }
    if (UP.clean(diff.late).trim()) // others only wait for it: it is the answer
        box.append(UP.el("p", {class: "cause-late"}, UP.el("b", {text: UP.clean(diff.late).slice(0, 400)}), "."));
    const first = telling[0], doubt = UP.causeDoubt(diff, telling, unit), small = doubt.length > 0;
    box.append(UP.el("p", {class: "cause-main"}, UP.el("span", {class: "muted", text: small ? "Surest contribution: " : "Largest contribution: "}), UP.el("b", {text: UP.plainWords(first)}), ": ",
                     UP.name(first.label, 100, "code"), ", ", UP.el("b", {class: first.delta_ns > 0 ? "slower-text" : "faster-text", text: UP.signedNs(first.delta_ns)}), " a " + unit,
                     UP.num(first.share) === null ? "" : ", " + UP.percent(first.share, 2) + " of a " + unit,
                     UP.clean(first.where).trim() ? [", in ", UP.name(first.where, 90)] : "", "."));
    // One change often shows as many contributions: a library's switch replaces every kernel of a kind.
    const alike = telling.filter(item => item.kind === first.kind && Math.sign(item.delta_ns) === Math.sign(first.delta_ns)), together = d3.sum(alike, item => item.delta_ns);
    if (alike.length > 1 && Math.abs(together) > 1.3 * Math.abs(first.delta_ns))
        box.append(UP.el("p", {}, "All " + alike.length + " of this kind together: ", UP.el("b", {text: UP.signedNs(together)}), UP.num(diff.step_a_ns) ? ", " + UP.percent(together / diff.step_a_ns, 2) + " of a " + unit + "." : "."));
    const suspect = UP.list(first.suspects)[0];
    if (suspect)
        box.append(UP.el("p", {class: "cause-suspect"}, UP.el("span", {class: "muted", text: "Suspect: "}), UP.name(suspect, 160)));
    box.append(...doubt);
    const scale = d3.max(telling, item => Math.abs(item.delta_ns)) || 1;
    box.append(UP.el("ol", {class: "cause-list", "aria-label": "Largest contributions"}, telling.slice(0, 4).map(item => UP.causeLine(item, diff, unit, scale))));
    const link = UP.el("a", {href: "#w" + index + "-contributions", text: telling.length > 1 ? "All " + telling.length + " contributions with evidence" : "The evidence"});
    box.append(UP.el("p", {class: "cause-more"}, link));
    return box;
};

// The first step is in no step's numbers: who reads the first screen alone would not hear of it.
UP.causeFirst = (workload, index) => {
    const first = UP.object(UP.object(workload.diff).first_step), part = UP.object(UP.list(first.contributions)[0]), unit = UP.clean(workload.unit) || "step";
    const delta = UP.num(first.a_ns) === null || UP.num(first.b_ns) === null ? null : first.b_ns - first.a_ns;
    if (UP.num(part.delta_ns) === null || delta === null)
        return null;
    return UP.el("section", {class: "cause cause-first " + (delta > 0 ? "is-slower" : "is-faster"), "aria-label": "The first " + unit + " of " + UP.short(workload.name, 40)},
        UP.el("p", {class: "cause-head"}, UP.name(workload.name, 40, "strong"), ": the first " + unit + " takes ", UP.el("b", {text: UP.ns(Math.abs(delta)) + (delta > 0 ? " more" : " less")}),
              " (" + UP.ns(first.a_ns) + " → " + UP.ns(first.b_ns) + ")"),
        UP.el("p", {}, UP.el("b", {text: UP.clean(part.title).slice(0, 80)}), ": ", UP.name(part.label, 100, "code"), ", ",
              UP.el("b", {class: part.delta_ns > 0 ? "slower-text" : "faster-text", text: UP.signedNs(part.delta_ns)}), UP.clean(part.where).trim() ? [", in ", UP.name(part.where, 90)] : "", ". ",
              UP.el("a", {href: "#w" + index + "-first", text: "Launch by launch"})));
};

// Memory is in no step's time: the workloads whose memory failed the gate (or those of which it is told), most grown first, as one box.
UP.causeMemory = (order, failed) => [["memory", "memory", "Memory"], ["gpu_memory", "gpu-memory", "GPU memory"]].flatMap(([key, anchor, label]) => {
    const of = ([workload]) => UP.object(UP.object(workload.diff)[key]);
    const ratio = entry => (peak => UP.num(peak.a) > 0 ? UP.num(peak.b) / peak.a : 0)(UP.object(of(entry).peak_bytes));
    const told = order.filter(entry => UP.clean(of(entry).headline).trim() && of(entry).failed === failed).sort((a, b) => ratio(b) - ratio(a)).slice(0, 3);
    return told.length ? [UP.el("section", {class: "cause cause-memory " + (ratio(told[0]) < 1 ? "is-faster" : "is-slower"), "aria-label": label},
        told.map(entry => UP.el("p", {class: "cause-head"}, UP.clean(of(entry).headline).slice(0, 600), ". ",
            UP.el("a", {href: "#w" + entry[1] + "-" + anchor, text: "Part by part"}))))] : [];
});

UP.parts.verdict = (data, main) => {
    const known = UP.verdictWord(data.verdict.word);
    const sides = UP.list(data.sides);
    const head = UP.el("section", {class: "verdict " + (known ? data.verdict.word : "none"), id: "verdict", "aria-labelledby": "verdict-title"});
    head.append(UP.el("h1", {id: "verdict-title"}, known ? UP.el("span", {class: "verdict-mark", "aria-hidden": "true", text: known[1]}) : null,
                      UP.el("span", {class: "verdict-word", text: known ? known[0] : sides[1] === "" ? "Recording" : "Not judged"}),
                      sides[1] === "" ? null : UP.el("span", {class: "verdict-sides"}, UP.name(sides[1] || "candidate", 30, "b"), " against ", UP.name(sides[0] || "baseline", 30, "b"))));
    if (data.verdict.reason)
        head.append(UP.el("p", {class: "reason"}, UP.clean(data.verdict.reason).slice(0, 2000)));
    main.append(head);
    const order = UP.list(data.workloads).map((workload, i) => [UP.object(workload), i]);
    const causes = order.filter(([workload]) => UP.telling(workload.diff).length || (workload.verdict === "fail" && workload.diff))
        .sort(([a], [b]) => (b.verdict === "fail") - (a.verdict === "fail")).slice(0, 3)
        .map(([workload, i]) => UP.cause(workload, i)).filter(box => box);
    const decided = order.map(([workload, i]) => UP.causeSteps(workload, i)).filter(box => box).slice(0, 3);
    main.append(...UP.causeMemory(order, true), ...decided, ...causes, ...UP.causeMemory(order, false), ...order.map(([workload, i]) => UP.causeFirst(workload, i)).filter(box => box).slice(0, 3));
    // A pass of traced launches is an answer too: silence would read as "not looked for".
    const quiet = order.filter(([workload]) => UP.list(UP.object(workload.diff).contributions).length && !UP.telling(workload.diff).length && workload.verdict !== "fail");
    if (!causes.length && !decided.length && quiet.length)
        head.append(UP.el("p", {class: "muted quiet"}, "Nothing stands out in the traced launches: no part of a " + (UP.clean(quiet[0][0].unit) || "step") +
                          (order.length > 1 ? " of " + quiet.map(([workload]) => UP.short(workload.name, 40)).slice(0, 4).join(", ") : "") + " differs by more than its noise."));
    const facts = UP.list(UP.object(data.run).facts).filter(fact => fact && fact.value);
    if (facts.length || data.verdict.margin_note)
        main.append(UP.el("dl", {class: "facts"}, facts.map(fact => UP.el("div", {}, UP.el("dt", {text: UP.short(fact.label, 30)}), UP.el("dd", {}, UP.name(fact.value, 120)))),
                          data.verdict.margin_note ? UP.el("div", {class: "wide"}, UP.el("dt", {text: "Judged by"}), UP.el("dd", {}, UP.clean(data.verdict.margin_note).slice(0, 600))) : null));
};

UP.parts.findings = (data, main) => {
    const findings = UP.list(data.findings).filter(finding => finding && finding.text);
    if (!findings.length)
        return;
    const part = UP.part(main, 2, "findings", "Findings");
    const words = {fail: "fails the run", inconclusive: "leaves it open", note: "note"};
    part.append(UP.el("ul", {class: "findings"}, findings.map(finding => UP.el("li", {class: UP.pick(words, finding.effect, null) ? finding.effect : ""},
        UP.el("span", {class: "tag", text: UP.pick(words, finding.effect, "note")}), " ", finding.workload ? [UP.name(finding.workload, 40, "b"), ": "] : null,
        UP.clean(finding.text).slice(0, 2000), finding.side === "a" || finding.side === "b" ? " (" + UP.sideName(finding.side === "a" ? 0 : 1) + ")" : "",
        finding.output ? UP.el("pre", {class: "output", tabindex: "0", text: String(finding.output).slice(0, 4000).split("\n").map(UP.clean).join("\n")}) : null))));
};
UP.single = () => UP.list(UP.data.sides)[1] === ""; // a recording: there is nothing it is compared with
UP.sideName = index => UP.short(UP.list(UP.data.sides)[index] || ["baseline", "candidate"][index], 24);
