// SPDX-License-Identifier: Apache-2.0
// The rest of the page: collectives, stragglers, parity, the two environments, trust, notes, how every number was made, licences.
"use strict";
// What both sides' collectives took, by function, type and size.
UP.parts.collectives = (workload, parent, id) => {
    const of = UP.object(UP.object(workload.diff).collectives), rows = UP.list(of.kinds).map(UP.object), unit = UP.clean(workload.unit) || "step";
    if (!rows.length)
        return;
    const both = (a, b, show) => [show(a), " → ", show(b)], time = value => UP.num(value) === null ? UP.dash : value === 0 ? "0" : UP.ns(value);
    const count = value => UP.num(value) === null ? UP.dash : d3.format(".3~g")(value), how = text => UP.clean(text).slice(0, 200) || UP.dash;
    const part = UP.part(parent, 3, id + "-collectives", "Collectives");
    part.append(UP.el("p", {class: "lead", text: UP.clean(of.answer).slice(0, 500) + "."}),
        UP.rowsTable("Collectives of both sides", [["What"], ["Size"], ["Algorithm, protocol", "text"], ["A " + unit, "num"], ["Time a " + unit, "num"], ["Exposed of it", "num"]],
            rows.slice(0, 64).map(row => [UP.name(row.name, 80), UP.clean(row.size).slice(0, 40), row.how_a === row.how_b ? how(row.how_a) : both(row.how_a, row.how_b, how), both(row.count_a, row.count_b, count), both(row.busy_a_ns, row.busy_b_ns, time), both(row.exposed_a_ns, row.exposed_b_ns, time)])));
};

// What the traced launches held in memory, of a workload whose peak differs: of the host, of the GPU.
UP.memoryPart = (of, gpu, parent, id) => {
    const parts = UP.list(of.parts).map(UP.object), told = parts.filter(row => row.told === true);
    if (!parts.length)
        return;
    const part = UP.part(parent, 3, id, gpu ? "Peak GPU memory" : "Peak memory");
    const size = value => (value === 0 ? "0" : UP.bytes(value)), change = value => UP.el("span", {class: value > 0 ? "slower-text" : "faster-text", text: UP.signedBytes(value)});
    const files = row => [row.name_a, row.name_b].map(name => UP.clean(name).slice(0, 200) || UP.dash), both = row => (row.name_a === row.name_b || row.kind !== "file" ? [] : [" (", files(row).join(" → "), ")"]);
    part.append(UP.el("p", {class: "lead", text: UP.clean(of.headline).slice(0, 1000) + "."}), UP.el("p", {text: UP.clean(of.answer).slice(0, 1000)}));
    if (told.length)
        part.append(UP.rowsTable((gpu ? "GPU memory" : "Memory") + " of both sides", [["What"], [UP.sideName(0), "num"], [UP.sideName(1), "num"], ["Change", "num"]],
            told.slice(0, 40).map(row => [UP.el("span", {}, UP.name(row.title, 80), ...both(row)), size(row.a_bytes), size(row.b_bytes), change(row.delta_bytes)])));
    const touched = UP.list(of.touched).map(UP.object).filter(row => row.told === true);
    if (UP.clean(of.code))
        part.append(UP.el("p", {text: UP.clean(of.code).slice(0, 1000)}));
    if (touched.length)
        part.append(UP.rowsTable(gpu ? "GPU memory by the code that allocated it" : "Memory by the code that touched it first", [[gpu ? "Allocated in" : "First touched in"], [UP.sideName(0), "num"], [UP.sideName(1), "num"], ["Change", "num"]],
            touched.slice(0, 40).map(row => [UP.name(row.title, 120), size(row.a_bytes), size(row.b_bytes), change(row.delta_bytes)])));
};

UP.parts.memory = (workload, parent, id) => UP.memoryPart(UP.object(UP.object(workload.diff).memory), false, parent, id + "-memory");
UP.parts.gpuMemory = (workload, parent, id) => UP.memoryPart(UP.object(UP.object(workload.diff).gpu_memory), true, parent, id + "-gpu-memory");

UP.parts.stragglers = (workload, parent, id) => {
    const rows = UP.list(UP.object(workload.diff).stragglers).map(UP.object);
    if (!rows.length)
        return;
    const part = UP.part(parent, 3, id + "-stragglers", "Stragglers", "stragglers");
    part.append(UP.rowsTable("Ranks that arrived last at collectives", [["Side"], ["Rank", "num"], ["Arrived last", "num"], ["Late by, mean", "num"], ["Others wait a step", "num"], ["Why", "text"]],
        rows.slice(0, 100).map(row => [UP.sideName(row.side === "b" ? 1 : 0), UP.integer(row.rank), UP.integer(row.last_count) + " of " + UP.integer(row.collectives), UP.ns(row.late_ns), UP.ns(row.wait_ns), UP.clean(row.why).slice(0, 500) || "not known"])));
};

// What of the first step every traced launch of one side spends more on than every one of the other.
UP.parts.first = (workload, parent, id) => {
    const first = UP.object(UP.object(workload.diff).first_step), unit = UP.clean(workload.unit) || "step";
    const rows = UP.list(first.contributions).map(UP.object);
    if (!rows.length)
        return;
    const part = UP.part(parent, 3, id + "-first", "The first " + unit, "first");
    const time = value => UP.num(value) === null ? UP.dash : value === 0 ? "0" : UP.ns(value), all = values => UP.list(values).slice(0, 16).map(time).join(", ");
    const change = item => UP.el("span", {class: item.delta_ns > 0 ? "slower-text" : "faster-text", text: UP.signedNs(item.delta_ns)});
    part.append(UP.el("p", {class: "lead"}, UP.ns(first.a_ns), " → ", UP.el("b", {text: UP.ns(first.b_ns)}), ". It is in no other number of this page: no contribution, no bar."));
    part.append(UP.rowsTable("What changed in the first " + unit, [["What"], ["Name", "text"], ["Where", "text"], ["Made of", "text"], ["Change", "num"], [UP.sideName(0) + ", each launch", "num"], [UP.sideName(1) + ", each launch", "num"]],
        rows.slice(0, 20).map(item => [UP.clean(item.title).slice(0, 80), UP.name(item.label, 80, "code"), UP.clean(item.where).slice(0, 300), UP.list(item.evidence).slice(1, 4).map(text => UP.clean(text).slice(0, 300)).join("; "), change(item), all(UP.object(item.launches_ns).a), all(UP.object(item.launches_ns).b)])));
    const phases = UP.list(first.phases).map(UP.object).filter(item => UP.num(item.a_ns) !== null && UP.num(item.b_ns) !== null).slice(0, 20);
    if (phases.length > 1)
        part.append(UP.el("p", {class: "lead", text: "By phase:"}), UP.rowsTable("Phases of the first " + unit, [["Phase"], [UP.sideName(0), "num"], [UP.sideName(1), "num"], ["Change", "num"]],
            phases.map(item => [UP.name(item.name, 60), time(item.a_ns), time(item.b_ns), change({delta_ns: item.b_ns - item.a_ns})])));
};

// What slow steps, or the slowest requests, have that typical ones have not; or why it is not known.
UP.parts.slow = (workload, parent, id) => {
    const slow = UP.object(UP.object(workload.diff).slow_steps), unit = UP.clean(workload.unit) || "step", rows = UP.list(slow.contributions).map(UP.object);
    if (!UP.clean(slow.headline).trim())
        return;
    const part = UP.part(parent, 3, id + "-slow", slow.tail === true ? "The slowest " + unit + "s" : "What slow " + unit + "s are made of");
    const time = value => UP.num(value) === null ? UP.dash : Math.abs(value) < 0.5 ? "0" : UP.ns(value), all = values => UP.list(values).slice(0, 16).map(time).join(", ");
    part.append(UP.el("p", {class: "lead"}, UP.el("b", {text: UP.clean(slow.headline).slice(0, 1000)}), ". " + UP.clean(slow.answer).slice(0, 1000)));
    if (rows.length)
        part.append(UP.rowsTable("What slow " + unit + "s have beyond typical ones", [["What"], ["Name", "text"], ["Where", "text"], ["Suspects", "text"], ["Change", "num"], ["Share", "num"], [UP.sideName(0) + ", each launch", "num"], [UP.sideName(1) + ", each launch", "num"]],
            rows.slice(0, 20).map(item => [UP.clean(item.title).slice(0, 80), UP.name(item.label, 80, "code"), UP.clean(item.where).slice(0, 300), UP.list(item.suspects).slice(0, 2).map(text => UP.clean(text).slice(0, 300)).join("; "),
                UP.el("span", {class: item.delta_ns > 0 ? "slower-text" : "faster-text", text: UP.signedNs(item.delta_ns)}), UP.num(item.share) === null ? UP.dash : UP.percent(item.share, 2),
                all(UP.object(item.launches_ns).a), all(UP.object(item.launches_ns).b)])));
};

// What of the CPU time every traced launch of one side spends more on than every one of the other, whichever thread.
UP.parts.cpu = (workload, parent, id) => {
    const cpu = UP.object(UP.object(workload.diff).cpu_time), rows = UP.list(cpu.contributions).map(UP.object);
    if (!UP.clean(cpu.headline).trim())
        return;
    const part = UP.part(parent, 3, id + "-cpu", "CPU time");
    const time = value => UP.num(value) === null ? UP.dash : value === 0 ? "0" : UP.ns(value), all = values => UP.list(values).slice(0, 16).map(time).join(", ");
    const change = item => UP.el("span", {class: item.delta_ns > 0 ? "slower-text" : "faster-text", text: UP.signedNs(item.delta_ns)});
    part.append(UP.el("p", {class: "lead"}, UP.el("b", {text: UP.clean(cpu.headline).slice(0, 1000)}), ". Of all threads and processes, whether a step waits for them or not."));
    if (rows.length)
        part.append(UP.rowsTable("What changed in the CPU time", [["What"], ["Name", "text"], ["Where", "text"], ["Change", "num"], [UP.sideName(0) + ", each launch", "num"], [UP.sideName(1) + ", each launch", "num"]],
            rows.slice(0, 20).map(item => [UP.clean(item.title).slice(0, 80), UP.name(item.label, 80, "code"), UP.clean(item.where).slice(0, 300), change(item), all(UP.object(item.launches_ns).a), all(UP.object(item.launches_ns).b)])));
    const places = UP.list(cpu.places).map(UP.object).filter(item => UP.num(item.a_ns) !== null && UP.num(item.b_ns) !== null).slice(0, 20);
    if (places.length > 1)
        part.append(UP.el("p", {class: "lead", text: "By thread, and by phase of those that make steps:"}), UP.rowsTable("CPU time by thread", [["Thread, phase"], [UP.sideName(0), "num"], [UP.sideName(1), "num"], ["Change", "num"]],
            places.map(item => [UP.name(item.name, 60), time(item.a_ns), time(item.b_ns), change({delta_ns: item.b_ns - item.a_ns})])));
};

// The stall analysis of each traced launch: the answer, and what held it up, worst first.
UP.parts.stalls = (workload, parent, id) => {
    const found = UP.list(workload.stalls).map(UP.object).filter(stall => stall.answer || UP.list(stall.items).length);
    if (!found.length)
        return;
    const part = UP.part(parent, 3, id + "-stalls", UP.single() ? "What held it up" : "What held the traced launches up", "stalls");
    const line = (title, text) => (UP.clean(text).trim() ? [UP.el("dt", {text: title}), UP.el("dd", {}, UP.clean(text).slice(0, 2000))] : null);
    let into = part;
    found.forEach((stall, number) => {
        if (number === 2 && found.length > 3) { // the first pair says it; the others repeat it
            into = UP.el("details", {}, UP.el("summary", {text: UP.plural(found.length - 2, "more traced launch", "more traced launches")}));
            part.append(into);
        }
        const side = stall.side === "a" ? 0 : stall.side === "b" ? 1 : -1;
        into.append(UP.el("h4", {class: "stall-head"}, side < 0 ? null : UP.el("span", {class: "side side-" + stall.side, text: UP.sideName(side)}), " ", UP.clean(stall.answer).slice(0, 400)),
                    UP.clean(stall.watched).trim() ? UP.el("p", {class: "muted"}, UP.clean(stall.watched).slice(0, 400)) : "");
        const whatIf = UP.list(stall.what_if).slice(0, 8).map(text => UP.clean(text).slice(0, 400));
        if (whatIf.length)
            into.append(UP.el("p", {text: whatIf[0]}), whatIf.length > 1 ? UP.el("ul", {class: "what-if"}, whatIf.slice(1).map(text => UP.el("li", {text}))) : "");
        UP.heat.show(into, stall.heat);
        const scale = d3.max(UP.list(stall.items), item => UP.num(UP.object(item).total_ns) || 0) || 1;
        if (!UP.list(stall.items).length)
            return;
        into.append(UP.el("div", {class: "items"}, UP.list(stall.items).slice(0, 30).map(UP.object).map(item => UP.el("details", {class: "item stall"},
            UP.el("summary", {}, UP.el("span", {class: "item-rank", text: UP.integer(item.rank)}), UP.el("span", {class: "item-name"}, UP.el("span", {class: "item-kind", text: UP.short(item.cause, 40)}), UP.name(item.title || item.cause, 100, "b")),
                  UP.el("span", {class: "whisker", "aria-hidden": "true"}, UP.el("span", {class: "bar stalled", style: {left: "0", width: Math.max(0.5, 100 * (UP.num(item.total_ns) || 0) / scale) + "%"}})),
                  UP.el("span", {class: "item-delta num"}, UP.ns(UP.num(item.total_ns)), UP.el("small", {text: UP.num(item.share) === null ? "" : UP.percent(item.share, 2) + " of it"}))),
            UP.el("dl", {class: "item-body facts-list"}, line("Blame", item.blame), line("Lost", item.lost || UP.plural(UP.num(item.count) || 0, "time") + ", the longest " + UP.ns(UP.num(item.max_ns))), line("Steps hit", item.steps),
                  line("Who lost", item.victim), line("Who held it up", item.culprit), line("Where", item.where), line("Python", item.python), line("Every", UP.num(item.period_ns) ? UP.ns(item.period_ns) : ""), line("What helps", item.advice))))));
    });
};

UP.parts.parity = (data, main) => {
    const rows = UP.list(data.parity).map(UP.object);
    if (!rows.length)
        return;
    const part = UP.part(main, 2, "parity", "Numerical parity", "parity");
    const number = value => (UP.num(value) === null ? UP.dash : value === 0 ? "0" : d3.format(".2~e")(value));
    part.append(UP.rowsTable("Numerical parity of both sides", [["Verdict"], ["Workload"], ["Tensor"], ["Rule"], ["Error of " + UP.sideName(0), "num"], ["Error of " + UP.sideName(1), "num"], ["", "text"]],
        rows.slice(0, 500).map(row => [UP.pill(row.verdict), UP.name(row.workload, 40), UP.name(row.tensor, 60), UP.name(row.rule, 40), number(row.error_a), number(row.error_b), UP.clean(row.reason).slice(0, 2200)])));
};

UP.parts.fingerprint = (data, main) => {
    const rows = UP.list(data.fingerprint).map(UP.object);
    if (!rows.length)
        return;
    const part = UP.part(main, 2, "fingerprint", "What differs between the environments", "fingerprint");
    const suspicion = row => (UP.num(row.suspicion) === null ? null : Math.max(0, Math.min(1, row.suspicion)));
    const meter = row => {
        const value = suspicion(row);
        return value === null ? UP.el("span", {class: "muted", text: UP.dash})
            : UP.el("span", {class: "meter"}, UP.el("span", {class: "meter-bar", "aria-hidden": "true"}, UP.el("span", {style: {width: 100 * value + "%"}})), value >= 0.66 ? "high" : value >= 0.33 ? "some" : "low");
    };
    const gone = text => (text === null || text === undefined ? UP.el("span", {class: "muted", text: "not there"}) : UP.name(text, 80));
    const columns = [{title: "Suspicion", number: suspicion, write: UP.percent, fill: meter}, {title: "Kind", text: row => row.kind}, {title: "Name", text: row => row.name, fill: row => UP.name(row.name, 60)},
                     {title: UP.sideName(0), text: row => row.a, fill: row => gone(row.a)}, {title: UP.sideName(1), text: row => row.b, fill: row => gone(row.b)},
                     {title: "Why", wrap: true, text: row => row.why, fill: row => UP.el("span", {text: UP.clean(row.why).slice(0, 400)})}];
    part.append(UP.el("p", {class: "lead", text: UP.plural(rows.length, "difference") + ", what could have done it first."}));
    UP.tables.make(part, columns, rows, {caption: "Differences of the environments", placeholder: "Search packages, defaults, libraries"});
};

UP.parts.trust = (data, main) => {
    const trust = UP.object(data.trust), ledger = UP.list(trust.ledger).map(UP.object), breaches = UP.list(trust.breaches).map(UP.object);
    const calibration = UP.object(data.calibration), notes = UP.list(data.notes).map(UP.object).filter(note => note.text);
    if (!ledger.length && !breaches.length && !calibration.note && !notes.length && trust.ok === undefined)
        return;
    const part = UP.part(main, 2, "trust", "Trust", "trust");
    if (trust.ok !== undefined)
        part.append(UP.el("p", {class: "lead"}, trust.ok ? [UP.pill("pass"), " Nothing was lost that the answer needs."] : [UP.pill("inconclusive"), " " + UP.plural(breaches.length, "breach", "breaches") + ": what was lost may be part of the answer."]));
    if (breaches.length)
        part.append(UP.el("ul", {class: "findings"}, breaches.slice(0, 100).map(row => UP.el("li", {class: "inconclusive"}, UP.name(row.producer, 60, "b"), ": " + UP.integer(row.count) + " ", UP.name(row.kind, 60), row.detail ? ", " + UP.clean(row.detail).slice(0, 500) : ""))));
    if (calibration.note)
        part.append(UP.el("p", {}, UP.el("b", {text: "Calibration: "}), UP.clean(calibration.note).slice(0, 2200)));
    if (ledger.length)
        part.append(UP.el("details", {open: ledger.length <= 12}, UP.el("summary", {text: "Ledger: " + UP.plural(ledger.length, "producer")}), UP.rowsTable("Trust ledger: what each producer saw and lost", [["Producer"], ["What"], ["Seen", "num"], ["Lost", "num"], ["Launches", "num"], [""]],
            ledger.slice(0, 300).map(row => [UP.name(row.producer, 60), UP.name(row.kind, 40), UP.integer(row.seen), UP.el("span", {class: row.dropped > 0 ? "slower-text" : null, text: UP.integer(row.dropped)}), UP.integer(row.rows), UP.clean(row.detail).slice(0, 300)]))));
    if (notes.length)
        part.append(UP.el("ul", {class: "notes"}, notes.slice(0, 200).map(note => UP.el("li", {}, note.level === "warning" ? UP.el("span", {class: "tag", text: "warning"}) : null, note.level === "warning" ? " " : null, UP.clean(note.text).slice(0, 2000)))));
};

UP.parts.how = (data, main) => {
    const entries = UP.list(data.how).map(UP.object).filter(entry => entry.text);
    if (!entries.length)
        return;
    const part = UP.part(main, 2, "how", "How every number was made");
    part.append(UP.el("dl", {class: "how"}, entries.map(entry => UP.el("div", {id: "how-" + UP.clean(entry.id), tabindex: -1}, UP.el("dt", {text: UP.short(entry.title || entry.id, 80)}),
        String(entry.text).split(/\n\s*\n/).map(text => UP.el("dd", {}, UP.clean(text).slice(0, 8000).split("`").map((piece, i) => (i % 2 ? UP.el("code", {text: piece}) : piece))))))));
};

UP.parts.foot = (data, foot) => UP.foot(foot, [data.made_by ? "Made by " + UP.short(data.made_by, 60) + "." : "", "This file is whole: it asks nothing of any network."].filter(text => text).join(" "));
