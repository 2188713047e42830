// SPDX-License-Identifier: Apache-2.0
// How a page begins: its data, its parts, the bar and the foot, links into it. A part that fails says so in its place; the others stand.
"use strict";
UP.guard = (what, parent, make) => {
    try {
        return make();
    } catch (error) {
        console.error("upgate report: " + what, error);
        parent.append(UP.el("p", {class: "broken", text: "This part (" + what + ") could not be drawn: " + UP.short(error && error.message, 200)}));
        return null;
    }
};

// A table of a head [[text, class]] and rows of cells. cards: on a phone each row is a card; the first cell is its heading.
UP.rowsTable = (caption, head, rows, cards) => {
    const row = entry => (Array.isArray(entry) ? {cells: entry} : entry), named = i => cards && i === 0;
    return UP.el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption}, UP.el("table", {class: cards ? "plain wide cards" : "plain"}, UP.el("caption", {class: "hidden", text: caption}),
        UP.el("thead", {}, UP.el("tr", {}, head.map(([text, kind]) => UP.el("th", {scope: "col", class: kind || null, text})))),
        UP.el("tbody", {}, rows.map(row).map(({cells, id, mark}) => UP.el("tr", {id: id || null, class: mark || null, tabindex: id ? -1 : null}, cells.map((cell, i) =>
            UP.el(named(i) ? "th" : "td", {scope: named(i) ? "row" : null, class: [head[i][1], cards && cell === UP.dash ? "none" : ""].filter(text => text).join(" ") || null, "data-head": cards && i ? head[i][0] : null}, cell)))))));
};

// The bar: what it is, links to the parts that are there, the theme. links: [[id, text]]
UP.bar = (bar, name, links) => {
    const toggle = UP.el("button", {type: "button", class: "toggle", id: "theme", "aria-pressed": String(UP.theme.current() === "dark")}, "Dark");
    toggle.addEventListener("click", () => UP.theme.set(UP.theme.current() === "dark" ? "light" : "dark", true));
    UP.theme.listeners.push(() => toggle.setAttribute("aria-pressed", String(UP.theme.current() === "dark")));
    bar.append(UP.el("a", {class: "home", href: "#main"}, UP.el("strong", {text: "upgate"}), name),
               UP.el("nav", {"aria-label": "Parts of the report"}, UP.el("ul", {}, links.filter(([id]) => document.getElementById(id)).map(([id, text]) => UP.el("li", {}, UP.el("a", {href: "#" + id, text}))))), toggle);
};

UP.foot = (foot, text) => foot.append(UP.el("p", {text}),
    UP.el("details", {class: "screen-only"}, UP.el("summary", {text: "Licences of what this page is made with"}), UP.el("pre", {text: document.getElementById("licences").textContent.trim()})));

// schema: of the data that this page draws; draw(data, main): its parts.
UP.start = (schema, draw) => {
    const main = document.getElementById("main"), bar = document.getElementById("bar"), foot = document.getElementById("foot");
    UP.theme.start();
    let data = null;
    try {
        data = JSON.parse(document.getElementById("data").textContent);
    } catch (error) {
        data = null;
    }
    window.upgateReport = UP;
    if (!data || typeof data !== "object" || UP.clean(data.schema) !== schema) {
        main.append(UP.el("p", {class: "broken", text: "The data of this report is damaged or of another version: make it again with `" + document.body.dataset.command + " -o report.html`."}));
        document.documentElement.dataset.ready = "1";
        return;
    }
    UP.data = data;
    UP.guard("page", main, () => draw(data, main));
    UP.guard("bar", bar, () => UP.parts.bar(data, bar));
    UP.guard("foot", foot, () => UP.parts.foot(data, foot));
    addEventListener("beforeprint", () => UP.print.begin());
    addEventListener("afterprint", () => UP.print.end());
    // A link to a part that is still to be drawn, or closed, opens it.
    const arrive = () => {
        let target = null;
        try {
            target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
        } catch (error) {
            target = null; // no name of a place
        }
        if (target)
            UP.jump(target, target.tagName === "DETAILS" ? target.querySelector("summary") : null);
    };
    addEventListener("hashchange", arrive);
    addEventListener("keydown", event => event.key === "Escape" && UP.tooltip.hide());
    addEventListener("scroll", () => UP.tooltip.hide(), {passive: true});
    arrive();
    document.documentElement.dataset.ready = "1";
};
