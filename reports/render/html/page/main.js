// SPDX-License-Identifier: Apache-2.0
// Puts the page together, from the verdict to how the numbers were made.
"use strict";
// Jumps between contributions, timeline and table of one workload.
UP.finders = (parts, id) => ({
    timeline: item => parts.timeline !== null && parts.timeline !== undefined && parts.timeline.ranks.has(item.rank),
    showTimeline: item => {
        const timeline = parts.timeline.ensure();
        UP.jump(parts.timeline.part, timeline.canvas);
        timeline.search.value = "";
        timeline.found.textContent = "contribution " + UP.integer(item.rank);
        timeline.mark(timeline.contribution(item.rank));
    },
    get table() {
        return parts.table ? item => {
            const table = parts.table.ensure();
            UP.jump(parts.table.part, table.search);
            // "launches of forward" is the name of no row: what it is made of is.
            [item.label, item.name_b, item.name_a, item.where].some(text => UP.clean(text).trim() && table.seek(UP.clean(text).slice(0, 200)));
        } : null;
    },
    item: item => {
        const node = document.getElementById(id + "-c" + UP.integer(item.rank));
        if (node) {
            node.open = true;
            UP.jump(node, node.querySelector("summary"));
        }
    },
});

UP.workload = (workload, index, main) => {
    const id = "w" + index, diff = UP.object(workload.diff), parts = {};
    const section = UP.el("section", {class: "workload", id, "aria-labelledby": id + "-title"});
    const head = UP.el("header", {}, UP.el("h2", {id: id + "-title"}, UP.name(workload.name, 60), " ", UP.pill(workload.verdict)));
    section.append(head);
    main.append(section);
    if (workload.note)
        head.append(UP.el("p", {class: "muted", text: UP.clean(workload.note).slice(0, 1000)}));
    const find = UP.finders(parts, id), make = (name, ...more) => { parts[name] = UP.guard(name, section, () => UP.parts[name](workload, section, id, ...more)); };
    make("steps");
    make("cells");
    make("memory");
    make("gpuMemory");
    if (diff.unexplained)
        section.append(UP.el("p", {class: "unexplained"}, UP.el("b", {text: "Where the time went is not known. "}), UP.clean(diff.unexplained).slice(0, 1000)));
    else {
        make("slow");
        make("waterfall", find.item);
        make("decomposition");
        make("contributions", find);
        make("collectives");
        make("stragglers");
        make("first");
        make("cpu");
    }
    make("stalls");
    make("timeline");
    make("table");
    make("flames");
    const links = Array.from(section.querySelectorAll(":scope > .part > h3")).map(heading => UP.el("li", {}, UP.el("a", {href: "#" + heading.parentElement.id, text: heading.firstChild.textContent})));
    if (links.length > 2)
        head.append(UP.el("nav", {"aria-label": "Parts of " + UP.short(workload.name, 40)}, UP.el("ul", {}, links)));
};

UP.start("upgate.report/1", (data, main) => {
    data.verdict = UP.object(data.verdict);
    UP.how = new Set(UP.list(data.how).map(entry => UP.object(entry).id));
    UP.guard("verdict", main, () => UP.parts.verdict(data, main));
    UP.guard("findings", main, () => UP.parts.findings(data, main));
    UP.list(data.workloads).map(UP.object).forEach((workload, i) => UP.guard("workload", main, () => UP.workload(workload, i, main)));
    for (const name of ["parity", "fingerprint", "trust", "how"])
        UP.guard(name, main, () => UP.parts[name](data, main));
});
