// SPDX-License-Identifier: Apache-2.0
// Tables of a rollout: decisions, stages, what both arms spent their time on, sources and their losses, answers that differ; and how
// the numbers are made.
"use strict";
UP.parts.decisions = (data, main) => {
    const decisions = UP.list(data.decisions).map(UP.object), part = UP.part(main, 2, "decisions", "Decisions", "decisions");
    if (!decisions.length) {
        part.append(UP.el("p", {text: "None yet."}));
        return;
    }
    if (UP.num(data.decisions_left) > 0)
        part.append(UP.el("p", {class: "muted", text: UP.plural(data.decisions_left, "older decision") + " in the store."}));
    const days = new Set(decisions.map(decision => UP.rollout.time(decision.at).slice(0, 10))), day = days.size === 1 ? Array.from(days)[0] : null;
    const evidence = decision => {
        let text = String(decision.evidence || "");
        try {
            text = JSON.stringify(JSON.parse(text), null, 1);
        } catch (error) {
            // shown as it stands
        }
        text = text.slice(0, 8000).split("\n").map(UP.clean).join("\n");
        return text && text !== "[]" ? UP.el("details", {}, UP.el("summary", {text: "cells"}), UP.el("pre", {class: "evidence", tabindex: "0", text})) : "";
    };
    part.append(UP.rowsTable("Decisions", [[day ? day + ", UTC" : "Time", "moment"], ["Rule", ""], ["State", ""], ["Stage", ""], ["Traffic", "num"], ["Carried out after", "num"], ["Who", ""], ["Why", "text"], ["Evidence", ""]], decisions.map((decision, i) => ({
        id: "d" + i, mark: UP.rollout.direction(decision) === "down" ? "down-row" : null,
        cells: [day ? UP.rollout.time(decision.at).slice(11, 19) : UP.rollout.time(decision.at), UP.clean(decision.title).slice(0, 60), UP.rollout.word(decision.from) === UP.rollout.word(decision.to) ? UP.rollout.word(decision.to) : UP.rollout.word(decision.from) + " → " + UP.rollout.word(decision.to),
                UP.rollout.stageName(UP.num(decision.stage_to) === null ? decision.stage_from : decision.stage_to), UP.rollout.percent(decision.percent_from) + " → " + UP.rollout.percent(decision.percent_to),
                UP.num(decision.effect) === null ? UP.dash : UP.ns(decision.effect - decision.at), UP.name(decision.who, 30), UP.clean(decision.reason).slice(0, 600), evidence(decision)]})), true));
};

UP.parts.stages = (data, main) => {
    const stages = UP.list(data.stages).map(UP.object);
    if (!stages.length)
        return;
    const part = UP.part(main, 2, "stages", "Stages", "stages");
    part.append(UP.rowsTable("Stages", [["Stage", ""], ["Traffic", "num"], ["Soak", "num"], ["Requests asked for", "num"], ["Begun", ""], ["Lasted", "num"], ["Requests of the candidate", "num"], ["Failed", "num"], ["p50", "num"], ["p99", "num"], ["Result", ""]],
        stages.map(stage => {
            const arm = stage.alone ? {} : UP.object(UP.list(stage.arms)[1]), begun = UP.num(stage.begin_s) !== null;
            return {cells: [UP.name(stage.name, 24), stage.shadow ? "mirrored" : stage.aa ? "A/A" : UP.rollout.percent(stage.percent), UP.num(stage.soak_ns) === null ? UP.dash : UP.rollout.length(stage.soak_ns / 1e9), UP.num(stage.needed) ? UP.integer(stage.needed) : UP.dash,
                begun ? UP.rollout.time(stage.begin_s * 1e9) : UP.dash, begun && UP.num(stage.end_s) !== null ? UP.rollout.length(stage.end_s - stage.begin_s) : UP.dash, begun ? UP.integer(arm.requests) : UP.dash,
                UP.rollout.rate(arm.errors, arm.requests), UP.rollout.ms(arm.p50_ms), UP.rollout.ms(arm.p99_ms), stage.result ? UP.clean(stage.result).slice(0, 40) : begun ? "not over" : "not begun"]};
        }), true));
};

UP.parts.why = (data, main) => {
    const why = UP.object(data.why), diff = UP.object(why.diff), rows = UP.list(diff.contributions).map(UP.object);
    if (!why.diff)
        return;
    const part = UP.part(main, 2, "why", UP.object(data.rollout).state === "rolled_back" ? "Why: both arms recorded at the breach" : "Both arms recorded, when the evidence pointed at the candidate", "why"), unit = UP.clean(diff.unit);
    part.append(UP.el("p", {class: "lead", text: UP.clean(why.text).slice(0, 800)}));
    const shown = rows.filter(row => row.named || row.of === "stall"), rest = rows.length - shown.length;
    const interval = row => (Array.isArray(row.ci_ns) && UP.num(row.ci_ns[0]) !== null ? UP.interval(row.ci_ns[0], row.ci_ns[1], UP.signedNs) : "not tested");
    if (shown.length)
        part.append(UP.rowsTable("What differs between the arms", [["What", "text"], ["Kind", ""], ["Where", "text"], ["Baseline", "num"], ["Candidate", "num"], ["Change a " + unit, "num"], ["99 % interval", "num"]], shown.slice(0, 40).map(row => ({
            cells: [UP.name(row.name_b || row.name_a, 70), UP.clean(row.of), row.where ? UP.name(row.where, 40) : "", UP.ns(row.a_ns), UP.ns(row.b_ns), UP.el("b", {class: row.delta_ns > 0 ? "slower-text" : "faster-text", text: UP.signedNs(row.delta_ns)}), interval(row)]})), true));
    else
        part.append(UP.el("p", {text: "Nothing stands out of the noise of these windows."}));
    if (rest > 0)
        part.append(UP.el("p", {class: "muted", text: UP.plural(rest, "row") + " not told from noise."}));
    if (UP.list(diff.notes).length)
        part.append(UP.el("ul", {class: "notes"}, UP.list(diff.notes).map(note => UP.el("li", {text: UP.clean(note).slice(0, 600)}))));
};

UP.parts.sources = (data, main) => {
    const sources = UP.list(data.sources).map(UP.object);
    if (!sources.length)
        return;
    const part = UP.part(main, 2, "sources", "Sources, and what they lost", "sources");
    part.append(UP.rowsTable("Sources", [["Source", ""], ["Seen", "num"], ["Kept", "num"], ["Not understood", "num"], ["Lost", "num"], ["Late", "num"], ["Last evidence", ""], ["Problem", "text"]], sources.map(source => ({
        cells: [UP.name(source.kind, 40), UP.integer(source.seen), UP.integer(source.kept), UP.integer(source.dropped), UP.integer(source.lost), UP.integer(source.late), UP.num(source.last) > 0 ? UP.rollout.time(source.last) : UP.dash,
                UP.clean(source.problem).slice(0, 300)]})), true));
};

UP.parts.answers = (data, main) => {
    const examples = UP.list(data.examples).map(UP.object);
    if (!examples.length)
        return;
    const part = UP.part(main, 2, "answers", "Answers that differ", "answers"), code = text => (text ? UP.el("code", {text: UP.clean(text).slice(0, 600)}) : "");
    part.append(UP.rowsTable("Answers that differ", [["Request", "answer"], ["Distance", "num"], ["Baseline", "answer"], ["Candidate", "answer"]], examples.map(example => ({
        cells: [code(example.request), UP.num(example.distance) === null ? UP.dash : d3.format(".2g")(example.distance), code(example.baseline), code(example.candidate)]})), true));
    if (UP.num(data.examples_left) > 0)
        part.append(UP.el("p", {class: "muted", text: UP.plural(data.examples_left, "more example") + " in the store."}));
};

UP.rolloutHow = [
    ["share", "Share", "What the proxy was set to, from the moment at which the new weight was read back. The scale is a square root, so that 1 % is seen beside 100 %. Shaded in blue: stages in which no user's request is judged for the candidate (shadow, A/A)."],
    ["arms", "Error rate and latency", "Of the requests that ended in each span of time. Failed: answered 5xx, not answered, or cut off. Latencies are counted in bins 2 % wide, of requests that were answered; a quantile is known within 1 %."],
    ["evidence", "Evidence", "Both arms are compared second by second, so that what the traffic does hits both alike. The band is a confidence sequence: it holds at every look at once. A candidate that is not worse reaches the needed evidence with probability alpha at most over the whole rollout; a rollback also needs the estimate beyond the margin. A stage passes when the upper bound lies below the margin, the soak is over, and there were enough requests."],
    ["decisions", "Decisions", "Each was written to the store before it was carried out. Carried out after: from the decision until the new weight was read back from the proxy."],
    ["stages", "Stages", "As planned; counts are of what happened in them. An A/A stage has numbers here where it has a second baseline."],
    ["why", "Why", "Both arms were recorded by upgate record, when half of the evidence that a rollback needs was there or, where it came at once, when the rule fired. Each recording is cut into seconds; a row is told when Welch's interval over those seconds, at 99 % for all rows together, leaves out 0. It holds for that window only: the two arms did not take turns as in upgate ab, and did not get the same requests. Stalls are shown, not tested."],
    ["sources", "Sources", "Lost: known to be lost, by gaps in sequence numbers or the kernel's own count of dropped datagrams. Late: of a second that had been judged already. None of them is in any count of this page."],
    ["answers", "Answers that differ", "Shadow stage: the same request was sent to both. Distance: root mean square of the difference in units of the baseline's own; no distance where status, fields or shape differ, or a number is NaN."],
];
UP.parts.how = (data, main) => {
    const shown = UP.rolloutHow.filter(([id]) => document.getElementById(id) || (id === "arms" && document.getElementById("errors")));
    const part = UP.part(main, 2, "how", "How these numbers are made");
    part.append(UP.el("dl", {class: "how"}, shown.map(([id, title, text]) => UP.el("div", {id: "how-" + id}, UP.el("dt", {text: title}), UP.el("dd", {text})))));
};
UP.parts.foot = (data, foot) => UP.foot(foot, "Read from the store " + UP.rollout.time(data.read) + ". All times are UTC. This file is whole: it asks nothing of any network.");
