// SPDX-License-Identifier: Apache-2.0
// The cells of a workload: medians, change with interval, and every pair of launches as a dot against the margin band.
"use strict";
UP.pairs = {
    points: cell => UP.list(cell.points).filter(point => Array.isArray(point) && UP.num(point[1]) > 0),

    // Ratios beyond these are drawn at the border: one wild pair must not squash the others.
    domain(cell, points) {
        const band = UP.num(cell.margin) || 0;
        const ratios = points.map(point => point[1]).filter(ratio => ratio > 0.05 && ratio < 20);
        const marks = [1, 1 - band, 1 + band, UP.num(cell.ci_lower), UP.num(cell.ci_upper), UP.num(cell.ratio)]
            .filter(value => value !== null && value > 0.02 && value < 50).concat(ratios);
        const lo = d3.min(marks), hi = d3.max(marks), room = Math.max(0.004, (hi - lo) * 0.07);
        return [Math.max(0, lo - room), hi + room];
    },

    words(cell, points) {
        const change = UP.changes(cell.ci_lower, cell.ci_upper, UP.limit(cell)), interval = UP.interval(UP.num(cell.ci_lower), UP.num(cell.ci_upper), change);
        return UP.metric(cell.metric) + ": " + UP.plural(points.length, "pair") + ", change of the median " + change(UP.num(cell.ratio)) +
            (interval ? ", interval " + interval : "") + (UP.num(cell.margin) ? ", margin " + UP.trimmed(cell.margin) : "");
    },

    draw(container, cell, points, width) {
        const rows = Math.max(1, Math.min(points.length, 14)), gap = 5, top = 8, plot = Math.max(28, rows * gap), middle = top + plot + 12, height = middle + 34;
        const svg = UP.svg(container, width, height, this.words(cell, points)).attr("class", "pairs");
        const x = d3.scaleLinear(this.domain(cell, points), [8, width - 8]).clamp(true);
        const higher = cell.direction === "higher", band = UP.num(cell.margin);
        if (band) {
            const edge = higher ? 1 - band : 1 + band;
            svg.append("rect").attr("class", "band").attr("x", x(1 - band)).attr("width", Math.max(0, x(1 + band) - x(1 - band))).attr("y", 0).attr("height", middle + 8);
            svg.append("rect").attr("class", "worse").attr("y", 0).attr("height", middle + 8).attr("x", higher ? 0 : x(edge))
                .attr("width", Math.max(0, higher ? x(edge) : width - x(edge)));
            svg.append("line").attr("class", "margin").attr("x1", x(edge)).attr("x2", x(edge)).attr("y2", middle + 8);
        }
        svg.append("line").attr("class", "zero").attr("x1", x(1)).attr("x2", x(1)).attr("y2", middle + 8);
        points.forEach((point, i) => {
            const dot = svg.append("circle").attr("class", "dot").attr("r", 3.4).attr("cx", x(point[1])).attr("cy", top + (i % rows + 0.5) * plot / rows);
            dot.append("title").text("pair " + UP.integer(point[0]) + ": " + UP.cellValue(cell, point[2]) + " → " + UP.cellValue(cell, point[3]) + ", " + UP.change(point[1]));
        });
        if (UP.num(cell.ci_lower) !== null && UP.num(cell.ci_upper) !== null)
            svg.append("rect").attr("class", "ci").attr("x", x(cell.ci_lower)).attr("width", Math.max(1.5, x(cell.ci_upper) - x(cell.ci_lower))).attr("y", middle - 2.5).attr("height", 5).attr("rx", 2);
        if (UP.num(cell.ratio) !== null)
            svg.append("path").attr("class", "median").attr("d", "M0,-7L5,0L0,7L-5,0Z").attr("transform", "translate(" + x(cell.ratio) + "," + middle + ")");
        const ticks = x.ticks(Math.max(2, Math.floor(width / 95))), step = ticks.length > 1 ? ticks[1] - ticks[0] : 0.01;
        const axis = svg.append("g").attr("class", "axis").attr("transform", "translate(0," + (middle + 8) + ")")
            .call(d3.axisBottom(x).tickValues(ticks).tickSize(4).tickFormat(value => this.tick(value, step)));
        axis.select(".domain").attr("stroke-opacity", 0.5);
    },
    tick(ratio, step) {
        const places = Math.max(0, Math.min(4, Math.ceil(-Math.log10(100 * step) - 1e-6)));
        const text = d3.format("." + places + "f")(Math.abs(100 * (ratio - 1)));
        return (Number(text) === 0 ? "" : ratio > 1 ? "+" : "\u2212") + text + " %";
    },

    table(cell, points) {
        const head = ["Pair", UP.sideName(0), UP.sideName(1), "Change"];
        return UP.el("details", {class: "alternative screen-only"}, UP.el("summary", {text: "The pairs as a table"}), UP.el("table", {class: "plain"},
            UP.el("thead", {}, UP.el("tr", {}, head.map((text, i) => UP.el("th", {scope: "col", class: i ? "num" : null, text})))),
            UP.el("tbody", {}, points.map(point => UP.el("tr", {}, [UP.integer(point[0]), UP.cellValue(cell, point[2]), UP.cellValue(cell, point[3]), UP.change(point[1])]
                .map((text, i) => UP.el("td", {class: i ? "num" : null, text})))))));
    },

    cell(cell) {
        const points = this.points(cell);
        const change = UP.changes(cell.ci_lower, cell.ci_upper, UP.limit(cell)), interval = UP.interval(UP.num(cell.ci_lower), UP.num(cell.ci_upper), change);
        const worse = UP.num(cell.ratio) === null ? 0 : (cell.ratio - 1) * (cell.direction === "higher" ? -1 : 1);
        const node = UP.el("article", {class: "cell" + (cell.gating ? " gating" : ""), "aria-label": UP.metric(cell.metric)});
        node.append(UP.el("div", {class: "cell-text"},
            UP.el("h4", {}, UP.name(UP.metric(cell.metric), 40), " ", cell.gating ? UP.pill(cell.verdict) : UP.el("span", {class: "tag", text: "observed"})),
            UP.el("p", {class: "big"}, UP.cellValue(cell, UP.num(cell.median_a)), UP.el("span", {class: "muted", text: " → "}), UP.cellValue(cell, UP.num(cell.median_b))),
            UP.el("p", {}, UP.el("b", {class: worse > 0 ? "slower-text" : worse < 0 ? "faster-text" : "", text: change(UP.num(cell.ratio))}),
                  interval ? " (" + (UP.num(cell.level) ? UP.trimmed(cell.level) + " interval: " : "") + interval + ")" : ""),
            UP.el("p", {class: "muted"}, [UP.num(cell.pairs) === null ? "" : UP.plural(cell.pairs, "pair"), UP.num(cell.margin) ? "margin " + UP.trimmed(cell.margin) : "",
                                          cell.direction === "higher" ? "higher is better" : "lower is better",
                                          UP.num(cell.mde) ? "detects " + UP.percent(cell.mde, 2) : ""].filter(text => text).join(" · ")),
            cell.reason ? UP.el("p", {class: "muted"}, UP.clean(cell.reason).slice(0, 600)) : null));
        if (points.length || UP.num(cell.ratio) > 0) {
            const chart = UP.el("div", {class: "chart"});
            node.append(UP.el("div", {class: "cell-chart"}, chart, points.length ? this.table(cell, points) : null));
            UP.chart(chart, width => this.draw(chart, cell, points, width));
        }
        return node;
    },
};

UP.parts.cells = (workload, parent, id) => {
    const cells = UP.list(workload.cells).map(UP.object);
    if (!cells.length)
        return;
    const part = UP.part(parent, 3, id + "-cells", "What was measured", "cells");
    part.append(UP.el("p", {class: "legend", "aria-hidden": "true"}, [["dot", "a pair of launches, candidate over baseline"], ["median", "median"], ["ci", "its interval"], ["band", "margin"], ["worse", "worse than it"]]
        .map(([key, text]) => UP.el("span", {}, UP.el("span", {class: "key " + key + "-key"}), text))));
    const gating = cells.filter(cell => cell.gating), others = cells.filter(cell => !cell.gating);
    part.append(...gating.map(cell => UP.pairs.cell(cell)));
    if (others.length && gating.length) {
        const more = UP.el("details", {}, UP.el("summary", {text: "Observed, never gating (" + others.length + "): " + others.map(cell => UP.metric(cell.metric).slice(0, 30) + " " + UP.change(UP.num(cell.ratio))).join(", ").slice(0, 300)}));
        part.append(more);
        const body = UP.el("div", {});
        more.append(body);
        body.append(...others.map(cell => UP.pairs.cell(cell)));
    } else {
        part.append(...others.map(cell => UP.pairs.cell(cell)));
    }
};
