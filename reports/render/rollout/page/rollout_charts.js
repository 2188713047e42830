// SPDX-License-Identifier: Apache-2.0
// Charts over time: the candidate's share with the decisions on it, error rates, latencies. All have the same time axis, and stages as
// bands behind them.
"use strict";
UP.time = {
    left: 54, right: 30,

    // [first, last] in ms since 1970, of all that has a time.
    domain() {
        if (this.known)
            return this.known;
        const data = UP.data, times = [];
        UP.list(data.points).flat().filter(Array.isArray).forEach(point => times.push(point[0] * 1e3, point[1] * 1e3));
        UP.list(data.decisions).forEach(decision => UP.num(UP.object(decision).at) !== null && times.push(decision.at / 1e6));
        UP.list(data.stages).map(UP.object).forEach(stage => [stage.begin_s, stage.end_s].forEach(at => UP.num(at) !== null && times.push(at * 1e3)));
        const lo = times.length ? d3.min(times) : UP.num(data.read) / 1e6 - 6e4, hi = times.length ? d3.max(times) : UP.num(data.read) / 1e6;
        this.known = [lo, hi > lo ? hi : lo + 1000];
        return this.known;
    },

    frame(container, width, height, label) {
        const svg = UP.svg(container, width, height, label).attr("class", "time");
        const x = d3.scaleUtc(this.domain(), [this.left, width - this.right]);
        return {svg, x, width, height, top: 22, bottom: height - 24};
    },

    // Of the time axis: no two that read the same, and none over another.
    moments(x, width, format) {
        const ticks = x.ticks(Math.max(2, Math.floor(width / 110))).filter((tick, i, all) => !i || format(tick) !== format(all[i - 1]));
        const every = Math.ceil(ticks.length * 64 / (width - this.left - this.right));
        return ticks.filter((_, i) => i % every === 0);
    },

    // Bands of stages with their names, the time axis, and levels.
    ground(frame, y, levels, write) {
        const {svg, x, top, bottom, width} = frame, end = this.domain()[1];
        UP.list(UP.data.stages).map(UP.object).filter(stage => UP.num(stage.begin_s) !== null).forEach((stage, i) => {
            const from = x(stage.begin_s * 1e3), to = x(Math.min(end, UP.num(stage.end_s) === null ? end : stage.end_s * 1e3));
            svg.append("rect").attr("class", "band" + (stage.aa || stage.shadow ? " learns" : i % 2 ? " odd" : "")).attr("x", from).attr("width", Math.max(0, to - from)).attr("y", top - 16).attr("height", bottom - top + 16);
            if (to - from > 9 + 6.2 * Math.min(12, UP.short(stage.name, 12).length))
                svg.append("text").attr("class", "stage-name").attr("x", from + 4).attr("y", top - 5).text(UP.short(stage.name, 12));
        });
        levels.forEach(level => {
            svg.append("line").attr("class", "grid").attr("x1", this.left).attr("x2", width - this.right).attr("y1", y(level)).attr("y2", y(level));
            svg.append("text").attr("x", this.left - 6).attr("y", y(level) + 4).attr("text-anchor", "end").text(write(level));
        });
        const span = x.domain()[1] - x.domain()[0], format = d3.utcFormat(span > 2 * 864e5 ? "%d %b" : span > 6e5 ? "%H:%M" : "%H:%M:%S");
        svg.append("g").attr("class", "axis").attr("transform", "translate(0," + bottom + ")").call(d3.axisBottom(x).tickValues(this.moments(x, width, format)).tickSize(4).tickFormat(format));
    },

    // What stands at a pointer's place.
    point(frame, show) {
        const node = frame.svg.node(), cross = frame.svg.append("line").attr("class", "cross").attr("y1", frame.top).attr("y2", frame.bottom).style("display", "none");
        frame.svg.on("pointermove", () => {
            const event = d3.event, box = node.getBoundingClientRect(), at = frame.x.invert((event.clientX - box.left) * frame.width / box.width).getTime();
            const shown = show(at);
            cross.style("display", shown ? null : "none");
            if (!shown)
                return UP.tooltip.hide();
            cross.attr("x1", frame.x(shown.at)).attr("x2", frame.x(shown.at));
            return UP.tooltip.show(shown.lines, event.clientX, event.clientY);
        }).on("pointerleave", () => { cross.style("display", "none"); UP.tooltip.hide(); });
    },

    // Points of an arm as [ms in its middle, value]; value null where there is none.
    values(arm, value) {
        return UP.list(UP.list(UP.data.points)[arm]).map(point => (Array.isArray(point) ? [(point[0] + point[1]) * 500, value(point)] : [0, null]));
    },

    line(frame, y, points, name) {
        const path = d3.line().defined(point => point[1] !== null).x(point => frame.x(point[0])).y(point => y(point[1]));
        frame.svg.append("path").attr("class", "line " + name).attr("d", path(points));
        points.forEach((point, i) => { // what has no neighbour would be no line
            if (point[1] !== null && (i === 0 || points[i - 1][1] === null) && (i === points.length - 1 || points[i + 1][1] === null))
                frame.svg.append("circle").attr("class", "lone " + name).attr("r", 1.8).attr("cx", frame.x(point[0])).attr("cy", y(point[1]));
        });
    },

    candidate: () => "candidate" + (UP.list(UP.data.stages).some(stage => UP.object(stage).aa) ? " (A/A stage: the second baseline)" : ""),
    legend: items => UP.el("p", {class: "legend", "aria-hidden": "true"}, items.map(([key, text]) => UP.el("span", {}, UP.el("span", {class: "key " + key}), text))),
};

UP.parts.share = (data, main) => {
    const points = UP.list(data.share).filter(point => Array.isArray(point) && UP.num(point[1]) !== null).map(point => [point[0] / 1e6, point[1], point[2]]);
    if (!points.length)
        return;
    const part = UP.part(main, 2, "share", "The candidate's share of the traffic", "share"), chart = UP.el("div", {class: "chart"});
    const end = UP.time.domain()[1], steps = points.concat([[Math.max(end, points[points.length - 1][0]), points[points.length - 1][1], ""]]);
    part.append(UP.time.legend([["decision-key up", "a decision that gave it more"], ["decision-key down", "less"], ["decision-key stay", "no move"]]), chart);
    UP.chart(chart, width => {
        const frame = UP.time.frame(chart, width, 186, "Share of the candidate over time, " + UP.rollout.percent(points[0][1]) + " to " + UP.rollout.percent(points[points.length - 1][1]) + ", with " +
            UP.plural(UP.list(data.decisions).length, "decision"));
        const y = d3.scaleSqrt([0, 100], [frame.bottom, frame.top]); // 1 % is seen beside 100 %
        UP.time.ground(frame, y, width < 500 ? [0, 5, 25, 100] : [0, 1, 5, 25, 50, 100], level => level + " %");
        const x = point => frame.x(Math.max(UP.time.domain()[0], point[0]));
        frame.svg.append("path").attr("class", "share-area").attr("d", d3.area().curve(d3.curveStepAfter).x(x).y0(frame.bottom).y1(point => y(point[1]))(steps));
        frame.svg.append("path").attr("class", "share").attr("d", d3.line().curve(d3.curveStepAfter).x(x).y(point => y(point[1]))(steps));
        const decisions = UP.list(data.decisions).map(UP.object).filter(decision => UP.num(decision.at) !== null && UP.num(decision.percent_to) !== null);
        decisions.forEach((decision, i) => {
            const at = frame.x(decision.at / 1e6), direction = UP.rollout.direction(decision);
            frame.svg.append("line").attr("class", "decision-line").attr("x1", at).attr("x2", at).attr("y1", frame.top).attr("y2", frame.bottom);
            frame.svg.append("circle").attr("class", "decision " + direction).attr("r", 6).attr("cx", at).attr("cy", y(decision.percent_to)).attr("tabindex", 0).attr("role", "link")
                .attr("aria-label", UP.clean(decision.title) + ", " + UP.rollout.percent(decision.percent_from) + " to " + UP.rollout.percent(decision.percent_to))
                .on("click", () => UP.jump(document.getElementById("d" + i)))
                .on("keydown", () => d3.event.key === "Enter" && UP.jump(document.getElementById("d" + i)))
                .on("pointerenter", () => UP.tooltip.show([UP.clean(decision.title) + ": " + UP.rollout.percent(decision.percent_from) + " → " + UP.rollout.percent(decision.percent_to),
                    UP.short(decision.reason, 160), UP.rollout.time(decision.at)], d3.event.clientX, d3.event.clientY))
                .on("pointerleave", () => UP.tooltip.hide());
        });
    });
};

UP.parts.errors = (data, main) => {
    const rate = point => (point[2] > 0 ? 100 * point[3] / point[2] : null);
    const arms = [0, 1].map(arm => UP.time.values(arm, rate));
    if (!arms.some(points => points.some(point => point[1] !== null)))
        return;
    const part = UP.part(main, 2, "errors", "Error rate", "arms"), chart = UP.el("div", {class: "chart"});
    part.append(UP.time.legend([["arm-key a", "baseline"], ["arm-key b", UP.time.candidate()]]), chart);
    const most = d3.max(arms.flat(), point => point[1]) || 1, top = Math.max(most * 1.08, 1e-6);
    UP.chart(chart, width => {
        const frame = UP.time.frame(chart, width, 190, "Error rate of both arms over time, at most " + UP.digits(most, 3) + " percent");
        const y = d3.scaleLinear([0, top], [frame.bottom, frame.top]);
        UP.time.ground(frame, y, y.ticks(4), level => UP.digits(level, 2).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + " %");
        arms.forEach((points, arm) => UP.time.line(frame, y, points, "ab"[arm]));
        UP.time.point(frame, at => UP.time.nearest(at, point => UP.rollout.rate(point[3], point[2]) + " of " + UP.integer(point[2])));
    });
};

// What both arms did at a time, in words.
UP.time.nearest = (at, write) => {
    const found = [0, 1].map(arm => UP.list(UP.list(UP.data.points)[arm]).find(point => Array.isArray(point) && point[0] * 1e3 <= at && at < point[1] * 1e3));
    if (!found[0] && !found[1])
        return null;
    const say = point => UP.rollout.clock(new Date(point[0] * 1e3)) + " to " + UP.rollout.clock(new Date(point[1] * 1e3)) + ", " + write(point);
    return {at, lines: ["UTC"].concat(found.map((point, arm) => (point ? UP.rollout.arms[arm] + ": " + say(point) : "")))};
};

UP.parts.latency = (data, main) => {
    const arms = [0, 1].map(arm => [UP.time.values(arm, point => UP.num(point[4])), UP.time.values(arm, point => (point[2] >= 100 ? UP.num(point[5]) : null))]);
    const known = arms.flat(2).map(point => point[1]).filter(value => value > 0);
    if (!known.length)
        return;
    const part = UP.part(main, 2, "latency", "Latency", "arms"), chart = UP.el("div", {class: "chart"});
    part.append(UP.time.legend([["arm-key a", "baseline"], ["arm-key b", UP.time.candidate()], ["arm-key dashed", "median (solid: p99)"]]), chart);
    UP.chart(chart, width => {
        const frame = UP.time.frame(chart, width, 250, "Median and p99 latency of both arms over time, logarithmic, " + UP.rollout.ms(d3.min(known)) + " to " + UP.rollout.ms(d3.max(known)));
        const y = d3.scaleLog([d3.min(known) / 1.15, d3.max(known) * 1.15], [frame.bottom, frame.top]);
        const step = y.ticks(5), levels = step.length > 8 ? step.filter(level => /^[125]0*$/.test(String(level).replace(/^0\.0*/, ""))) : step;
        const short = level => UP.digits(level, level < 1 ? 1 : 2).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
        UP.time.ground(frame, y, levels, level => (level < 1000 ? short(level) + " ms" : short(level / 1000) + " s"));
        arms.forEach(([p50, p99], arm) => { UP.time.line(frame, y, p50, "ab"[arm] + " dashed"); UP.time.line(frame, y, p99, "ab"[arm]); });
        UP.time.point(frame, at => UP.time.nearest(at, point => "p50 " + UP.rollout.ms(point[4]) + ", p99 " + UP.rollout.ms(point[5]) + " of " + UP.integer(point[2])));
    });
};
