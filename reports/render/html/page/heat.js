// SPDX-License-Identifier: Apache-2.0
// Ranks by time: a line a rank, a cell a part of the time; the stronger its colour, the longer the others waited for that rank, or the longer it
// worked than the one in the middle. The sentence above says the worst cell, the table below it the same in numbers.
"use strict";
UP.heat = {
    // null: there is nothing to draw.
    model(heat) {
        const share = value => Math.max(0, Math.min(1, (UP.num(value) || 0) / 1000));
        const rows = UP.list(heat.rows).slice(0, 64).map(UP.object).map(row => ({label: UP.clean(row.label).slice(0, 200), shares: UP.list(row.values).slice(0, 100).map(share)}));
        const blocks = rows.length ? rows[0].shares.length : 0, most = d3.max(rows, row => d3.max(row.shares)) || 0;
        return blocks && most > 0 && rows.every(row => row.shares.length === blocks)
            ? {rows, blocks, most, span: UP.num(heat.span_ns), text: UP.clean(heat.text).slice(0, 600)} : null;
    },
    time: (model, block) => (block ? UP.ns(model.span === null ? null : model.span * block / model.blocks) : "0"),
    share: value => UP.percent(value, 3),

    draw(container, model, width) {
        const letters = d3.max(model.rows, row => row.label.length), gutter = Math.round(Math.min(7 * letters, 0.36 * width, 260)) + 8, high = model.rows.length > 24 ? 13 : 18;
        const plot = width - gutter - 1, cell = plot / model.blocks, bottom = model.rows.length * high;
        const svg = UP.svg(container, width, bottom + 22, model.text).attr("class", "heat");
        svg.append("rect").attr("class", "heat-ground").attr("x", gutter).attr("width", plot).attr("height", bottom);
        model.rows.forEach((row, i) => {
            svg.append("text").attr("class", "heat-label").attr("x", gutter - 8).attr("y", (i + 0.5) * high + 4).text(UP.short(row.label, Math.max(6, Math.floor((gutter - 8) / 7))));
            row.shares.forEach((share, k) => share > 0 && svg.append("rect").attr("class", "hot").attr("x", (gutter + k * cell).toFixed(1)).attr("y", i * high + 0.5)
                .attr("width", Math.max(1, cell - 0.5).toFixed(1)).attr("height", high - 1).attr("fill-opacity", (share / model.most).toFixed(3)));
        });
        const axis = (x, text, anchor) => svg.append("text").attr("x", x).attr("y", bottom + 16).attr("text-anchor", anchor).text(text);
        axis(gutter, "0", "start");
        axis(width - 1, this.time(model, model.blocks), "end");
        this.hover(svg.node(), model, {width, gutter, cell, high});
    },

    hover(node, model, at) {
        const show = event => {
            const box = node.getBoundingClientRect(), scale = at.width / box.width, row = model.rows[Math.floor((event.clientY - box.top) * scale / at.high)];
            const block = Math.floor(((event.clientX - box.left) * scale - at.gutter) / at.cell);
            if (!row || !(block >= 0 && block < model.blocks))
                return UP.tooltip.hide();
            return UP.tooltip.show([row.label, this.time(model, block) + " to " + this.time(model, block + 1), this.share(row.shares[block]) + " of that part"], event.clientX, event.clientY);
        };
        node.addEventListener("pointermove", show);
        node.addEventListener("pointerdown", show);
        node.addEventListener("pointerleave", event => event.pointerType !== "touch" && UP.tooltip.hide());
    },

    table(model) {
        const rows = model.rows.map(row => {
            const worst = d3.maxIndex(row.shares);
            return [UP.name(row.label, 60), this.share(d3.mean(row.shares)), this.share(row.shares[worst]), row.shares[worst] > 0 ? this.time(model, worst) : UP.dash];
        });
        return UP.el("details", {class: "alternative screen-only"}, UP.el("summary", {text: "The ranks as a table"}),
            UP.rowsTable("Ranks by time", [["Rank"], ["In all", "num"], ["Most", "num"], ["In the part from", "num"]], rows));
    },

    show(into, heat) {
        const model = this.model(UP.object(heat));
        if (!model)
            return;
        const chart = UP.el("div", {class: "chart"});
        into.append(UP.el("p", {text: model.text}), chart,
            UP.el("p", {class: "legend", "aria-hidden": "true"}, UP.el("span", {}, "0", UP.el("span", {class: "heat-ramp"}), this.share(model.most) + " of a part")), this.table(model));
        UP.chart(chart, width => this.draw(chart, model, width));
    },
};
