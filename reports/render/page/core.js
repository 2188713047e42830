// SPDX-License-Identifier: Apache-2.0
// What every part of the page uses: the document, DOM nodes made without a line of HTML, theme, tooltip, drawing late and for print.
// All text of the document reaches the page through textContent: names hold HTML, quotes and worse.
"use strict";
const UP = {parts: {}, timelines: [], flames: []};

UP.list = value => (Array.isArray(value) ? value : []);
UP.num = value => (typeof value === "number" && Number.isFinite(value) ? value : null);
UP.object = value => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});
UP.pick = (table, key, other) => (typeof key === "string" && Object.prototype.hasOwnProperty.call(table, key) ? table[key] : other);
// Control and direction characters would hide or turn what stands beside them.
UP.clean = value => (value === null || value === undefined ? "" : String(value))
    .replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ").replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "");
// Names of functions say most at their beginning and end.
UP.short = (value, limit) => {
    const text = UP.clean(value).trim() || "(no name)";
    const letters = text.length > 4 * limit ? text.slice(0, 2 * limit) + text.slice(-2 * limit) : text;
    const points = Array.from(letters);
    if (points.length <= limit)
        return letters;
    const tail = Math.floor(limit / 3);
    return points.slice(0, limit - tail - 1).join("") + "…" + points.slice(-tail).join("");
};

UP.el = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
        if (value === null || value === undefined || value === false)
            continue;
        if (key === "class")
            node.className = value;
        else if (key === "text")
            node.textContent = value;
        else if (key === "style")
            for (const [name, setting] of Object.entries(value))
                node.style.setProperty(name, setting);
        else if (key.startsWith("on"))
            node.addEventListener(key.slice(2), value);
        else
            node.setAttribute(key, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity))
        if (child !== null && child !== undefined && child !== false)
            node.append(child); // a string becomes a text node
    return node;
};
UP.name = (value, limit, tag) => {
    const text = UP.short(value, limit || 90);
    const whole = UP.clean(value);
    return UP.el(tag || "span", {class: "name", text, title: whole.length > text.length ? whole.slice(0, 600) : null});
};
UP.whole = value => UP.el("code", {class: "whole", text: UP.clean(value).trim() || "(no name)"});

// A part of the page with its heading; `how` links to the paragraph on how its numbers are made.
UP.part = (parent, level, id, title, how) => {
    const link = how && UP.how.has(how)
        ? UP.el("a", {class: "how-link", href: "#how-" + how, "aria-label": "How the numbers of “" + title + "” are made", text: "how?"}) : null;
    const heading = UP.el("h" + level, {id: id + "-title"}, title, link);
    const node = UP.el("section", {id, class: "part", "aria-labelledby": id + "-title"}, heading);
    parent.append(node);
    return node;
};

// Large parts are drawn when they come near the screen, before printing, or when something jumps to them.
UP.pending = new Map();
UP.lazy = (node, height, draw) => {
    node.style.minHeight = height + "px";
    UP.pending.set(node, draw);
    if (!UP.observer)
        UP.observer = new IntersectionObserver(entries => entries.forEach(entry => entry.isIntersecting && UP.ensure(entry.target)),
                                               {rootMargin: "800px 0px"});
    UP.observer.observe(node);
};
UP.ensure = node => {
    const draw = UP.pending.get(node);
    if (!draw)
        return;
    UP.pending.delete(node);
    UP.observer.unobserve(node);
    draw();
    node.style.minHeight = "";
};
UP.ensureIn = root => Array.from(UP.pending.keys()).forEach(node => root.contains(node) && UP.ensure(node));

// A chart that is drawn again when its width changes. For paper, whose width no page is told, all are drawn for about a page's
// width (also those that were never on the screen), and scale.
UP.charts = [];
UP.paperWidth = 680;
UP.chart = (container, draw) => {
    let width = 0;
    const redraw = paper => {
        const now = paper === true ? UP.paperWidth : Math.floor(container.clientWidth);
        if (now > 0 && now !== width && (paper === true || !UP.print.saved)) {
            width = now;
            container.replaceChildren();
            draw(width);
        }
    };
    UP.charts.push(redraw);
    new ResizeObserver(() => requestAnimationFrame(redraw)).observe(container);
    redraw();
};
UP.svg = (container, width, height, label) => d3.select(container).append("svg").attr("viewBox", "0 0 " + width + " " + height)
    .attr("width", "100%").attr("role", "img").attr("aria-label", label);

UP.jump = (node, focus) => {
    UP.ensureIn(node);
    for (let at = node; at; at = at.parentElement)
        if (at.tagName === "DETAILS")
            at.open = true;
    node.scrollIntoView({behavior: UP.still() ? "auto" : "smooth", block: "start"});
    if (focus)
        focus.focus({preventScroll: true});
};
UP.still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
UP.say = text => { // to screen readers
    if (!UP.live)
        document.body.append(UP.live = UP.el("div", {class: "hidden", role: "status", "aria-live": "polite"}));
    UP.live.textContent = text;
};

UP.tooltip = {
    show(lines, x, y) {
        const node = document.getElementById("tooltip");
        node.replaceChildren(...lines.filter(line => line).map((line, i) => UP.el("div", {class: i ? "" : "first", text: line})));
        node.hidden = false;
        const box = node.getBoundingClientRect();
        node.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
        node.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18) + "px";
    },
    hide() {
        document.getElementById("tooltip").hidden = true;
    },
};

// Theme: what the system prefers until the reader chooses; ?theme=dark for pictures. Paper is always light.
UP.theme = {
    listeners: [],
    chosen: null,
    current() {
        return this.chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    },
    set(theme, keep) {
        this.chosen = theme;
        if (theme)
            document.documentElement.dataset.theme = theme;
        else
            delete document.documentElement.dataset.theme;
        if (keep)
            try {
                localStorage.setItem("upgate-theme", theme);
            } catch (error) {
                // a page of a file may keep nothing: the choice lasts as long as the page
            }
        this.listeners.forEach(listener => listener());
    },
    start() {
        let theme = new URLSearchParams(location.search).get("theme");
        try {
            theme = theme || localStorage.getItem("upgate-theme");
        } catch (error) {
            // as above
        }
        if (theme === "dark" || theme === "light")
            this.set(theme, false);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.listeners.forEach(listener => listener()));
    },
};
UP.css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

UP.print = {
    listeners: [],
    begin() {
        if (this.saved)
            return;
        this.saved = {theme: UP.theme.chosen, closed: Array.from(document.querySelectorAll("details:not([open])"))};
        UP.theme.set("light", false);
        Array.from(UP.pending.keys()).forEach(UP.ensure);
        this.saved.closed = this.saved.closed.concat(Array.from(document.querySelectorAll("details:not([open])")));
        this.saved.closed.forEach(node => { node.open = !node.classList.contains("screen-only"); });
        UP.charts.forEach(redraw => redraw(true));
        this.listeners.forEach(listener => listener(true));
    },
    end() {
        if (!this.saved)
            return;
        this.saved.closed.forEach(node => { node.open = false; });
        UP.theme.set(this.saved.theme, false);
        this.saved = null;
        UP.charts.forEach(redraw => redraw());
        this.listeners.forEach(listener => listener(false));
    },
};
