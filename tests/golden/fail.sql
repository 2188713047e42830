-- SPDX-License-Identifier: Apache-2.0
-- Two cells of one workload fail and were confirmed; one cell is undecided; the rest passes.
INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, alpha, pairs,
                  look, margin, mde, pair_sd, pairs_needed, confirmed, confirm_pairs, verdict, improved, reason) VALUES
    ('dlrm-train', 'step_time', 'ns', 'lower', 1, 12304000, 12931000, 1.0514, 1.0462, 1.0563, 0.0025, 10, 0, 0.02, 0.0052, 0.0045, NULL, 1, 10, 'fail', 0, '5.1 % slower: ratio 1.0514 (1.0462 to 1.0563) at 10 pairs, beyond the margin of 2 %; 10 fresh pairs agree: 1.0497 (1.0433 to 1.0571)'),
    ('dlrm-train', 'throughput', '1/s', 'higher', 1, 10402.6, 9894.8, 0.9512, 0.9468, 0.9559, 0.0025, 10, 0, 0.02, 0.0051, 0.0044, NULL, 1, 10, 'fail', 0, '4.9 % less throughput: ratio 0.9512 (0.9468 to 0.9559) at 10 pairs, beyond the margin of 2 %; 10 fresh pairs agree: 0.9526 (0.9470 to 0.9581)'),
    ('dlrm-train', 'peak_memory', 'bytes', 'lower', 1, 1612709888, 1613758464, 1.00065, 1.0004, 1.0009, 0.0025, 10, 0, 0.01, 0.0002, 0.0002, NULL, NULL, NULL, 'pass', 0, '0.065 % more memory: ratio 1.0006 (1.0004 to 1.0009) at 10 pairs, within the margin of 1 %'),
    ('dlrm-train', 'first_step_time', 'ns', 'lower', 0, 81200000, 124030000, 1.5275, 1.39, 1.68, 0.0025, 10, NULL, NULL, NULL, 0.12, NULL, NULL, NULL, 'unchecked', 0, 'observed only'),
    ('dlrm-infer', 'latency_p50', 'ns', 'lower', 1, 4102000, 3822000, 0.9317, 0.9271, 0.9366, 0.0025, 10, 0, 0.05, 0.006, 0.005, NULL, NULL, NULL, 'pass', 1, '6.8 % faster: ratio 0.9317 (0.9271 to 0.9366) at 10 pairs, better by more than the margin of 5 %'),
    ('dlrm-infer', 'latency_p99', 'ns', 'lower', 1, 41022000, 42089000, 1.0263, 0.9881, 1.0651, 0.0025, 28, NULL, 0.05, 0.031, 0.048, 34, NULL, NULL, 'inconclusive', 0, '2.6 % slower: ratio 1.0263 (0.9881 to 1.0651) at 28 pairs, and the margin of 5 % lies inside: some 34 pairs would settle it'),
    ('transformer-train', 'step_time', 'ns', 'lower', 1, 18702000, 18881000, 1.0096, 1.0049, 1.01996, 0.0025, 14, 1, 0.02, 0.0049, 0.0053, NULL, NULL, NULL, 'pass', 0, '0.96 % slower: ratio 1.0096 (1.0049 to 1.0200) at 14 pairs, within the margin of 2 %'),
    ('transformer-train', 'cpu_time', 'ns', 'lower', 0, 4812345678, 4899999999, 1.0182, 1.011, 1.024, 0.0025, 14, NULL, NULL, NULL, 0.01, NULL, NULL, NULL, 'unchecked', 0, 'observed only'),
    ('ddp-train', 'step_time', 'ns', 'lower', 1, 9120000, 9118000, 0.9998, 0.9961, 1.0041, 0.0025, 10, 0, 0.02, 0.0044, 0.0041, NULL, NULL, NULL, 'pass', 0, '0.02 % faster: ratio 0.9998 (0.9961 to 1.0041) at 10 pairs, within the margin of 2 %');
INSERT INTO parity (workload, tensor, rule, error_a, error_b, verdict, reason) VALUES
    ('dlrm-infer', 'output', 'fp64-anchored', 1.21e-7, 1.34e-7, 'pass', 'candidate is 1.1 times as far from fp64 as the baseline; allowed 2');
INSERT INTO finding (workload, kind, side, effect, text) VALUES
    ('transformer-train', 'not_steady', 1, 'note', 'candidate reached its steady state only after 120 of 200 steps in 3 of 14 launches');
INSERT INTO note (at_ns, level, text) VALUES
    (1, 'info', 'frozen by cgroup v2; both sides pinned to CPUs 0-1'),
    (2, 'warning', 'load of the host was 3.1 before the run began: other processes were busy');
UPDATE cell SET told = 2, news = 'beyond the margin of 2 %; 10 fresh pairs agree: ' || CASE metric WHEN 'step_time' THEN '1.0497 (1.0433 to 1.0571)' ELSE '0.9526 (0.9470 to 0.9581)' END
WHERE verdict = 'fail';
UPDATE cell SET told = 1, news = 'the margin of 5 % lies inside: some 34 pairs would settle it' WHERE verdict = 'inconclusive';
INSERT INTO verdict (id, verdict, reason, margin_note, policy, trust_ok, calibrated, calibration_note, judged_wall_ns)
VALUES (1, 'fail', 'dlrm-train step_time is 5.1 % worse (interval +4.6 % to +5.6 %, margin 2 %); 2 of 7 gated cells fail', 'step_time 2 %, throughput 2 %, latency_p50 5 %, latency_p99 5 %, peak_memory 1 %; one-sided error rate 1 % a cell over 4 looks', '{}', 1, 1,
        'train: a side held 2 % longer was found, +1.72 to +2.27 % in step_time, at 14 pairs of a control of the last 24 hours; equal sides -0.21 to +0.19 %; peak_memory by equal sides alone; 0 false fails in 12 A/A gates here', 1795263850000000000);
