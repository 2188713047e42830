// SPDX-License-Identifier: Apache-2.0
// Draws the visible stretch of a timeline: per row at most one bar a pixel column, however many events there are. Bars of one
// colour are collected and filled together: changing the colour costs more than filling.
"use strict";
UP.timelineDraw = {
    layout(model, width, narrow) {
        const layout = {gutter: narrow ? 0 : 172, axis: 22, rows: [], heads: [], lanes: [], width};
        const rows = d3.sum(model.sides, side => (side ? d3.sum(side.lanes, lane => lane.rows.length) : 0)) || 1;
        const height = Math.max(4, Math.min(17, Math.floor(620 / rows)));
        let y = layout.axis;
        model.sides.forEach((side, index) => {
            if (!side)
                return;
            layout.heads.push({side: index, y, height: 22});
            y += 22;
            side.lanes.forEach((lane, number) => {
                const label = narrow ? 13 : 0, least = narrow ? 0 : Math.max(0, 13 - lane.rows.length * height);
                const top = y;
                y += label;
                lane.rows.forEach(row => {
                    layout.rows.push({side: index, lane: number, row, y, height: height - 1});
                    y += height;
                });
                y += least + 5;
                layout.lanes.push({side: index, number, lane, y: top, height: y - top, title: lane.title});
            });
            layout.heads[layout.heads.length - 1].bottom = y;
            y += 20; // lines between what belongs together
        });
        layout.height = y - 12;
        layout.plot = Math.max(10, width - layout.gutter - 8);
        return layout;
    },

    // Colours of every class in three shades, the same again dimmed; and whether text on them is dark.
    palette(model) {
        const words = model.classes.concat("other"), palette = {fill: [], ink: [], shades: 3, classes: words.length};
        const ground = d3.rgb(UP.css("--panel") || "#fff");
        for (const dim of [0, 1])
            for (const word of words)
                for (let shade = 0; shade < 3; shade++) {
                    const base = d3.hsl(UP.css("--c-" + (UP.pick(UP.classes, word, null) ? word : "other")) || "#888");
                    base.l = Math.max(0, Math.min(1, base.l + (shade - 1) * 0.07));
                    const colour = dim ? d3.interpolateRgb(ground, base)(0.22) : base.toString();
                    const rgb = d3.rgb(colour);
                    palette.fill.push(rgb.toString());
                    palette.ink.push(0.299 * rgb.r + 0.587 * rgb.g + 0.114 * rgb.b > 140 ? "#10151a" : "#ffffff");
                }
        return palette;
    },

    bucket(view, name, dim) {
        const palette = view.palette, kind = name >= 0 && view.model.nameClass[name] >= 0 ? view.model.nameClass[name] : palette.classes - 1;
        return (dim ? palette.classes * palette.shades : 0) + kind * palette.shades + (name >= 0 ? (name * 7) % 3 : 1);
    },

    // One row: long events as they are; short ones share a column, where the longest gives the colour and what they cover the height.
    row(view, place, boxes) {
        const row = place.row, scale = view.scale, t0 = view.t0, left = view.layout.gutter, marked = view.marked;
        let column = -1, covered = 0, longest = -1, best = -1, bestMark = false;
        const flush = () => {
            if (column >= 0 && best >= 0 && column < view.layout.plot) {
                const height = Math.max(Math.min(2, place.height), place.height * Math.min(1, covered * scale));
                boxes.push(this.bucket(view, row.name[best], marked && !bestMark), left + column, place.y + place.height - height, 1, height);
            }
            column = -1;
        };
        const starts = row.start, ends = row.end, names = row.name, t1 = view.t1, most = row.count, narrow = 1.2 / scale;
        let columnEnd = -Infinity; // in time: most short events stay in the column of the one before
        for (let i = UP.timelineModel.firstAfter(row, t0); i < most; i++) {
            const start = starts[i], length = ends[i] - start;
            if (start >= t1)
                break;
            const mark = marked === null || (names[i] >= 0 && marked[names[i]] === 1);
            if (length >= narrow) {
                flush();
                columnEnd = -Infinity;
                this.long(view, place, i, mark, boxes);
                continue;
            }
            if (start >= columnEnd) {
                flush();
                column = Math.max(0, Math.floor((start - t0) * scale));
                columnEnd = t0 + (column + 1) / scale;
                covered = 0;
                longest = -1;
                best = -1;
                bestMark = false;
            }
            covered += length;
            if (length > longest ? mark || !bestMark : mark && !bestMark) {
                longest = length;
                best = i;
                bestMark = mark;
            }
        }
        flush();
    },

    long(view, place, i, mark, boxes) {
        const row = place.row, left = view.layout.gutter;
        const x = Math.max(0, (row.start[i] - view.t0) * view.scale), right = Math.min(view.layout.plot, (row.end[i] - view.t0) * view.scale);
        if (right <= x)
            return;
        boxes.push(this.bucket(view, row.name[i], !mark), left + x, place.y, Math.max(1, right - x - (right - x > 4 ? 0.6 : 0)), place.height);
        if (right - x > 34 && place.height >= 10 && view.labels.length < 600)
            view.labels.push([left + x, right - x, place, row.name[i], !mark]);
    },

    frame(view) {
        const {context, layout, model} = view, begin = performance.now();
        const ink = view.ink, fill = view.palette.fill;
        context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
        context.fillStyle = ink.panel;
        context.fillRect(0, 0, layout.width, layout.height);
        view.scale = layout.plot / (view.t1 - view.t0);
        view.labels = [];
        this.frameBehind(view);
        const boxes = [];
        layout.rows.forEach(place => this.row(view, place, boxes));
        const buckets = fill.map(() => []);
        for (let i = 0; i < boxes.length; i += 5)
            buckets[boxes[i]].push(i);
        buckets.forEach((list, bucket) => {
            if (!list.length)
                return;
            context.fillStyle = fill[bucket];
            for (const i of list)
                context.fillRect(boxes[i + 1], boxes[i + 2], boxes[i + 3], boxes[i + 4]);
        });
        context.textBaseline = "middle";
        context.font = view.font;
        for (const [x, width, place, name, dim] of view.labels) {
            context.fillStyle = dim ? ink.muted : view.palette.ink[this.bucket(view, name, false)];
            const text = name >= 0 ? view.shortNames[name] : "";
            if (name >= 0 && !view.nameWidths[name])
                view.nameWidths[name] = context.measureText(text).width;
            const letters = name < 0 || view.nameWidths[name] <= width - 6 ? text.length : Math.floor(text.length * (width - 6) / view.nameWidths[name]) - 1;
            context.fillText(letters < text.length ? text.slice(0, Math.max(1, letters)) + "…" : text, x + 3, place.y + place.height / 2 + 0.5);
        }
        this.frameFront(view);
        view.drawn = boxes.length / 5;
        view.lastMs = performance.now() - begin;
        return model.count;
    },

    frameBehind(view) {
        const {context, layout, ink, model} = view, left = layout.gutter, right = left + layout.plot;
        const x = time => left + (time - view.t0) * view.scale;
        const scale = d3.scaleLinear([view.t0, view.t1], [left, right]);
        context.font = view.font;
        context.textBaseline = "middle";
        const ticks = scale.ticks(Math.max(2, Math.floor(layout.plot / 110)));
        const step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
        const unit = step >= 1e6 ? [1e6, "ms"] : step >= 1e3 ? (view.t1 > 1e7 ? [1e6, "ms"] : [1e3, "µs"]) : (view.t1 > 1e7 ? [1e6, "ms"] : view.t1 > 1e4 ? [1e3, "µs"] : [1, "ns"]);
        const write = d3.format(",." + Math.max(0, Math.min(9, Math.ceil(Math.log10(unit[0] / step) - 1e-9))) + "f");
        for (const tick of ticks) {
            context.fillStyle = ink.line;
            context.fillRect(Math.round(scale(tick)), 16, 1, layout.height - 16);
            context.fillStyle = ink.muted;
            context.fillText(write(tick / unit[0]) + " " + unit[1], scale(tick) + 3, 9);
        }
        for (const head of layout.heads) {
            const side = model.sides[head.side];
            context.fillStyle = head.side ? ink.b : ink.a;
            context.fillRect(0, head.y + 2, 4, head.bottom - head.y - 6);
            context.font = view.bold;
            context.fillText(UP.sideName(head.side), 10, head.y + 11);
            const used = context.measureText(UP.sideName(head.side)).width;
            context.font = view.font;
            context.fillStyle = ink.muted;
            if (side.span)
                context.fillText(UP.ns(side.span), 18 + used, head.y + 11);
            if (side.span && x(side.span) < right) { // beyond its end
                context.fillStyle = ink.shade;
                context.fillRect(Math.max(left, x(side.span)), head.y + 20, right - Math.max(left, x(side.span)), head.bottom - head.y - 24);
            }
        }
        for (const lane of layout.lanes) {
            context.fillStyle = ink.line;
            context.fillRect(layout.gutter ? 10 : 6, lane.y + lane.height - 3, layout.width - 10, 1);
            context.fillStyle = ink.ink;
            const letters = layout.gutter ? Math.floor((layout.gutter - 16) / view.letter) : 60;
            context.fillText(lane.title.length > letters ? lane.title.slice(0, letters - 1) + "…" : lane.title, 10, lane.y + (layout.gutter ? Math.min(lane.height, 18) / 2 : 6));
        }
    },

    frameFront(view) {
        const {context, layout, ink, model} = view, left = layout.gutter, x = time => left + (time - view.t0) * view.scale;
        context.lineWidth = 1;
        for (const head of layout.heads) {
            const side = model.sides[head.side];
            for (const mark of side.marks.concat(side.span || []))
                if (x(mark) >= left && x(mark) <= left + layout.plot + 1) {
                    context.fillStyle = head.side ? ink.b : ink.a;
                    context.fillRect(Math.round(x(mark)) - 0.5, head.y + 18, 1.5, head.bottom - head.y - 20);
                }
        }
        if (layout.heads.length === 2) {
            context.strokeStyle = ink.muted;
            context.setLineDash([3, 3]);
            context.beginPath();
            for (const [a, b] of model.aligned) {
                if (Math.max(x(a), x(b)) < left || Math.min(x(a), x(b)) > left + layout.plot)
                    continue;
                context.moveTo(Math.max(left, x(a)), layout.heads[0].bottom - 4);
                context.lineTo(Math.max(left, x(b)), layout.heads[1].y + 22);
            }
            context.stroke();
            context.setLineDash([]);
        }
        const chosen = view.chosen;
        if (chosen) {
            const row = chosen.place.row, from = Math.max(left, x(row.start[chosen.index])), to = Math.min(left + layout.plot, x(row.end[chosen.index]));
            if (to >= left && from <= left + layout.plot) {
                context.strokeStyle = ink.ink;
                context.lineWidth = 2;
                context.strokeRect(from - 1, chosen.place.y - 1, Math.max(3, to - from) + 2, chosen.place.height + 2);
            }
        }
    },
};
