// SPDX-License-Identifier: Apache-2.0
// Puts the page of a rollout together. A part that fails says so in its place; the others stand.
"use strict";
UP.guard = (what, parent, make) => {
    try {
        make();
    } catch (error) {
        console.error("upgate report: " + what, error);
        parent.append(UP.el("p", {class: "broken", text: "This part (" + what + ") could not be drawn: " + UP.short(error && error.message, 200)}));
    }
};

UP.start = () => {
    const main = document.getElementById("main"), bar = document.getElementById("bar"), foot = document.getElementById("foot");
    UP.theme.start();
    let data = null;
    try {
        data = JSON.parse(document.getElementById("data").textContent);
    } catch (error) {
        data = null;
    }
    if (!data || typeof data !== "object" || UP.clean(data.schema) !== "upgate.rollout_page/1") {
        main.append(UP.el("p", {class: "broken", text: "The data of this report is damaged or of another version: make it again with `upgate canary report ROLLOUT.yaml -o report.html`."}));
        document.documentElement.dataset.ready = "1";
        return;
    }
    UP.data = data;
    UP.how = new Set(UP.rolloutHow.map(([id]) => id));
    for (const name of ["verdict", "answer", "share", "errors", "latency", "evidence", "decisions", "stages", "why", "sources", "answers", "how"])
        UP.guard(name, main, () => UP.parts[name](data, main));
    UP.guard("bar", bar, () => UP.parts.bar(data, bar));
    UP.guard("foot", foot, () => UP.parts.foot(data, foot));
    addEventListener("beforeprint", () => UP.print.begin());
    addEventListener("afterprint", () => UP.print.end());
    const arrive = () => {
        let target = null;
        try {
            target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
        } catch (error) {
            target = null; // no name of a place
        }
        if (target)
            UP.jump(target, null);
    };
    addEventListener("hashchange", arrive);
    addEventListener("keydown", event => event.key === "Escape" && UP.tooltip.hide());
    addEventListener("scroll", () => UP.tooltip.hide(), {passive: true});
    arrive();
    document.documentElement.dataset.ready = "1";
};
window.upgateReport = UP;
UP.start();
