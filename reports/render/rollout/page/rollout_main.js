// SPDX-License-Identifier: Apache-2.0
// Puts the page of a rollout together.
"use strict";
UP.start("upgate.rollout_page/1", (data, main) => {
    UP.how = new Set(UP.rolloutHow.map(([id]) => id));
    for (const name of ["verdict", "answer", "share", "errors", "latency", "evidence", "decisions", "stages", "why", "sources", "answers", "how"])
        UP.guard(name, main, () => UP.parts[name](data, main));
});
