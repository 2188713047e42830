-- SPDX-License-Identifier: Apache-2.0
-- Nothing fails, nothing can be trusted: an undecided cell, a breach of the ledger, no calibration.
INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, alpha, pairs,
                  look, margin, mde, pair_sd, pairs_needed, verdict, improved, reason) VALUES
    ('dlrm-train', 'step_time', 'ns', 'lower', 1, 950123, 1021000, 1.0171, 0.9902, 1.0446, 0.0025, 28, NULL, 0.02, 0.024, 0.037, 1860, 'inconclusive', 0, '1.7 % slower: ratio 1.0171 (0.9902 to 1.0446) at 28 pairs, and the margin of 2 % lies inside: some 1860 pairs would settle it'),
    ('dlrm-train', 'latency_p99', 'ns', 'lower', 1, NULL, NULL, NULL, NULL, NULL, 0.0025, 0, NULL, 0.05, NULL, NULL, NULL, 'inconclusive', 0, 'measured on neither side: fewer than the 662 requests that a 99th percentile needs'),
    ('transformer-train', 'step_time', 'ns', 'lower', 1, 18702000, 18881000, 1.0096, 1.0049, 1.0143, 0.0025, 14, 1, 0.02, 0.0049, 0.0053, NULL, 'pass', 0, 'upper bound +1.43 % is below the margin of 2 %');
UPDATE ledger SET dropped = 17, kept = 183, breach = 1, detail = 'ring of rank 0 was full' WHERE id = 1;
INSERT INTO finding (workload, kind, side, effect, text) VALUES
    ('dlrm-train', 'not_steady', 0, 'inconclusive', 'baseline never gets steady in 9 of 28 launches; total_time is judged instead'),
    (NULL, 'calibration', NULL, 'inconclusive', 'this host has no certificate');
UPDATE cell SET news = 'the margin of 2 % lies inside: some 1860 pairs would settle it', told = 1 WHERE pairs_needed = 1860;
INSERT INTO verdict (id, verdict, reason, margin_note, policy, trust_ok, calibrated, calibration_note, judged_wall_ns)
VALUES (1, 'inconclusive', '2 of 3 gated cells are undecided, 17 step records were lost, and the host is not calibrated', NULL, '{}', 0, 0,
        'this host has no certificate; make one with `upgate ab --aa PLAN.yaml`', 1795263850000000000);
