// SPDX-License-Identifier: Apache-2.0
// The first screen of a rollout: outcome, why, the numbers an engineer asks for first; the bar above.
"use strict";
UP.rollout = {
    // state: [word, mark, colour class]
    states: {waiting: ["Waiting", "…", "running"], running: ["Running", "▶", "running"], paused: ["Paused", "‖", "inconclusive"],
             promoted: ["Promoted", "✓", "pass"], rolled_back: ["Rolled back", "↩", "fail"], aborted: ["Aborted", "■", "inconclusive"],
             failed: ["Failed", "✕", "fail"]},
    state: word => UP.pick(UP.rollout.states, word, [UP.short(word, 20), "?", "inconclusive"]),
    word: word => UP.rollout.state(word)[0].toLowerCase(),
    verdicts: {pass: ["pass", "✓", "pass"], fail: ["fail", "✕", "fail"], undecided: ["undecided", "?", "unchecked"]},
    pill: word => {
        const known = UP.pick(UP.rollout.verdicts, word, ["undecided", "?", "unchecked"]);
        return UP.el("span", {class: "pill " + known[2]}, UP.el("span", {"aria-hidden": "true", text: known[1] + " "}), known[0]);
    },
    utc: d3.utcFormat("%Y-%m-%d %H:%M:%S UTC"), clock: d3.utcFormat("%H:%M:%S"),
    time: ns => (UP.num(ns) === null ? UP.dash : UP.rollout.utc(new Date(ns / 1e6))),
    percent: value => (UP.num(value) === null ? UP.dash : UP.digits(value, value && value < 10 ? 2 : 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + "\u202f%"),
    rate: (part, whole) => (UP.num(part) === null || !(UP.num(whole) > 0) ? UP.dash : part === 0 ? "0\u202f%" : UP.digits(100 * part / whole, 3) + "\u202f%"),
    ms: value => (UP.num(value) === null ? UP.dash : UP.ns(value * 1e6)),
    length: seconds => {
        if (UP.num(seconds) === null || seconds < 0)
            return UP.dash;
        const whole = Math.round(seconds), part = (count, word) => UP.integer(count) + "\u202f" + word;
        return whole < 60 ? part(whole, "s") : whole < 3600 ? part(Math.floor(whole / 60), "min") + (whole % 60 ? " " + part(whole % 60, "s") : "")
            : part(Math.floor(whole / 3600), "h") + " " + part(Math.floor(whole / 60) % 60, "min");
    },
    stage: number => UP.list(UP.data.stages).map(UP.object).find(stage => stage.number === number) || null,
    stageName: number => { const stage = UP.rollout.stage(number); return stage ? UP.short(stage.name, 24) : UP.dash; },
    // up, down, or no move of the share
    direction: decision => {
        const a = UP.num(decision.percent_from), b = UP.num(decision.percent_to);
        return a === null || b === null || a === b ? "stay" : b > a ? "up" : "down";
    },
    arms: ["baseline", "candidate"],
};

UP.parts.verdict = (data, main) => {
    const rollout = UP.object(data.rollout), [word, mark, colour] = UP.rollout.state(rollout.state);
    const head = UP.el("section", {class: "verdict " + colour, id: "verdict", "aria-labelledby": "verdict-title"});
    head.append(UP.el("h1", {id: "verdict-title"}, UP.el("span", {class: "verdict-mark", "aria-hidden": "true", text: mark}), UP.el("span", {class: "verdict-word", text: word}),
                      UP.el("span", {class: "verdict-sides"}, "rollout ", UP.name(rollout.name, 60, "b"))));
    head.append(UP.el("p", {class: "reason"}, UP.el("b", {text: UP.clean(data.sentence).slice(0, 400)}), " ", UP.clean(rollout.reason).slice(0, 1500)));
    const basis = UP.list(data.basis).slice(0, 12);
    if (basis.length)
        head.append(UP.el("ul", {class: "basis", "aria-label": "What it rests on"}, basis.map(text => UP.el("li", {text: UP.clean(text).slice(0, 500)}))));
    head.append(...UP.list(data.warnings).slice(0, 12).map(text => UP.el("p", {class: "warning", text: UP.clean(text).slice(0, 500)})));
    const [a, b] = UP.list(data.arms).map(UP.object), decisions = UP.list(data.decisions).map(UP.object);
    const last = decisions.filter(decision => decision.to === rollout.state).pop(), facts = [];
    const add = (label, value) => facts.push(UP.el("div", {}, UP.el("dt", {text: label}), UP.el("dd", {}, value)));
    add("Candidate's share now", UP.rollout.percent(rollout.percent));
    add("Since", UP.rollout.time(rollout.since));
    const rejected = [a, b].some(arm => arm && UP.num(arm.rejected));
    const did = arm => (arm ? UP.integer(arm.requests) + ", " + UP.rollout.rate(arm.errors, arm.requests) + " failed"
                              + (rejected ? ", " + UP.rollout.rate(arm.rejected, arm.requests) + " rejected" : "") : UP.dash);
    add("Requests, baseline", did(a));
    add("Requests, candidate", did(b));
    if (last) {
        add("Decided by", [UP.name(last.who, 40), ": ", UP.clean(last.title).slice(0, 60)]);
        if (UP.num(last.effect) !== null && UP.rollout.direction(last) !== "stay")
            add("New weight in force after", UP.ns(last.effect - last.at));
    }
    main.append(head, UP.el("dl", {class: "facts"}, facts));
};

// What a reader of a rollback asks next; the details stand further down.
UP.parts.answer = (data, main) => {
    const why = UP.object(data.why), text = UP.clean(why.text);
    if (!text || UP.object(data.rollout).state !== "rolled_back") // recorded on a suspicion that came to nothing: no answer to a why
        return;
    const told = UP.list(UP.object(why.diff).contributions).map(UP.object).filter(item => item.named && item.delta_ns > 0).slice(0, 3);
    main.append(UP.el("section", {class: "cause", "aria-label": "Why"}, UP.el("p", {class: "cause-main"}, UP.el("b", {text: "Why: "}), text.slice(0, 800)),
        told.length ? UP.el("ol", {class: "cause-list", "aria-label": "What the candidate spends more on"}, told.map(item => UP.el("li", {},
            UP.el("span", {class: "cause-name"}, UP.clean(item.of) + ": ", UP.name(item.name_b || item.name_a, 70), item.where ? UP.el("span", {class: "muted", text: "  " + UP.short(item.where, 50)}) : null),
            UP.el("span", {class: "cause-bar", "aria-hidden": "true"}, UP.el("span", {class: "slower", style: {width: Math.max(1.5, 100 * item.delta_ns / told[0].delta_ns) + "%"}})),
            UP.el("span", {class: "cause-number", text: UP.signedNs(item.delta_ns)})))) : null,
        why.diff ? UP.el("p", {class: "cause-more"}, UP.el("a", {href: "#why", text: "All that differs, with intervals"})) : null));
};

UP.parts.bar = (data, bar) => {
    const [word, , colour] = UP.rollout.state(UP.object(data.rollout).state);
    UP.bar(bar, UP.el("span", {class: "pill " + colour, text: word.toLowerCase()}), [["share", "Traffic"], ["errors", "Errors"], ["latency", "Latency"], ["evidence", "Evidence"],
        ["decisions", "Decisions"], ["stages", "Stages"], ["why", "Why"], ["sources", "Sources"], ["answers", "Answers"], ["how", "How"]]);
};
