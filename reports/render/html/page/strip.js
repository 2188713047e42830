// SPDX-License-Identifier: Apache-2.0
// The strip of all steps: the time of every step of both sides, launch after launch, on a logarithmic axis. Of steps that share a column
// of pixels the least, the median and the slowest are drawn: no slow step is lost, however many there are.
"use strict";
UP.strip = {
    // Pairs in order, both launches of each; null: there is nothing to draw.
    model(steps) {
        const pairs = new Map();
        UP.list(steps.launches).map(UP.object).forEach(launch => {
            const most = UP.list(launch.most).map(UP.num), unit = UP.num(launch.unit_ns);
            if (!(launch.steps > 0) || !(launch.width >= 1) || !(unit > 0) || !most.length || most.length > launch.steps || !most.every(value => value > 0))
                return;
            const scaled = (list, other) => (UP.list(list).length === most.length && UP.list(list).every(value => UP.num(value) > 0) ? list : other).map(value => value * unit);
            const pair = pairs.get(launch.pair) || {pair: launch.pair, sides: [null, null], steps: 0};
            pairs.set(launch.pair, pair);
            pair.sides[launch.side === "b" ? 1 : 0] = {raw: launch, side: launch.side === "b" ? 1 : 0, pair: launch.pair, steps: launch.steps, width: launch.width, most: scaled(most, most), least: scaled(launch.least, most),
                middle: scaled(launch.middle, most), at: UP.list(launch.at), from: UP.num(launch.from) || 0, median: UP.num(launch.median_ns), firsts: this.firsts(launch)};
            pair.steps = Math.max(pair.steps, launch.steps);
        });
        const list = Array.from(pairs.values());
        return list.length ? {pairs: list, steps, mark: UP.num(steps.mark) || 2, sides: UP.list(steps.sides).map(UP.object)} : null;
    },
    firsts(launch) {
        const places = [];
        for (const run of UP.list(launch.blocks))
            for (let i = 0; Array.isArray(run) && run[1] > 0 && i < run[2] && places.length < Math.min(launch.steps, 1e5); i++)
                places.push(run[0] + i * run[1]);
        return places.filter(place => place >= 0 && place < launch.steps);
    },
    number(launch, place) {
        const segment = UP.list(launch.raw.numbers).filter(item => Array.isArray(item) && item[0] <= place).pop();
        return segment ? segment[1] + place - segment[0] : place;
    },

    // One entry a column of pixels that has steps.
    columns(launch, left, width, steps, mark) {
        const found = new Map();
        launch.most.forEach((most, i) => {
            const begin = i * launch.width, end = Math.min(launch.steps, begin + launch.width), x = left + width * (begin + end) / 2 / steps, key = Math.floor(x);
            const place = begin + (UP.num(launch.at[i]) || 0), marked = place >= launch.from && launch.median > 0 && most >= mark * launch.median;
            const have = found.get(key);
            if (!have) {
                found.set(key, {x, least: launch.least[i], most, middles: [launch.middle[i]], place, begin, end, marked: marked ? 1 : 0, launch});
                return;
            }
            have.least = Math.min(have.least, launch.least[i]);
            if (most > have.most)
                [have.most, have.place] = [most, place];
            have.middles.push(launch.middle[i]);
            have.end = end;
            have.marked += marked ? 1 : 0;
        });
        // The lower median: of two steps the typical one.
        return Array.from(found.values(), column => Object.assign(column, {middle: column.middles.sort(d3.ascending)[(column.middles.length - 1) >> 1]}));
    },

    words(model, unit) {
        return "Time of every " + unit + " of " + UP.plural(model.pairs.length, "pair") + " of launches, logarithmic. " + [0, 1].map(side => this.facts(model, side, unit)).filter(text => text).join(" ");
    },
    facts(model, side, unit) {
        const of = UP.object(model.sides[side]);
        return UP.num(of.steps) === null ? "" : UP.sideName(side) + ": " + UP.plural(of.steps, unit) + " in " + UP.plural(of.launches, "launch", "launches") + ", the slowest " + UP.ns(of.slowest_ns) + "; after the warm-up " +
            (of.marked > 1 ? UP.integer(of.marked) + " take " : of.marked ? "1 takes " : "none takes ") + model.mark + " × " + (of.marked > 1 ? "their" : "its") + " launch's median or more.";
    },

    ticks(y, height) {
        const [lo, hi] = y.domain(), decades = Math.log10(hi / lo), steps = decades > 2.2 ? [1] : decades > 0.8 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 3, 5, 7], all = [];
        for (let power = Math.floor(Math.log10(lo)); power <= Math.log10(hi); power++)
            steps.forEach(step => step * 10 ** power >= lo && step * 10 ** power <= hi && all.push(step * 10 ** power));
        return all.filter((value, i) => !i || y(all[i - 1]) - y(value) > 13 || all.length * 13 < height);
    },

    draw(container, model, width, only, unit) {
        const pairs = only === null ? model.pairs : [model.pairs[only]], total = d3.sum(pairs, pair => pair.steps);
        const gutter = 58, plot = width - gutter - 6, high = width < 520 ? 96 : 128, head = 24, foot = 24, height = 2 * (high + head) + foot;
        const svg = UP.svg(container, width, height, this.words(model, unit)).attr("class", "strip");
        const launches = pairs.flatMap(pair => pair.sides).filter(launch => launch);
        const lo = d3.min(launches, launch => d3.min(launch.least)), hi = d3.max(launches, launch => d3.max(launch.most));
        const room = Math.max(1.12, Math.sqrt(2 * lo / hi)), y = d3.scaleLog([lo / room, hi * room], [high - 4, 4]); // at least a factor of two is seen
        const hits = [[], []];
        for (const side of [0, 1]) {
            const top = side * (high + head) + head, group = svg.append("g").attr("transform", "translate(0," + top + ")");
            group.append("text").attr("class", "strip-side side-" + "ab"[side]).attr("x", gutter).attr("y", -6).text(UP.sideName(side) + (side ? ", candidate" : ", baseline"));
            group.append("rect").attr("class", "frame-box").attr("x", gutter).attr("width", plot).attr("height", high);
            this.ticks(y, high).forEach(tick => {
                group.append("line").attr("class", "grid").attr("x1", gutter).attr("x2", gutter + plot).attr("y1", y(tick)).attr("y2", y(tick));
                group.append("text").attr("class", "tick-text").attr("x", gutter - 6).attr("y", y(tick) + 4).text(UP.ns(tick).replace(/\.0+(?=\D)/, ""));
            });
            let at = 0;
            pairs.forEach((pair, i) => {
                const left = gutter + plot * at / total, wide = plot * pair.steps / total;
                if (i && wide > 3)
                    group.append("line").attr("class", "border").attr("x1", left).attr("x2", left).attr("y2", high);
                if (pair.sides[side])
                    hits[side].push(...this.launch(group, pair.sides[side], {left, wide, high, top, y, steps: pair.steps, mark: model.mark}));
                at += pair.steps;
            });
        }
        this.axis(svg, pairs, {gutter, plot, total, top: 2 * (high + head), only, unit});
        this.hover(svg.node(), {hits, width, top: side => side * (high + head) + head, high, model, unit});
    },

    // The marks come last: nothing hides them.
    launch(group, launch, at) {
        const columns = this.columns(launch, at.left, at.wide, at.steps, at.mark), px = at.wide / at.steps, name = "side-" + "ab"[launch.side];
        if (launch.from > 0)
            group.append("rect").attr("class", "warm").attr("x", at.left).attr("width", Math.max(1, px * launch.from)).attr("height", at.high);
        if (launch.firsts.length && launch.firsts.length < launch.steps && at.wide / launch.firsts.length >= 4)
            group.append("path").attr("class", "block").attr("d", launch.firsts.map(place => "M" + (at.left + px * place).toFixed(1) + "," + at.high + "v-5").join(""));
        group.append("path").attr("class", "range " + name).attr("stroke-width", Math.max(1, Math.min(5, 0.8 * at.wide / launch.most.length)))
            .attr("d", columns.map(column => { const low = at.y(column.least), top = at.y(column.most); return "M" + column.x.toFixed(1) + "," + (low + 0.6).toFixed(1) + "V" + Math.min(top, low - 0.6).toFixed(1); }).join(""));
        group.append("path").attr("class", "middle " + name).attr("d", d3.line().x(column => column.x.toFixed(1)).y(column => at.y(column.middle).toFixed(1))(columns));
        if (launch.width === 1 && px >= 1.5)
            launch.firsts.filter(() => launch.firsts.length < launch.steps).forEach(place => group.append("circle").attr("class", "first").attr("r", 2.2)
                .attr("cx", at.left + px * (place + 0.5)).attr("cy", at.y(launch.most[place])));
        const marked = columns.filter(column => column.marked), radius = marked.length > at.wide / 12 ? 1.7 : 2.8; // a crowd in small dots
        marked.forEach(column => group.append("circle").attr("class", "slow").attr("r", radius).attr("cx", column.x).attr("cy", at.y(column.most)));
        return columns.map(column => Object.assign(column, {y: at.top + at.y(column.most)}));
    },

    axis(svg, pairs, at) {
        const axis = svg.append("g").attr("class", "axis").attr("transform", "translate(0," + at.top + ")");
        const label = (x, text, anchor) => axis.append("text").attr("x", x).attr("y", 16).attr("text-anchor", anchor || "middle").text(text);
        if (at.only !== null) {
            const x = d3.scaleLinear([0, at.total], [at.gutter, at.gutter + at.plot]);
            x.ticks(Math.max(2, at.plot / 110)).filter(tick => tick < at.total).forEach(tick => label(x(tick), tick ? UP.integer(tick) : at.unit + " 0", tick ? "middle" : "start"));
            return;
        }
        const every = Math.max(1, Math.ceil(34 * pairs.length / at.plot));
        let steps = 0;
        pairs.forEach((pair, i) => {
            const middle = at.gutter + at.plot * (steps + pair.steps / 2) / at.total;
            steps += pair.steps;
            if (i === 0)
                axis.append("text").attr("x", at.gutter - 6).attr("y", 16).attr("text-anchor", "end").text("pair");
            if (i % every === 0)
                label(middle, UP.integer(pair.pair));
        });
    },

    tip(column, at) {
        const launch = column.launch, many = column.end - column.begin > 1, number = place => UP.integer(this.number(launch, place));
        const times = launch.median > 0 && column.most >= 1.2 * launch.median ? ", " + UP.count(column.most / launch.median) + " × the launch's median" : "";
        return [UP.sideName(launch.side) + ", pair " + UP.integer(launch.pair) + ", " + at.unit + (many ? "s " + number(column.begin) + " to " + number(column.end - 1) : " " + number(column.place)),
                many ? "slowest: " + at.unit + " " + number(column.place) + ", " + UP.ns(column.most) + times : UP.ns(column.most) + times,
                many ? "median " + UP.ns(column.middle) + ", fastest " + UP.ns(column.least) : "",
                column.place < launch.from ? "in the warm-up" : "", !many && launch.firsts.includes(column.place) && launch.firsts.length < launch.steps ? "first of its block" : ""];
    },
    hover(node, at) {
        const ring = d3.select(node).append("circle").attr("class", "ring").attr("r", 5).attr("visibility", "hidden");
        const show = event => {
            const box = node.getBoundingClientRect(), scale = at.width / box.width, x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale, side = y < at.top(1) - 8 ? 0 : 1;
            const near = at.hits[side].filter(column => Math.abs(column.x - x) < 12), best = near.filter(column => column.marked && Math.abs(column.x - x) < 5);
            const column = d3.least(best.length ? best : near, item => Math.abs(item.x - x));
            ring.attr("visibility", column ? "visible" : "hidden");
            if (!column)
                return UP.tooltip.hide();
            ring.attr("cx", column.x).attr("cy", column.y);
            return UP.tooltip.show(this.tip(column, at), event.clientX, event.clientY);
        };
        node.addEventListener("pointermove", show);
        node.addEventListener("pointerdown", show);
        node.addEventListener("pointerleave", event => { // a tap's words stay until the next one
            if (event.pointerType !== "touch") {
                UP.tooltip.hide();
                ring.attr("visibility", "hidden");
            }
        });
    },

    table(model, unit) {
        const rows = model.pairs.flatMap(pair => pair.sides.filter(launch => launch)).slice(0, 600).map(launch => {
            const slowest = d3.maxIndex(launch.most), place = slowest * launch.width + (UP.num(launch.at[slowest]) || 0);
            return [UP.integer(launch.pair), UP.sideName(launch.side), UP.integer(launch.steps), UP.ns(launch.median), UP.ns(launch.most[slowest]), UP.integer(this.number(launch, place)),
                    UP.integer(UP.num(launch.raw.marked)), launch.raw.steady === null || launch.raw.steady === undefined ? "never" : unit + " " + UP.integer(this.number(launch, launch.from))];
        });
        return UP.el("details", {class: "alternative screen-only"}, UP.el("summary", {text: "The launches as a table"}), UP.rowsTable("Launches: their " + unit + "s", [["Pair"], ["Side"], [unit + "s", "num"], ["Median", "num"],
            ["Slowest", "num"], ["which was", "num"], [model.mark + " × the median or more", "num"], ["Steady from", "num"]], rows));
    },
    legend(model, unit) {
        const key = (name, text) => UP.el("span", {}, UP.el("span", {class: "key strip-key " + name}), text);
        return UP.el("p", {class: "legend", "aria-hidden": "true"}, key("range-key", "fastest to slowest " + unit + " of a column"), key("middle-key", "their median"), key("slow-key", "has one of " + model.mark + " × the launch's median or more"),
                     key("warm-key", "warm-up: before the launch is steady"), model.pairs.some(pair => pair.sides.some(launch => launch && launch.firsts.length)) ? key("first-key", "first " + unit + " of a block") : null);
    },
    show(part, model, unit) {
        const blocks = [0, 1].filter(side => UP.num(UP.object(model.sides[side]).first_ns) !== null && UP.num(model.sides[side].other_ns) !== null)
            .map(side => UP.sideName(side) + " " + UP.ns(model.sides[side].first_ns) + ", the others " + UP.ns(model.sides[side].other_ns));
        part.append(UP.el("h4", {text: "Every " + unit + " of " + (model.pairs.length === 1 ? "the pair" : "all " + UP.integer(model.pairs.length) + " pairs") + " of launches"}),
                    UP.el("p", {class: "lead"}, [0, 1].map(side => this.facts(model, side, unit)).filter(text => text).map(text => UP.el("span", {class: "strip-fact", text})),
                          blocks.length ? UP.el("span", {class: "strip-fact", text: "First " + unit + "s of blocks: " + blocks.join("; ") + "."}) : null,
                          UP.num(model.steps.left_out) ? UP.el("span", {class: "strip-fact", text: UP.plural(model.steps.left_out, "more launch", "more launches") + " did not fit into this file; these numbers count them."}) : null));
        const chart = UP.el("div", {class: "chart"}), body = UP.el("div", {}, chart);
        const select = UP.el("select", {"aria-label": "Which pairs are shown"}, UP.el("option", {value: "", text: "all pairs"}), model.pairs.slice(0, 1000).map((pair, i) => {
            const marked = d3.sum(pair.sides, launch => (launch ? UP.num(launch.raw.marked) || 0 : 0));
            return UP.el("option", {value: i, text: "pair " + UP.integer(pair.pair) + (marked ? ", " + UP.integer(marked) + " marked" : "")});
        }));
        part.append(UP.el("div", {class: "tools screen"}, UP.el("label", {}, "Show ", select), UP.el("span", {class: "muted", text: "Point at a " + unit + ", or tap it, for its time."})), body, this.legend(model, unit), this.table(model, unit));
        UP.lazy(body, 300, () => {
            let last = 0;
            const draw = width => {
                last = width;
                chart.replaceChildren();
                this.draw(chart, model, width, UP.print.saved || select.value === "" ? null : Number(select.value), unit);
            };
            UP.chart(chart, draw);
            select.addEventListener("change", () => last && draw(last));
        });
    },
};
