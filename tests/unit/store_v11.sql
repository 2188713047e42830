-- SPDX-License-Identifier: Apache-2.0
-- A store as version 11 of the schema made it, with a cell that was judged: what a migration starts from. Never changed again.
PRAGMA application_id = 0x55504754;
PRAGMA user_version = 11;
CREATE TABLE run (
 id              INTEGER PRIMARY KEY CHECK (id = 1),
 uuid            TEXT NOT NULL,
 kind            TEXT NOT NULL CHECK (kind IN ('ab', 'aa', 'record', 'rollout')),
 state           TEXT NOT NULL CHECK (state IN ('running', 'done', 'interrupted')),
 upgate_version  TEXT NOT NULL,
 started_wall_ns INTEGER NOT NULL,
 ended_wall_ns   INTEGER,
 seed            INTEGER NOT NULL,
 plan            TEXT NOT NULL,
 plan_path       TEXT,
 command_line    TEXT NOT NULL,
 host            TEXT NOT NULL,
 host_key        TEXT NOT NULL,
 writer_pid      INTEGER,
 writer_start    INTEGER
) STRICT;
CREATE TABLE side (
 id          INTEGER PRIMARY KEY CHECK (id IN (0, 1)),
 name        TEXT NOT NULL,
 config      TEXT NOT NULL,
 fingerprint TEXT
) STRICT;
CREATE TABLE workload (
 id         INTEGER PRIMARY KEY,
 name       TEXT NOT NULL UNIQUE,
 mode       TEXT NOT NULL CHECK (mode IN ('train', 'infer', 'command')),
 interleave TEXT CHECK (interleave IN ('steps', 'slices', 'launches')),
 note       TEXT,
 rate_per_s REAL
) STRICT;
CREATE TABLE pair (
 id          INTEGER PRIMARY KEY,
 workload_id INTEGER NOT NULL REFERENCES workload (id),
 idx         INTEGER NOT NULL,
 phase       TEXT NOT NULL CHECK (phase IN ('pilot', 'main', 'confirm', 'anchor', 'traced', 'control')),
 seed        INTEGER NOT NULL,
 first_side  INTEGER NOT NULL CHECK (first_side IN (0, 1)),
 interleave  TEXT NOT NULL CHECK (interleave IN ('steps', 'slices', 'launches')),
 steps       INTEGER,
 state       TEXT NOT NULL CHECK (state IN ('valid', 'void', 'failed')),
 reason      TEXT,
 void_side   INTEGER CHECK (void_side IN (0, 1)),
 started_ns  INTEGER NOT NULL,
 ended_ns    INTEGER NOT NULL,
 UNIQUE (workload_id, phase, idx)
) STRICT;
CREATE TABLE launch (
 id              INTEGER PRIMARY KEY,
 pair_id         INTEGER NOT NULL REFERENCES pair (id),
 side            INTEGER NOT NULL REFERENCES side (id),
 state           TEXT NOT NULL CHECK (state IN ('ok', 'crashed', 'timeout', 'oom', 'not_started', 'stopped')),
 exit_code       INTEGER,
 exit_signal     INTEGER,
 started_ns      INTEGER NOT NULL,
 ended_ns        INTEGER NOT NULL,
 active_ns       INTEGER,
 held_ns         INTEGER,
 cpu_ns          INTEGER,
 peak_memory_bytes     INTEGER,
 peak_gpu_memory_bytes INTEGER,
 steps           INTEGER,
 ranks           INTEGER,
 dropped         INTEGER,
 stderr_tail     TEXT,
 covariates      TEXT NOT NULL
) STRICT;
CREATE INDEX launch_pair ON launch (pair_id);
CREATE TABLE block (
 pair_id    INTEGER NOT NULL REFERENCES pair (id),
 couple     INTEGER NOT NULL,
 side       INTEGER NOT NULL,
 ran_first  INTEGER NOT NULL,
 first_step INTEGER,
 steps      INTEGER,
 begin_ns   INTEGER NOT NULL,
 active_ns  INTEGER NOT NULL,
 cpu_ns     INTEGER,
 step_cpu_ns INTEGER,
 wait_ns    INTEGER,
 foreign_ns INTEGER,
 steal_ns   INTEGER,
 machine_ns INTEGER,
 PRIMARY KEY (pair_id, couple, side)
) STRICT, WITHOUT ROWID;
CREATE TABLE step (
 launch_id INTEGER NOT NULL REFERENCES launch (id),
 rank      INTEGER NOT NULL,
 idx       INTEGER NOT NULL,
 begin_ns  INTEGER NOT NULL,
 dur_ns    INTEGER NOT NULL,
 late_ns   INTEGER,
 samples   REAL,
 PRIMARY KEY (launch_id, rank, idx)
) STRICT, WITHOUT ROWID;
CREATE TABLE step_phase (
 launch_id INTEGER NOT NULL REFERENCES launch (id),
 rank      INTEGER NOT NULL,
 name      TEXT NOT NULL,
 count     INTEGER NOT NULL,
 total_ns  INTEGER NOT NULL,
 PRIMARY KEY (launch_id, rank, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE launch_rank (
 launch_id INTEGER NOT NULL REFERENCES launch (id),
 rank      INTEGER NOT NULL,
 pid       INTEGER NOT NULL,
 PRIMARY KEY (launch_id, rank)
) STRICT, WITHOUT ROWID;
CREATE TABLE phase_span (
 launch_id INTEGER NOT NULL REFERENCES launch (id),
 rank      INTEGER NOT NULL,
 begin_ns  INTEGER NOT NULL,
 depth     INTEGER NOT NULL,
 dur_ns    INTEGER NOT NULL,
 name      TEXT NOT NULL,
 PRIMARY KEY (launch_id, rank, begin_ns, depth)
) STRICT, WITHOUT ROWID;
CREATE TABLE launch_value (
 launch_id INTEGER NOT NULL REFERENCES launch (id),
 rank      INTEGER NOT NULL,
 name      TEXT NOT NULL,
 value     REAL,
 PRIMARY KEY (launch_id, rank, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE launch_memory (
 launch_id       INTEGER NOT NULL REFERENCES launch (id),
 kind            TEXT NOT NULL CHECK (kind IN ('file', 'heap', 'anonymous', 'stack', 'shared', 'other')),
 name            TEXT NOT NULL,
 resident_bytes  INTEGER NOT NULL,
 anonymous_bytes INTEGER NOT NULL,
 PRIMARY KEY (launch_id, kind, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE launch_range (
 launch_id      INTEGER NOT NULL REFERENCES launch (id),
 tgid           INTEGER NOT NULL,
 begin_address  INTEGER NOT NULL,
 end_address    INTEGER NOT NULL,
 resident_bytes INTEGER NOT NULL,
 kind           TEXT NOT NULL CHECK (kind IN ('file', 'heap', 'anonymous', 'stack', 'shared', 'other')),
 name           TEXT NOT NULL,
 at_ns          INTEGER NOT NULL,
 PRIMARY KEY (launch_id, tgid, begin_address)
) STRICT, WITHOUT ROWID;
CREATE TABLE loss (
 launch_id INTEGER NOT NULL REFERENCES launch (id),
 rank      INTEGER NOT NULL,
 step      INTEGER NOT NULL,
 value     REAL,
 bits      BLOB NOT NULL,
 PRIMARY KEY (launch_id, rank, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE tensor (
 launch_id INTEGER NOT NULL REFERENCES launch (id),
 rank      INTEGER NOT NULL,
 step      INTEGER NOT NULL,
 name      TEXT NOT NULL,
 dtype     TEXT NOT NULL,
 count     INTEGER NOT NULL,
 digest    TEXT NOT NULL,
 data      BLOB NOT NULL,
 sketch    BLOB,
 PRIMARY KEY (launch_id, rank, step, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE recording (
 id           INTEGER PRIMARY KEY,
 launch_id    INTEGER REFERENCES launch (id),
 begin_ns     INTEGER NOT NULL,
 end_ns       INTEGER,
 threshold_ns INTEGER NOT NULL,
 sample_hz    INTEGER NOT NULL,
 python       INTEGER NOT NULL,
 target       TEXT NOT NULL,
 missing      TEXT NOT NULL
) STRICT;
CREATE TABLE process (
 id           INTEGER PRIMARY KEY,
 recording_id INTEGER NOT NULL REFERENCES recording (id),
 tgid         INTEGER NOT NULL,
 start_ns     INTEGER NOT NULL,
 ppid         INTEGER,
 comm         TEXT NOT NULL,
 cmdline      TEXT,
 kind         TEXT NOT NULL CHECK (kind IN ('target', 'other', 'kernel', 'idle')),
 started_ns   INTEGER,
 ended_ns     INTEGER,
 exit_code    INTEGER
) STRICT;
CREATE INDEX process_recording ON process (recording_id, tgid);
CREATE TABLE thread (
 id         INTEGER PRIMARY KEY,
 process_id INTEGER NOT NULL REFERENCES process (id),
 tid        INTEGER NOT NULL,
 comm       TEXT NOT NULL,
 started_ns INTEGER,
 ended_ns   INTEGER
) STRICT;
CREATE TABLE frame (
 id       INTEGER PRIMARY KEY,
 name     TEXT NOT NULL,
 module   TEXT,
 build_id TEXT,
 line     INTEGER,
 offset   INTEGER
) STRICT;
CREATE TABLE stack (
 id     INTEGER PRIMARY KEY,
 kind   TEXT NOT NULL CHECK (kind IN ('kernel', 'user', 'python')),
 depth  INTEGER NOT NULL,
 frames TEXT NOT NULL
) STRICT;
CREATE TABLE gap (
 id             INTEGER PRIMARY KEY,
 thread_id      INTEGER NOT NULL REFERENCES thread (id),
 out_ns         INTEGER NOT NULL,
 waking_ns      INTEGER,
 in_ns          INTEGER NOT NULL,
 state          INTEGER NOT NULL,
 flags          INTEGER NOT NULL,
 cpu_out        INTEGER,
 cpu_in         INTEGER,
 kernel_stack   INTEGER REFERENCES stack (id),
 user_stack     INTEGER REFERENCES stack (id),
 python_stack   INTEGER REFERENCES stack (id),
 waker_thread   INTEGER REFERENCES thread (id),
 waker_stack    INTEGER REFERENCES stack (id),
 next_thread    INTEGER REFERENCES thread (id),
 next_prio      INTEGER,
 before_thread  INTEGER REFERENCES thread (id),
 before_prio    INTEGER,
 owner_thread   INTEGER REFERENCES thread (id),
 lock_kind      INTEGER,
 lock_address   INTEGER,
 syscall_nr     INTEGER,
 syscall_arg0   INTEGER,
 syscall_arg1   INTEGER,
 syscall_target TEXT
) STRICT;
CREATE INDEX gap_thread ON gap (thread_id, out_ns);
CREATE TABLE sample (
 thread_id    INTEGER NOT NULL REFERENCES thread (id),
 at_ns        INTEGER NOT NULL,
 cpu          INTEGER NOT NULL,
 why          INTEGER NOT NULL,
 kernel_stack INTEGER REFERENCES stack (id),
 user_stack   INTEGER REFERENCES stack (id),
 python_stack INTEGER REFERENCES stack (id)
) STRICT;
CREATE TABLE page_fault (
 thread_id    INTEGER NOT NULL REFERENCES thread (id),
 at_ns        INTEGER NOT NULL,
 address      INTEGER NOT NULL,
 level        INTEGER NOT NULL,
 user_stack   INTEGER REFERENCES stack (id),
 python_stack INTEGER REFERENCES stack (id)
) STRICT;
CREATE TABLE lock_wait (
 thread_id    INTEGER NOT NULL REFERENCES thread (id),
 begin_ns     INTEGER NOT NULL,
 end_ns       INTEGER NOT NULL,
 address      INTEGER NOT NULL,
 kind         INTEGER NOT NULL,
 flags        INTEGER NOT NULL,
 owner_thread INTEGER REFERENCES thread (id),
 kernel_stack INTEGER REFERENCES stack (id),
 owner_stack  INTEGER REFERENCES stack (id)
) STRICT;
CREATE TABLE host_fact (
 recording_id  INTEGER NOT NULL REFERENCES recording (id),
 what          INTEGER NOT NULL,
 begin_ns      INTEGER NOT NULL,
 end_ns        INTEGER NOT NULL,
 cpu           INTEGER,
 target_thread INTEGER REFERENCES thread (id),
 actor_thread  INTEGER REFERENCES thread (id),
 flags         INTEGER NOT NULL,
 value0        INTEGER, value1 INTEGER, value2 INTEGER, value3 INTEGER,
 kernel_stack  INTEGER REFERENCES stack (id)
) STRICT;
CREATE TABLE counter (
 recording_id INTEGER NOT NULL REFERENCES recording (id),
 at_ns        INTEGER NOT NULL,
 source       TEXT NOT NULL,
 name         TEXT NOT NULL,
 value        INTEGER NOT NULL
) STRICT;
CREATE TABLE connection (
 sender_process   INTEGER NOT NULL REFERENCES process (id),
 receiver_process INTEGER NOT NULL REFERENCES process (id),
 sender           TEXT NOT NULL,
 receiver         TEXT NOT NULL,
 begin_ns         INTEGER NOT NULL,
 end_ns           INTEGER NOT NULL,
 bytes            INTEGER NOT NULL,
 retransmits      INTEGER NOT NULL,
 looks            INTEGER NOT NULL,
 underway         INTEGER NOT NULL
) STRICT;
CREATE TABLE thread_total (
 thread_id     INTEGER PRIMARY KEY REFERENCES thread (id),
 switches      INTEGER NOT NULL,
 short_gaps    INTEGER NOT NULL,
 short_gap_ns  INTEGER NOT NULL,
 run_ns        INTEGER NOT NULL
) STRICT;
CREATE TABLE recorded_step (
 recording_id INTEGER NOT NULL REFERENCES recording (id),
 rank         INTEGER NOT NULL,
 idx          INTEGER NOT NULL,
 begin_ns     INTEGER NOT NULL,
 dur_ns       INTEGER NOT NULL,
 PRIMARY KEY (recording_id, rank, idx)
) STRICT, WITHOUT ROWID;
CREATE TABLE string (
 id   INTEGER PRIMARY KEY,
 text TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE gpu_process (
 process_id     INTEGER PRIMARY KEY REFERENCES process (id),
 state          TEXT NOT NULL CHECK (state IN ('traced', 'refused')),
 reason         TEXT,
 kinds          INTEGER NOT NULL,
 cupti_version  INTEGER,
 cupti_path     TEXT,
 driver_version INTEGER,
 nccl_version   INTEGER,
 per_thread_buffers INTEGER,
 clock_slope    REAL,
 clock_residual_ns INTEGER,
 clock_residual_max_ns INTEGER,
 clock_samples  INTEGER NOT NULL
) STRICT;
CREATE TABLE gpu_device (
 id              INTEGER PRIMARY KEY,
 process_id      INTEGER NOT NULL REFERENCES process (id),
 device          INTEGER NOT NULL,
 name            TEXT,
 uuid            TEXT,
 compute_capability TEXT,
 multiprocessors INTEGER,
 max_threads_multiprocessor INTEGER,
 registers_multiprocessor INTEGER,
 shared_multiprocessor_bytes INTEGER,
 memory_bytes    INTEGER,
 UNIQUE (process_id, device)
) STRICT;
CREATE TABLE gpu_stream (
 id         INTEGER PRIMARY KEY,
 process_id INTEGER NOT NULL REFERENCES process (id),
 device     INTEGER NOT NULL,
 context    INTEGER NOT NULL,
 stream     INTEGER NOT NULL,
 name       TEXT,
 priority   INTEGER
) STRICT;
CREATE TABLE gpu_kernel (
 id        INTEGER PRIMARY KEY,
 name_id   INTEGER NOT NULL REFERENCES string (id),
 name      TEXT NOT NULL,
 grid_x    INTEGER NOT NULL, grid_y INTEGER NOT NULL, grid_z INTEGER NOT NULL,
 block_x   INTEGER NOT NULL, block_y INTEGER NOT NULL, block_z INTEGER NOT NULL,
 cluster_x INTEGER, cluster_y INTEGER, cluster_z INTEGER,
 registers INTEGER NOT NULL,
 static_shared_bytes  INTEGER NOT NULL,
 dynamic_shared_bytes INTEGER NOT NULL,
 local_bytes INTEGER NOT NULL,
 occupancy REAL
) STRICT;
CREATE TABLE gpu_work (
 id           INTEGER PRIMARY KEY,
 kind         INTEGER NOT NULL,
 stream_id    INTEGER NOT NULL REFERENCES gpu_stream (id),
 kernel_id    INTEGER REFERENCES gpu_kernel (id),
 call_name_id INTEGER REFERENCES string (id),
 thread_id    INTEGER REFERENCES thread (id),
 bytes        INTEGER,
 memory       INTEGER,
 graph        INTEGER,
 graph_node   INTEGER
) STRICT;
CREATE TABLE gpu_op (
 start_ns    INTEGER NOT NULL,
 dur_ns      INTEGER NOT NULL,
 work_id     INTEGER NOT NULL REFERENCES gpu_work (id),
 call_ns     INTEGER,
 call_dur_ns INTEGER,
 correlation INTEGER NOT NULL
) STRICT;
CREATE TABLE gpu_call (
 start_ns    INTEGER NOT NULL,
 dur_ns      INTEGER NOT NULL,
 process_id  INTEGER NOT NULL REFERENCES process (id),
 thread_id   INTEGER REFERENCES thread (id),
 name_id     INTEGER NOT NULL REFERENCES string (id),
 correlation INTEGER NOT NULL,
 result      INTEGER NOT NULL
) STRICT;
CREATE TABLE gpu_sync (
 start_ns    INTEGER NOT NULL,
 dur_ns      INTEGER NOT NULL,
 process_id  INTEGER NOT NULL REFERENCES process (id),
 kind        INTEGER NOT NULL,
 stream_id   INTEGER REFERENCES gpu_stream (id),
 thread_id   INTEGER REFERENCES thread (id),
 correlation INTEGER NOT NULL,
 event       INTEGER,
 event_sync  INTEGER
) STRICT;
CREATE TABLE gpu_memory (
 at_ns      INTEGER NOT NULL,
 process_id INTEGER NOT NULL REFERENCES process (id),
 operation  INTEGER NOT NULL,
 kind       INTEGER NOT NULL,
 device     INTEGER NOT NULL,
 address    INTEGER NOT NULL,
 bytes      INTEGER NOT NULL,
 stream_id  INTEGER REFERENCES gpu_stream (id),
 pool       INTEGER,
 pool_used_bytes INTEGER,
 pool_bytes INTEGER,
 correlation INTEGER NOT NULL
) STRICT;
CREATE TABLE gpu_overhead (
 start_ns   INTEGER NOT NULL,
 dur_ns     INTEGER NOT NULL,
 process_id INTEGER NOT NULL REFERENCES process (id),
 thread_id  INTEGER REFERENCES thread (id),
 kind       INTEGER NOT NULL
) STRICT;
CREATE TABLE nvtx_range (
 start_ns   INTEGER NOT NULL,
 dur_ns     INTEGER,
 process_id INTEGER NOT NULL REFERENCES process (id),
 thread_id  INTEGER REFERENCES thread (id),
 name_id    INTEGER NOT NULL REFERENCES string (id),
 domain_id  INTEGER REFERENCES string (id)
) STRICT;
CREATE TABLE nccl_op (
 process_id   INTEGER NOT NULL REFERENCES process (id),
 thread_id    INTEGER REFERENCES thread (id),
 enqueued_ns  INTEGER NOT NULL,
 ended_ns     INTEGER,
 kernel_start_ns INTEGER,
 kernel_end_ns   INTEGER,
 communicator INTEGER NOT NULL,
 communicator_name TEXT,
 rank         INTEGER NOT NULL,
 ranks        INTEGER NOT NULL,
 peer         INTEGER,
 sequence     INTEGER NOT NULL,
 function     TEXT NOT NULL,
 datatype     TEXT,
 algorithm    TEXT,
 protocol     TEXT,
 count        INTEGER NOT NULL,
 bytes        INTEGER NOT NULL,
 channels     INTEGER,
 warps        INTEGER,
 plugin_version INTEGER NOT NULL
) STRICT;
CREATE TABLE python_mark (
 process_id INTEGER NOT NULL REFERENCES process (id),
 thread_id INTEGER REFERENCES thread (id),
 at_ns     INTEGER NOT NULL,
 kind      INTEGER NOT NULL,
 name_id   INTEGER REFERENCES string (id),
 value     INTEGER
) STRICT;
CREATE INDEX python_mark_module ON python_mark (thread_id, at_ns) WHERE kind IN (1, 2);
CREATE INDEX python_mark_step ON python_mark (process_id, at_ns) WHERE kind IN (3, 4);
CREATE TABLE python_gc (
 process_id INTEGER NOT NULL REFERENCES process (id),
 thread_id  INTEGER REFERENCES thread (id),
 start_ns   INTEGER NOT NULL,
 dur_ns     INTEGER NOT NULL,
 generation INTEGER NOT NULL,
 collected  INTEGER NOT NULL
) STRICT;
CREATE TABLE launch_stack (
 process_id  INTEGER NOT NULL REFERENCES process (id),
 correlation INTEGER NOT NULL,
 frames      TEXT NOT NULL,
 PRIMARY KEY (process_id, correlation)
) STRICT, WITHOUT ROWID;
CREATE TABLE gpu_graph_node (
 process_id INTEGER NOT NULL REFERENCES process (id),
 node       INTEGER NOT NULL,
 thread_id  INTEGER REFERENCES thread (id),
 at_ns      INTEGER NOT NULL,
 original   INTEGER,
 PRIMARY KEY (process_id, node)
) STRICT, WITHOUT ROWID;
CREATE TABLE clock_sample (
 process_id INTEGER NOT NULL REFERENCES process (id),
 before_ns  INTEGER NOT NULL,
 gpu_ns     INTEGER NOT NULL,
 after_ns   INTEGER NOT NULL
) STRICT;
CREATE TABLE stall (
 recording_id  INTEGER NOT NULL REFERENCES recording (id),
 rank          INTEGER NOT NULL,
 cause         TEXT NOT NULL,
 total_ns      INTEGER NOT NULL,
 count         INTEGER NOT NULL,
 max_ns        INTEGER NOT NULL,
 period_ns     INTEGER,
 confidence    REAL NOT NULL,
 victim_thread INTEGER REFERENCES thread (id),
 culprit_thread INTEGER REFERENCES thread (id),
 advice        TEXT NOT NULL,
 detail        TEXT NOT NULL,
 PRIMARY KEY (recording_id, rank)
) STRICT, WITHOUT ROWID;
CREATE TABLE ledger (
 id        INTEGER PRIMARY KEY,
 launch_id INTEGER REFERENCES launch (id),
 producer  TEXT NOT NULL,
 kind      TEXT NOT NULL,
 seen      INTEGER,
 kept      INTEGER,
 dropped   INTEGER NOT NULL,
 breach    INTEGER NOT NULL,
 detail    TEXT
) STRICT;
CREATE TABLE note (
 id      INTEGER PRIMARY KEY,
 at_ns   INTEGER NOT NULL,
 level   TEXT NOT NULL CHECK (level IN ('info', 'warning', 'error')),
 text    TEXT NOT NULL
) STRICT;
CREATE TABLE control (
 id            INTEGER PRIMARY KEY,
 scope         TEXT NOT NULL,
 kind          TEXT NOT NULL,
 interleave    TEXT NOT NULL CHECK (interleave IN ('steps', 'slices', 'launches')),
 metric        TEXT NOT NULL,
 margin        REAL NOT NULL,
 objection     TEXT,
 made_wall_ns  INTEGER NOT NULL,
 aa_pairs      INTEGER NOT NULL,
 aa_lower      REAL,
 aa_upper      REAL,
 mde           REAL,
 pair_sd       REAL,
 held          REAL,
 planted       REAL,
 held_pairs    INTEGER NOT NULL,
 held_lower    REAL,
 held_upper    REAL,
 gates         INTEGER NOT NULL,
 false_fails   INTEGER NOT NULL,
 upper_bound   REAL NOT NULL,
 source_run    TEXT NOT NULL
) STRICT;
CREATE TABLE launch_metric (
 launch_id INTEGER NOT NULL REFERENCES launch (id),
 metric    TEXT NOT NULL,
 value     REAL,
 reason    TEXT,
 PRIMARY KEY (launch_id, metric)
) STRICT, WITHOUT ROWID;
CREATE TABLE pair_ratio (
 pair_id   INTEGER NOT NULL REFERENCES pair (id),
 metric    TEXT NOT NULL,
 log_ratio REAL NOT NULL,
 within_sd REAL,
 couples   INTEGER,
 PRIMARY KEY (pair_id, metric)
) STRICT, WITHOUT ROWID;
CREATE TABLE cell (
 id           INTEGER PRIMARY KEY,
 workload     TEXT NOT NULL,
 metric       TEXT NOT NULL,
 unit         TEXT NOT NULL,
 direction    TEXT NOT NULL CHECK (direction IN ('lower', 'higher')),
 gating       INTEGER NOT NULL,
 median_a     REAL,
 median_b     REAL,
 ratio        REAL,
 ci_lower     REAL,
 ci_upper     REAL,
 alpha        REAL NOT NULL,
 pairs        INTEGER NOT NULL,
 look         INTEGER,
 margin       REAL,
 mde          REAL,
 pair_sd      REAL,
 pairs_needed INTEGER,
 confirmed    INTEGER,
 confirm_pairs INTEGER,
 verdict      TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'inconclusive', 'unchecked')),
 improved     INTEGER NOT NULL,
 reason       TEXT NOT NULL,
 UNIQUE (workload, metric)
) STRICT;
CREATE TABLE parity (
 id       INTEGER PRIMARY KEY,
 workload TEXT NOT NULL,
 tensor   TEXT NOT NULL,
 rule     TEXT NOT NULL,
 error_a  REAL,
 error_b  REAL,
 verdict  TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'inconclusive', 'unchecked')),
 reason   TEXT NOT NULL
) STRICT;
CREATE TABLE finding (
 id       INTEGER PRIMARY KEY,
 workload TEXT,
 kind     TEXT NOT NULL,
 side     INTEGER CHECK (side IN (0, 1)),
 effect   TEXT NOT NULL CHECK (effect IN ('note', 'inconclusive', 'fail')),
 text     TEXT NOT NULL
) STRICT;
CREATE TABLE verdict (
 id             INTEGER PRIMARY KEY CHECK (id = 1),
 verdict        TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'inconclusive')),
 reason         TEXT NOT NULL,
 margin_note    TEXT,
 policy         TEXT NOT NULL,
 trust_ok       INTEGER NOT NULL,
 calibrated     INTEGER NOT NULL,
 calibration_note TEXT NOT NULL,
 judged_wall_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE rollout (
 id             INTEGER PRIMARY KEY CHECK (id = 1),
 name           TEXT NOT NULL,
 plan           TEXT NOT NULL,
 state          TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'paused', 'promoted', 'rolled_back', 'aborted', 'failed')),
 stage          INTEGER,
 percent        REAL,
 since_ns       INTEGER NOT NULL,
 stage_since_ns INTEGER,
 reason         TEXT NOT NULL,
 heartbeat_ns   INTEGER NOT NULL,
 pid            INTEGER,
 up_baseline    INTEGER,
 up_candidate   INTEGER
) STRICT;
CREATE TABLE rollout_stage (
 number        INTEGER PRIMARY KEY,
 name          TEXT NOT NULL,
 percent       REAL NOT NULL,
 begin_s       INTEGER,
 judged_from_s INTEGER,
 end_s         INTEGER,
 result        TEXT,
 lost          INTEGER
) STRICT;
CREATE TABLE rollout_second (
 at_s      INTEGER,
 arm       INTEGER,
 stage     INTEGER NOT NULL,
 requests  INTEGER NOT NULL,
 errors    INTEGER NOT NULL,
 truncated INTEGER NOT NULL,
 wrong     INTEGER NOT NULL,
 bins      BLOB NOT NULL,
 rejected  INTEGER NOT NULL DEFAULT 0,
 PRIMARY KEY (at_s, arm)
) STRICT, WITHOUT ROWID;
CREATE TABLE rollout_cell (
 at_s       INTEGER,
 stage      INTEGER,
 metric     TEXT,
 value      REAL,
 low        REAL,
 high       REAL,
 threshold  REAL,
 evidence   REAL,
 needed     REAL,
 dispersion REAL,
 requests   INTEGER,
 missing    INTEGER,
 verdict    TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'undecided')),
 PRIMARY KEY (stage, metric, at_s)
) STRICT, WITHOUT ROWID;
CREATE TABLE rollout_decision (
 id           INTEGER PRIMARY KEY,
 at_ns        INTEGER NOT NULL,
 state_from   TEXT NOT NULL,
 state_to     TEXT NOT NULL,
 stage_from   INTEGER,
 stage_to     INTEGER,
 percent_from REAL,
 percent_to   REAL,
 rule         TEXT NOT NULL,
 reason       TEXT NOT NULL,
 who          TEXT NOT NULL,
 evidence     TEXT,
 effect_ns    INTEGER
) STRICT;
CREATE TABLE rollout_request (
 id       INTEGER PRIMARY KEY,
 at_ns    INTEGER NOT NULL,
 verb     TEXT NOT NULL CHECK (verb IN ('pause', 'promote', 'abort', 'resume')),
 who      TEXT NOT NULL,
 reason   TEXT,
 taken_ns INTEGER
) STRICT;
CREATE TABLE rollout_source (
 number  INTEGER PRIMARY KEY,
 kind    TEXT NOT NULL,
 seen    INTEGER,
 kept    INTEGER,
 dropped INTEGER,
 lost    INTEGER,
 late    INTEGER,
 last_ns INTEGER,
 problem TEXT
) STRICT;
CREATE TABLE rollout_recording (
 arm      INTEGER PRIMARY KEY,
 path     TEXT,
 begin_ns INTEGER,
 end_ns   INTEGER,
 problem  TEXT
) STRICT;
CREATE TABLE rollout_shadow (
 id        INTEGER PRIMARY KEY,
 at_ns     INTEGER NOT NULL,
 request   TEXT,
 equal     INTEGER NOT NULL,
 distance  REAL,
 baseline  TEXT,
 candidate TEXT
) STRICT;
CREATE VIEW v_launch AS
SELECT l.id AS launch, w.name AS workload, p.phase, p.idx AS pair, CASE l.side WHEN 0 THEN 'a' ELSE 'b' END AS side,
 p.state AS pair_state, l.state, l.exit_code, l.exit_signal, p.seed, p.interleave, l.started_ns, l.ended_ns,
 l.active_ns, l.held_ns, l.cpu_ns, l.peak_memory_bytes, l.peak_gpu_memory_bytes, l.steps, l.ranks, l.stderr_tail
FROM launch l JOIN pair p ON p.id = l.pair_id JOIN workload w ON w.id = p.workload_id;
CREATE VIEW v_step AS
SELECT w.name AS workload, p.phase, p.idx AS pair, CASE l.side WHEN 0 THEN 'a' ELSE 'b' END AS side, s.launch_id AS launch,
 s.rank, s.idx AS step, l.started_ns + s.begin_ns AS begin_ns, s.dur_ns, s.late_ns + s.dur_ns AS latency_ns,
 s.samples, o.value AS loss
FROM step s JOIN launch l ON l.id = s.launch_id JOIN pair p ON p.id = l.pair_id JOIN workload w ON w.id = p.workload_id
LEFT JOIN loss o ON o.launch_id = s.launch_id AND o.rank = s.rank AND o.step = s.idx;
CREATE VIEW v_block AS
SELECT w.name AS workload, p.phase, p.idx AS pair, b.couple, CASE b.side WHEN 0 THEN 'a' ELSE 'b' END AS side, b.ran_first,
 b.first_step, b.steps, b.begin_ns, b.active_ns, b.cpu_ns, b.step_cpu_ns, b.wait_ns, b.foreign_ns, b.steal_ns, b.machine_ns
FROM block b JOIN pair p ON p.id = b.pair_id JOIN workload w ON w.id = p.workload_id;
CREATE VIEW v_metric AS
SELECT w.name AS workload, p.phase, p.idx AS pair, CASE l.side WHEN 0 THEN 'a' ELSE 'b' END AS side, m.metric, m.value,
 m.reason, l.id AS launch
FROM launch_metric m JOIN launch l ON l.id = m.launch_id JOIN pair p ON p.id = l.pair_id
JOIN workload w ON w.id = p.workload_id;
CREATE VIEW v_memory AS
SELECT w.name AS workload, p.idx AS pair, CASE l.side WHEN 0 THEN 'a' ELSE 'b' END AS side, m.kind, m.name, m.resident_bytes,
 m.anonymous_bytes, l.peak_memory_bytes, l.id AS launch
FROM launch_memory m JOIN launch l ON l.id = m.launch_id JOIN pair p ON p.id = l.pair_id
JOIN workload w ON w.id = p.workload_id;
CREATE VIEW v_page_fault AS
SELECT l.id AS launch, w.name AS workload, CASE l.side WHEN 0 THEN 'a' WHEN 1 THEN 'b' END AS side, q.tgid AS pid, t.tid, f.at_ns, f.address, f.level,
 r.kind, r.name, r.end_address IS NOT NULL AS resident, f.user_stack, f.python_stack, q.recording_id AS recording
FROM page_fault f JOIN thread t ON t.id = f.thread_id JOIN process q ON q.id = t.process_id JOIN recording c ON c.id = q.recording_id
LEFT JOIN launch l ON l.id = c.launch_id LEFT JOIN pair p ON p.id = l.pair_id LEFT JOIN workload w ON w.id = p.workload_id
LEFT JOIN launch_range r ON r.launch_id = l.id AND r.tgid = q.tgid AND f.at_ns < r.at_ns AND r.begin_address = (SELECT max(s.begin_address)
 FROM launch_range s WHERE s.launch_id = l.id AND s.tgid = q.tgid AND s.begin_address <= f.address) AND f.address < r.end_address;
CREATE VIEW v_connection AS
SELECT s.recording_id AS recording, s.tgid AS sender_pid, r.tgid AS receiver_pid, c.sender, c.receiver, c.begin_ns, c.end_ns, c.bytes, c.retransmits,
 c.looks, c.underway
FROM connection c JOIN process s ON s.id = c.sender_process JOIN process r ON r.id = c.receiver_process;
CREATE VIEW v_pair AS
SELECT w.name AS workload, p.phase, p.idx AS pair, p.state, r.metric, exp(r.log_ratio) AS ratio, r.log_ratio, r.within_sd, r.couples
FROM pair_ratio r JOIN pair p ON p.id = r.pair_id JOIN workload w ON w.id = p.workload_id;
CREATE VIEW v_cell AS SELECT * FROM cell;
CREATE VIEW v_finding AS SELECT workload, kind, CASE side WHEN 0 THEN 'a' WHEN 1 THEN 'b' END AS side, effect, text FROM finding;
CREATE VIEW v_ledger AS
SELECT g.launch_id AS launch, g.producer, g.kind, g.seen, g.kept, g.dropped, g.breach, g.detail FROM ledger g;
CREATE VIEW v_off_cpu AS
SELECT p.recording_id AS recording, g.id AS gap, p.tgid AS pid, t.tid, t.comm, g.out_ns, g.waking_ns, g.in_ns, g.in_ns - g.out_ns AS gap_ns,
 coalesce(g.waking_ns, g.out_ns) - g.out_ns AS blocked_ns, g.in_ns - coalesce(g.waking_ns, g.out_ns) AS run_queue_ns,
 g.state, g.flags, wp.tgid AS waker_pid, w.comm AS waker_comm, op.tgid AS owner_pid, o.comm AS owner_comm,
 np.tgid AS next_pid, n.comm AS next_comm, g.kernel_stack, g.user_stack, g.python_stack, g.waker_stack, g.syscall_nr, g.syscall_target
FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON p.id = t.process_id
LEFT JOIN thread w ON w.id = g.waker_thread LEFT JOIN process wp ON wp.id = w.process_id
LEFT JOIN thread o ON o.id = g.owner_thread LEFT JOIN process op ON op.id = o.process_id
LEFT JOIN thread n ON n.id = g.next_thread LEFT JOIN process np ON np.id = n.process_id;
CREATE VIEW v_sample AS
SELECT p.recording_id AS recording, p.tgid AS pid, t.tid, t.comm, s.at_ns, s.cpu, s.why, s.kernel_stack, s.user_stack, s.python_stack
FROM sample s JOIN thread t ON t.id = s.thread_id JOIN process p ON p.id = t.process_id;
CREATE VIEW v_stack AS
SELECT k.id AS stack, k.kind, j.key AS depth, f.name, f.module, f.line, f.offset
FROM stack k, json_each(k.frames) j JOIN frame f ON f.id = j.value;
CREATE VIEW v_stall AS
SELECT s.recording_id AS recording, s.rank, s.cause, s.total_ns, s.count, s.max_ns, s.period_ns, s.confidence, vp.tgid AS victim_pid,
 v.tid AS victim_tid, v.comm AS victim_comm, cp.tgid AS culprit_pid, c.comm AS culprit_comm, cp.cmdline AS culprit_cmdline, s.advice
FROM stall s LEFT JOIN thread v ON v.id = s.victim_thread LEFT JOIN process vp ON vp.id = v.process_id
LEFT JOIN thread c ON c.id = s.culprit_thread LEFT JOIN process cp ON cp.id = c.process_id;
CREATE VIEW v_gpu_op AS
SELECT p.recording_id AS recording, p.tgid AS pid, o.rowid AS op,
 CASE WHEN w.kind = 0 THEN 'kernel' WHEN w.kind = 1 THEN 'graph' WHEN w.kind = 80 THEN 'set' ELSE 'copy' END AS kind,
 k.name, o.start_ns, o.start_ns + o.dur_ns AS end_ns, o.dur_ns, s.device, s.context, s.stream, w.bytes,
 CASE w.kind WHEN 17 THEN 'HtoD' WHEN 18 THEN 'DtoH' WHEN 24 THEN 'DtoD' WHEN 25 THEN 'HtoH' WHEN 26 THEN 'PtoP' END AS direction,
 o.start_ns - o.call_ns AS call_start_ns, o.call_dur_ns, c.text AS call_name, t.tid AS call_tid, o.correlation,
 w.graph, w.graph_node, k.grid_x, k.grid_y, k.grid_z, k.block_x, k.block_y, k.block_z, k.cluster_x, k.cluster_y, k.cluster_z,
 k.registers, k.static_shared_bytes, k.dynamic_shared_bytes, k.local_bytes, k.occupancy,
 (SELECT CASE WHEN m.kind = 3 THEN m.value END FROM python_mark m WHERE m.process_id = s.process_id AND m.kind IN (3, 4)
 AND m.at_ns <= o.start_ns - o.call_ns ORDER BY m.at_ns DESC LIMIT 1) AS python_step,
 (SELECT n.text FROM python_mark m LEFT JOIN string n ON n.id = m.name_id WHERE m.thread_id = coalesce(g.thread_id, w.thread_id) AND m.kind IN (1, 2)
 AND m.at_ns <= coalesce(g.at_ns, o.start_ns - o.call_ns) ORDER BY m.at_ns DESC LIMIT 1) AS module,
 r.launch_id AS launch
FROM gpu_op o JOIN gpu_work w ON w.id = o.work_id JOIN gpu_stream s ON s.id = w.stream_id JOIN process p ON p.id = s.process_id
JOIN recording r ON r.id = p.recording_id
LEFT JOIN gpu_kernel k ON k.id = w.kernel_id LEFT JOIN string c ON c.id = w.call_name_id LEFT JOIN thread t ON t.id = w.thread_id
LEFT JOIN gpu_graph_node g ON g.process_id = s.process_id AND g.node = w.graph_node;
CREATE VIEW v_gpu_call AS
SELECT p.recording_id AS recording, p.tgid AS pid, t.tid, t.comm, n.text AS name, c.start_ns, c.start_ns + c.dur_ns AS end_ns, c.dur_ns,
 c.correlation, c.result
FROM gpu_call c JOIN string n ON n.id = c.name_id JOIN process p ON p.id = c.process_id LEFT JOIN thread t ON t.id = c.thread_id;
CREATE VIEW v_nccl_op AS
SELECT p.recording_id AS recording, p.tgid AS pid, t.tid, o.enqueued_ns, o.ended_ns, o.kernel_start_ns, o.kernel_end_ns, o.communicator,
 o.communicator_name, o.rank, o.ranks, o.peer, o.sequence, o.function, o.datatype, o.algorithm, o.protocol, o.count, o.bytes,
 o.channels, o.warps, r.launch_id AS launch
FROM nccl_op o JOIN process p ON p.id = o.process_id JOIN recording r ON r.id = p.recording_id LEFT JOIN thread t ON t.id = o.thread_id;
CREATE VIEW v_nvtx_range AS
SELECT p.recording_id AS recording, p.tgid AS pid, t.tid, n.text AS name, d.text AS domain, x.start_ns, x.start_ns + x.dur_ns AS end_ns, x.dur_ns
FROM nvtx_range x JOIN string n ON n.id = x.name_id LEFT JOIN string d ON d.id = x.domain_id
JOIN process p ON p.id = x.process_id LEFT JOIN thread t ON t.id = x.thread_id;
CREATE VIEW v_rollout AS
SELECT r.name, r.state, r.stage, s.name AS stage_name, r.percent, r.since_ns, r.reason, r.heartbeat_ns, r.pid
FROM rollout r LEFT JOIN rollout_stage s ON s.number = r.stage;
CREATE VIEW v_rollout_second AS
SELECT at_s, CASE arm WHEN 0 THEN 'baseline' ELSE 'candidate' END AS arm, stage, requests, errors, truncated, wrong, rejected FROM rollout_second;
CREATE VIEW v_rollout_cell AS
SELECT at_s, stage, metric, value, low, high, threshold, evidence, needed, dispersion, requests, missing, verdict FROM rollout_cell;
CREATE VIEW v_rollout_decision AS
SELECT id, at_ns, state_from, state_to, stage_from, stage_to, percent_from, percent_to, rule, reason, who, effect_ns FROM rollout_decision;
INSERT INTO run VALUES (1, 'u', 'ab', 'done', '0.3', 1, 2, 7, '{}', NULL, '[]', '{}', 'k', NULL, NULL);
INSERT INTO cell (workload, metric, unit, direction, gating, alpha, pairs, verdict, improved, reason) VALUES ('w', 'step_time', 'ns', 'lower', 1, 0.01, 10, 'pass', 0, 'as fast');
