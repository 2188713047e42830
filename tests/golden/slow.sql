-- SPDX-License-Identifier: Apache-2.0
-- Slow steps decide: every 250th step of the candidate takes 250 ms, all others are equal; another workload's
-- warm-up is too long, and slow steps of a third are not settled. The steps of the first are there.
INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, alpha, pairs,
                  look, margin, mde, pair_sd, pairs_needed, confirmed, confirm_pairs, verdict, improved, reason) VALUES
    ('dlrm-train', 'step_time', 'ns', 'lower', 1, 1000120, 1000090, 0.99997, 0.9996, 1.0003, 0.0025, 10, 0, 0.02, 0.0004, 0.0004, NULL, NULL, NULL, 'pass', 0, 'equal: ratio 1.0000 (0.9996 to 1.0003) at 10 pairs, within the margin of 2 %'),
    ('dlrm-train', 'throughput', '1/s', 'higher', 1, 31990, 16061, 0.502, 0.4989, 0.5072, 0.0025, 10, 0, 0.02, 0.011, 0.01, NULL, NULL, NULL, 'fail', 0, '50 % less throughput: ratio 0.5020 (0.4989 to 0.5072) at 10 pairs, beyond the margin of 2 %'),
    ('dlrm-train', 'peak_memory', 'bytes', 'lower', 1, 5777408, 5791744, 1.0025, 1.0004, 1.0049, 0.0025, 10, 0, 0.01, 0.002, 0.002, NULL, NULL, NULL, 'pass', 0, '0.25 % more memory: ratio 1.0025 (1.0004 to 1.0049) at 10 pairs, within the margin of 1 %'),
    ('dlrm-train', 'mean_step_time', 'ns', 'lower', 1, 1000310, 1992400, 1.9918, 1.9717, 2.0044, 0.0025, 10, 0, 0.02, 0.011, 0.01, NULL, NULL, NULL, 'fail', 0, '99 % slower: ratio 1.9918 (1.9717 to 2.0044) at 10 pairs, beyond the margin of 2 %'),
    ('dlrm-train', 'slow_steps', 'ratio', 'lower', 1, 0, 0.4978, 1.9911, 1.9712, 2.0038, 0.0025, 10, 0, 0.02, 0.011, 0.01, NULL, NULL, NULL, 'fail', 0, '8 slow steps of 2,000 (baseline 0), 250 ms each, every 250th'),
    ('dlrm-train', 'warm_up_time', 'ns', 'lower', 1, 9100000, 9080000, 0.9999, 0.9995, 1.0003, 0.0025, 10, 0, 0.02, 0.0005, 0.0005, NULL, NULL, NULL, 'pass', 0, 'equal: ratio 0.9999 (0.9995 to 1.0003) at 10 pairs, within the margin of 2 %'),
    ('dlrm-infer', 'latency_p50', 'ns', 'lower', 1, 4102000, 4111000, 1.0022, 0.9981, 1.0063, 0.0025, 10, 0, 0.05, 0.006, 0.005, NULL, NULL, NULL, 'pass', 0, '0.22 % slower: ratio 1.0022 (0.9981 to 1.0063) at 10 pairs, within the margin of 5 %'),
    ('dlrm-infer', 'mean_step_time', 'ns', 'lower', 1, 4188000, 4231000, 1.0103, 0.9961, 1.0244, 0.0025, 28, NULL, 0.02, 0.017, 0.021, 41, NULL, NULL, 'inconclusive', 0, '1 % slower: ratio 1.0103 (0.9961 to 1.0244) at 28 pairs, and the margin of 2 % lies inside: some 41 pairs would settle it'),
    ('dlrm-infer', 'slow_steps', 'ratio', 'lower', 1, 0.0041, 0.0132, 1.0091, 0.9970, 1.0229, 0.0025, 28, NULL, 0.02, 0.016, 0.02, 38, NULL, NULL, 'inconclusive', 0, '19 slow steps of 5,600 (baseline 7), 28 ms each, no period'),
    ('transformer-train', 'step_time', 'ns', 'lower', 1, 18702000, 18881000, 1.0096, 1.0049, 1.0143, 0.0025, 14, 1, 0.02, 0.0049, 0.0053, NULL, NULL, NULL, 'pass', 0, '0.96 % slower: ratio 1.0096 (1.0049 to 1.0143) at 14 pairs, within the margin of 2 %'),
    ('transformer-train', 'mean_step_time', 'ns', 'lower', 1, 18730000, 18890000, 1.0085, 1.0031, 1.0139, 0.0025, 14, 1, 0.02, 0.0057, 0.0061, NULL, NULL, NULL, 'pass', 0, '0.85 % slower: ratio 1.0085 (1.0031 to 1.0139) at 14 pairs, within the margin of 2 %'),
    ('transformer-train', 'slow_steps', 'ratio', 'lower', 1, 0.0012, 0.0013, 1.0001, 0.9988, 1.0014, 0.0025, 14, 1, 0.02, 0.0014, 0.0015, NULL, NULL, NULL, 'pass', 0, '2 slow steps of 2,800 (baseline 2), 24 ms each, no period'),
    ('transformer-train', 'warm_up_time', 'ns', 'lower', 1, 412000000, 2240000000, 1.4377, 1.4241, 1.4520, 0.0025, 14, 1, 0.02, 0.01, 0.011, NULL, NULL, NULL, 'fail', 0, '44 % slower: ratio 1.4377 (1.4241 to 1.4520) at 14 pairs, beyond the margin of 2 %');
-- dlrm-train: 200 steps a launch, one after the other; the first 5 of each take 3 ms, and every 250th of the candidate's 250 ms.
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199)
INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns, samples)
SELECT l.id, 0, n.i, n.i * 2000000,
       CASE WHEN n.i < 5 THEN 3000000 WHEN l.side = 1 AND (p.idx * 200 + n.i) % 250 = 249 THEN 250000000
            ELSE 1000000 + (n.i * 7919 + p.idx * 31 + l.side * 17) % 4000 END, 32
FROM launch l JOIN pair p ON p.id = l.pair_id JOIN workload w ON w.id = p.workload_id AND w.name = 'dlrm-train', n;
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
INSERT INTO block (pair_id, couple, side, ran_first, first_step, steps, begin_ns, active_ns)
SELECT p.id, n.i, s.id, 1 - s.id, CASE n.i WHEN 0 THEN 0 ELSE 20 * n.i - 19 END, CASE n.i WHEN 0 THEN 1 WHEN 10 THEN 19 ELSE 20 END,
       n.i * 40000000, 20000000
FROM pair p JOIN workload w ON w.id = p.workload_id AND w.name = 'dlrm-train', side s, n;
UPDATE cell SET told = 0, news = 'beyond the margin of 2 %' WHERE verdict = 'fail' AND metric != 'slow_steps';
UPDATE cell SET told = 1, news = 'the margin of 2 % lies inside: some 41 pairs would settle it' WHERE pairs_needed = 41;
INSERT INTO verdict (id, verdict, reason, margin_note, policy, trust_ok, calibrated, calibration_note, judged_wall_ns)
VALUES (1, 'fail', 'dlrm-train slow_steps: 8 slow steps of 2,000 (baseline 0), 250 ms each, every 250th; 3 more cells fail', 'step_time 2 %, mean_step_time 2 %, slow_steps 2 %, throughput 2 %, warm_up_time 2 %, latency_p50 5 %, peak_memory 1 %; one-sided error rate 1 % a cell over 4 looks', '{}', 1, 1,
        'host (steps, train): the A/A of 2026-11-21 (14 pairs, 0 false fails of 20 disjoint gates) lies within half the margin of 2 %, its smallest visible effect is 0.8 %, and a planted slow-down of 2 % was found in 10 of 10 pairs; covers dlrm-train, transformer-train and ddp-train (spread of a pair 0.41, 0.53 and 0.39 %); not covered: dlrm-infer, whose spread of 2.1 % is larger than the control''s 0.9 %', 1795263850000000000);
