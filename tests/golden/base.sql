-- SPDX-License-Identifier: Apache-2.0
-- What every golden report shares: the run and its sides. Loaded after contracts/schema.sql.
INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, ended_wall_ns, seed, plan, plan_path,
                 command_line, host, host_key)
VALUES (1, '3f2a91c0-77aa-4d0e-9d5c-0c1f3f6f2a11', 'ab', 'done', '0.1.0', 1795262400000000000, 1795263850000000000,
        7, '{}', 'ci/plans/demo.yaml', '["upgate","ab","ci/plans/demo.yaml"]', '{}', 'test-host');
INSERT INTO side (id, name, config) VALUES (0, 'torch-1.13.1', '{}'), (1, 'torch-2.13.0', '{}');
INSERT INTO workload (id, name, mode, interleave) VALUES
    (1, 'dlrm-train', 'train', 'steps'), (2, 'dlrm-infer', 'infer', 'steps'),
    (3, 'transformer-train', 'train', 'steps'), (4, 'ddp-train', 'train', 'steps');
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9)
INSERT INTO pair (workload_id, idx, phase, seed, first_side, interleave, steps, state, started_ns, ended_ns)
SELECT w.id, n.i, 'main', 100 + n.i, n.i % 2, 'steps', 200, 'valid',
       (w.id * 100 + n.i * 10) * 1000000000, (w.id * 100 + n.i * 10 + 8) * 1000000000
FROM workload w, n;
INSERT INTO launch (pair_id, side, state, exit_code, started_ns, ended_ns, steps, ranks, covariates)
SELECT p.id, s.id, 'ok', 0, p.started_ns, p.ended_ns, 200, 1, '{}' FROM pair p, side s;
INSERT INTO ledger (launch_id, producer, kind, seen, kept, dropped, breach)
SELECT id, 'steps', 'records', 200, 200, 0, 0 FROM launch;
