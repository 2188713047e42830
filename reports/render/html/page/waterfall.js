// SPDX-License-Identifier: Apache-2.0
// From the old step time to the new one, contribution by contribution, with the sums; and what the step of each side was spent on.
"use strict";
UP.waterfall = {
    most: 12, // bars of their own; more would hide the shape

    // Steps of the way: {label, from, to, kind, item}. What is not named, not shown or in no contribution is a step too: it closes.
    steps(diff) {
        const named = UP.list(diff.contributions).filter(item => item && item.named && UP.num(item.delta_ns) !== null).slice(0, this.most);
        const residual = UP.num(diff.residual_ns) || 0;
        const steps = [{label: UP.sideName(0), from: 0, to: diff.step_a_ns, kind: "total a"}];
        let at = diff.step_a_ns;
        const add = (label, delta, kind, item) => {
            steps.push({label, from: at, to: at + delta, delta, kind, item});
            at += delta;
        };
        named.forEach(item => add(item.label, item.delta_ns, "named", item));
        const shown = d3.sum(named, item => item.delta_ns);
        const others = Math.max(0, UP.list(diff.contributions).length - named.length);
        if (others || Math.abs(diff.delta_ns - shown - residual) > 1)
            add(others ? UP.plural(others, "further one", "further ones") + ", each within the noise or small" : "the rest", diff.delta_ns - shown - residual, "rest");
        if (residual)
            add("in no contribution", residual, "residual");
        steps.push({label: UP.sideName(1), from: 0, to: diff.step_b_ns, kind: "total b"});
        return steps;
    },

    // A small difference on top of a long step would be invisible from 0: then the axis begins later, and says so.
    domain(steps) {
        const inner = steps.slice(1, -1);
        const ends = inner.flatMap(step => [step.from, step.to]).concat(steps[0].to, steps[steps.length - 1].to);
        const lo = d3.min(ends), hi = d3.max(ends);
        const cut = lo > 0 && hi - lo < 0.5 * hi;
        return {lo: cut ? Math.max(0, lo - 0.25 * (hi - lo) - 1e-9 * hi) : Math.min(0, lo), hi: hi + 0.02 * (hi - lo), cut};
    },

    row(step, scale, cut, jump, write) {
        const total = step.kind.startsWith("total");
        const left = scale(total ? scale.domain()[0] : Math.min(step.from, step.to)), right = scale(total ? step.to : Math.max(step.from, step.to));
        const bar = UP.el("span", {class: "bar " + (total ? step.kind : step.delta > 0 ? "slower" : "faster") + (step.kind === "rest" || step.kind === "residual" ? " rest" : "") +
                                   (total && cut ? " cut" : ""), style: {left: left + "%", width: Math.max(0.25, right - left) + "%"}});
        const label = step.item ? UP.el("button", {type: "button", class: "link", onclick: () => jump(step.item)}, UP.name(step.label, 80)) : UP.name(step.label, 80);
        return UP.el("div", {class: "fall " + step.kind, role: "row"},
                     UP.el("span", {class: "fall-label", role: "rowheader"}, label, step.item && step.item.where ? UP.el("small", {}, UP.name(step.item.where, 70)) : null),
                     UP.el("span", {class: "fall-track", "aria-hidden": "true"}, bar, total ? null : UP.el("span", {class: "edge", style: {left: scale(step.to) + "%"}})),
                     UP.el("span", {class: "fall-delta num", role: "cell"}, total ? "" : UP.signed(step.delta, write)),
                     UP.el("span", {class: "fall-sum num", role: "cell"}, write(step.to)));
    },
};

UP.parts.waterfall = (workload, parent, id, jump) => {
    const diff = UP.object(workload.diff), unit = UP.clean(workload.unit) || "step";
    if ([diff.step_a_ns, diff.step_b_ns, diff.delta_ns].some(value => UP.num(value) === null) || !UP.list(diff.contributions).length)
        return;
    const part = UP.part(parent, 3, id + "-waterfall", "From the old " + unit + " time to the new", "waterfall");
    const steps = UP.waterfall.steps(diff), domain = UP.waterfall.domain(steps);
    const scale = d3.scaleLinear([domain.lo, domain.hi], [0, 100]).clamp(true);
    const write = UP.fixedNs(Math.max(diff.step_a_ns, diff.step_b_ns), (d3.max(steps.slice(1, -1), step => Math.abs(step.delta)) || 1) / 200);
    const interval = Array.isArray(diff.delta_ci_ns) ? UP.interval(UP.num(diff.delta_ci_ns[0]), UP.num(diff.delta_ci_ns[1]), UP.signedNs) : null;
    part.append(UP.el("p", {class: "lead"}, UP.el("b", {text: UP.signedNs(diff.delta_ns)}), " a " + unit, interval ? " (interval " + interval + ")" : "",
                      ". Every bar starts where the one above it ended; the sums stand at the right.",
                      domain.cut ? UP.el("span", {class: "muted", text: " The axis starts at " + UP.ns(scale.domain()[0]) + ", not at 0."}) : null));
    const round = UP.fixedNs(Math.max(Math.abs(domain.lo), domain.hi), d3.tickStep(domain.lo, domain.hi, 5) / 2.2); // no two ticks read the same
    const axis = UP.el("div", {class: "fall axis-row", "aria-hidden": "true"}, UP.el("span", {class: "fall-label"}), UP.el("span", {class: "fall-track"},
        scale.ticks(5).filter(tick => scale(tick) < 97).map(tick => UP.el("span", {class: "tick", style: {left: scale(tick) + "%"}, text: round(tick)}))),
        UP.el("span", {class: "fall-delta num", text: "change"}), UP.el("span", {class: "fall-sum num", text: "sum"}));
    part.append(UP.el("div", {class: "falls", role: "table", "aria-label": "Contributions from the old time of a " + unit + " to the new one, with running sums"}, axis,
                      steps.map(step => UP.waterfall.row(step, scale, domain.cut, jump, write))));
};

UP.parts.decomposition = (workload, parent, id) => {
    const diff = UP.object(workload.diff), unit = UP.clean(workload.unit) || "step";
    const parts = UP.list(diff.parts).map(UP.object).filter(item => UP.num(item.a_ns) || UP.num(item.b_ns));
    if (!parts.length)
        return;
    const part = UP.part(parent, 3, id + "-decomposition", "What a " + unit + " is spent on", "decomposition");
    const scale = Math.max(d3.sum(parts, item => Math.max(0, item.a_ns || 0)), d3.sum(parts, item => Math.max(0, item.b_ns || 0))) || 1;
    const write = UP.fixedNs(scale, scale / 2000);
    const stack = side => UP.el("div", {class: "stack-row"}, UP.el("span", {class: "stack-label"}, UP.name(UP.list(UP.data.sides)[side], 20)),
        UP.el("span", {class: "stack"}, parts.map(item => {
            const value = Math.max(0, UP.num(side ? item.b_ns : item.a_ns) || 0);
            return value ? UP.el("span", {class: "segment" + (value / scale < 0.22 ? " narrow" : ""), style: {width: 100 * value / scale + "%", "background-color": UP.classColour(item.class)},
                                          title: UP.short(item.title || item.class, 40) + ": " + UP.ns(value)},
                                 100 * value / scale > 9 ? UP.el("span", {text: write(value)}) : null) : null;
        })));
    part.append(UP.el("div", {class: "stacks", "aria-hidden": "true"}, stack(0), stack(1)));
    const sum = side => d3.sum(parts, item => UP.num(side ? item.b_ns : item.a_ns) || 0);
    const line = (item, a, b, swatch) => UP.el("tr", {}, UP.el("th", {scope: "row"}, swatch, UP.name(item, 40)), [write(a), write(b)].map(text => UP.el("td", {class: "num", text})),
        UP.el("td", {class: "num " + (a === null || b === null || !/[1-9]/.test(write(b - a)) ? "" : b > a ? "slower-text" : "faster-text"), text: a === null || b === null ? UP.dash : UP.signed(b - a, write)}));
    part.append(UP.el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "What a " + unit + " is spent on, as a table"}, UP.el("table", {class: "plain"},
        UP.el("thead", {}, UP.el("tr", {}, UP.el("th", {scope: "col", text: "Each instant belongs to one"}), [UP.sideName(0), UP.sideName(1), "Difference"].map(text => UP.el("th", {scope: "col", class: "num", text})))),
        UP.el("tbody", {}, parts.map(item => line(item.title || item.class, UP.num(item.a_ns), UP.num(item.b_ns),
                                                  UP.el("span", {class: "swatch", "aria-hidden": "true", style: {"background-color": UP.classColour(item.class)}})))),
        UP.el("tfoot", {}, line("Sum", sum(0), sum(1), null)))));
    const facts = [];
    if (UP.clean(diff.traced).trim())
        facts.push(UP.clean(diff.traced).slice(0, 300));
    if (UP.list(diff.unaccounted).some(value => UP.num(value) !== null))
        facts.push("in no class: " + UP.list(diff.unaccounted).map(value => UP.percent(UP.num(value), 2)).join(" and "));
    if (UP.num(diff.match_coverage) !== null)
        facts.push(UP.percent(diff.match_coverage, 3) + " of the time found its partner on the other side");
    if (UP.num(diff.cold_a_ns) !== null && UP.num(diff.cold_b_ns) !== null)
        facts.push("the first " + unit + " took " + UP.ns(diff.cold_a_ns) + " and " + UP.ns(diff.cold_b_ns));
    if (facts.length)
        part.append(UP.el("p", {class: "muted", text: facts.join("; ").replace(/^./, letter => letter.toUpperCase()) + "."}));
};
