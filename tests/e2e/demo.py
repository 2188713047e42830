#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ci/demo, over a cmake and a ci/setup that only seem to be ones: however it ends while the environments are made beside the build,
nothing of that goes on; without environments it judges the native workloads; a second demo at once leaves the first one's store alone."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ["UPGATE_SOURCE"]
WAIT_S = 60

# What stands for pip is a child of ci/setup, as that is.
SETUP = """#!/bin/bash
echo "setup $*" >>log
[[ $1 == --envs ]] || exit 0
[[ ! -e envs_fail ]] || exit 4
[[ ! -e envs_last ]] || bash -c 'echo $$ >pip.new && mv pip.new pip && exec sleep 600'
"""
CMAKE = """#!/bin/bash
[[ $1 == --build ]] || exit 0
until [[ -e pip || -e envs_fail || ! -e envs_last ]]; do sleep 0.01; done
[[ ! -e build_fails ]] || exit 1
[[ ! -e build_lasts ]] || { touch building && sleep 600; }
"""
UPGATE = """#!/bin/bash
echo "upgate $*" >>log
"""


class Demo:
    def __init__(self, folder, *marks):
        self.folder = folder
        for name, text in (("ci/setup", SETUP), ("bin/cmake", CMAKE), ("build/release/upgate", UPGATE)):
            self.write(name, text)
        shutil.copy(os.path.join(SOURCE, "ci/demo"), os.path.join(folder, "ci/demo"))
        for mark in marks:
            self.write(mark, "")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def start(self):
        path = os.path.join(self.folder, "bin") + ":" + os.environ["PATH"]
        return subprocess.Popen([os.path.join(self.folder, "ci/demo")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, start_new_session=True, env=dict(os.environ, PATH=path))

    def until(self, name):
        deadline = time.monotonic() + WAIT_S
        while not os.path.exists(os.path.join(self.folder, name)):
            assert time.monotonic() < deadline, name
            time.sleep(0.01)

    def lives(self, pid):
        try:
            return os.path.samefile("/proc/%d/cwd" % pid, self.folder)
        except OSError:
            return False

    def check_nothing_goes_on(self):
        pid = int(self.read("pip"))
        deadline = time.monotonic() + 5
        while self.lives(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError("the environments are made although the demo has ended")
            time.sleep(0.01)


def test_a_build_that_fails(folder):
    demo = Demo(folder, "envs_last", "build_fails")
    said = demo.start()
    text = said.communicate(timeout=WAIT_S)[0]
    assert said.returncode == 4 and "failed to build" in text, (said.returncode, text)
    demo.check_nothing_goes_on()


def test_ctrl_c(folder):
    """A terminal tells all of its foreground."""
    demo = Demo(folder, "envs_last", "build_lasts")
    said = demo.start()
    demo.until("building")
    demo.until("pip")
    os.killpg(said.pid, signal.SIGINT)
    said.communicate(timeout=WAIT_S)
    assert said.returncode != 0
    demo.check_nothing_goes_on()


def test_an_end_by_a_signal(folder):
    """For the demo alone, which waits for the environments."""
    demo = Demo(folder, "envs_last")
    said = demo.start()
    demo.until("pip")
    time.sleep(0.2)
    os.kill(said.pid, signal.SIGTERM)
    said.communicate(timeout=WAIT_S)
    assert said.returncode != 0
    demo.check_nothing_goes_on()


def test_with_and_without_environments(folder):
    for marks, plan in (((), "ci/plans/demo.yaml"), (("envs_fail",), "ci/plans/native.yaml")):
        demo = Demo(folder, *marks)
        said = demo.start()
        text = said.communicate(timeout=WAIT_S)[0]
        assert said.returncode == 0 and "verdict: pass (%s)" % plan in text, (said.returncode, text)
        assert "upgate ab %s -o out/demo/run.db" % plan in demo.read("log"), demo.read("log")


def test_two_at_once(folder):
    demo = Demo(folder, "envs_last", "build_lasts")
    said = demo.start()
    demo.until("building")
    demo.write("out/demo/run.db", "of the first one")
    second = demo.start()
    text = second.communicate(timeout=WAIT_S)[0]
    assert second.returncode == 4 and "another ci/demo" in text, (second.returncode, text)
    assert demo.read("out/demo/run.db") == "of the first one"
    os.killpg(said.pid, signal.SIGINT)
    said.communicate(timeout=WAIT_S)
    demo.check_nothing_goes_on()


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory(prefix="upgate-demo-test-") as folder:
                test(folder)
            print("ok   " + name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
