// SPDX-License-Identifier: Apache-2.0
// The events of two steps in typed arrays, a row of a lane each, sorted by start: what is visible is found by binary search.
"use strict";
UP.timelineModel = {
    depthMost: 24, // rows of a lane; what is nested deeper is drawn in the last one

    lane(lane, nameCount, noteCount) {
        const starts = UP.list(lane.start), durations = UP.list(lane.dur), names = UP.list(lane.name), depths = UP.list(lane.depth), notes = UP.list(lane.note);
        const count = Math.min(starts.length, durations.length, names.length);
        const start = new Float64Array(count), end = new Float64Array(count), name = new Int32Array(count), depth = new Uint8Array(count), note = new Int32Array(count).fill(-1);
        const perRow = new Int32Array(this.depthMost);
        let at = 0, rows = 0;
        for (let i = 0; i < count; i++) {
            at += UP.num(starts[i]) || 0;
            start[i] = at;
            end[i] = at + Math.max(0, UP.num(durations[i]) || 0);
            name[i] = names[i] >= 0 && names[i] < nameCount ? names[i] : -1;
            depth[i] = Math.min(this.depthMost - 1, Math.max(0, depths[i] || 0));
            note[i] = notes[i] >= 0 && notes[i] < noteCount ? notes[i] : -1;
            perRow[depth[i]]++;
            rows = Math.max(rows, depth[i] + 1);
        }
        const result = {kind: UP.clean(lane.kind), title: UP.short(lane.title || lane.kind, 120), rows: []};
        for (let row = 0; row < rows; row++)
            result.rows.push({count: 0, start: new Float64Array(perRow[row]), end: new Float64Array(perRow[row]), reach: new Float64Array(perRow[row]),
                              name: new Int32Array(perRow[row]), note: new Int32Array(perRow[row])});
        for (let i = 0; i < count; i++) {
            const row = result.rows[depth[i]], to = row.count++;
            row.start[to] = start[i];
            row.end[to] = end[i];
            row.reach[to] = to && row.reach[to - 1] > end[i] ? row.reach[to - 1] : end[i]; // the furthest end so far: ascends even where events overlap
            row.name[to] = name[i];
            row.note[to] = note[i];
        }
        return result;
    },

    make(timeline) {
        const names = UP.list(timeline.names), notes = UP.list(timeline.notes), classes = UP.list(timeline.classes);
        const model = {names, notes, title: UP.clean(timeline.title), count: 0, first: 0, last: 0, leftOut: UP.num(timeline.left_out) || 0,
                       nameClass: new Int16Array(names.length), nameContribution: new Int32Array(names.length), classes: classes.map(word => UP.clean(word)),
                       aligned: UP.list(timeline.aligned).filter(pair => Array.isArray(pair) && UP.num(pair[0]) !== null && UP.num(pair[1]) !== null)};
        UP.list(timeline.name_class).slice(0, names.length).forEach((value, i) => { model.nameClass[i] = value >= 0 && value < classes.length ? value : -1; });
        UP.list(timeline.name_contribution).slice(0, names.length).forEach((value, i) => { model.nameContribution[i] = value > 0 ? value : 0; });
        model.sides = UP.list(timeline.sides).slice(0, 2).map((side, index) => {
            if (!side || !UP.list(side.lanes).length)
                return null;
            const lanes = UP.list(side.lanes).map(lane => this.lane(UP.object(lane), names.length, notes.length)).filter(lane => lane.rows.length);
            for (const row of lanes.flatMap(lane => lane.rows)) {
                model.count += row.count;
                model.first = Math.min(model.first, row.start[0]);
                model.last = Math.max(model.last, row.reach[row.count - 1]);
            }
            const span = UP.num(side.span_ns);
            model.last = Math.max(model.last, span || 0);
            return {index, span, lanes, marks: UP.list(side.mark_ns).filter(mark => UP.num(mark) !== null)};
        });
        return model;
    },

    // First event for which something holds that holds for all behind it.
    search(row, holds) {
        let lo = 0, hi = row.count;
        while (lo < hi) {
            const middle = (lo + hi) >> 1;
            if (holds(middle))
                hi = middle;
            else
                lo = middle + 1;
        }
        return lo;
    },
    // First event that reaches beyond time; all before it end at or before it.
    firstAfter(row, time) {
        return this.search(row, i => row.reach[i] > time);
    },
    // First event that starts at or after time.
    startsAt(row, time) {
        return this.search(row, i => row.start[i] >= time);
    },
    // The event at a time, or the nearest one within reach; -1.
    at(row, time, reach) {
        let best = -1, distance = reach;
        for (let i = this.firstAfter(row, time - reach); i < row.count && row.start[i] <= time + reach; i++) {
            const off = time < row.start[i] ? row.start[i] - time : time > row.end[i] ? time - row.end[i] : 0;
            if (off < distance || (off === 0 && best < 0)) {
                best = i;
                distance = off;
            }
            if (off === 0)
                break;
        }
        return best;
    },

    // How often and how long each name ran on each side: for the details of an event, and as the text of the picture.
    totals(model) {
        if (model.totals)
            return model.totals;
        const totals = model.names.map(() => [0, 0, 0, 0]); // count a, ns a, count b, ns b
        model.sides.forEach((side, index) => side && side.lanes.forEach(lane => lane.rows.forEach(row => {
            for (let i = 0; i < row.count; i++)
                if (row.name[i] >= 0) {
                    totals[row.name[i]][2 * index]++;
                    totals[row.name[i]][2 * index + 1] += row.end[i] - row.start[i];
                }
        })));
        model.totals = totals;
        return totals;
    },
};
