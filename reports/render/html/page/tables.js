// SPDX-License-Identifier: Apache-2.0
// Tables that are searched, sorted and paged: DataTables. Its own ways of setting cells and titles take HTML, so titles are made
// here, cells are filled by textContent, and what it searches in has no "&" and "<" it could take for markup.
"use strict";
UP.tables = {
    plainText: text => UP.clean(text).slice(0, 2000).replace(/&/g, "\uff06").replace(/</g, "\uff1c"),

    // A row's name; where the sides' names differ, both.
    pair(row) {
        const on = (name, ns) => (UP.num(ns) === null ? "" : UP.clean(name === null || name === undefined ? row[0] : name).trim());
        const [a, b] = [on(row[1], row[7]), on(row[2], row[8])];
        return a && b && a !== b ? UP.el("span", {}, UP.name(a, 60), " → ", UP.name(b, 60)) : UP.name(row[0], 90);
    },

    // columns: {title, text: row => string} or {title, number: row => value, write}; rows: anything. options: {caption, placeholder, page}
    make(parent, columns, rows, options) {
        const search = UP.el("input", {type: "search", placeholder: options.placeholder || "Search", "aria-label": "Search: " + options.caption});
        const found = UP.el("span", {class: "muted", role: "status"});
        const head = UP.el("thead", {}, UP.el("tr", {}, columns.map(column => UP.el("th", {scope: "col", class: column.number && !column.fill ? "num" : null, text: column.title}))));
        const table = UP.el("table", {class: "data", style: {width: "100%"}}, UP.el("caption", {class: "hidden", text: options.caption}), head);
        const scroll = UP.el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": options.caption}, table);
        parent.append(UP.el("div", {class: "tools screen"}, search, found), scroll);
        const lines = rows.map(row => columns.map(column => (column.number ? UP.num(column.number(row)) : UP.clean(column.text(row)))));
        const handle = jQuery(table).DataTable({
            data: lines, autoWidth: false, deferRender: true, order: [], pageLength: options.page || 15, lengthMenu: [15, 50, 200], pagingType: "simple_numbers",
            dom: "t<'table-foot'ip>", orderClasses: false,
            language: {info: "_START_ to _END_ of _TOTAL_", infoEmpty: "nothing found", infoFiltered: "(of _MAX_)", zeroRecords: "nothing found", paginate: {previous: "‹", next: "›"}},
            columns: columns.map((column, i) => ({
                type: column.number ? "num" : "string", className: column.number && !column.fill ? "num" : column.wrap ? "wrap" : "", orderSequence: column.number ? ["desc", "asc"] : ["asc", "desc"],
                render: (value, type) => (type === "display" ? "" : column.number ? (value === null ? -Infinity : type === "filter" ? "" : value) : type === "filter" ? UP.tables.plainText(value) : value),
                createdCell: (cell, value, line, index) => {
                    if (column.fill)
                        cell.replaceChildren(column.fill(rows[index]));
                    else
                        cell.textContent = column.number ? column.write(value) : value === "" ? UP.dash : UP.short(value, 60);
                    if (column.tone && value)
                        cell.classList.add(value > 0 ? "slower-text" : "faster-text");
                    if (i === 0 && column.text)
                        cell.setAttribute("data-first", "");
                },
            })),
        });
        const seek = text => {
            handle.search(UP.tables.plainText(text)).draw();
            const count = handle.rows({search: "applied"}).count();
            found.textContent = text ? UP.plural(count, "row") : "";
            return count;
        };
        search.addEventListener("input", () => seek(search.value));
        UP.print.listeners.push(begin => handle.page.len(begin ? Math.min(25, lines.length || 1) : options.page || 15).draw(false));
        return {search, table, handle, seek: text => { search.value = text; return seek(text); }};
    },
};

// Functions, kernels and stalls of both sides, partner by partner.
UP.parts.table = (workload, parent, id) => {
    const diff = UP.object(workload.diff), unit = UP.clean(workload.unit) || "step";
    const rows = UP.list(diff.rows).filter(row => Array.isArray(row) && row.length >= 13);
    if (!rows.length)
        return null;
    const part = UP.part(parent, 3, id + "-table", "Functions, kernels and stalls", "table");
    const most = d3.max(rows, row => Math.max(UP.num(row[7]) || 0, UP.num(row[8]) || 0)) || 1;
    const [scale, word] = most >= 1e9 ? [1e9, "s"] : most >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
    const write = value => (value === null ? UP.dash : d3.format(",.3f")(value).replace("-", "\u2212"));
    const part_of = (row, i) => (UP.num(row[i]) === null ? null : row[i] / scale);
    const delta = row => (UP.num(row[7]) === null && UP.num(row[8]) === null ? null : ((UP.num(row[8]) || 0) - (UP.num(row[7]) || 0)) / scale);
    const sorted = rows.slice().sort((a, b) => Math.abs(delta(b) || 0) - Math.abs(delta(a) || 0));
    const matches = {only_a: "only " + UP.sideName(0), only_b: "only " + UP.sideName(1)};
    const names = row => [row[0], row[1], row[2]].filter((name, i, all) => name && all.indexOf(name) === i).join(" → ");
    const columns = [
        {title: "Name and place", text: row => names(row) + "  " + UP.clean(row[3]), fill: row => UP.el("span", {}, UP.tables.pair(row), row[3] ? UP.el("small", {class: "place"}, UP.name(row[3], 90)) : null)},
        {title: "Difference, " + word, number: delta, tone: true, write: value => (value === null ? UP.dash : UP.signed(value, write))},
        {title: UP.sideName(0) + ", " + word, number: row => part_of(row, 7), write},
        {title: UP.sideName(1) + ", " + word, number: row => part_of(row, 8), write},
        {title: "Count " + UP.sideName(0), number: row => row[11], write: UP.count},
        {title: "Count " + UP.sideName(1), number: row => row[12], write: UP.count},
        {title: "Kind", text: row => row[4]}, {title: "Aligned by", text: row => UP.pick(matches, row[6], UP.clean(row[6]).replace(/_/g, " "))}];
    part.append(UP.el("p", {class: "lead", text: UP.integer(rows.length) + " rows, times of one " + unit + " on its path; largest difference first. A column's heading sorts." +
        (UP.num(diff.rows_left_out) ? " " + UP.integer(diff.rows_left_out) + " smaller ones are not in this file." : "")}));
    const body = UP.el("div", {});
    part.append(body);
    const handle = {part, ensure() { UP.ensure(body); return this.drawn; }, drawn: null};
    UP.lazy(body, 500, () => { handle.drawn = UP.tables.make(body, columns, sorted, {caption: "Functions, kernels and stalls of " + UP.short(workload.name, 40), placeholder: "Search names, places, kinds"}); });
    return handle;
};
