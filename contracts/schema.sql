-- SPDX-License-Identifier: Apache-2.0
-- The store of a run, schema version 12. Times are CLOCK_MONOTONIC nanoseconds unless a column says
-- wall. NULL means "not measured", never 0. The views v_* are the public surface (docs/SCHEMA.md);
-- tables may change with a version bump. Raw facts are written by the harness while it runs; what is
-- derived from them (launch_metric, pair_ratio, cell, parity, finding, verdict) is rewritten by every judgement and gives the same rows.

PRAGMA application_id = 0x55504754; -- 'UPGT'
PRAGMA user_version = 12;

-- One row: what was run, by whom, from where.
CREATE TABLE run (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    uuid            TEXT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind IN ('ab', 'aa', 'record', 'rollout')),
    state           TEXT NOT NULL CHECK (state IN ('running', 'done', 'interrupted')),
    upgate_version  TEXT NOT NULL,
    started_wall_ns INTEGER NOT NULL,
    ended_wall_ns   INTEGER,
    seed            INTEGER NOT NULL,
    plan            TEXT NOT NULL,  -- normalised plan as JSON (every default filled in): --resume and gate read this
    plan_path       TEXT,
    command_line    TEXT NOT NULL,  -- JSON array
    host            TEXT NOT NULL,  -- JSON: host id, kernel, cpu, memory, cpus used
    host_key        TEXT NOT NULL,  -- what a calibration certificate is looked up by
    writer_pid      INTEGER,        -- the live writer, NULL when none
    writer_start    INTEGER         -- its start time in clock ticks (field 22 of /proc/PID/stat): a reused pid differs
) STRICT;

CREATE TABLE side (
    id          INTEGER PRIMARY KEY CHECK (id IN (0, 1)), -- 0 = a, baseline; 1 = b, candidate
    name        TEXT NOT NULL,
    config      TEXT NOT NULL,  -- JSON: python, models, cuda, libs, env, prefix
    fingerprint TEXT            -- upgate.fingerprint/1, from the live process
) STRICT;

CREATE TABLE workload (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    mode       TEXT NOT NULL CHECK (mode IN ('train', 'infer', 'command')),
    interleave TEXT CHECK (interleave IN ('steps', 'slices', 'launches')), -- what auto became; NULL = not decided yet
    note       TEXT,            -- why, and what it costs
    rate_per_s REAL             -- open-loop request rate used on both sides
) STRICT;

-- A pair: one launch of each side with the same seed. The unit of evidence.
CREATE TABLE pair (
    id          INTEGER PRIMARY KEY,
    workload_id INTEGER NOT NULL REFERENCES workload (id),
    idx         INTEGER NOT NULL,  -- order of running within the workload and phase, voids included
    phase       TEXT NOT NULL CHECK (phase IN ('pilot', 'main', 'confirm', 'anchor', 'traced', 'control')), -- control: the
                                   -- baseline against itself, side b held longer by launch.covariates.control_ppm
    seed        INTEGER NOT NULL,
    first_side  INTEGER NOT NULL CHECK (first_side IN (0, 1)), -- coin flip: who starts (and runs first)
    interleave  TEXT NOT NULL CHECK (interleave IN ('steps', 'slices', 'launches')),
    steps       INTEGER,           -- steps asked of each launch
    state       TEXT NOT NULL CHECK (state IN ('valid', 'void', 'failed')),
    reason      TEXT,              -- of void and failed
    void_side   INTEGER CHECK (void_side IN (0, 1)), -- of void: the side the reason points at; NULL = both, or neither
    started_ns  INTEGER NOT NULL,
    ended_ns    INTEGER NOT NULL,
    UNIQUE (workload_id, phase, idx)
) STRICT;

CREATE TABLE launch (
    id              INTEGER PRIMARY KEY,
    pair_id         INTEGER NOT NULL REFERENCES pair (id),
    side            INTEGER NOT NULL REFERENCES side (id),
    state           TEXT NOT NULL CHECK (state IN ('ok', 'crashed', 'timeout', 'oom', 'not_started', 'stopped')),
    exit_code       INTEGER,       -- NULL when it ended by a signal or was stopped by us
    exit_signal     INTEGER,
    started_ns      INTEGER NOT NULL,
    ended_ns        INTEGER NOT NULL,
    active_ns       INTEGER,       -- wall time not held and not frozen: total_time
    held_ns         INTEGER,       -- held at the gate or frozen by us
    cpu_ns          INTEGER,       -- user + system of the whole tree
    peak_memory_bytes     INTEGER, -- of the whole tree
    peak_gpu_memory_bytes INTEGER,
    steps           INTEGER,       -- completed, of the slowest rank; NULL: made no step call
    ranks           INTEGER,       -- processes that made step calls
    dropped         INTEGER,       -- step records lost (ledger has the detail)
    stderr_tail     TEXT,
    covariates      TEXT NOT NULL  -- JSON: load, psi, steal_ns, freq_khz, throttle, foreign_cpu_ns, boot_minus_mono_ns, freezer, ...
) STRICT;
CREATE INDEX launch_pair ON launch (pair_id);

-- A block of steps that one side ran in its turn. Couple k of a pair = its block k of side 0 and of side 1.
CREATE TABLE block (
    pair_id    INTEGER NOT NULL REFERENCES pair (id),
    couple     INTEGER NOT NULL,
    side       INTEGER NOT NULL,
    ran_first  INTEGER NOT NULL,   -- 1 if this side ran first in the couple
    first_step INTEGER,            -- NULL for slices
    steps      INTEGER,
    begin_ns   INTEGER NOT NULL,
    active_ns  INTEGER NOT NULL,   -- from the begin of the first step to the arrival at the gate again; slices: CPU-runnable wall time
    -- Raw readings of the machine, from the thaw of the side to its arrival at the gate. All NULL before version 5, for
    -- slices, and where this kernel does not tell.
    cpu_ns     INTEGER,            -- CPU time of the whole tree, of every thread (until the thaw that follows: it comes to rest meanwhile)
    step_cpu_ns INTEGER,           -- of it, the threads that make the steps, all ranks
    wait_ns    INTEGER,            -- run-queue wait of the thread that makes the steps; of several ranks the longest
    foreign_ns INTEGER,            -- CPU time of everybody else, the harness included, on the CPUs that the side may use
    steal_ns   INTEGER,            -- taken by the hypervisor while the thread ran, 0 where it left its CPU meanwhile: not told then; of several ranks the longest
    machine_ns INTEGER,            -- of active_ns, what the machine took: what of the wait was behind others, and steal; never more than active_ns; NULL for several ranks: who waited for whom is not known
    PRIMARY KEY (pair_id, couple, side)
) STRICT, WITHOUT ROWID;

CREATE TABLE step (
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    rank      INTEGER NOT NULL,
    idx       INTEGER NOT NULL,
    begin_ns  INTEGER NOT NULL,    -- since launch.started_ns
    dur_ns    INTEGER NOT NULL,
    late_ns   INTEGER,             -- open loop: begin minus scheduled; latency = late_ns + dur_ns
    samples   REAL,
    PRIMARY KEY (launch_id, rank, idx)
) STRICT, WITHOUT ROWID;

-- Time in named phases, summed over the launch: compile_time is the phase 'compile'.
CREATE TABLE step_phase (
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    rank      INTEGER NOT NULL,
    name      TEXT NOT NULL,
    count     INTEGER NOT NULL,
    total_ns  INTEGER NOT NULL,
    PRIMARY KEY (launch_id, rank, name)
) STRICT, WITHOUT ROWID;

-- Which process made the steps of a rank; pid in its own pid namespace.
CREATE TABLE launch_rank (
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    rank      INTEGER NOT NULL,
    pid       INTEGER NOT NULL,
    PRIMARY KEY (launch_id, rank)
) STRICT, WITHOUT ROWID;

-- Phases one by one, of traced launches only.
CREATE TABLE phase_span (
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    rank      INTEGER NOT NULL,
    begin_ns  INTEGER NOT NULL,    -- since launch.started_ns
    depth     INTEGER NOT NULL,    -- 0 = outermost
    dur_ns    INTEGER NOT NULL,
    name      TEXT NOT NULL,
    PRIMARY KEY (launch_id, rank, begin_ns, depth)
) STRICT, WITHOUT ROWID;

-- Numbers a workload noted about its launch (ug_step_note); the last value of a name counts. Of upgate itself: startup_time_ns, and
-- upgate.requests, upgate.requests_failed, upgate.requests_wrong of servers that tell their requests (ug_request_done).
CREATE TABLE launch_value (
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    rank      INTEGER NOT NULL,
    name      TEXT NOT NULL,
    value     REAL,
    PRIMARY KEY (launch_id, rank, name)
) STRICT, WITHOUT ROWID;

-- What a traced launch held in memory where it stood still last: in turns of steps behind its last block, in turns of slices
-- after slice 1, 2, 4, 8, …, the last of them while both sides ran; not where launches ran one after the other. All
-- processes of its tree together, each with all that it shares; so the rows of a launch sum to its resident memory.
CREATE TABLE launch_memory (
    launch_id       INTEGER NOT NULL REFERENCES launch (id),
    kind            TEXT NOT NULL CHECK (kind IN ('file', 'heap', 'anonymous', 'stack', 'shared', 'other')), -- enum resident_kind
    name            TEXT NOT NULL,     -- of a file: its name without directories; '': the smallest files together, or not a file
    resident_bytes  INTEGER NOT NULL,
    anonymous_bytes INTEGER NOT NULL,  -- of them, pages that no file holds: private memory, what was written to of a file
    PRIMARY KEY (launch_id, kind, name)
) STRICT, WITHOUT ROWID;

-- Which pages those were when launch_memory was read: ranges of addresses in which a process had (nearly) all pages. Of a launch
-- with very many ranges neighbours are one, with what lies between them, which was not resident.
CREATE TABLE launch_range (
    launch_id      INTEGER NOT NULL REFERENCES launch (id),
    tgid           INTEGER NOT NULL,
    begin_address  INTEGER NOT NULL,
    end_address    INTEGER NOT NULL,
    resident_bytes INTEGER NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('file', 'heap', 'anonymous', 'stack', 'shared', 'other')), -- as in launch_memory
    name           TEXT NOT NULL,
    at_ns          INTEGER NOT NULL,  -- when it was read
    PRIMARY KEY (launch_id, tgid, begin_address)
) STRICT, WITHOUT ROWID;

CREATE TABLE loss (
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    rank      INTEGER NOT NULL,
    step      INTEGER NOT NULL,
    value     REAL,                -- SQLite stores NaN as NULL, so:
    bits      BLOB NOT NULL,       -- the 8 raw bytes of the double, little endian
    PRIMARY KEY (launch_id, rank, step)
) STRICT, WITHOUT ROWID;

-- Outputs for the parity gate. Of long tensors the first 4,096 values, and all of them as a sketch; count and digest are
-- of all. Of those behind the first 16 MiB of a launch the digest: data is empty.
CREATE TABLE tensor (
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    rank      INTEGER NOT NULL,
    step      INTEGER NOT NULL,
    name      TEXT NOT NULL,
    dtype     TEXT NOT NULL,       -- f64 f32 f16 bf16 i64 i32 u8
    count     INTEGER NOT NULL,
    digest    TEXT NOT NULL,       -- 16 hex digits over the raw bytes
    data      BLOB NOT NULL,
    sketch    BLOB,                -- of more than 4,096 values: 4,096 doubles, sums of neighbours with random signs over the root of their number (reports/analyse/sketch.c)
    PRIMARY KEY (launch_id, rank, step, name)
) STRICT, WITHOUT ROWID;

-- What `upgate record` or a traced launch saw of the host side. A recording has its own processes, threads, stacks
-- and events; shards of other recorders are merged as further recordings.
CREATE TABLE recording (
    id           INTEGER PRIMARY KEY,
    launch_id    INTEGER REFERENCES launch (id), -- of a traced launch of `upgate ab`; NULL: of `upgate record`
    begin_ns     INTEGER NOT NULL,   -- when capture was attached
    end_ns       INTEGER,            -- NULL: still going on, or killed
    threshold_ns INTEGER NOT NULL,   -- shorter gaps are counted, not stored
    sample_hz    INTEGER NOT NULL,   -- 0: no samples
    python       INTEGER NOT NULL,   -- 1: Python stacks were walked
    target       TEXT NOT NULL,      -- JSON: {"pids": [], "cgroup": null, "command": [], "ranks": [{"pid", "start_ns", "rank", "ranks"}]}
                                     -- ranks: whom the launcher made which rank of a job of how many. Not there when nobody.
                                     -- rank: of `upgate rank`, who it is (harness/rank/identity.h). Of `upgate merge`: run, restart, world (ranks of the
                                     -- job), "nodes": [{"host", "boot", "process_first", "process_last", "cpu_first", "offset_ns",
                                     -- "drift_from_ns", "drift", "wall_minus_monotonic_ns", "clock_error_ns"}], and in ranks "node", an index of nodes:
                                     -- whose rows of process are whose, what was added to their CPUs and times (offset_ns, and drift times what a time is
                                     -- behind drift_from_ns), within what their clocks are known; "merged":
                                     -- [{"rank", "begin_ns", "end_ns"}]: which ranks are in it, from when to when each was recorded; "missing": [{"rank", "why"}]
    missing      TEXT NOT NULL       -- JSON array: sources of facts that this machine did not allow, each a sentence
) STRICT;

CREATE TABLE process (
    id           INTEGER PRIMARY KEY,
    recording_id INTEGER NOT NULL REFERENCES recording (id),
    tgid         INTEGER NOT NULL,
    start_ns     INTEGER NOT NULL,   -- CLOCK_BOOTTIME: a reused pid is another process; 0 = not known
    ppid         INTEGER,
    comm         TEXT NOT NULL,      -- of its main thread, the last one seen
    cmdline      TEXT,               -- arguments joined by blanks; NULL: a kernel thread, or gone before it could be read
    kind         TEXT NOT NULL CHECK (kind IN ('target', 'other', 'kernel', 'idle')),
    started_ns   INTEGER,            -- when it was born or exec'ed while we watched
    ended_ns     INTEGER,
    exit_code    INTEGER             -- wait status
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

-- A function at a place. Interned: equal rows are one row.
CREATE TABLE frame (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,          -- function, without compiler suffixes; "[unknown]" stays visible
    module   TEXT,                   -- file name or "[kernel]", "[nvidia]", "[jit]"; Python: the source file
    build_id TEXT,
    line     INTEGER,                -- Python
    offset   INTEGER                 -- from the begin of the function or, unknown, of the module
) STRICT;

CREATE TABLE stack (
    id     INTEGER PRIMARY KEY,
    kind   TEXT NOT NULL CHECK (kind IN ('kernel', 'user', 'python')),
    depth  INTEGER NOT NULL,
    frames TEXT NOT NULL             -- JSON array of frame ids, leaf first
) STRICT;

-- A stay off the CPU of a thread of the target, at least threshold_ns long. blocked = waking - out, run queue = in -
-- waking; waking NULL: preempted while runnable, all of it is run queue. With the flag UG_GAP_SHORT it is shorter: of those that the thread has
-- one stands for each eight ticks of the sampler (threshold_ns, if that is more) that they last together.
CREATE TABLE gap (
    id             INTEGER PRIMARY KEY,
    thread_id      INTEGER NOT NULL REFERENCES thread (id),
    out_ns         INTEGER NOT NULL,
    waking_ns      INTEGER,
    in_ns          INTEGER NOT NULL,
    state          INTEGER NOT NULL,  -- TASK_* bits of the kernel at switch-out
    flags          INTEGER NOT NULL,  -- enum ug_gap_flag (bpf/events.h)
    cpu_out        INTEGER,
    cpu_in         INTEGER,
    kernel_stack   INTEGER REFERENCES stack (id),
    user_stack     INTEGER REFERENCES stack (id),
    python_stack   INTEGER REFERENCES stack (id), -- walked while it was still blocked
    waker_thread   INTEGER REFERENCES thread (id),
    waker_stack    INTEGER REFERENCES stack (id),
    next_thread    INTEGER REFERENCES thread (id), -- who got the CPU at switch-out
    next_prio      INTEGER,           -- the kernel's: below 100 is real time
    before_thread  INTEGER REFERENCES thread (id), -- who left the CPU at switch-in
    before_prio    INTEGER,
    owner_thread   INTEGER REFERENCES thread (id), -- of the lock or futex waited for; of a connection: the main thread of the process at its other end
    lock_kind      INTEGER,           -- enum ug_lock_kind; NULL: no lock
    lock_address   INTEGER,           -- kernel lock or futex word
    syscall_nr     INTEGER,           -- NULL: not in a system call
    syscall_arg0   INTEGER,
    syscall_arg1   INTEGER,
    syscall_target TEXT               -- what the file descriptor of read, write, poll, fsync, ... is: path, "pipe:[123]", "socket:[..] 10.0.0.1:443"
) STRICT;
CREATE INDEX gap_thread ON gap (thread_id, out_ns);

-- Cpu-clock ticks of the target's threads, of owners it waited for and of those that took its CPU.
CREATE TABLE sample (
    thread_id    INTEGER NOT NULL REFERENCES thread (id),
    at_ns        INTEGER NOT NULL,
    cpu          INTEGER NOT NULL,
    why          INTEGER NOT NULL,    -- enum ug_sample_why
    kernel_stack INTEGER REFERENCES stack (id),
    user_stack   INTEGER REFERENCES stack (id),
    python_stack INTEGER REFERENCES stack (id) -- walked within a tick's length; may be torn
) STRICT;

-- Page faults of the target on a sample of the pages (traced launches): which code touched memory first, or again after it was
-- given back. A fault may have brought more than one page: a file's neighbours, a huge page.
CREATE TABLE page_fault (
    thread_id    INTEGER NOT NULL REFERENCES thread (id),
    at_ns        INTEGER NOT NULL,
    address      INTEGER NOT NULL,
    level        INTEGER NOT NULL,    -- one page in 2^level was sampled then, on its CPU (ug_fault_is_of, bpf/events.h)
    user_stack   INTEGER REFERENCES stack (id),
    python_stack INTEGER REFERENCES stack (id)
) STRICT;

-- Waits for kernel locks (contention_begin to contention_end).
CREATE TABLE lock_wait (
    thread_id    INTEGER NOT NULL REFERENCES thread (id),
    begin_ns     INTEGER NOT NULL,
    end_ns       INTEGER NOT NULL,
    address      INTEGER NOT NULL,
    kind         INTEGER NOT NULL,    -- enum ug_lock_kind
    flags        INTEGER NOT NULL,    -- LCB_F_* in the low half, UG_GAP_OWNER_* >> 12 from bit 32
    owner_thread INTEGER REFERENCES thread (id),
    kernel_stack INTEGER REFERENCES stack (id),
    owner_stack  INTEGER REFERENCES stack (id)  -- the owner's, when it slept
) STRICT;

-- What the kernel did to the target, or somebody asked it to.
CREATE TABLE host_fact (
    recording_id  INTEGER NOT NULL REFERENCES recording (id),
    what          INTEGER NOT NULL,   -- enum ug_fact_what
    begin_ns      INTEGER NOT NULL,
    end_ns        INTEGER NOT NULL,
    cpu           INTEGER,
    target_thread INTEGER REFERENCES thread (id),
    actor_thread  INTEGER REFERENCES thread (id),
    flags         INTEGER NOT NULL,   -- 1 hard interrupt, 2 softirq, 4 NMI: the actor is a bystander
    value0        INTEGER, value1 INTEGER, value2 INTEGER, value3 INTEGER,
    kernel_stack  INTEGER REFERENCES stack (id)
) STRICT;

-- Numbers read once a second while recording: source "vmstat", "cpu.stat", "stat" (steal_ns of each cpu), "cgroups"
-- (num_cgroups and directories of memory), "psi", "drops". Values are totals, not rates.
CREATE TABLE counter (
    recording_id INTEGER NOT NULL REFERENCES recording (id),
    at_ns        INTEGER NOT NULL,
    source       TEXT NOT NULL,
    name         TEXT NOT NULL,
    value        INTEGER NOT NULL
) STRICT;

-- What went over a TCP connection between two processes of the target, one way: a row about twice a second, where something did.
CREATE TABLE connection (
    sender_process   INTEGER NOT NULL REFERENCES process (id),
    receiver_process INTEGER NOT NULL REFERENCES process (id),
    sender           TEXT NOT NULL,     -- its end of the connection: "10.0.0.1:4711", "[fd00::1]:4711"
    receiver         TEXT NOT NULL,
    begin_ns         INTEGER NOT NULL,
    end_ns           INTEGER NOT NULL,
    bytes            INTEGER NOT NULL,  -- that came
    retransmits      INTEGER NOT NULL,  -- segments
    looks            INTEGER NOT NULL,  -- how often both ends were looked at
    underway         INTEGER NOT NULL   -- of looks: what had been written had not come yet, and what had come had been read
) STRICT;

-- What a thread of the target did in all, its gaps below the threshold included, which are counted and not stored.
CREATE TABLE thread_total (
    thread_id     INTEGER PRIMARY KEY REFERENCES thread (id),
    switches      INTEGER NOT NULL,
    short_gaps    INTEGER NOT NULL,   -- below the threshold
    short_gap_ns  INTEGER NOT NULL,
    run_ns        INTEGER NOT NULL
) STRICT;

-- Steps of the target while it was recorded, when it made step calls (UPGATE_STEPS).
CREATE TABLE recorded_step (
    recording_id INTEGER NOT NULL REFERENCES recording (id),
    rank         INTEGER NOT NULL,
    idx          INTEGER NOT NULL,
    begin_ns     INTEGER NOT NULL,
    dur_ns       INTEGER NOT NULL,
    PRIMARY KEY (recording_id, rank, idx)
) STRICT, WITHOUT ROWID;

-- --- GPU: what the library in the workload saw (tracer/inject), brought to CLOCK_MONOTONIC -------------------------

-- A text that many rows share: names of kernels (mangled), calls, ranges, modules, communicators.
CREATE TABLE string (
    id   INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE
) STRICT;

-- A process of the target that had CUDA and our library.
CREATE TABLE gpu_process (
    process_id     INTEGER PRIMARY KEY REFERENCES process (id),
    state          TEXT NOT NULL CHECK (state IN ('traced', 'refused')),
    reason         TEXT,              -- of refused, or what is missing
    kinds          INTEGER NOT NULL,  -- enum ug_spool_want (contracts/spool.h) that were on
    cupti_version  INTEGER,           -- 130000
    cupti_path     TEXT,
    driver_version INTEGER,           -- 13000
    nccl_version   INTEGER,
    per_thread_buffers INTEGER,
    clock_slope    REAL,              -- of the last fit: CLOCK_MONOTONIC ns a CUPTI ns
    clock_residual_ns INTEGER,        -- median distance of a sample from the fit that was used
    clock_residual_max_ns INTEGER,
    clock_samples  INTEGER NOT NULL
) STRICT;

CREATE TABLE gpu_device (
    id              INTEGER PRIMARY KEY,
    process_id      INTEGER NOT NULL REFERENCES process (id),
    device          INTEGER NOT NULL, -- as the process numbers them
    name            TEXT,
    uuid            TEXT,             -- "GPU-..." as nvidia-smi prints it
    compute_capability TEXT,          -- "9.0"
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

-- A kernel as it was launched: equal name, shape and resources are one row.
CREATE TABLE gpu_kernel (
    id        INTEGER PRIMARY KEY,
    name_id   INTEGER NOT NULL REFERENCES string (id), -- mangled
    name      TEXT NOT NULL,         -- demangled
    grid_x    INTEGER NOT NULL, grid_y INTEGER NOT NULL, grid_z INTEGER NOT NULL,
    block_x   INTEGER NOT NULL, block_y INTEGER NOT NULL, block_z INTEGER NOT NULL,
    cluster_x INTEGER, cluster_y INTEGER, cluster_z INTEGER, -- NULL: no cluster
    registers INTEGER NOT NULL,      -- of a thread
    static_shared_bytes  INTEGER NOT NULL, -- of a block
    dynamic_shared_bytes INTEGER NOT NULL,
    local_bytes INTEGER NOT NULL,    -- of a thread: spills
    occupancy REAL                   -- theoretical, of a multiprocessor: 0 to 1; NULL: device unknown
) STRICT;

-- What was launched, on which stream, by which call of which thread: what repeats with every step. Interned: equal rows are
-- nearly always one row.
CREATE TABLE gpu_work (
    id           INTEGER PRIMARY KEY,
    kind         INTEGER NOT NULL,    -- 0 kernel, 1 graph launch as a whole, else 16 + enum ug_copy_kind (80: set)
    stream_id    INTEGER NOT NULL REFERENCES gpu_stream (id),
    kernel_id    INTEGER REFERENCES gpu_kernel (id), -- of kernels
    call_name_id INTEGER REFERENCES string (id),     -- NULL: the call is not known
    thread_id    INTEGER REFERENCES thread (id),     -- that called
    bytes        INTEGER,             -- of copies and sets
    memory       INTEGER,             -- of copies: kind of the source * 16 + kind of the target (CUpti_ActivityMemoryKind)
    graph        INTEGER,             -- executable graph; NULL: none
    graph_node   INTEGER
) STRICT;

-- What ran on a GPU, with the call that launched it: rows are in the order of their start, but for few that came late. Tens of
-- millions: no id of its own (rowid serves), no index.
CREATE TABLE gpu_op (
    start_ns    INTEGER NOT NULL,
    dur_ns      INTEGER NOT NULL,
    work_id     INTEGER NOT NULL REFERENCES gpu_work (id),
    call_ns     INTEGER,              -- start_ns minus the begin of the call that launched it; NULL: the call is not known
    call_dur_ns INTEGER,
    correlation INTEGER NOT NULL
) STRICT;

-- Calls that launched nothing: those that wait, allocate, load modules.
CREATE TABLE gpu_call (
    start_ns    INTEGER NOT NULL,
    dur_ns      INTEGER NOT NULL,
    process_id  INTEGER NOT NULL REFERENCES process (id),
    thread_id   INTEGER REFERENCES thread (id),
    name_id     INTEGER NOT NULL REFERENCES string (id),
    correlation INTEGER NOT NULL,
    result      INTEGER NOT NULL     -- cudaError_t or CUresult
) STRICT;

CREATE TABLE gpu_sync (
    start_ns    INTEGER NOT NULL,
    dur_ns      INTEGER NOT NULL,
    process_id  INTEGER NOT NULL REFERENCES process (id),
    kind        INTEGER NOT NULL,    -- 1 event, 2 stream waits for an event, 3 stream, 4 context
    stream_id   INTEGER REFERENCES gpu_stream (id),
    thread_id   INTEGER REFERENCES thread (id), -- NULL: the call is not known
    correlation INTEGER NOT NULL,
    event       INTEGER,
    event_sync  INTEGER
) STRICT;

CREATE TABLE gpu_memory (
    at_ns      INTEGER NOT NULL,
    process_id INTEGER NOT NULL REFERENCES process (id),
    operation  INTEGER NOT NULL,     -- 1 allocate, 2 release, 3 pool create, 4 pool destroy, 5 pool trim
    kind       INTEGER NOT NULL,     -- CUpti_ActivityMemoryKind
    device     INTEGER NOT NULL,
    address    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    stream_id  INTEGER REFERENCES gpu_stream (id),
    pool       INTEGER,
    pool_used_bytes INTEGER,
    pool_bytes INTEGER,
    correlation INTEGER NOT NULL
) STRICT;

-- CUPTI's own account of what it cost.
CREATE TABLE gpu_overhead (
    start_ns   INTEGER NOT NULL,
    dur_ns     INTEGER NOT NULL,
    process_id INTEGER NOT NULL REFERENCES process (id),
    thread_id  INTEGER REFERENCES thread (id),
    kind       INTEGER NOT NULL      -- CUpti_ActivityOverheadKind
) STRICT;

CREATE TABLE nvtx_range (
    start_ns   INTEGER NOT NULL,
    dur_ns     INTEGER,              -- NULL: an instant, or it never ended
    process_id INTEGER NOT NULL REFERENCES process (id),
    thread_id  INTEGER REFERENCES thread (id),
    name_id    INTEGER NOT NULL REFERENCES string (id),
    domain_id  INTEGER REFERENCES string (id)
) STRICT;

-- Operations of NCCL communicators, one row a rank.
CREATE TABLE nccl_op (
    process_id   INTEGER NOT NULL REFERENCES process (id),
    thread_id    INTEGER REFERENCES thread (id),
    enqueued_ns  INTEGER NOT NULL,
    ended_ns     INTEGER,
    kernel_start_ns INTEGER,         -- of its channels, as the plugin told
    kernel_end_ns   INTEGER,
    communicator INTEGER NOT NULL,   -- hash, the same on all ranks
    communicator_name TEXT,
    rank         INTEGER NOT NULL,
    ranks        INTEGER NOT NULL,
    peer         INTEGER,            -- of send and receive
    sequence     INTEGER NOT NULL,
    function     TEXT NOT NULL,      -- "AllReduce"
    datatype     TEXT,
    algorithm    TEXT,
    protocol     TEXT,
    count        INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    channels     INTEGER,
    warps        INTEGER,
    plugin_version INTEGER NOT NULL
) STRICT;

-- What Python ran on a thread from here on, and its steps and phases.
CREATE TABLE python_mark (
    process_id INTEGER NOT NULL REFERENCES process (id),
    thread_id INTEGER REFERENCES thread (id),
    at_ns     INTEGER NOT NULL,
    kind      INTEGER NOT NULL,      -- enum ug_mark_kind
    name_id   INTEGER REFERENCES string (id), -- "layers.3.attn"; NULL: none
    value     INTEGER
) STRICT;
-- For the views: a launch looks for the mark before it. Marks are few beside launches, so their indexes are kept while loading.
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

-- The Python stack of a launch, when they were asked for.
CREATE TABLE launch_stack (
    process_id  INTEGER NOT NULL REFERENCES process (id),
    correlation INTEGER NOT NULL,
    frames      TEXT NOT NULL,       -- JSON array of string ids, leaf first
    PRIMARY KEY (process_id, correlation)
) STRICT, WITHOUT ROWID;

-- Where a node of a CUDA graph comes from: when and by which thread it was captured; of a clone, when its original was.
CREATE TABLE gpu_graph_node (
    process_id INTEGER NOT NULL REFERENCES process (id),
    node       INTEGER NOT NULL,     -- as gpu_work.graph_node
    thread_id  INTEGER REFERENCES thread (id),
    at_ns      INTEGER NOT NULL,
    original   INTEGER,              -- NULL: not cloned
    PRIMARY KEY (process_id, node)
) STRICT, WITHOUT ROWID;

-- Bracketed samples of both clocks.
CREATE TABLE clock_sample (
    process_id INTEGER NOT NULL REFERENCES process (id),
    before_ns  INTEGER NOT NULL,
    gpu_ns     INTEGER NOT NULL,
    after_ns   INTEGER NOT NULL
) STRICT;

-- Derived: the causes found, worst first. Rewritten by every `upgate stalls` that may write; `detail` is the element of
-- upgate.stalls/1 as JSON.
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

-- Trust ledger: every producer's counters. kind: steps, bytes, blocks, covariates, clock, freeze, ...
CREATE TABLE ledger (
    id        INTEGER PRIMARY KEY,
    launch_id INTEGER REFERENCES launch (id), -- NULL: of the run
    producer  TEXT NOT NULL,
    kind      TEXT NOT NULL,
    seen      INTEGER,
    kept      INTEGER,
    dropped   INTEGER NOT NULL,
    breach    INTEGER NOT NULL,    -- 1: what is lost makes the verdict inconclusive
    detail    TEXT
) STRICT;

-- What a person should know about the run, in order.
CREATE TABLE note (
    id      INTEGER PRIMARY KEY,
    at_ns   INTEGER NOT NULL,
    level   TEXT NOT NULL CHECK (level IN ('info', 'warning', 'error')),
    text    TEXT NOT NULL
) STRICT;

-- What pairs of equal sides, and pairs of which one side was held longer, show about a metric. Without an objection the row
-- is a certificate. Made by this run's own pairs (scope = its workload), or copied from the host's file (scope 'host').
CREATE TABLE control (
    id            INTEGER PRIMARY KEY,
    scope         TEXT NOT NULL,
    kind          TEXT NOT NULL,    -- of workload: 'train model', 'infer command', ...
    interleave    TEXT NOT NULL CHECK (interleave IN ('steps', 'slices', 'launches')),
    metric        TEXT NOT NULL,
    margin        REAL NOT NULL,
    objection     TEXT,             -- why it is no certificate
    made_wall_ns  INTEGER NOT NULL,
    aa_pairs      INTEGER NOT NULL, -- of equal sides; of a run that is no A/A run: its control pairs, the plant taken out
    aa_lower      REAL,             -- log ratio, positive = worse
    aa_upper      REAL,
    mde           REAL,             -- the smallest effect that they show, as a fraction
    pair_sd       REAL,             -- of their log ratios: cells that spread more are not covered
    held          REAL,             -- share by which a side was held longer; NULL: this metric does not feel that
    planted       REAL,             -- log ratio that it makes
    held_pairs    INTEGER NOT NULL, -- control pairs
    held_lower    REAL,             -- log ratio that was seen
    held_upper    REAL,
    gates         INTEGER NOT NULL, -- A/A gates of this kind made on this machine so far, one a workload and run
    false_fails   INTEGER NOT NULL, -- of them
    upper_bound   REAL NOT NULL,    -- Clopper-Pearson 95 % on the rate of false fails
    source_run    TEXT NOT NULL     -- uuid of the run it comes from
) STRICT;

-- Derived: one number a launch and metric. Rewritten by every judgement.
CREATE TABLE launch_metric (
    launch_id INTEGER NOT NULL REFERENCES launch (id),
    metric    TEXT NOT NULL,
    value     REAL,                -- NULL: not measured, reason says why
    reason    TEXT,
    PRIMARY KEY (launch_id, metric)
) STRICT, WITHOUT ROWID;

-- Derived: d = ln(b/a) of a pair, before orientation.
CREATE TABLE pair_ratio (
    pair_id   INTEGER NOT NULL REFERENCES pair (id),
    metric    TEXT NOT NULL,
    log_ratio REAL NOT NULL,
    within_sd REAL,                -- standard error of log_ratio from the couples of blocks
    couples   INTEGER,
    PRIMARY KEY (pair_id, metric)
) STRICT, WITHOUT ROWID;

-- Derived: the judgement of a workload and metric.
CREATE TABLE cell (
    id           INTEGER PRIMARY KEY,
    workload     TEXT NOT NULL,
    metric       TEXT NOT NULL,
    unit         TEXT NOT NULL,    -- ns, 1/s, bytes, ratio
    direction    TEXT NOT NULL CHECK (direction IN ('lower', 'higher')), -- which way is better
    gating       INTEGER NOT NULL, -- 0: observe only
    median_a     REAL,
    median_b     REAL,
    ratio        REAL,             -- candidate over baseline
    ci_lower     REAL,
    ci_upper     REAL,
    alpha        REAL NOT NULL,    -- one-sided, of the look that decided
    pairs        INTEGER NOT NULL, -- valid pairs used
    look         INTEGER,          -- index of the look that decided, NULL if undecided
    margin       REAL,             -- 0.02 = 2 %
    mde          REAL,             -- minimum detectable effect at these pairs (fraction)
    pair_sd      REAL,             -- sd of the log ratios
    pairs_needed INTEGER,          -- that would settle an inconclusive cell, NULL if settled or unknown
    confirmed    INTEGER,          -- a screened fail on fresh pairs: 1 agreed, 0 not; NULL: not asked, or not run yet
    confirm_pairs INTEGER,         -- fresh pairs used, NULL as above
    verdict      TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'inconclusive', 'unchecked')),
    improved     INTEGER NOT NULL,
    reason       TEXT NOT NULL,
    news         TEXT,             -- the reason without the numbers of this row; NULL: it holds none, or was written before version 12
    told         INTEGER,          -- what the reason says (contracts/metrics.h, bits): 1 pairs_needed, 2 what fresh pairs said; NULL before version 12
    UNIQUE (workload, metric)
) STRICT;

CREATE TABLE parity (
    id       INTEGER PRIMARY KEY,
    workload TEXT NOT NULL,
    tensor   TEXT NOT NULL,        -- "output", "loss", ...
    rule     TEXT NOT NULL,
    error_a  REAL,
    error_b  REAL,
    verdict  TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'inconclusive', 'unchecked')),
    reason   TEXT NOT NULL
) STRICT;

-- Derived: what is no number of a cell and still matters, e.g. a side that never gets steady.
CREATE TABLE finding (
    id       INTEGER PRIMARY KEY,
    workload TEXT,                 -- NULL: of the run
    kind     TEXT NOT NULL,        -- crash, missing, not_steady, void, heavy_tail, zero_baseline, trust, calibration, ...
    side     INTEGER CHECK (side IN (0, 1)),
    effect   TEXT NOT NULL CHECK (effect IN ('note', 'inconclusive', 'fail')), -- what it does to the verdict
    text     TEXT NOT NULL
) STRICT;

CREATE TABLE verdict (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    verdict        TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'inconclusive')),
    reason         TEXT NOT NULL,
    margin_note    TEXT,
    policy         TEXT NOT NULL,  -- JSON: the gate section that was used
    trust_ok       INTEGER NOT NULL,
    calibrated     INTEGER NOT NULL, -- 1: a certificate covers every cell that passes or fails (an A/A run needs none)
    calibration_note TEXT NOT NULL,  -- which certificate, or why there is none
    judged_wall_ns INTEGER NOT NULL
) STRICT;

-- A rollout (upgate canary): what `status` and `report` show, and what a restart of the controller goes on from. One writer,
-- the controller; other processes insert rows of rollout_request only. Times here are wall clock, for they outlive a boot.
CREATE TABLE rollout (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    name           TEXT NOT NULL,
    plan           TEXT NOT NULL,    -- rollout_to_json(): compared when the controller starts again
    state          TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'paused', 'promoted', 'rolled_back', 'aborted', 'failed')),
    stage          INTEGER,          -- number of a rollout_stage; NULL: not begun
    percent        REAL,             -- of the candidate, as read back; NULL: never read
    since_ns       INTEGER NOT NULL, -- of state and stage
    stage_since_ns INTEGER,
    reason         TEXT NOT NULL,    -- why it is in this state, for people
    heartbeat_ns   INTEGER NOT NULL, -- of the controller, once a second
    pid            INTEGER,          -- of the controller; NULL: none is at work
    up_baseline    INTEGER,          -- by the proxy's health checks; NULL: not told
    up_candidate   INTEGER
) STRICT;

CREATE TABLE rollout_stage (
    number        INTEGER PRIMARY KEY, -- from 0, as in the plan
    name          TEXT NOT NULL,
    percent       REAL NOT NULL,
    begin_s       INTEGER,             -- the last time that it began; NULL: not yet
    judged_from_s INTEGER,             -- begin and warm-up: seconds before are kept and not judged
    end_s         INTEGER,
    result        TEXT,                -- passed, failed, aborted; NULL: not over
    lost          INTEGER              -- log lines of it that were lost: a pass holds with each as the candidate's worst
) STRICT;

-- The evidence, a row a second and arm: the only input of the tests, which a restart reads again.
CREATE TABLE rollout_second (
    at_s      INTEGER,
    arm       INTEGER,                 -- 0 baseline, 1 candidate; of an A/A stage 1 is the second baseline
    stage     INTEGER NOT NULL,
    requests  INTEGER NOT NULL,
    errors    INTEGER NOT NULL,
    truncated INTEGER NOT NULL,
    wrong     INTEGER NOT NULL,
    bins      BLOB NOT NULL,           -- canary_pack(): latencies
    rejected  INTEGER NOT NULL DEFAULT 0, -- answered 4xx, or given up by the client before an answer began
    PRIMARY KEY (at_s, arm)
) STRICT, WITHOUT ROWID;

-- What the tests said, every 5 s and at each decision.
CREATE TABLE rollout_cell (
    at_s       INTEGER,
    stage      INTEGER,
    metric     TEXT,
    value      REAL,
    low        REAL,
    high       REAL,
    threshold  REAL,                   -- what `high` must lie below for a pass: 1 + margin, wider where the stage opens less than 100 %; or the limit
    evidence   REAL,                   -- log of the e-value
    needed     REAL,
    dispersion REAL,
    requests   INTEGER,
    missing    INTEGER,                -- requests until a pass, about; NULL: none, or not known
    verdict    TEXT NOT NULL CHECK (verdict IN ('pass', 'fail', 'undecided')),
    PRIMARY KEY (stage, metric, at_s)
) STRICT, WITHOUT ROWID;

-- Each decision, written before it is carried out.
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
    evidence     TEXT,                 -- JSON: the cells
    effect_ns    INTEGER               -- when the traffic was read back as decided; NULL: not (yet)
) STRICT;

-- pause, promote, abort, resume: written by other processes, taken by the controller.
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
    last_ns INTEGER,                   -- wall clock of its last evidence
    problem TEXT
) STRICT;

CREATE TABLE rollout_recording (
    arm      INTEGER PRIMARY KEY,
    path     TEXT,
    begin_ns INTEGER,
    end_ns   INTEGER,
    problem  TEXT
) STRICT;

-- Examples of answers that differ; the counts are in rollout_second.wrong.
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

-- A row a frame: the leaf has depth 0.
CREATE VIEW v_stack AS
SELECT k.id AS stack, k.kind, j.key AS depth, f.name, f.module, f.line, f.offset
FROM stack k, json_each(k.frames) j JOIN frame f ON f.id = j.value;

CREATE VIEW v_stall AS
SELECT s.recording_id AS recording, s.rank, s.cause, s.total_ns, s.count, s.max_ns, s.period_ns, s.confidence, vp.tgid AS victim_pid,
       v.tid AS victim_tid, v.comm AS victim_comm, cp.tgid AS culprit_pid, c.comm AS culprit_comm, cp.cmdline AS culprit_cmdline, s.advice
FROM stall s LEFT JOIN thread v ON v.id = s.victim_thread LEFT JOIN process vp ON vp.id = v.process_id
LEFT JOIN thread c ON c.id = s.culprit_thread LEFT JOIN process cp ON cp.id = c.process_id;

-- A row a thing that ran on a GPU. python_step: of the process, at the moment of the call (a backward pass runs on another
-- thread than the step); module: what Python ran on the calling thread at that moment, of a kernel in a CUDA graph when it was
-- captured. Both NULL where nothing is known.
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
