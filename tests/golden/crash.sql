-- SPDX-License-Identifier: Apache-2.0
-- The candidate of one workload crashes in every launch, that of another hangs once.
UPDATE launch SET state = 'crashed', exit_code = NULL, exit_signal = 11, steps = 3, stderr_tail =
'loading embedding tables
Traceback (most recent call last):
  File "/srv/models/dlrm.py", line 214, in <module>
    main()
  File "/srv/models/dlrm.py", line 201, in main
    train(args)
  File "/srv/models/dlrm.py", line 166, in train
    loss = step(batch)
  File "/srv/models/dlrm.py", line 131, in step
    return interact(bottom(batch.dense), [table(ids) for table, ids in zip(tables, batch.sparse)], pairs=triangle)
RuntimeError: expected scalar type Float but found Half' || char(10) || char(27) || '[31mFatal Python error: Segmentation fault' || char(27) || '[0m'
WHERE side = 1 AND pair_id IN (SELECT id FROM pair WHERE workload_id = 1);
UPDATE launch SET state = 'stopped', exit_code = NULL WHERE side = 0 AND pair_id IN (SELECT id FROM pair WHERE workload_id = 1);
UPDATE pair SET state = 'failed', reason = 'candidate crashed' WHERE workload_id = 1;
UPDATE launch SET state = 'timeout', exit_code = NULL, stderr_tail = '' WHERE id =
    (SELECT max(id) FROM launch WHERE side = 1 AND pair_id IN (SELECT id FROM pair WHERE workload_id = 4));
INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, alpha, pairs,
                  look, margin, mde, pair_sd, verdict, improved, reason) VALUES
    ('dlrm-train', 'step_time', 'ns', 'lower', 1, 12304000, NULL, NULL, NULL, NULL, 0.0025, 0, NULL, 0.02, NULL, NULL, 'fail', 0, 'missing: the candidate crashed in 10 of 10 launches; the baseline did not'),
    ('ddp-train', 'step_time', 'ns', 'lower', 1, 9120000, 9118000, 0.9998, 0.9961, 1.0041, 0.0025, 10, 0, 0.02, 0.0044, 0.0041, 'pass', 0, 'upper bound +0.4 % is below the margin of 2 %');
INSERT INTO finding (workload, kind, side, effect, text) VALUES
    ('dlrm-train', 'crash', 1, 'fail', 'the candidate crashed in 10 of 10 launches; the baseline did not');
INSERT INTO verdict (id, verdict, reason, margin_note, policy, trust_ok, calibrated, calibration_note, judged_wall_ns)
VALUES (1, 'fail', 'dlrm-train: the candidate crashes (signal 11), the baseline does not', NULL, '{}', 1, 1,
        'train: a side held 2 % longer was found, +1.72 to +2.27 % in step_time, at 14 pairs of a control of the last 24 hours; equal sides -0.21 to +0.19 %; peak_memory by equal sides alone; 0 false fails in 12 A/A gates here', 1795263850000000000);
