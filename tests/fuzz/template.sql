-- SPDX-License-Identifier: Apache-2.0
-- Rows for the tables that tests/e2e/diff_store.py leaves empty, so that every column of the schema is read by
-- something: of its run with one workload, ten pairs of launches, and recordings 1 and 2 of the two launches of a traced
-- pair. t(N): N ns after the begin of recording 1.
INSERT INTO gpu_overhead VALUES (t(2085647), 2000, 1, 1, 65536);
INSERT INTO nccl_op VALUES
    (1, 1, t(2085647), t(2185647), t(2095647), t(2175647), 77, 'dp', 0, 2, NULL, 1, 'AllReduce', 'ncclFloat32', 'RING', 'LL', 262144, 1048576, 4, 16, 5),
    (2, 2, t(2085647), t(2285647), NULL, NULL, 77, 'dp', 0, 2, 1, 1, 'Send', 'ncclFloat32', NULL, NULL, 1000, 4000, 2, NULL, 5);
INSERT INTO clock_sample VALUES (1, t(2085647), t(2085747), t(2085847)), (2, t(2085647), t(2085747), t(2085847));
INSERT INTO nvtx_range VALUES (t(2085647), 90000, 1, 1, 1, 2), (t(2085647), NULL, 2, 2, 1, NULL);
INSERT INTO control (scope, kind, interleave, metric, margin, made_wall_ns, aa_pairs, aa_lower, aa_upper, mde, pair_sd, held, planted,
                     held_pairs, held_lower, held_upper, gates, false_fails, upper_bound, source_run)
VALUES ('test-host', 'train model', 'steps', 'step_time', 0.02, 1795263850000000000, 14, -0.002, 0.002, 0.012, 0.004, 0.02, 0.0198,
        14, 0.0175, 0.0224, 12, 0, 0.22, '5d1f0000-0000-4000-8000-000000000001');
INSERT INTO counter VALUES (1, t(0), 'cpu.stat', 'nr_throttled', 1), (1, t(50000000), 'cpu.stat', 'nr_throttled', 9),
    (1, t(0), 'memory.pressure', 'full', 100), (1, t(50000000), 'memory.pressure', 'full', 90000);
INSERT INTO step_phase SELECT id, 0, 'forward', 5, 9000000 FROM launch;
INSERT INTO finding (workload, kind, side, effect, text) VALUES ('train', 'heavy_tail', 1, 'note', 'one step in 100 takes twice as long'),
    (NULL, 'trust', NULL, 'inconclusive', 'records were lost');
INSERT INTO host_fact VALUES (1, 1, t(2059000), t(6059000), 0, 1, 2, 0, 4096, 1, 0, 0, 4), (1, 3, t(12059000), t(22059000), 1, NULL, 2, 2, 7, 0, 0, 0, NULL);
INSERT INTO parity (workload, tensor, rule, error_a, error_b, verdict, reason)
VALUES ('train', 'loss', 'paired-loss', 1.21e-7, 1.34e-7, 'pass', 'the losses are as far apart as seeds make them');
INSERT INTO tensor SELECT id, 0, 1, 'output', 'f32', 4, '00112233aabbccdd', x'0000803f000000400000404000008040', NULL FROM launch;
INSERT INTO launch_value SELECT id, 0, 'lr', 0.001 FROM launch;
INSERT INTO launch_memory SELECT launch.id, m.value ->> 0, m.value ->> 1, (m.value ->> 2) * (1 + side), (m.value ->> 3) * (1 + side) FROM launch,
    json_each('[["file", "libtorch_cpu.so.1.13.0", 90000000, 4096], ["file", "", 700000, 0], ["heap", "", 40000000, 40000000], ["anonymous", "", 60000000, 60000000]]') m;
INSERT INTO launch_range SELECT launch.id, p.tgid, m.value ->> 0, (m.value ->> 0) + (m.value ->> 1), m.value ->> 1, m.value ->> 2, m.value ->> 3, 9000000000000000
    FROM launch JOIN recording r ON r.launch_id = launch.id JOIN process p ON p.recording_id = r.id AND p.kind = 'target',
    json_each('[[1048576, 90000000, "file", "libtorch_cpu.so.1.13.0"], [200003584, 40000000, "heap", ""], [400003072, 60000000, "anonymous", ""]]') m;
INSERT INTO page_fault SELECT t.id, t(2085647), m.value, 4, (SELECT min(id) FROM stack WHERE kind = 'user'), (SELECT min(id) FROM stack WHERE kind = 'python')
    FROM thread t JOIN process p ON p.id = t.process_id AND p.kind = 'target', json_each('[1052672, 9048576, 210003584, 430003072]') m;
INSERT INTO loss SELECT id, 0, n.step, 0.5, x'000000000000e03f' FROM launch, (SELECT 0 AS step UNION SELECT 1 UNION SELECT 4) n;
INSERT INTO recorded_step VALUES (1, 0, 0, t(0), 12000000), (1, 0, 1, t(13000000), 22000000), (2, 0, 0, t(0), 12000000);
INSERT INTO stack (id, kind, depth, frames) VALUES (90, 'kernel', 3, '[90, 91, 92]');
INSERT INTO frame (id, name, module) VALUES (90, 'smaps_account', '[kernel]'), (91, 'show_smaps_rollup', '[kernel]'), (92, 'vfs_read', '[kernel]');
INSERT INTO process (id, recording_id, tgid, start_ns, ppid, comm, cmdline, kind) VALUES (90, 1, 500, 5, 1, 'agent', 'agent --all', 'other');
INSERT INTO thread (id, process_id, tid, comm) VALUES (90, 90, 500, 'agent');
INSERT INTO lock_wait SELECT 1, out_ns, in_ns, 18446612345, 2, 1, 90, 90, 90 FROM gap WHERE id = 2;
INSERT INTO connection SELECT min(id), max(id), '10.0.0.1:4711', '10.0.0.2:29500', t(2085647), t(502085647), 700, 1, 25, 2 FROM process WHERE recording_id = 1;
UPDATE gap SET waker_thread = 90, owner_thread = 90, waker_stack = 90, next_thread = 90, next_prio = 120, before_thread = 90, before_prio = 100,
    lock_kind = 2, lock_address = 18446612345, syscall_nr = 9, syscall_arg0 = 3, syscall_target = 'pipe:[12]' WHERE id = 2;
INSERT INTO sample (thread_id, at_ns, cpu, why, kernel_stack) 
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19) SELECT 90, t(7800000 + i * 200000), 1, 2, 90 FROM n;
INSERT INTO python_gc VALUES (1, 1, t(2085647), 3000000, 2, 10), (2, 2, t(2085647), 9000000, 2, 10);
INSERT INTO thread_total SELECT id, 100, 90, 900000, 40000000 FROM thread;
INSERT INTO launch_stack SELECT process_id, correlation, '[1, 2]' FROM (SELECT 1 AS process_id, 3 AS correlation UNION SELECT 2, 3);
INSERT INTO gpu_graph_node VALUES (1, 4294967297, 1, t(2085647), NULL), (1, 4294967298, 1, t(2086647), 4294967297);
INSERT INTO gpu_memory VALUES (t(2085647), 1, 1, 3, 0, 140000000, 1048576, 1, NULL, NULL, NULL, 5), (t(22085647), 1, 2, 3, 0, 140000000, 1048576, 1, NULL, NULL, NULL, 6);
INSERT INTO note (at_ns, level, text) VALUES (1, 'info', 'frozen by cgroup v2'), (2, 'warning', 'load of the host was 3.1');
UPDATE run SET plan = '{"schema": "upgate.plan/1", "baseline": {"name": "old"}, "candidate": {"name": "new"}, "workloads": [{"name": "train", "model": "dlrm", "mode": "train", "steps": 5}]}';

INSERT INTO rollout VALUES (1, 'ranker', '{"schema":"upgate.rollout-plan/1","name":"ranker","store":"ranker.rollout.db","traffic":{"haproxy":{"socket":"/run/h.sock","backend":"ranker","baseline":"old","candidate":"new","baseline2":null,"timeout_ns":10000000000,"retries":3}},"sources":[{"steps":{"baseline":"a","candidate":"b"}}],"stages":[{"percent":5.0,"name":"aa","mirror":0.0,"aa":true,"soak_ns":60000000000,"warm_up_ns":5000000000,"requests":0,"patience_ns":605000000000},{"percent":10.0,"name":"10%","mirror":0.0,"aa":false,"soak_ns":60000000000,"warm_up_ns":5000000000,"requests":0,"patience_ns":605000000000},{"percent":100.0,"name":"100%","mirror":0.0,"aa":false,"soak_ns":60000000000,"warm_up_ns":5000000000,"requests":0,"patience_ns":605000000000}],"windows":[],"freeze":[],"gate":{"alpha":0.01,"metrics":{"error_rate":{"margin":0.5,"observe":false},"wrong_answers":{"limit":0.0,"observe":false},"latency_p99":{"margin":0.10000000000000001,"observe":false}},"tripwires":{"error_rate":0.20000000000000001,"unreachable":3}},"rollback":{"drain_ns":30000000000},"stale_ns":30000000000,"why":{"record":false,"duration_ns":10000000000,"baseline":{"pid":null,"cgroup":null},"candidate":{"pid":null,"cgroup":null}},"preflight":{"gate":null,"plan":null,"free_memory":0.0,"checks":null},"shadow":{"baseline":null,"candidate":null,"requests":null,"methods":null,"ignore":null,"tolerance":null},"expected":{"rate_per_s":null,"error_rate":0.001,"latency_sigma":0.5,"dispersion":1.0}}', 'running', 1, 5.0, 1700000000000000000, 1700000000000000000, 'soak', 1700000001000000000, 10, 1, 1);
INSERT INTO rollout_stage VALUES (0, 'aa', 5.0, 1700000000, 1700000000, 1700000030, 'passed', 0), (1, '10%', 10.0, 1700000030, 1700000035, NULL, NULL, NULL);
INSERT INTO rollout_second WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39)
    SELECT 1700000000 + i, arm.value, i >= 30, 100, i % 7 = 0, 0, 0, x'0a64', i % 5 FROM n, json_each('[0, 1]') arm;
INSERT INTO rollout_cell VALUES (1700000005, 0, 'error_rate', 1.0, 0.5, 1.5, 1.5, 0.1, 4.6, 1.0, 100, 200, 'undecided');
INSERT INTO rollout_decision VALUES (1, 1700000000000000000, 'waiting', 'running', NULL, 0, 0.0, 5.0, 'soak', 'begun', 'upgate', '[]', 1700000000000000001);
INSERT INTO rollout_request VALUES (1, 1700000000000000000, 'pause', 'root', 'asked', NULL);
INSERT INTO rollout_source VALUES (0, 'jsonl', 100, 100, 0, 0, 0, 1000, '');
INSERT INTO rollout_recording VALUES (0, 'a.db', 1, 2, NULL);
INSERT INTO rollout_shadow VALUES (1, 1700000000000000000, 'POST /score', 0, 0.5, '{}', '{}');
