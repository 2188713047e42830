// SPDX-License-Identifier: Apache-2.0
// The timeline's hands: zoom and pan by wheel, drag, touch, keys and buttons, hover, selection, search, and the same in words.
"use strict";
UP.Timeline = class {
    constructor(part, timeline, diff, id) {
        this.model = UP.timelineModel.make(timeline);
        this.diff = diff;
        this.id = id;
        this.whole = [this.model.first, Math.max(this.model.last, this.model.first + 1)];
        [this.t0, this.t1] = this.whole;
        this.shortNames = this.model.names.map(name => UP.short(name, 80));
        this.nameWidths = new Float32Array(this.shortNames.length);
        this.marked = null;
        this.chosen = null;
        this.build(part);
        this.resize();
        new ResizeObserver(() => requestAnimationFrame(() => this.resize())).observe(this.holder);
        UP.theme.listeners.push(() => this.restyle());
        UP.print.listeners.push(begin => this.print(begin));
        this.zoomStart();
    }

    build(part) {
        const button = (text, label, action) => UP.el("button", {type: "button", "aria-label": label, title: label, onclick: action}, text);
        this.search = UP.el("input", {type: "search", placeholder: "Highlight, e.g. gemm", "aria-label": "Highlight events by name", oninput: () => this.find(this.search.value)});
        this.search.addEventListener("keydown", event => event.key === "Enter" && this.next(event.shiftKey ? -1 : 1));
        this.range = UP.el("span", {class: "muted range-text"});
        this.found = UP.el("span", {class: "muted", role: "status"});
        part.append(UP.el("div", {class: "tools screen", role: "group", "aria-label": "Timeline controls"},
            button("\u2212", "Zoom out", () => this.zoomBy(0.5)), button("+", "Zoom in", () => this.zoomBy(2)), button("Fit", "Show both steps whole", () => this.setView(...this.whole)),
            this.search, this.found, this.range));
        this.canvas = UP.el("canvas", {tabindex: 0, role: "application", "aria-roledescription": "timeline", "aria-describedby": this.id + "-keys",
                                       "aria-label": this.label() + ", " + UP.plural(this.model.count, "event")});
        this.holder = UP.el("div", {class: "timeline-holder"}, this.canvas);
        this.picture = UP.el("img", {class: "paper", alt: this.label()});
        this.details = UP.el("div", {class: "details", role: "status", "aria-live": "polite"});
        part.append(this.holder, this.picture, this.legend(), this.details,
            UP.el("p", {class: "muted screen", id: this.id + "-keys"}, "Drag to move, double click to zoom; the wheel zooms once the timeline is focused (or with Ctrl). Keys: ",
                  [["← →", "move"], ["+ −", "zoom"], ["0", "fit"], [", .", "previous and next event"], ["↑ ↓", "lane"], ["Esc", "clear"]].map(([key, text]) => [UP.el("kbd", {text: key}), " " + text + "  "])));
        part.append(this.words());
        this.context = this.canvas.getContext("2d");
        this.canvas.addEventListener("mousemove", event => this.hover(event));
        this.canvas.addEventListener("mouseleave", () => UP.tooltip.hide());
        this.canvas.addEventListener("click", event => this.choose(this.hit(event)));
        this.canvas.addEventListener("keydown", event => this.key(event));
    }

    label() {
        return UP.single() ? "Timeline" : "Timeline of one step, " + UP.sideName(0) + " above " + UP.sideName(1);
    }

    legend() {
        const used = new Set();
        this.model.sides.forEach(side => side && side.lanes.forEach(lane => lane.rows.forEach(row => {
            for (let i = 0; i < row.count; i++)
                used.add(row.name[i] >= 0 ? this.model.nameClass[row.name[i]] : -1);
        })));
        return UP.el("p", {class: "legend"}, Array.from(used).sort((a, b) => a - b).filter(index => index >= 0).map(index => UP.el("span", {},
            UP.el("span", {class: "swatch", "aria-hidden": "true", style: {"background-color": UP.classColour(this.model.classes[index])}}), UP.classTitle(this.model.classes[index]))),
            this.model.leftOut ? UP.integer(this.model.leftOut) + " short events are not in this file." : "");
    }

    // What ran, as a table: the picture's text.
    words() {
        const node = UP.el("details", {class: "alternative screen-only"}, UP.el("summary", {text: "What ran here, as a table"}));
        node.addEventListener("toggle", () => {
            if (!node.open || node.childElementCount > 1)
                return;
            const totals = UP.timelineModel.totals(this.model);
            const order = totals.map((total, i) => i).filter(i => totals[i][0] + totals[i][2]).sort((a, b) => Math.abs(totals[b][3] - totals[b][1]) - Math.abs(totals[a][3] - totals[a][1])).slice(0, 40);
            node.append(UP.el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "What ran here"}, UP.el("table", {class: "plain"},
                UP.el("thead", {}, UP.el("tr", {}, ["Name", "Class", UP.sideName(0), "times", UP.sideName(1), "times", "Difference"].map((text, i) => UP.el("th", {scope: "col", class: i > 1 ? "num" : null, text})))),
                UP.el("tbody", {}, order.map(i => UP.el("tr", {}, UP.el("th", {scope: "row"}, UP.name(this.model.names[i], 70)), UP.el("td", {text: UP.classTitle(this.model.classes[this.model.nameClass[i]])}),
                    [UP.ns(totals[i][1]), UP.integer(totals[i][0]), UP.ns(totals[i][3]), UP.integer(totals[i][2]), UP.signedNs(totals[i][3] - totals[i][1])].map(text => UP.el("td", {class: "num", text}))))))));
        });
        return node;
    }

    resize() {
        const width = Math.floor(this.holder.clientWidth);
        if (!width || width === this.width)
            return;
        this.width = width;
        this.layout = UP.timelineDraw.layout(this.model, width, width < 620);
        this.ratio = Math.min(3, devicePixelRatio || 1);
        this.canvas.width = Math.round(width * this.ratio);
        this.canvas.height = Math.round(this.layout.height * this.ratio);
        this.canvas.style.height = this.layout.height + "px";
        this.restyle();
        if (this.zoom)
            this.setView(this.t0, this.t1); // its x is in pixels
    }

    restyle() {
        this.palette = UP.timelineDraw.palette(this.model);
        const css = name => UP.css(name);
        this.ink = {panel: css("--panel"), line: css("--line"), ink: css("--ink"), muted: css("--muted"), a: css("--a"), b: css("--b"), shade: css("--shade")};
        const family = getComputedStyle(document.body).fontFamily;
        this.font = "11px " + family;
        this.bold = "600 12px " + family;
        this.context.font = this.font;
        this.letter = this.context.measureText("abcdefghijklmnopqrstuvwxyz").width / 26;
        this.drawSoon();
    }

    drawSoon() {
        if (this.waiting)
            return;
        this.waiting = true;
        requestAnimationFrame(() => this.draw());
    }
    draw() {
        this.waiting = false;
        if (this.layout)
            UP.timelineDraw.frame(this);
        this.range.textContent = UP.ns(this.t0) + " to " + UP.ns(this.t1);
    }
    print(begin) {
        if (begin) {
            this.draw();
            this.picture.src = this.canvas.toDataURL("image/png");
        }
    }

    // d3.zoom owns the transform: x of the whole stretch to x of what is shown.
    zoomStart() {
        const active = () => document.activeElement === this.canvas;
        this.zoom = d3.zoom().duration(UP.still() ? 0 : 200).scaleExtent([1, Math.max(2, (this.whole[1] - this.whole[0]) / 20)])
            .filter(() => {
                const event = d3.event;
                return event.type === "wheel" ? active() || event.ctrlKey || event.metaKey : event.touches ? event.touches.length > 1 || active() : !event.button;
            })
            .on("zoom", () => {
                const {k, x} = d3.event.transform, span = this.whole[1] - this.whole[0], plot = this.layout.plot;
                this.t0 = this.whole[0] - x / k / plot * span;
                this.t1 = this.t0 + span / k;
                UP.tooltip.hide();
                this.drawSoon();
            });
        // Space of the transform: the plot, without the gutter at the left.
        const plot = () => (this.layout ? this.layout.plot : 1);
        this.zoom.extent(() => [[0, 0], [plot(), 1]]).translateExtent([[0, -Infinity], [plot(), Infinity]]);
        const selection = d3.select(this.canvas).call(this.zoom);
        selection.style("touch-action", "pan-y");
        selection.on("mousedown.focus", () => this.canvas.focus({preventScroll: true}));
        this.selection = selection;
    }
    setView(t0, t1) {
        if (!this.layout)
            return;
        const span = this.whole[1] - this.whole[0], plot = this.layout.plot;
        this.zoom.translateExtent([[0, -Infinity], [plot, Infinity]]);
        const k = Math.max(1, Math.min(span / Math.max(20, t1 - t0), span / 20)), least = this.whole[0], most = this.whole[1] - span / k;
        const from = Math.max(least, Math.min(most, t0));
        this.selection.call(this.zoom.transform, d3.zoomIdentity.translate(-(from - this.whole[0]) / span * plot * k, 0).scale(k));
    }
    zoomBy(factor) {
        const middle = this.chosen ? Math.max(this.t0, Math.min(this.t1, this.chosen.place.row.start[this.chosen.index])) : (this.t0 + this.t1) / 2;
        this.setView(middle - (middle - this.t0) / factor, middle + (this.t1 - middle) / factor);
    }

    hit(event) {
        const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left - this.layout.gutter, y = event.clientY - box.top;
        if (x < 0)
            return null;
        const place = this.layout.rows.find(candidate => y >= candidate.y - 0.5 && y < candidate.y + candidate.height + 1);
        if (!place)
            return null;
        const index = UP.timelineModel.at(place.row, this.t0 + x / this.view().scale, 3 / this.view().scale);
        return index < 0 ? null : {place, index};
    }
    view() {
        return {scale: this.layout.plot / (this.t1 - this.t0)};
    }
    hover(event) {
        const hit = this.hit(event);
        this.canvas.style.cursor = hit ? "pointer" : "grab";
        if (!hit) {
            const box = this.canvas.getBoundingClientRect(), y = event.clientY - box.top;
            const lane = event.clientX - box.left < this.layout.gutter && this.layout.lanes.find(candidate => y >= candidate.y && y < candidate.y + candidate.height);
            return lane ? UP.tooltip.show([lane.title, UP.sideName(lane.side)], event.clientX, event.clientY) : UP.tooltip.hide();
        }
        const row = hit.place.row, name = row.name[hit.index], lane = this.model.sides[hit.place.side].lanes[hit.place.lane];
        return UP.tooltip.show([name < 0 ? "(no name)" : UP.short(this.model.names[name], 160), UP.ns(row.end[hit.index] - row.start[hit.index]) + " at " + UP.ns(row.start[hit.index]),
                                UP.sideName(hit.place.side) + ", " + lane.title, row.note[hit.index] < 0 ? "" : UP.short(this.model.notes[row.note[hit.index]], 160)], event.clientX, event.clientY);
    }

    choose(hit) {
        this.chosen = hit;
        this.details.replaceChildren();
        if (hit) {
            const row = hit.place.row, name = row.name[hit.index], model = this.model, lane = model.sides[hit.place.side].lanes[hit.place.lane];
            const total = name < 0 ? null : UP.timelineModel.totals(model)[name], rank = name < 0 ? 0 : model.nameContribution[name];
            this.details.append(UP.el("div", {}, UP.el("p", {}, name < 0 ? "(no name)" : UP.whole(model.names[name])),
                UP.el("p", {}, UP.el("b", {text: UP.ns(row.end[hit.index] - row.start[hit.index])}), " at " + UP.ns(row.start[hit.index]) + " of " + UP.sideName(hit.place.side) + ", " + lane.title,
                      name < 0 || model.nameClass[name] < 0 ? "" : ", " + UP.classTitle(model.classes[model.nameClass[name]]).toLowerCase()),
                row.note[hit.index] < 0 ? null : UP.el("p", {text: UP.clean(model.notes[row.note[hit.index]]).slice(0, 2000)}),
                total ? UP.el("p", {class: "muted", text: "In all: " + UP.sideName(0) + " " + UP.integer(total[0]) + "×, " + UP.ns(total[1]) + (UP.single() ? "" : "; " + UP.sideName(1) + " " + UP.integer(total[2]) + "×, " + UP.ns(total[3])) + "."}) : null));
            const item = rank ? document.getElementById(this.id.replace(/-timeline$/, "") + "-c" + rank) : null;
            if (item)
                this.details.append(UP.el("p", {}, UP.el("button", {type: "button", onclick: () => { item.open = true; UP.jump(item, item.querySelector("summary")); }}, "Contribution " + rank)));
        }
        this.drawSoon();
    }

    // Moves the choice within its row, or to another row at the same time.
    step(events, rows) {
        const places = this.layout.rows;
        if (!places.length)
            return;
        if (!this.chosen) {
            const place = places.find(candidate => candidate.row.count) || places[0];
            this.choose({place, index: Math.min(place.row.count - 1, UP.timelineModel.startsAt(place.row, this.t0))});
        } else if (rows) {
            const place = places[Math.max(0, Math.min(places.length - 1, places.indexOf(this.chosen.place) + rows))];
            const time = this.chosen.place.row.start[this.chosen.index];
            this.choose({place, index: Math.max(0, Math.min(place.row.count - 1, UP.timelineModel.startsAt(place.row, time)))});
        } else {
            this.choose({place: this.chosen.place, index: Math.max(0, Math.min(this.chosen.place.row.count - 1, this.chosen.index + events))});
        }
        this.reveal();
    }
    reveal() {
        const row = this.chosen.place.row, from = row.start[this.chosen.index], to = row.end[this.chosen.index], span = this.t1 - this.t0;
        if (from < this.t0 || to > this.t1)
            this.setView(Math.max(from - span / 3, this.whole[0]), Math.max(from - span / 3, this.whole[0]) + span);
    }
    key(event) {
        const span = this.t1 - this.t0, move = by => this.setView(Math.max(this.whole[0], Math.min(this.whole[1] - span, this.t0 + by * span)), Math.max(this.whole[0], Math.min(this.whole[1] - span, this.t0 + by * span)) + span);
        const actions = {ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), PageUp: () => move(-0.9), PageDown: () => move(0.9), "+": () => this.zoomBy(2), "=": () => this.zoomBy(2),
                         "-": () => this.zoomBy(0.5), _: () => this.zoomBy(0.5), 0: () => this.setView(...this.whole), Home: () => move(-1e9), End: () => move(1e9), ".": () => this.step(1, 0),
                         ",": () => this.step(-1, 0), ArrowUp: () => this.step(0, -1), ArrowDown: () => this.step(0, 1), Enter: () => this.step(0, 0), Escape: () => this.choose(null)};
        const action = UP.pick(actions, event.key, null);
        if (!action || event.ctrlKey || event.metaKey || event.altKey)
            return;
        event.preventDefault();
        action();
    }

    mark(names) { // Uint8Array, a name each; null: all alike
        this.marked = names;
        this.drawSoon();
    }
    find(text) {
        const words = text.toLowerCase().split(/\s+/).filter(word => word);
        if (!words.length) {
            this.found.textContent = "";
            this.mark(null);
            return;
        }
        const marked = Uint8Array.from(this.model.names, name => Number(words.every(word => UP.clean(name).toLowerCase().includes(word))));
        const totals = UP.timelineModel.totals(this.model), sum = [0, 0, 0, 0];
        totals.forEach((total, i) => marked[i] && total.forEach((value, k) => { sum[k] += value; }));
        this.found.textContent = sum[0] + sum[2] ? UP.sideName(0) + " " + UP.integer(sum[0]) + "×, " + UP.ns(sum[1]) + "; " + UP.sideName(1) + " " + UP.integer(sum[2]) + "×, " + UP.ns(sum[3]) : "nothing of that name";
        this.mark(marked);
    }
    next(direction) { // Enter in the search: from match to match
        if (!this.marked)
            return;
        const places = this.layout.rows, start = this.chosen ? places.indexOf(this.chosen.place) : 0;
        for (let k = 0; k <= places.length; k++) {
            const place = places[(start + direction * k + places.length * 2) % places.length], row = place.row;
            let i = k === 0 ? (this.chosen ? this.chosen.index + direction : 0) : direction > 0 ? 0 : row.count - 1;
            for (; i >= 0 && i < row.count; i += direction)
                if (row.name[i] >= 0 && this.marked[row.name[i]]) {
                    this.choose({place, index: i});
                    this.reveal();
                    return;
                }
        }
    }
    contribution(rank) {
        const marked = Uint8Array.from(this.model.nameContribution, value => Number(value === rank));
        return marked.some(value => value) ? marked : null;
    }
};

UP.parts.timeline = (workload, parent, id) => {
    const timeline = UP.object(workload.timeline), sides = UP.list(timeline.sides);
    if (!sides.some(side => side && UP.list(side.lanes).some(lane => UP.list(UP.object(lane).start).length)))
        return null;
    const part = UP.part(parent, 3, id + "-timeline", UP.single() ? "Timeline" : "Timeline of one " + (UP.clean(workload.unit) || "step") + " of each side", "timeline");
    if (timeline.title)
        part.append(UP.el("p", {class: "muted", text: UP.clean(timeline.title).slice(0, 300)}));
    const body = UP.el("div", {});
    part.append(body);
    const handle = {part, drawn: null, ranks: new Set(UP.list(timeline.name_contribution)), ensure() { UP.ensure(body); return this.drawn; }};
    UP.lazy(body, 420, () => { handle.drawn = new UP.Timeline(body, timeline, UP.object(workload.diff), id + "-timeline"); });
    UP.timelines.push(handle);
    return handle;
};
