# SPDX-License-Identifier: Apache-2.0
"""The job of `ci/plants --stragglers`: an unchanged DDP program over gloo. Its step mostly waits, as for a device, and the ranks
take turns at the CPUs, so that two of them carry eight ranks. A file says which rank does what besides, so that one job, whose
start takes longest, serves many recordings. Each rank notes when it came to the collective: what was planted is measured, too.

straggler.py launch RANKS FOLDER [ISOLATED]: starts the ranks as torchrun does, one of them in a network namespace of its own.
FOLDER/mode: {"kind": …, "rank": …, "ms": …}; FOLDER/rankN: its pid, once it runs; FOLDER/times: see Times."""
import array
import gc
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import threading
import time

STEP_S, STEP_WAIT_S, TURN_S, COMPUTE_S, JITTER_S = 0.093, 0.08, 0.009, 0.006, 0.002
TABLE_FLOATS, PAGES = 1 << 28, 8192  # 1 GiB, whose pages a reader of smaps walks; 32 MiB, of which a step looks some up
CHUNK, SLOTS = 256 << 10, 4096
OUTSIDE, INSIDE, PORT = "10.231.77.1", "10.231.77.2", 29577  # of the two ends of the isolated rank's cable


class Times:
    """When each rank came to the collective of a step, and left it: seconds of the monotonic clock, two doubles a rank and step."""

    def __init__(self, path, ranks):
        size = 16 * ranks * SLOTS
        with open(path, "a+b") as file:
            if file.seek(0, os.SEEK_END) < size:
                file.truncate(size)
            self.map, self.ranks = mmap.mmap(file.fileno(), size), ranks

    def put(self, step, rank, came, left):
        struct.pack_into("dd", self.map, 16 * (step % SLOTS * self.ranks + rank), came, left)

    def steps(self, begin, end):
        """([came of each rank], [left]) of the steps that all came to in this time."""
        numbers = array.array("d", self.map[:])
        for first in range(0, len(numbers), 2 * self.ranks):
            one = numbers[first:first + 2 * self.ranks]
            if min(one[::2]) >= begin and max(one[1::2]) <= end:
                yield list(one[::2]), list(one[1::2])


# ---- the parts of a step, by their names in the answers ----

def prepare_features(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(i * 0.5 for i in range(50))


def wait_device(seconds):
    time.sleep(seconds)


def stage():
    """A buffer that is mapped, touched and given back, as allocators do."""
    for _ in range(4):
        with mmap.mmap(-1, 1 << 20) as buffer:
            buffer[0] = 1


def read_shard(file, buffer, seconds):
    """Past the page cache, so that the disk has to be waited for."""
    until, offset = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        os.preadv(file, [buffer], offset % os.fstat(file).st_size)
        offset += CHUNK


def save_metrics(file, seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        os.pwrite(file, os.urandom(4096), 0)
        os.fsync(file)


def look_up(table, count):
    """Of an embedding table, which may have been swapped out."""
    return sum(table[page * mmap.PAGESIZE] for page in random.sample(range(PAGES), count))


class Metrics:
    """Written by a thread, under the lock that update_metrics takes in each step."""

    def __init__(self):
        self.lock, self.due, self.hold_s = threading.Lock(), threading.Event(), 0.0
        threading.Thread(target=self.flush_metrics, daemon=True).start()

    def flush_metrics(self):
        while self.due.wait():
            self.due.clear()
            with self.lock:
                time.sleep(self.hold_s)

    def update_metrics(self):
        with self.lock:
            pass


class Samples:
    """For torch's DataLoader. A batch takes as long as its worker is told to: most of it is computed, the rest is fetched."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        time.sleep(0.4 * self.seconds)
        prepare_features(0.6 * self.seconds)
        return index


# ---- a rank ----

class Rank:
    def __init__(self, folder):
        import torch  # not in the launcher
        import torch.distributed as dist
        self.torch, self.dist, self.folder = torch, dist, folder
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.times = Times(os.path.join(folder, "times"), self.ranks)
        self.resident = torch.ones(TABLE_FLOATS // (1 if self.ranks <= 4 else 4))
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(128, 128))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.metrics, self.mode, self.loader, self.heap, self.table = Metrics(), {"kind": "clean"}, None, [], None
        self.buffer = mmap.mmap(-1, CHUNK)
        self.disk = os.open(os.path.join(folder, "shards"), os.O_RDONLY | os.O_DIRECT)
        gc.collect()
        gc.freeze()
        self.log = os.open(os.path.join(folder, "log%d" % self.rank), os.O_RDWR | os.O_CREAT, 0o600)

    def late_s(self, kind, usual_s=0.0):
        """How long this rank does what `kind` is about: the late one longer."""
        if self.mode["kind"] != kind:
            return 0.0
        return usual_s + (self.mode["ms"] / 1000 if self.mode["rank"] == self.rank else 0.0)

    def change(self, mode):
        """What takes long is made between recordings, on all ranks alike."""
        self.mode, self.heap, self.loader, self.table = mode, [], None, None
        if mode["kind"] == "gc":
            self.heap = [[n] for n in range(2000 + int(self.late_s("gc") * self.objects_a_second()))]
        if mode["kind"] == "loader":
            seconds = STEP_S + self.late_s("loader") if mode["rank"] == self.rank else 0.02
            self.loader = iter(self.torch.utils.data.DataLoader(Samples(seconds), batch_size=1, num_workers=1))
        if mode["kind"] == "swap":
            self.table = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
            for page in range(PAGES):
                self.table[page * mmap.PAGESIZE] = 1

    @staticmethod
    def objects_a_second():
        heap = [[n] for n in range(200000)]
        gc.collect()
        begin = time.perf_counter()
        gc.collect()
        with_heap = time.perf_counter() - begin
        heap.clear()
        begin = time.perf_counter()
        gc.collect()
        return 200000 / max(with_heap - (time.perf_counter() - begin), 1e-3)

    def read_mode(self):
        with open(os.path.join(self.folder, "mode"), encoding="utf-8") as file:
            mode = json.load(file)
        if mode != self.mode:
            self.change(mode)

    def train_step(self, step):
        kind, turn_s = self.mode["kind"], TURN_S * (self.rank % 8)
        waits = kind != "busy"
        self.metrics.hold_s = self.late_s("lock", COMPUTE_S / 2)
        if self.loader:
            next(self.loader)
        if waits:
            wait_device(turn_s + random.random() * JITTER_S)
        if kind == "lock":
            self.metrics.due.set()
        prepare_features({"contention": 3, "busy": 4}.get(kind, 1) * COMPUTE_S + self.late_s("python"))
        if kind == "agent":
            stage()
        if self.table:
            look_up(self.table, self.mode["ms"])
        read_shard(self.disk, self.buffer, self.late_s("disk"))
        save_metrics(self.log, self.late_s("fsync"))
        if kind == "gc":
            gc.collect()
        if kind == "lock":
            self.metrics.update_metrics()
        if waits:
            wait_device(STEP_WAIT_S - turn_s)
        loss = self.model(self.torch.ones(4, 128)).sum()
        came = time.monotonic()
        loss.backward()
        self.times.put(step, self.rank, came, time.monotonic())
        self.optimizer.step()

    def run(self):
        step = 0
        while True:
            self.read_mode()
            self.train_step(step)
            ends = self.torch.tensor([1.0 if self.mode["kind"] == "end" else 0.0])
            self.dist.all_reduce(ends, op=self.dist.ReduceOp.MAX)  # all of them in the same step
            step += 1
            if step == 3:
                with open(os.path.join(self.folder, "rank%d" % self.rank), "w", encoding="utf-8") as file:
                    file.write(str(os.getpid()))
            if ends.item() > 0:
                break
        self.dist.destroy_process_group()


def launch(ranks, folder, isolated):
    children = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1",
                   MASTER_ADDR="127.0.0.1" if isolated is None else OUTSIDE, MASTER_PORT=str(PORT))
        command = [sys.executable, os.path.abspath(__file__), "rank", folder]
        if isolated is not None:
            env["GLOO_SOCKET_IFNAME"] = "eth0" if rank == isolated else "upgate-late"
        if rank == isolated:  # goes on as soon as its end of the cable is there
            command = ["unshare", "-n", "sh", "-c", "echo $$ > \"$0/isolated\"; until ip -4 address show eth0 2>&1 | grep -q %s; do "
                       "sleep 0.1; done; exec \"$@\"" % INSIDE, folder, *command]
        children.append(subprocess.Popen(command, env=env))
    return max(abs(child.wait()) for child in children)


def main():
    if sys.argv[1] == "launch":
        return launch(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else None)
    Rank(sys.argv[2]).run()
    os._exit(0)  # as in ci/stalls/ddp.py


if __name__ == "__main__":
    sys.exit(main())
