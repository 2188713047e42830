-- SPDX-License-Identifier: Apache-2.0
-- As fast as before, and wrong: the numbers of the candidate are off.
INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, alpha, pairs,
                  look, margin, mde, pair_sd, verdict, improved, reason) VALUES
    ('dlrm-infer', 'latency_p50', 'ns', 'lower', 1, 4102000, 3822000, 0.9317, 0.9271, 0.9366, 0.0025, 10, 0, 0.05, 0.006, 0.005, 'pass', 1, 'upper bound -6.3 % is below the margin of 5 %');
INSERT INTO parity (workload, tensor, rule, error_a, error_b, verdict, reason) VALUES
    ('dlrm-infer', 'output', 'fp64-anchored', 1.21e-7, 4.52e-4, 'fail', 'candidate is 3,740 times as far from fp64 as the baseline; allowed 2'),
    ('transformer-train', 'loss', 'tripwire', NULL, NULL, 'fail', 'candidate has a NaN in step 57; baseline has none'),
    ('dlrm-train', 'loss', 'loss-tube', 2.2e-6, NULL, 'inconclusive', '3 A/A seeds; 5 are needed'),
    ('ddp-train', 'output', 'fp64-anchored', NULL, NULL, 'unchecked', 'the command knows no {dtype}: no fp64 anchor'),
    ('dlrm-train', 'output', 'fp64-anchored', 1.1e-7, 1.1e-7, 'pass', 'candidate is as far from fp64 as the baseline; allowed 2');
INSERT INTO verdict (id, verdict, reason, margin_note, policy, trust_ok, calibrated, calibration_note, judged_wall_ns)
VALUES (1, 'fail', 'parity: dlrm-infer output is 3,740 times as far from fp64 as the baseline (allowed 2); 2 of 5 checks fail', NULL, '{}', 1, 1,
        'train: a side held 2 % longer was found, +1.72 to +2.27 % in step_time, at 14 pairs of a control of the last 24 hours; equal sides -0.21 to +0.19 %; peak_memory by equal sides alone; 0 false fails in 12 A/A gates here', 1795263850000000000);
