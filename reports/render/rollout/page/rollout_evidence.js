// SPDX-License-Identifier: Apache-2.0
// The evidence, metric by metric: estimate and bounds against what is allowed, and the e-value against what a rollback needs.
"use strict";
UP.evidence = {
    // One metric over all stages; [ms, value, low, high, threshold, evidence, needed], null between stages: estimates begin anew.
    metrics() {
        const found = new Map();
        for (const series of UP.list(UP.data.series).map(UP.object)) {
            const key = UP.clean(series.metric);
            if (!found.has(key))
                found.set(key, {key, title: UP.clean(series.title), count: Boolean(series.count), points: [], last: null});
            const metric = found.get(key), points = UP.list(series.points).filter(Array.isArray);
            metric.points.push(...points.map(point => [point[0] * 1e3, ...point.slice(1)]), null);
            // What holds is the latest that was decided: at 100 % no baseline is left to compare with.
            if (points.length && (!metric.last || (points[points.length - 1][0] >= metric.last.at && (series.verdict !== "undecided" || metric.last.verdict === "undecided"))))
                metric.last = {at: points[points.length - 1][0], verdict: series.verdict, missing: UP.clean(series.missing), point: points[points.length - 1], stage: series.stage};
        }
        return Array.from(found.values()).filter(metric => metric.last);
    },
    write: metric => value => (UP.num(value) === null ? UP.dash : metric.count ? UP.integer(value) : value >= 3 ? UP.digits(value, 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + "×" : UP.change(value)),
    // What was set, not measured: as many digits as it has.
    allowed: metric => value => (UP.num(value) === null ? UP.dash : metric.count ? UP.integer(value) : value >= 3 ? UP.digits(value, 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + "×" : UP.signed(value - 1, UP.trimmed)),
    ratios: [0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000],

    // Ratios on a logarithmic scale: half and twice are as far from equal.
    scale(metric, values, wide, range) {
        if (metric.count) {
            const most = Math.max(1, d3.max(values.concat(wide)));
            const y = d3.scaleLinear([0, most * 1.06], range).clamp(true);
            return [y, y.ticks(4).filter(Number.isInteger)];
        }
        const known = values.concat(wide).filter(value => value > 0), near = values.filter(value => value > 0), room = Math.max(d3.max(near) / d3.min(near), 1.06);
        // A bound of the first seconds reaches far out: it must not squash the rest.
        const lo = Math.max(d3.min(known), d3.min(near) / room / 1.05, 0.05), hi = Math.min(d3.max(known), d3.max(near) * room * 1.05), edge = Math.pow(hi / lo, 0.06);
        const y = d3.scaleLog([lo / edge, hi * edge], range).clamp(true), levels = this.ratios.filter(level => level >= lo / edge && level <= hi * edge);
        const far = levels.filter((level, i) => level === 1 || Math.abs(y(level) - y(1)) > 16).filter((level, i, all) => i === 0 || level === 1 || all[i - 1] === 1 || y(all[i - 1]) - y(level) > 16);
        return [y, far];
    },

    bounds(container, metric, width) {
        const points = metric.points, finite = index => points.filter(point => point && UP.num(point[index]) !== null).map(point => point[index]);
        const least = metric.count ? 0 : 1, values = [least].concat(finite(1), finite(4)), wide = finite(2).concat(finite(3));
        const frame = UP.time.frame(container, width, 190, metric.title + ": candidate over baseline with its confidence sequence over time; now " + this.write(metric)(metric.last.point[1]));
        const [y, levels] = this.scale(metric, values, wide, [frame.bottom, frame.top]);
        UP.time.ground(frame, y, levels, this.allowed(metric));
        const x = point => frame.x(point[0]), has = (...indexes) => point => point !== null && indexes.every(index => UP.num(point[index]) !== null);
        frame.svg.append("path").attr("class", "between").attr("d", d3.area().defined(point => has(1, 2)(point) || has(1, 3)(point)).x(x).y0(point => (has(2)(point) ? y(point[2]) : frame.bottom))
            .y1(point => (has(3)(point) ? y(point[3]) : frame.top))(points));
        if (!metric.count)
            frame.svg.append("line").attr("class", "equal").attr("x1", UP.time.left).attr("x2", width - UP.time.right).attr("y1", y(1)).attr("y2", y(1));
        frame.svg.append("path").attr("class", "limit").attr("d", d3.line().defined(has(4)).x(x).y(point => y(point[4]))(points));
        frame.svg.append("path").attr("class", "line b").attr("d", d3.line().defined(has(1)).x(x).y(point => y(point[1]))(points));
        UP.time.point(frame, at => this.at(metric, at));
    },

    against(container, metric, width) {
        const points = metric.points.filter(point => point === null || UP.num(point[5]) !== null), known = points.filter(point => point);
        const needed = d3.max(known, point => UP.num(point[6])), lo = Math.min(-1, d3.min(known, point => point[5])), hi = Math.max(needed || 1, d3.max(known, point => point[5]));
        const frame = UP.time.frame(container, width, 130, metric.title + ": evidence against the candidate over time; now " + UP.digits(known[known.length - 1][5], 2) + " of " + (needed ? UP.digits(needed, 2) : "-"));
        const y = d3.scaleLinear([Math.max(lo, -hi) * 1.05, hi * 1.1], [frame.bottom, frame.top]).clamp(true);
        UP.time.ground(frame, y, y.ticks(3), level => UP.digits(level, 2).replace(/\.0+$/, ""));
        const has = index => point => point !== null && UP.num(point[index]) !== null;
        frame.svg.append("path").attr("class", "limit").attr("d", d3.line().defined(has(6)).x(point => frame.x(point[0])).y(point => y(point[6]))(points));
        frame.svg.append("path").attr("class", "line b").attr("d", d3.line().defined(has(5)).x(point => frame.x(point[0])).y(point => y(point[5]))(points));
        UP.time.point(frame, at => this.at(metric, at));
    },

    // The estimate in words, where there is none, too: events of the candidate alone have a lower end only.
    now(metric, point) {
        if (UP.num(point[1]) !== null || !["error_rate", "rejected_rate"].includes(metric.key))
            return this.write(metric)(point[1]);
        return !(UP.num(point[2]) > 0) ? "none to compare" : "none on the baseline; at least " + UP.digits(point[2], 3) + "×";
    },

    at(metric, at) {
        const known = metric.points.filter(point => point);
        const point = known.reduce((best, one) => (best === null || Math.abs(one[0] - at) < Math.abs(best[0] - at) ? one : best), null), write = this.write(metric);
        return point && {at: point[0], lines: [UP.rollout.clock(new Date(point[0])) + " UTC: " + write(point[1]), UP.num(point[2]) === null && UP.num(point[3]) === null ? "" : "between " + write(point[2]) + " and " + write(point[3]),
            "allowed: " + this.allowed(metric)(point[4]), UP.num(point[5]) === null ? "" : "against it: " + UP.digits(point[5], 3) + " of " + (UP.num(point[6]) === null ? UP.dash : UP.digits(point[6], 3))]};
    },
};

UP.parts.evidence = (data, main) => {
    const metrics = UP.evidence.metrics();
    if (!metrics.length)
        return;
    const part = UP.part(main, 2, "evidence", "Evidence", "evidence"), box = UP.el("div", {class: "metrics"});
    part.append(UP.time.legend([["arm-key b", "candidate over baseline"], ["arm-key bound", "its confidence sequence"], ["arm-key limit", "what is allowed, or what a rollback needs"]]), box);
    for (const metric of metrics) {
        const write = UP.evidence.write(metric), last = metric.last, bounds = UP.el("div", {class: "chart"}), against = UP.el("div", {class: "chart"});
        box.append(UP.el("article", {"aria-label": metric.title}, UP.el("h3", {}, UP.name(metric.title, 40), " ", UP.rollout.pill(last.verdict), UP.el("span", {class: "muted", text: "in stage " + UP.rollout.stageName(last.stage)})),
            UP.el("p", {class: "now"}, UP.el("b", {text: UP.evidence.now(metric, last.point)}), UP.num(last.point[3]) === null ? "" : ", at most " + write(last.point[3]), "; allowed " + UP.evidence.allowed(metric)(last.point[4]),
                  last.verdict === "undecided" && last.missing && last.missing !== "no verdict" ? UP.el("span", {class: "muted", text: "; missing: " + last.missing}) : null),
            bounds, metric.points.some(point => point && UP.num(point[5]) !== null) ? [UP.el("h4", {text: "Evidence against the candidate (logarithm of the e-value)"}), against] : null));
        UP.chart(bounds, width => UP.evidence.bounds(bounds, metric, width));
        if (against.isConnected)
            UP.chart(against, width => UP.evidence.against(against, metric, width));
    }
};
