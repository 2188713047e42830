-- SPDX-License-Identifier: Apache-2.0
-- 200 cells: 50 workloads of 4 metrics; 3 fail, 5 are undecided, 12 only observed.
DELETE FROM ledger; DELETE FROM launch; DELETE FROM pair; DELETE FROM workload;
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 49)
INSERT INTO workload (id, name, mode, interleave) SELECT i + 1, printf('service-%02d-train', i), 'train', 'steps' FROM n;
INSERT INTO pair (workload_id, idx, phase, seed, first_side, interleave, steps, state, started_ns, ended_ns)
SELECT id, 0, 'main', 7, 0, 'steps', 200, 'valid', 0, 8000000000 FROM workload;
WITH m (k, metric, unit, direction, base) AS (VALUES (0, 'step_time', 'ns', 'lower', 12e6), (1, 'throughput', '1/s', 'higher', 10400.0),
     (2, 'cpu_time', 'ns', 'lower', 3.1e9), (3, 'peak_memory', 'bytes', 'lower', 1.6e9)),
     c (i, w, metric, unit, direction, base) AS
     (SELECT (w.id - 1) * 4 + m.k, w.name, m.metric, m.unit, m.direction, m.base FROM workload w, m),
     v (i, w, metric, unit, direction, base, verdict, gating, d) AS
     (SELECT i, w, metric, unit, direction, base,
             CASE WHEN i IN (40, 41, 120) THEN 'fail' WHEN i % 40 = 3 THEN 'inconclusive' WHEN i % 16 = 14 THEN 'unchecked' ELSE 'pass' END,
             i % 16 != 14,
             CASE WHEN i IN (40, 41, 120) THEN 0.04 + i * 0.0001 WHEN i % 40 = 3 THEN 0.009 ELSE 0.001 * (i % 5 - 2) END FROM c)
INSERT INTO cell (id, workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, alpha, pairs,
                  look, margin, mde, pair_sd, pairs_needed, verdict, improved, reason, told, news)
SELECT i + 1, w, metric, unit, direction, gating, base, base * (CASE direction WHEN 'higher' THEN 1 - d ELSE 1 + d END),
       CASE direction WHEN 'higher' THEN 1 - d ELSE 1 + d END,
       CASE direction WHEN 'higher' THEN 1 - d ELSE 1 + d END - 0.006, CASE direction WHEN 'higher' THEN 1 - d ELSE 1 + d END + 0.006,
       0.0025, 14, CASE verdict WHEN 'inconclusive' THEN NULL ELSE 1 END, CASE WHEN gating THEN 0.01 END, 0.008, 0.007,
       CASE verdict WHEN 'inconclusive' THEN 57 END, verdict, 0,
       CASE verdict WHEN 'fail' THEN 'slower: ratio at 14 pairs, beyond the margin of 1 %' WHEN 'inconclusive' THEN 'ratio at 14 pairs, and the margin of 1 % lies inside: some 57 pairs would settle it' ELSE 'within the margin' END,
       verdict = 'inconclusive',
       CASE verdict WHEN 'fail' THEN 'beyond the margin of 1 %' WHEN 'inconclusive' THEN 'the margin of 1 % lies inside: some 57 pairs would settle it' END
FROM v;
INSERT INTO verdict (id, verdict, reason, margin_note, policy, trust_ok, calibrated, calibration_note, judged_wall_ns)
VALUES (1, 'fail', 'service-30-train step_time is 5.2 % worse (margin 1 %); 3 of 188 gated cells fail, 5 are undecided', NULL, '{}', 1, 1,
        'train: a side held 2 % longer was found, +1.72 to +2.27 % in step_time, at 14 pairs of a control of the last 24 hours; equal sides -0.21 to +0.19 %; peak_memory by equal sides alone; 0 false fails in 12 A/A gates here', 1795263850000000000);
