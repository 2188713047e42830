// SPDX-License-Identifier: Apache-2.0
// Flame graphs, root on top: one tree of both sides, seen as the old, the new or the difference. Frames too narrow to see are not
// made. The focus is on the graph; arrows move through it, Enter zooms.
"use strict";
// What of a text fits into a width, by the font of the frames.
UP.fit = (text, width) => {
    if (!UP.fitting) {
        UP.fitting = document.createElement("canvas").getContext("2d");
        UP.fitting.font = "11.5px " + getComputedStyle(document.body).fontFamily;
    }
    const name = UP.short(text, 200), whole = UP.fitting.measureText(name).width;
    for (let letters = Math.floor(name.length * width / whole); letters > 2 && whole > width; letters -= 1) {
        const part = UP.short(name, letters);
        if (UP.fitting.measureText(part).width <= width)
            return part;
    }
    return whole <= width ? name : "";
};
UP.Flame = class {
    constructor(part, flame, id, unit) {
        this.flame = flame;
        this.id = id;
        this.unit = unit;
        this.read();
        this.root = 0;
        this.chosen = 0;
        this.mode = this.both ? "diff" : this.total.a >= this.total.b ? "a" : "b";
        this.words = [];
        this.build(part);
    }

    read() {
        const flame = this.flame, parents = UP.list(flame.parent), count = Math.min(parents.length, UP.list(flame.name).length);
        const names = UP.list(flame.names), self = side => Float64Array.from({length: count}, (_, i) => Math.max(0, UP.num(UP.list(flame[side])[i]) || 0));
        this.count = count;
        this.a = self("a");
        this.b = self("b");
        this.wide = Float64Array.from(this.a, (value, i) => Math.max(value, this.b[i]));
        this.parent = Int32Array.from({length: count}, (_, i) => (i > 0 && parents[i] >= 0 && parents[i] < i ? parents[i] : i ? 0 : -1));
        this.depth = new Int32Array(count);
        this.children = Array.from({length: count}, () => []);
        this.names = Array.from({length: count}, (_, i) => UP.clean(names[flame.name[i]]).trim() || "(no name)");
        this.kinds = UP.list(flame.kind);
        for (let i = 1; i < count; i++) {
            this.depth[i] = this.depth[this.parent[i]] + 1;
            this.children[this.parent[i]].push(i);
        }
        for (let i = count - 1; i > 0; i--) // children stand after their parents
            for (const values of [this.a, this.b, this.wide])
                values[this.parent[i]] += values[i];
        this.children.forEach(list => list.sort((x, y) => (this.names[x] < this.names[y] ? -1 : this.names[x] > this.names[y] ? 1 : x - y)));
        this.total = {a: this.a[0] || 0, b: this.b[0] || 0};
        this.both = Array.isArray(flame.a) && Array.isArray(flame.b) && this.total.a > 0 && this.total.b > 0;
        this.most = 0;
        for (let i = 1; i < count; i++)
            this.most = Math.max(this.most, Math.abs(this.b[i] - this.a[i]));
    }
    write(value) {
        return this.flame.unit === "ns" ? UP.ns(value) : UP.count(value) + " " + UP.short(this.flame.unit || "samples", 20);
    }
    values() {
        return this.mode === "a" ? this.a : this.mode === "b" ? this.b : this.wide;
    }

    build(part) {
        const modes = [["a", UP.sideName(0)], ["b", UP.sideName(1)], ["diff", "Difference"]].filter(([mode]) => (mode === "diff" ? this.both : this.total[mode] > 0));
        this.buttons = modes.map(([mode, text]) => UP.el("button", {type: "button", "aria-pressed": String(mode === this.mode), "data-mode": mode, onclick: () => this.show(mode)}, text));
        this.search = UP.el("input", {type: "search", placeholder: "Search frames", "aria-label": "Search frames of the " + this.title() + " flame graph", oninput: () => this.find(this.search.value)});
        this.found = UP.el("span", {class: "muted", role: "status"});
        this.back = UP.el("button", {type: "button", hidden: true, onclick: () => this.zoom(0)}, "Whole graph");
        this.legend = UP.el("p", {class: "legend"});
        part.append(UP.el("div", {class: "tools screen"}, UP.el("span", {class: "switch", role: "group", "aria-label": "Side"}, this.buttons), this.search, this.back, this.found));
        this.holder = UP.el("div", {class: "flame-holder", tabindex: 0, role: "application", "aria-roledescription": "flame graph",
                                    "aria-label": this.title() + " flame graph. Arrow keys move, Enter zooms, Escape shows the whole."});
        this.readout = UP.el("p", {class: "readout", role: "status"});
        part.append(this.legend, this.holder, this.readout, this.table());
        this.holder.addEventListener("keydown", event => this.key(event));
        this.holder.addEventListener("mouseleave", () => UP.tooltip.hide());
        UP.chart(this.holder, width => { this.width = width; this.draw(); });
        this.legendDraw();
    }
    title() {
        return UP.short(this.flame.title || this.flame.id, 40);
    }
    legendDraw() {
        this.legend.replaceChildren(...(this.mode === "diff"
            ? [UP.el("span", {}, "less in " + UP.sideName(1) + " ", UP.el("span", {class: "ramp", "aria-hidden": "true"}), " more in " + UP.sideName(1)), UP.el("span", {}, "up to " + this.write(this.most) + " a frame; widths: the larger of both sides")]
            : [["native", "native"], ["Python", "python"], ["OS", "os"], ["GPU", "gpu"], ["place", "place"]].map(([text, name]) => UP.el("span", {}, UP.el("span", {class: "swatch flame-" + name, "aria-hidden": "true"}), text))
                .concat(UP.el("span", {}, "together " + this.write(this.total[this.mode]) + (this.flame.unit === "ns" ? " a " + this.unit : "")))));
        if (UP.num(this.flame.left_out))
            this.legend.append(UP.el("span", {}, UP.percent(this.flame.left_out, 2) + " of the time is in frames too narrow for this file"));
    }

    strength(i) { // percent of the colour
        return this.most ? Math.min(100, Math.round(100 * Math.sqrt(Math.abs(this.b[i] - this.a[i]) / this.most))) : 0;
    }
    colour(i) {
        return this.mode !== "diff" ? null : "color-mix(in srgb, var(--" + (this.b[i] > this.a[i] ? "slower" : "faster") + ") " + this.strength(i) + "%, var(--flame-zero))";
    }
    describe(i) {
        const part = this.mode === "a" ? this.a[i] / (this.a[0] || 1) : this.b[i] / (this.b[0] || 1);
        const numbers = this.both ? UP.sideName(0) + " " + this.write(this.a[i]) + ", " + UP.sideName(1) + " " + this.write(this.b[i]) + ", difference " + UP.signed(this.b[i] - this.a[i], value => this.write(value))
            : this.write(this.values()[i]);
        return [UP.short(this.names[i], 200), numbers, UP.percent(part) + " of " + (this.mode === "a" ? UP.sideName(0) : UP.sideName(1))];
    }

    // Frames from the chosen root down, and the way up to the whole above it.
    draw() {
        const values = this.values(), width = this.width, height = 18, boxes = [], root = this.root, way = [];
        for (let at = this.parent[root]; at >= 0; at = this.parent[at])
            way.unshift(at);
        way.forEach((node, row) => boxes.push([node, 0, width, row, true]));
        const scale = width / (values[root] || 1), stack = [[root, 0, way.length]];
        let deepest = way.length;
        while (stack.length) {
            const [node, x, row] = stack.pop(), wide = values[node] * scale;
            if (wide < 0.6 || row > 400)
                continue;
            boxes.push([node, x, wide, row, false]);
            deepest = Math.max(deepest, row);
            let at = x;
            for (const child of this.children[node]) {
                stack.push([child, at, row + 1]);
                at += values[child] * scale;
            }
        }
        this.holder.querySelectorAll("svg").forEach(node => node.remove());
        const svg = UP.svg(this.holder, width, (deepest + 1) * height, this.title() + " flame graph, " + UP.plural(boxes.length, "frame")).attr("class", "flame");
        const frames = svg.selectAll("g").data(boxes).enter().append("g").attr("transform", box => "translate(" + box[1] + "," + box[3] * height + ")")
            .attr("class", box => "frame" + (box[4] ? " above" : "") + (this.mode === "diff" ? "" : " flame-" + (["native", "python", "os", "gpu", "place"][this.kinds[box[0]]] || "native")) + (this.matches(box[0]) ? " match" : "") + (this.mode === "diff" && this.strength(box[0]) > 85 ? " strong" : ""));
        frames.append("rect").attr("width", box => Math.max(0.5, box[2] - 0.7)).attr("height", height - 1).attr("rx", 1.5).style("fill", box => this.colour(box[0]));
        frames.filter(box => box[2] > 30).append("text").attr("x", 4).attr("y", 12.5).text(box => UP.fit(this.names[box[0]], box[2] - 7));
        frames.on("click", box => { this.holder.focus({preventScroll: true}); this.choose(box[0]); this.zoom(box[0]); })
            .on("mousemove", box => UP.tooltip.show(this.describe(box[0]), d3.event.clientX, d3.event.clientY));
        this.boxes = boxes;
        svg.classed("searching", this.words.length > 0);
        this.frames = frames;
        this.choose(this.chosen);
    }
    choose(i) {
        this.chosen = i;
        this.frames.classed("chosen", box => box[0] === i && document.activeElement === this.holder);
        this.readout.textContent = this.describe(i).join(" · ");
    }
    show(mode) {
        this.mode = mode;
        this.buttons.forEach(button => button.setAttribute("aria-pressed", String(button.dataset.mode === mode)));
        if (!this.values()[this.root])
            this.root = 0;
        this.legendDraw();
        this.draw();
    }
    zoom(i) {
        this.root = i;
        this.chosen = i;
        this.back.hidden = i === 0;
        UP.tooltip.hide();
        this.draw();
    }
    key(event) {
        const drawn = new Set(this.boxes.map(box => box[0])), widest = list => list.filter(i => drawn.has(i)).sort((x, y) => this.values()[y] - this.values()[x])[0];
        const beside = by => {
            const list = this.boxes.filter(box => box[3] === this.boxes.find(other => other[0] === this.chosen)[3]).sort((x, y) => x[1] - y[1]).map(box => box[0]);
            return list[list.indexOf(this.chosen) + by];
        };
        const actions = {ArrowDown: () => widest(this.children[this.chosen]), ArrowUp: () => (this.parent[this.chosen] >= 0 ? this.parent[this.chosen] : undefined), ArrowLeft: () => beside(-1), ArrowRight: () => beside(1)};
        if (event.key === "Enter")
            this.zoom(this.chosen);
        else if (event.key === "Escape")
            this.zoom(0);
        else if (UP.pick(actions, event.key, null)) {
            const next = drawn.has(this.chosen) ? actions[event.key]() : this.root;
            if (next !== undefined)
                this.choose(next);
        } else
            return;
        event.preventDefault();
    }

    matches(i) {
        return this.words.length > 0 && this.words.every(word => this.names[i].toLowerCase().includes(word));
    }
    find(text) {
        this.words = text.toLowerCase().split(/\s+/).filter(word => word);
        const values = this.values();
        let sum = 0;
        const inside = new Uint8Array(this.count); // below a match: counted with it
        for (let i = 0; i < this.count; i++) {
            const above = i > 0 && inside[this.parent[i]];
            inside[i] = above || this.matches(i) ? 1 : 0;
            if (inside[i] && !above)
                sum += values[i];
        }
        this.found.textContent = this.words.length ? UP.percent(sum / (values[0] || 1)) + " of the graph" : "";
        this.draw();
    }

    // The graph's text: what took most of itself, by name.
    table() {
        const node = UP.el("details", {class: "alternative screen-only"}, UP.el("summary", {text: "The same by function, without callees, as a table"}));
        node.addEventListener("toggle", () => {
            if (!node.open || node.childElementCount > 1)
                return;
            const sums = new Map();
            for (let i = 0; i < this.count; i++) {
                const sum = sums.get(this.names[i]) || [0, 0];
                const children = this.children[i];
                sum[0] += this.a[i] - d3.sum(children, child => this.a[child]);
                sum[1] += this.b[i] - d3.sum(children, child => this.b[child]);
                sums.set(this.names[i], sum);
            }
            const top = Array.from(sums).sort((x, y) => Math.abs(y[1][1] - y[1][0]) - Math.abs(x[1][1] - x[1][0])).slice(0, 40);
            node.append(UP.el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": this.title() + " by function"}, UP.el("table", {class: "plain"},
                UP.el("thead", {}, UP.el("tr", {}, ["Function", UP.sideName(0), UP.sideName(1), "Difference"].map((text, i) => UP.el("th", {scope: "col", class: i ? "num" : null, text})))),
                UP.el("tbody", {}, top.map(([name, [a, b]]) => UP.el("tr", {}, UP.el("th", {scope: "row"}, UP.name(name, 80)), [this.write(a), this.write(b), UP.signed(b - a, value => this.write(value))].map(text => UP.el("td", {class: "num", text}))))))));
        });
        return node;
    }
};

UP.parts.flames = (workload, parent, id) => {
    const flames = UP.list(workload.flames).map(UP.object).filter(flame => UP.list(flame.parent).length > 1);
    flames.forEach((flame, i) => {
        const name = id + "-flame" + i, part = UP.part(parent, 3, name, "Flame graph: " + UP.short(flame.title || flame.id || "CPU", 60).replace(/^(On|Off) /, word => word.toLowerCase()), "flames");
        const body = UP.el("div", {}), handle = {part, drawn: null, ensure() { UP.ensure(body); return this.drawn; }};
        part.append(body);
        UP.lazy(body, 380, () => { handle.drawn = new UP.Flame(body, flame, name, UP.clean(workload.unit) || "step"); });
        UP.flames.push(handle);
    });
};
