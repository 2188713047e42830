# SPDX-License-Identifier: Apache-2.0
"""Writes rows of contracts/schema.sql: interned strings, frames and stacks, and the tables of one traced launch."""
import hashlib
import json
import os
import sqlite3

from diff_store_model import COMM, MAIN, MS, SET, SIDE, US

SOURCE = os.environ.get("UPGATE_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def scramble(name):
    """What a version that renames everything makes of a name."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"z{digest[:20]}"


class Writer:
    def __init__(self, path):
        if os.path.exists(path):
            os.remove(path)
        self.db = sqlite3.connect(path)
        self.db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")  # the schema alone would wait for the disk a hundred times
        with open(os.path.join(SOURCE, "contracts/schema.sql"), encoding="utf-8") as file:
            self.db.executescript(file.read())
        self.strings, self.frames, self.stacks, self.next_id = {}, {}, {}, {}

    def add(self, table, **row):
        marks = ",".join("?" * len(row))
        return self.db.execute(f"INSERT INTO {table} ({','.join(row)}) VALUES ({marks})", tuple(row.values())).lastrowid

    def many(self, table, columns, rows):
        self.db.executemany(f"INSERT INTO {table} ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})", rows)

    def string(self, text):
        if text is None:
            return None
        if text not in self.strings:
            self.strings[text] = self.add("string", text=text)
        return self.strings[text]

    def frame(self, name, module, line=None):
        key = (name, module, line)
        if key not in self.frames:
            self.frames[key] = self.add("frame", name=name, module=module, line=line)
        return self.frames[key]

    def stack(self, kind, *frames):
        """Frames leaf first: (name, module) or (name, file, line)."""
        key = (kind, frames)
        if key not in self.stacks:
            ids = [self.frame(*frame) for frame in frames]
            self.stacks[key] = self.add("stack", kind=kind, depth=len(ids), frames=json.dumps(ids))
        return self.stacks[key]


KERNEL = "[kernel]"
SYSCALL = (("do_syscall_64", KERNEL), ("entry_SYSCALL_64_after_hwframe", KERNEL))


def kernel_stack(writer, *names):
    return writer.stack("kernel", *[(name, KERNEL) for name in names], *SYSCALL)


def python_frames(op):
    frames = [(p.split(".")[-1] if p.startswith("torch.") else p, "torch/nn/modules/module.py", 10) for p in reversed(op.python)]
    if op.module:
        frames.append((f"{op.module.split('.')[-1]}.{op.phase}", "model.py", 40))
    return (*frames, (f"{op.phase}_part", "train.py", 60), ("train_step", "train.py", 20), ("<module>", "train.py", 90))


class Recording:
    """The tables of one traced launch."""

    def __init__(self, writer, launch_id, launch, side, options, span):
        self.writer, self.launch, self.side, self.options = writer, launch, side, options
        self.id = writer.add("recording", launch_id=launch_id, begin_ns=span[0], end_ns=span[1], threshold_ns=MS if not options.host else 100 * US,
                             sample_hz=options.hz if options.host else 0, python=1, target=json.dumps({"pids": [], "cgroup": None, "command": []}),
                             missing="[]")
        self.monitor = None
        for rank in launch.ranks:
            self.rank(rank, launch_id, span)
        writer.add("ledger", launch_id=launch_id, producer="gpu", kind="records", seen=sum(len(r.ops) for r in launch.ranks),
                   kept=sum(len(r.ops) for r in launch.ranks), dropped=0, breach=0)

    def task(self, tgid, comm, kind, cmdline=None, ppid=1):
        process = self.writer.add("process", recording_id=self.id, tgid=tgid, start_ns=tgid * 1000, ppid=ppid, comm=comm, cmdline=cmdline, kind=kind)
        return process, self.writer.add("thread", process_id=process, tid=tgid, comm=comm)

    def rank(self, rank, launch_id, span):
        w, pid = self.writer, 1000 + 100 * self.side + rank.rank
        process, main = self.task(pid, "python", "target", f"python train.py --rank {rank.rank}")
        w.add("launch_rank", launch_id=launch_id, rank=rank.rank, pid=pid)
        w.add("gpu_process", process_id=process, state="traced", kinds=255, cupti_version=130000, driver_version=13000,
              nccl_version=(22005, 22501)[self.side] if rank.nccl else None, clock_slope=1.0, clock_residual_ns=120, clock_residual_max_ns=900, clock_samples=40)
        w.add("gpu_device", process_id=process, device=0, name="NVIDIA H200", uuid=f"GPU-{rank.rank}", compute_capability="9.0", multiprocessors=132)
        rank.autograd = w.add("thread", process_id=process, tid=pid + 50, comm="pt_autograd_0") if self.options.autograd else main
        self.gpu(rank, process, main)
        self.marks(rank, process, main)
        w.many("phase_span", ("launch_id", "rank", "begin_ns", "depth", "dur_ns", "name"),
               [(launch_id, rank.rank, b - span[0], 0, e - b, name) for b, e, name in rank.phases if e > b])
        if self.options.host:
            self.host(rank, process, main, span)

    def gpu(self, rank, process, main):
        w = self.writer
        streams = {s: w.add("gpu_stream", process_id=process, device=0, context=1, stream=s) for s in (MAIN, SIDE, COMM)}
        kernels, works, rows = {}, {}, []
        for correlation, (start, dur, op, call, call_dur, name, node, graph) in enumerate(rank.ops):
            shown = scramble(name) if self.options.names == "scrambled" and self.side == 1 and op.kind in ("kernel", "collective") else name
            kernel = kind = None
            call_name = "cudaLaunchKernel"
            if op.kind in ("kernel", "collective"):
                key = (shown, op.grid, op.block, op.registers, op.shared)
                if key not in kernels:
                    kernels[key] = w.add("gpu_kernel", name_id=w.string(shown), name=shown, grid_x=op.grid[0], grid_y=op.grid[1], grid_z=op.grid[2],
                                         block_x=op.block[0], block_y=op.block[1], block_z=op.block[2], registers=op.registers,
                                         static_shared_bytes=0, dynamic_shared_bytes=op.shared, local_bytes=0, occupancy=0.5)
                kernel, kind = kernels[key], 0
                if op.kind == "collective":
                    call_name = "cuLaunchKernelEx"
                elif graph:
                    call_name = "cudaGraphLaunch"
            else:
                kind = SET if op.kind == "set" else op.copy
                call_name = "cudaMemsetAsync" if op.kind == "set" else "cudaMemcpyAsync"
            number = None if node is None else (1 + self.side) * 100000 + node
            thread = rank.autograd if op.phase == "backward" and not graph else main
            key = (kind, op.stream, kernel, call_name, op.bytes, op.memory, number, thread)
            if key not in works:
                plain = op.kind in ("kernel", "collective")
                works[key] = w.add("gpu_work", kind=kind, stream_id=streams[op.stream], kernel_id=kernel, call_name_id=w.string(call_name),
                                   thread_id=thread, bytes=None if plain else op.bytes, memory=op.memory if op.kind == "copy" else None,
                                   graph=1 if graph else None, graph_node=number)
            rows.append((start, dur, works[key], start - call, call_dur, correlation + 1))
        w.many("gpu_op", ("start_ns", "dur_ns", "work_id", "call_ns", "call_dur_ns", "correlation"), sorted(rows))
        base = len(rows) + 1
        for k, (begin, end, name, what, phase) in enumerate(rank.calls):
            thread = rank.autograd if phase == "backward" else main
            w.add("gpu_call", start_ns=begin, dur_ns=end - begin, process_id=process, thread_id=thread, name_id=w.string(name), correlation=base + k, result=0)
            if what == "sync":
                w.add("gpu_sync", start_ns=begin, dur_ns=end - begin, process_id=process, kind=4 if "Device" in name else 3,
                      stream_id=None if "Device" in name else streams[MAIN], thread_id=thread, correlation=base + k)
        w.many("nccl_op", ("process_id", "thread_id", "enqueued_ns", "ended_ns", "kernel_start_ns", "kernel_end_ns", "communicator", "communicator_name",
                           "rank", "ranks", "sequence", "function", "datatype", "algorithm", "protocol", "count", "bytes", "channels", "warps",
                           "plugin_version"),
               [(process, rank.autograd, call, end, start, end, 77, "world", rank.rank, len(self.launch.ranks), sequence, op.function, "ncclFloat32",
                 op.algorithm, op.protocol, op.bytes // 4, op.bytes, 16, 16, 4) for call, start, end, op, sequence in rank.nccl])

    def marks(self, rank, process, main):
        w = self.writer
        rows = [(process, rank.autograd if kind == 2 else main, at, kind, w.string(name), value) for at, kind, name, value in rank.marks]
        first = min((mark[0] for mark in rank.marks), default=0) - 50 * MS  # captured before the first step
        for k, op in rank.captured.items():
            at = first + k * 10 * US
            rows.append((process, main, at, 2 if op.phase == "backward" else 1, w.string(op.module), 0))
            w.add("gpu_graph_node", process_id=process, node=(1 + self.side) * 100000 + k, thread_id=main, at_ns=at + US)
        w.many("python_mark", ("process_id", "thread_id", "at_ns", "kind", "name_id", "value"), sorted(rows, key=lambda row: row[2]))

    def host(self, rank, process, main, span):
        """Samples where the host runs, gaps where it is off the CPU. It is frozen outside of its turns."""
        w, tick = self.writer, 1000 * MS // self.options.hz
        gaps = [(b, e, what, op) for b, e, what, op in rank.offs if e - b >= (100 * US)]
        turns = sorted((begin, begin + dur) for begin, dur, _, _ in self.launch.blocks)
        for (_, end), (begin, _) in zip([(0, span[0]), *turns], [*turns, (span[1], 0)]):
            if begin - end >= 100 * US:
                gaps.append((end, begin, "turn", None))
        if self.options.autograd:
            gaps = [gap for gap in gaps if not gap[3] or gap[3].phase != "backward"]
            gaps += [(b, e, "autograd", None) for b, e, name in rank.phases if name == "backward" and e - b >= 100 * US]
        at, samples = span[0], []
        runs = rank.runs
        k = 0
        while at < span[1]:
            while k < len(runs) and runs[k][1] <= at:
                k += 1
            if k < len(runs) and runs[k][0] <= at:
                op = runs[k][2]
                user = w.stack("user", ("cudaLaunchKernel", "libcudart.so.12"), ("at::native::launch", "libtorch_cuda.so")) if op.kind not in (
                    "host", "off") else w.stack("user", (op.name, "libtorch_python.so"), ("_PyEval_EvalFrameDefault", "python3.11"))
                other = self.options.autograd and op.phase == "backward"  # no Python there
                samples.append((rank.autograd if other else main, at, 0, 1 | 16, None, user, None if other else w.stack("python", *python_frames(op))))
            at += tick
        w.many("sample", ("thread_id", "at_ns", "cpu", "why", "kernel_stack", "user_stack", "python_stack"), samples)
        for begin, end, what, op in sorted(gaps, key=lambda gap: gap[0]):
            row = {"thread_id": main, "out_ns": begin, "waking_ns": end - US, "in_ns": end, "state": 1, "flags": 0, "cpu_out": 0, "cpu_in": 0}
            if op:
                row["python_stack"] = w.stack("python", *python_frames(op))
            if what == "smaps":
                if self.monitor is None:
                    self.monitor = self.task(9000, "monitor", "other", "python3 monitor.py")[1]
                row.update(state=0x102, flags=1 << 12, lock_kind=2, owner_thread=self.monitor, waker_thread=self.monitor,
                           kernel_stack=kernel_stack(w, "schedule", "schedule_preempt_disabled", "rwsem_down_write_slowpath", "down_write_killable",
                                                     "vm_mmap_pgoff"),
                           waker_stack=kernel_stack(w, "wake_up_q", "rwsem_wake", "up_read", "show_smaps_rollup", "seq_read_iter", "vfs_read"))
                smaps = kernel_stack(w, "smaps_account", "smaps_pte_range", "walk_pgd_range", "walk_page_vma", "show_smaps_rollup", "seq_read_iter", "vfs_read")
                w.many("sample", ("thread_id", "at_ns", "cpu", "why", "kernel_stack"), [(self.monitor, t, 1, 2, smaps) for t in range(begin, end, tick)])
            elif what == "data":
                if not hasattr(rank, "worker"):
                    rank.worker = self.task(1500 + 100 * self.side + rank.rank, "pt_data_worker", "target", "python train.py", 1000 + 100 * self.side)[1]
                row.update(waker_thread=rank.worker, syscall_nr=0, syscall_target="pipe:[5]",
                           kernel_stack=kernel_stack(w, "schedule", "anon_pipe_read", "vfs_read"),
                           waker_stack=kernel_stack(w, "wake_up_q", "anon_pipe_write", "vfs_write"))
            elif what == "autograd":
                row.update(waker_thread=rank.autograd, syscall_nr=202, kernel_stack=kernel_stack(w, "schedule", "futex_do_wait", "__futex_wait", "futex_wait"),
                           waker_stack=kernel_stack(w, "wake_up_q", "futex_wake", "do_futex"))
            elif what == "turn":
                row.update(flags=1 << 16, kernel_stack=kernel_stack(w, "schedule", "do_freezer_trap", "get_signal"))
            else:
                row.update(kernel_stack=kernel_stack(w, "schedule", "do_poll", "do_sys_poll"), user_stack=w.stack("user", ("cuStreamSynchronize", "libcuda.so.1")))
            w.add("gap", **row)
