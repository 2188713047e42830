// SPDX-License-Identifier: Apache-2.0
// The contributions, by rank: what, where, how much and how sure, evidence and suspects. Each opens by click, Enter or a jump.
"use strict";
UP.contributions = {
    first: 10,

    whisker(item, scale) {
        const x = value => 50 + 50 * Math.max(-1, Math.min(1, value / scale));
        const from = Math.min(x(0), x(item.delta_ns)), to = Math.max(x(0), x(item.delta_ns));
        const ci = Array.isArray(item.ci_ns) && UP.num(item.ci_ns[0]) !== null && UP.num(item.ci_ns[1]) !== null ? item.ci_ns : null;
        const out = ci ? (ci[0] < -scale ? " more-left" : "") + (ci[1] > scale ? " more-right" : "") : ""; // it goes on: no end is drawn
        return UP.el("span", {class: "whisker", "aria-hidden": "true"}, UP.el("span", {class: "axis-zero"}),
                     UP.el("span", {class: "bar " + (item.delta_ns > 0 ? "slower" : "faster"), style: {left: from + "%", width: Math.max(0.4, to - from) + "%"}}),
                     ci ? UP.el("span", {class: "range" + out, style: {left: x(ci[0]) + "%", width: Math.max(0.4, x(ci[1]) - x(ci[0])) + "%"}}) : null);
    },

    numbers(item, unit) {
        const rows = [["On the path of a " + unit, UP.num(item.a_ns), UP.num(item.b_ns), UP.ns], ["Busy, also where hidden", UP.num(item.busy_a_ns), UP.num(item.busy_b_ns), UP.ns],
                      ["Executions a " + unit, UP.num(item.count_a), UP.num(item.count_b), UP.count]].filter(row => row[1] !== null || row[2] !== null);
        const each = (ns, count) => (ns !== null && count ? ns / count : null);
        const a = each(UP.num(item.busy_a_ns), UP.num(item.count_a)), b = each(UP.num(item.busy_b_ns), UP.num(item.count_b));
        if (a !== null || b !== null)
            rows.push(["One execution", a, b, UP.ns]);
        if (!rows.length)
            return null;
        return UP.el("table", {class: "plain numbers"}, UP.el("thead", {}, UP.el("tr", {}, UP.el("td", {}), [UP.sideName(0), UP.sideName(1), "Difference"].map(text => UP.el("th", {scope: "col", class: "num", text})))),
                     UP.el("tbody", {}, rows.map(([text, left, right, write]) => UP.el("tr", {}, UP.el("th", {scope: "row", text}), UP.el("td", {class: "num", text: write(left)}),
                           UP.el("td", {class: "num", text: write(right)}), UP.el("td", {class: "num", text: left === null || right === null ? UP.dash : UP.signed(right - left, write)})))));
    },

    body(item, workload, find) {
        const unit = UP.clean(workload.unit) || "step";
        const same = item.name_a === item.name_b;
        const names = [same ? ["", item.name_a] : [UP.sideName(0), item.name_a], same ? null : [UP.sideName(1), item.name_b]]
            .filter(pair => pair && pair[1] !== null && pair[1] !== undefined);
        const texts = (title, list) => (UP.list(list).length ? [UP.el("h5", {text: title}), UP.el("ul", {}, UP.list(list).slice(0, 50).map(text => UP.el("li", {}, UP.clean(text).slice(0, 4000))))] : null);
        const ci = Array.isArray(item.ci_ns) ? UP.interval(UP.num(item.ci_ns[0]), UP.num(item.ci_ns[1]), UP.signedNs) : null;
        const finders = [];
        if (find.timeline && find.timeline(item))
            finders.push(UP.el("button", {type: "button", onclick: () => find.showTimeline(item)}, "Show in the timeline"));
        if (find.table)
            finders.push(UP.el("button", {type: "button", onclick: () => find.table(item)}, "Find in the table"));
        return UP.el("div", {class: "item-body"}, UP.el("div", {class: "item-left"},
            UP.el("p", {}, UP.el("b", {text: UP.plainWords(item)}), ": " + UP.signedNs(item.delta_ns) + " a " + unit + (ci ? ", interval " + ci : ", no interval (one traced pair gives none)") +
                  (UP.num(item.share) === null ? "" : ", " + UP.percent(item.share, 2) + " of a " + unit) + "."),
            UP.clean(item.where).trim() ? UP.el("p", {}, UP.el("span", {class: "muted", text: "Place: "}), UP.name(item.where, 300)) : null,
            texts("Suspects", item.suspects), texts("Evidence (a: " + UP.sideName(0) + ", b: " + UP.sideName(1) + ")", item.evidence)),
            UP.el("div", {class: "item-right"}, this.numbers(item, unit), names.length ? [UP.el("h5", {text: names.length > 1 ? "Names" : "Name"}), names.map(([side, name]) => UP.el("p", {class: "whole-name"}, side ? UP.el("span", {class: "muted", text: side + ": "}) : null, UP.whole(name)))] : null,
            finders.length ? UP.el("p", {class: "buttons screen"}, finders) : null));
    },

    item(item, workload, scale, id, find) {
        const node = UP.el("details", {class: "item" + (item.named ? "" : " noise"), id: id + "-c" + UP.integer(item.rank)});
        node.append(UP.el("summary", {},
            UP.el("span", {class: "item-rank", text: UP.integer(item.rank)}),
            UP.el("span", {class: "item-name"}, UP.el("span", {class: "item-kind", text: UP.short(item.title || UP.plainWords(item), 60)}), UP.name(item.label, 100, "b"), UP.clean(item.where).trim() ? UP.name(item.where, 80, "small") : null),
            this.whisker(item, scale),
            UP.el("span", {class: "item-delta num " + (item.delta_ns > 0 ? "slower-text" : "faster-text")}, UP.signedNs(item.delta_ns), UP.el("small", {text: UP.num(item.share) === null ? "" : UP.percent(item.share, 2)}))));
        let filled = false;
        const fill = () => {
            if (!filled)
                node.append(this.body(item, workload, find));
            filled = true;
        };
        node.addEventListener("toggle", () => node.open && fill());
        node.fill = fill;
        return node;
    },
};

UP.parts.contributions = (workload, parent, id, find) => {
    const diff = UP.object(workload.diff), unit = UP.clean(workload.unit) || "step";
    const items = UP.list(diff.contributions).filter(item => item && UP.num(item.delta_ns) !== null);
    if (!items.length)
        return;
    const part = UP.part(parent, 3, id + "-contributions", "Contributions", "contributions");
    const named = items.filter(item => item.named), others = items.filter(item => !item.named);
    part.append(UP.el("p", {class: "lead"}, named.length ? UP.plural(named.length, "contribution stands", "contributions stand") + " out of the noise"
        : "No contribution stands out of the noise", UP.num(diff.traced_pairs) ? " of " + UP.plural(diff.traced_pairs, "traced pair") : "", ". Bar: time a " + unit + ", left faster, right slower; line: its interval."));
    const fallback = items.slice().sort((a, b) => Math.abs(b.delta_ns) - Math.abs(a.delta_ns)).slice(0, 3);
    const shown = named.length ? named : fallback, ends = item => UP.list(item.ci_ns).map(value => Math.abs(UP.num(value) || 0));
    const scale = d3.max(shown, item => d3.max([Math.abs(item.delta_ns), ...ends(item)])) || 1; // an interval cut off would look narrow
    const list = UP.el("div", {class: "items"}, shown.slice(0, 40).map(item => UP.contributions.item(item, workload, scale, id, find)));
    part.append(list);
    const rest = named.length ? named.slice(40).concat(others) : others.filter(item => !fallback.includes(item));
    if (rest.length) {
        const more = UP.el("details", {class: "more-items screen-only"}, UP.el("summary", {text: UP.plural(rest.length, "more", "more") + ", not told from noise or small: together " + UP.signedNs(d3.sum(rest, item => item.delta_ns))}));
        more.addEventListener("toggle", () => {
            if (more.open && more.childElementCount === 1)
                more.append(UP.el("div", {class: "items"}, rest.slice(0, 200).map(item => UP.contributions.item(item, workload, scale, id, find))));
        });
        part.append(more);
    }
    if (UP.list(diff.notes).length)
        part.append(UP.el("ul", {class: "notes"}, UP.list(diff.notes).map(text => UP.el("li", {}, UP.clean(text).slice(0, 2000)))));
    UP.print.listeners.push(begin => begin && part.querySelectorAll("details.item").forEach(node => node.fill && node.fill()));
};
