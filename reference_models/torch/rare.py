# SPDX-License-Identifier: Apache-2.0
"""Planted things that come once in so many steps, or requests, as trainers and servers have them: nothing of a typical one is slower.

The words are parsed by plants.py; regress.py calls what is here. KIND:STEPS:P% is done in each so-many-th step until P % of a step's time are
over: again and again, so that the strength is known whatever the model and the machine.
"""
import os
import queue
import tempfile
import threading
import time

import torch
from background import name_thread

SAMPLES = 1 << 15  # of the data set that is shuffled anew
ON_DISK = "/var/tmp"  # /tmp often is memory


class _Index(threading.Thread):
    """What requests read and another thread renews, under one lock."""

    def __init__(self):
        super().__init__(name="index", daemon=True)
        self._asked, self._held, self._lock, self._version = queue.Queue(), threading.Semaphore(0), threading.Lock(), 0
        self.start()

    def run(self):
        name_thread("index-refresh")
        while True:
            self.refresh_index(self._asked.get())

    def refresh_index(self, seconds):
        with self._lock:
            self._held.release()
            time.sleep(seconds)
            self._version += 1

    def look_up(self, seconds):
        """In each request. seconds: so long the other thread has the lock from now on; 0: it has not."""
        if seconds:
            self._asked.put(seconds)
            self._held.acquire()
        with self._lock:
            return self._version


class Rare:
    """Around the steps of one process. regress: it knows what a step takes, and which one this is."""

    def __init__(self, regress, args, work):
        self._regress, self._work, self._due = regress, work, args.plant.rare
        if "pad" in self._due and (args.mode != "infer" or args.name not in ("transformer", "vision")):
            args.fail("argument --plant: pad is of requests (--mode infer) of transformer and vision")
        if "validate" in self._due and args.mode != "train":
            args.fail("argument --plant: validate is of --mode train")
        self._file = self._log = self._order = None
        self._index = _Index() if "lock" in self._due else None
        if "reshuffle" in self._due:  # a generator of its own: the model's numbers stay as they are
            self._draw, self._samples = torch.Generator().manual_seed(1), torch.zeros(SAMPLES, 16)

    def data(self):
        self._until("reshuffle", self.reshuffle_samples)

    def forward(self):
        if self._index:
            seconds = self._share("lock") * self._regress.step_ns / 1e9
            begin = time.perf_counter_ns()
            self._index.look_up(seconds)
            self._regress.own_ns += time.perf_counter_ns() - begin

    def request(self, batch):
        """What is computed in place of it."""
        share = self._share("pad")
        return self.pad_request(batch, max(1, round(share * len(batch[0])))) if share else batch

    def end(self):
        self._until("save", self.save_checkpoint)
        self._until("flush", self.flush_metrics)
        self._until("upload", self.upload_metrics)
        self._until("validate", self.validate)

    def _share(self, kind):
        """Of a step's time, in this step."""
        period, share = self._due.get(kind, (1, 0.0))
        return share if self._regress.number % period == 0 else 0.0

    def _until(self, kind, unit):
        """unit(seconds that are left), until the share is used up."""
        begin = now = time.perf_counter_ns()
        end = begin + self._share(kind) * self._regress.step_ns
        while now < end:
            unit((end - now) / 1e9)
            now = time.perf_counter_ns()
        self._regress.own_ns += now - begin

    # ---- one unit of each kind -------------------------------------------------------------------

    def save_checkpoint(self, left):
        """The model's state as torch.save writes it, into a file without a name: none is left behind."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=ON_DISK)
        self._file.seek(0)
        torch.save(self._work.model.state_dict(), self._file)

    def flush_metrics(self, left):
        if self._log is None:
            self._log = tempfile.TemporaryFile(dir=ON_DISK)
        self._log.seek(0)
        self._log.write(b"x" * 4096)
        self._log.flush()
        os.fsync(self._log.fileno())

    def upload_metrics(self, left):
        """To a server that takes its time."""
        time.sleep(left)

    def reshuffle_samples(self, left):
        self._order = torch.randperm(SAMPLES, generator=self._draw)
        self._samples = self._samples[self._order]

    def validate(self, left):
        """A batch without gradients; the loss is read, as it is logged."""
        model = self._work.model
        model.eval()
        with torch.no_grad():
            self._work.forward(self._work.batch(0))[0].item()
        model.train()

    @staticmethod
    def pad_request(batch, rows):
        """The longest one of a batch decides how long all are: rows of nothing behind those that were asked."""
        return tuple(torch.cat([value, value.new_zeros((rows,) + tuple(value.shape[1:]))]) for value in batch)
