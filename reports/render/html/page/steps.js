// SPDX-License-Identifier: Apache-2.0
// What is claimed about steps (the typical one, the mean, slow ones, the warm-up), in words, and on the first screen where they decide.
"use strict";
UP.steps = {
    claims: [["step_time", "the step in the middle: what nearly every one takes"], ["latency_p50", "the request in the middle, from its scheduled arrival where it has one"],
             ["mean_step_time", "all steps after the warm-up, the slow ones with them"], ["slow_steps", "share of the time lost in steps that stand out"],
             ["warm_up_time", "what steps take beyond steady ones until it is steady; the change is that of a whole run"]],
    cell: (workload, metric) => UP.list(workload.cells).map(UP.object).find(cell => cell.metric === metric) || null,
    fails: (workload, metric) => {
        const cell = UP.steps.cell(workload, metric);
        return cell !== null && Boolean(cell.gating) && cell.verdict === "fail";
    },
    side: (workload, index) => UP.object(UP.list(UP.object(workload.steps).sides)[index]),

    // "a typical step takes as long": what the reader of a slow mean asks next.
    typical(workload) {
        const unit = UP.clean(workload.unit) || "step", cell = this.cell(workload, "step_time") || this.cell(workload, "latency_p50");
        if (!cell || UP.num(cell.ratio) === null)
            return "";
        const change = UP.signed(cell.ratio - 1, share => d3.format(",.1f")(100 * share) + "\u202f%");
        const equal = cell.ci_lower <= 1 && cell.ci_upper >= 1;
        return {pass: cell.improved ? "a typical " + unit + " is faster (" + change + ")" : equal ? unit + "s are equal otherwise (a typical one: " + change + ")" : "a typical " + unit + " stays within its margin (" + change + ")",
                fail: "a typical " + unit + " is slower too (" + change + ")"}[UP.clean(cell.verdict)] || "a typical " + unit + " changed by " + change + ", which is not settled";
    },

    // "1 step in 250 takes 250 ms"
    rare(workload, index) {
        const side = this.side(workload, index), unit = UP.clean(workload.unit) || "step";
        return UP.num(side.slow) > 0 && UP.num(side.slow_ns) !== null && UP.num(side.steps) > 0
            ? "1 " + unit + " in " + UP.integer(Math.round(side.steps / side.slow)) + " takes " + UP.ns(side.slow_ns) : "";
    },

    // A run with its warm-up is slower where its steps are: the warm-up is named where it adds half a margin to them.
    warmsLonger(workload) {
        const run = this.cell(workload, "warm_up_time"), mean = this.cell(workload, "mean_step_time"), of = mean ? UP.num(mean.ratio) : null;
        return UP.num(run.median_b) > UP.num(run.median_a) && run.ratio / (of > 0 ? of : 1) - 1 > (UP.num(run.margin) || 0) / 2;
    },

    row(workload, metric, claims) {
        const cell = this.cell(workload, metric), change = UP.changes(cell.ci_lower, cell.ci_upper, UP.limit(cell)), value = side => UP.cellValue(cell, UP.num(side));
        const interval = UP.interval(UP.num(cell.ci_lower), UP.num(cell.ci_upper), change), told = cell.reason && cell.gating && (metric === "slow_steps" || cell.verdict !== "pass");
        return UP.el("tr", {}, UP.el("th", {scope: "row"}, UP.el("b", {text: UP.metric(metric)}), UP.el("small", {text: claims})),
            UP.el("td", {}, cell.gating ? UP.pill(cell.verdict) : UP.el("span", {class: "tag", text: "observed"})),
            UP.el("td", {class: "claim-values"}, value(cell.median_a), " → ", value(cell.median_b)),
            UP.el("td", {class: "claim-change"}, UP.el("b", {class: cell.ratio > 1 ? "slower-text" : cell.ratio < 1 ? "faster-text" : "", text: change(UP.num(cell.ratio))}),
                  interval ? UP.el("small", {text: interval + (UP.num(cell.margin) ? "; margin " + UP.trimmed(cell.margin) : "")}) : null),
            UP.el("td", {class: "text claim-reason"}, told ? UP.clean(cell.reason).slice(0, 600) : ""));
    },
};

// Where slow steps, the mean or the warm-up fail: one sentence that names the cause, for who reads the first screen alone.
UP.causeSteps = (workload, index) => {
    const steps = UP.steps, unit = UP.clean(workload.unit) || "step", slow = steps.fails(workload, "slow_steps"), mean = steps.fails(workload, "mean_step_time");
    const warm = steps.fails(workload, "warm_up_time") && steps.warmsLonger(workload), typical = steps.typical(workload), lines = [];
    const add = (...parts) => lines.push(UP.el("p", {class: "cause-main"}, ...parts, typical ? "; " + typical : "", "."));
    const rare = steps.rare(workload, 1), other = steps.rare(workload, 0), made = UP.object(UP.object(workload.diff).slow_steps), explained = made.failed === true && UP.list(made.contributions).length > 0;
    const why = metric => { // unless the verdict above says it already
        const reason = UP.clean(UP.object(steps.cell(workload, metric)).reason).slice(0, 600);
        if (reason && !UP.clean(UP.data.verdict.reason).includes(reason))
            lines.push(UP.el("p", {class: "muted"}, reason));
    };
    if (slow) {
        add(UP.el("b", {text: "Slow " + unit + "s decide: "}), UP.sideName(1), ": ", rare ? UP.el("b", {class: "slower-text", text: rare}) : "time is lost in slow " + unit + "s",
            rare && UP.num(steps.side(workload, 1).median_ns) !== null ? ", the others " + UP.ns(steps.side(workload, 1).median_ns) : "",
            rare ? other ? " (" + UP.sideName(0) + ": " + other + ")" : " (" + UP.sideName(0) + ": none stands out)" : "");
        why("slow_steps");
    } else if (mean && !steps.fails(workload, "step_time")) {
        add(UP.el("b", {text: "The mean decides: "}), "the mean " + unit + " of ", UP.sideName(1), " takes longer, ", UP.el("b", {class: "slower-text", text: UP.change(UP.num(steps.cell(workload, "mean_step_time").ratio))}),
            explained ? "" : ", though no single " + unit + "s stand out: launches, or stretches of them, are slower");
        why("mean_step_time");
    }
    if (warm) {
        const cell = steps.cell(workload, "warm_up_time");
        add(UP.el("b", {text: "The warm-up is longer: "}), "until it is steady ", UP.sideName(1), " loses ", UP.el("b", {class: "slower-text", text: UP.ns(UP.num(cell.median_b))}), ", ", UP.sideName(0), " ",
            UP.ns(UP.num(cell.median_a)), " (a whole run: ", UP.change(UP.num(cell.ratio)), ")");
    }
    if (lines.length && (slow || mean) && explained)
        lines.push(UP.el("p", {}, UP.clean(made.headline).slice(0, 600), ". ", UP.el("a", {href: "#w" + index + "-slow", text: "Part by part"})));
    return lines.length ? UP.el("section", {class: "cause cause-steps is-slower", "aria-label": "What decides in " + UP.short(workload.name, 40)},
        UP.el("p", {class: "cause-head"}, UP.name(workload.name, 40, "strong")), lines,
        UP.object(workload.steps).launches ? UP.el("p", {class: "cause-more"}, UP.el("a", {href: "#w" + index + "-steps", text: "All " + unit + "s of both sides"})) : null) : null;
};

UP.parts.steps = (workload, parent, id) => {
    const rows = UP.steps.claims.filter(([metric]) => UP.steps.cell(workload, metric)), all = UP.strip.model(UP.object(workload.steps)), unit = UP.clean(workload.unit) || "step";
    if (!all && !rows.some(([metric]) => /^(mean_step|slow_steps|warm_up)/.test(metric)))
        return;
    const part = UP.part(parent, 3, id + "-steps", unit === "request" ? "Requests" : "Steps", "steps");
    if (rows.length)
        part.append(UP.el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "What is claimed about " + unit + "s"}, UP.el("table", {class: "plain claims"},
            UP.el("caption", {class: "hidden", text: "What is claimed about " + unit + "s, candidate over baseline"}),
            UP.el("thead", {class: "hidden"}, UP.el("tr", {}, ["Claim", "Verdict", UP.sideName(0) + " → " + UP.sideName(1), "Change", "Why"].map(text => UP.el("th", {scope: "col", text})))),
            UP.el("tbody", {}, rows.map(([metric, claims]) => UP.steps.row(workload, metric, claims))))));
    if (all)
        UP.strip.show(part, all, unit);
};
