#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate ab` of sides that are container images, without an engine: `docker` is a script here, whose containers are upgate-inside on this
machine, with nothing of their own but a variable that says which image they are of. Real ones: tests/root/images.py."""
import os
import signal
import sys
import time

import ab_rig
from ab_rig import BUILD, SH, WORK, check_code, check_says, image_label, wait_for_process

INSIDE = os.path.join(BUILD, "harness/image/upgate-inside")
DOCKER = """#!/bin/sh
case $1 in
version) echo 27.0.1; exit ;;
ps) while read -r label name; do case label=$label in "$4" | "$4="*) echo "$name" ;; esac; done <containers; exit ;;
rm) echo "$3" >>removed; exit ;;
image) printf 'sha256:%%s\\n[]\\n\\n' "${5##*:}"; exit ;;
run) ;;
*) exit ;;
esac
for word; do
    case $word in
    *:/.upgate/socket) socket=${word%%:/.upgate/socket} ;;
    sha256:*) IMAGE=${word#sha256:} ;;
    esac
done
export IMAGE
exec %s "$socket"
""" % INSIDE


def docker(case):
    """The environment in which upgate finds it."""
    case.write("docker", DOCKER, 0o755)
    case.write("containers", "")
    case.write("removed", "")
    return {"PATH": case.dir + ":" + os.environ["PATH"]}


def image(name, **more):
    return dict({"image": "stack:" + name, "engine": "docker"}, **more)


def read(path):
    with open(path) as file:
        return file.read().split()


def launches(case, where):
    return case.value("SELECT count(*) FROM launch l JOIN pair p ON p.id = l.pair_id WHERE " + where)


def test_controls_are_of_the_baseline(case):
    """Both launches of a control pair run in the image of the baseline, whatever the candidate is."""
    for name, candidate in (("image", image("new")), ("bare", {})):
        env = dict(docker(case), UPGATE_STATE_DIR=case.path(name))  # no certificate of this machine
        case.write("said", "")
        case.plan({"command": [SH, "-c", "echo in:$IMAGE >>said; %s; %s; %s" % (WORK, WORK, WORK)]}, image("old"), candidate,
                  gate={"calibrate": "auto"}, interleave="slices")
        done = case.run(env=env)
        check_code(done, 0, 3)
        said = read(case.path("said"))
        assert launches(case, "p.phase = 'control'") >= 6, str(done)
        assert said.count("in:old") == launches(case, "l.side = 0 OR p.phase = 'control'"), (said, str(done))
        assert len(said) == launches(case, "true"), (said, str(done))
        os.unlink(case.db_path)


def test_containers_of_others_stay(case):
    """Who cannot be seen from here may live: on the machine of the engine, in another namespace of processes, as another user."""
    env, own = docker(case), image_label()
    machine, space, user = own.rsplit(".", 2)
    others = [".".join(words) for words in (("upgate=0123", space, user), (machine, "1", user), (machine, space, "4711"))] + ["upgate"]
    lines = ["%s upgate-1-1-launch-%d" % (label, i) for i, label in enumerate([own] + others)]
    alive = "%s upgate-%d-%s-launch-0" % (own, os.getpid(), open("/proc/self/stat").read().rsplit(") ", 1)[1].split()[19])
    case.write("containers", "\n".join(lines + [alive]) + "\n")
    case.plan({"command": [SH, "-c", WORK]}, image("old"), image("new"), interleave="slices")
    done = case.run(env=env)
    check_code(done, 0, 3)
    assert case.pairs() == 3, str(done)
    assert set(read(case.path("removed"))) == {"upgate-1-1-launch-0"}, read(case.path("removed"))


def test_a_finished_run_stays_finished(case):
    """Gone on with, where nothing is left to make, or where it cannot be: it has ended when it had, and is judged as it was."""
    env = docker(case)
    case.plan({"command": [SH, "-c", WORK]}, image("old"), image("new"), interleave="slices")
    done = case.run(env=env)
    check_code(done, 0, 3)
    before = case.rows("SELECT state, ended_wall_ns, writer_pid FROM run")
    assert before[0][0] == "done" and before[0][2] is None, before
    check_code(case.resume(env=env), done.code)
    assert case.rows("SELECT state, ended_wall_ns, writer_pid FROM run") == before
    os.unlink(case.path("docker"))
    failed = case.resume(env={"PATH": case.dir})
    check_code(failed, 4)
    assert case.rows("SELECT state, ended_wall_ns, writer_pid FROM run") == before, str(failed)
    check_code(case.run("gate", case.db_path), done.code)


def test_an_image_that_one_node_cannot_get(case):
    """It is told to the other nodes at once, before anything is started."""
    begun, nodes, engine = time.monotonic(), [], docker(case)
    case.plan({"command": [SH, "-c", WORK]}, image("old"), image("new"), interleave="launches")
    for rank in (0, 1):
        env = dict(engine, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
        if rank:
            os.mkdir(case.path("other"))
            case.write("other/docker", DOCKER.replace("image) ", "image | pull) echo no such manifest >&2; exit 1 ;;\nnone) "), 0o755)
            env["PATH"] = case.path("other") + ":" + os.environ["PATH"]
        nodes.append(case.start("node", case.plan_path, "-o", case.path("ab"), "--job", "job", env=env))
    first, other = (case.finish(node, timeout=60, clean=False) for node in nodes)
    check_code(first, 4)
    check_code(other, 4)
    check_says(first, "node 1 cannot take part", "failed to get image 'stack:old'", "no such manifest")
    check_says(other, "failed to get image 'stack:old'", "no such manifest")
    assert os.listdir(case.path("ab", "job")) == ["node-1.log"], os.listdir(case.path("ab", "job"))
    assert time.monotonic() - begun < 50, "the other node has waited"


def test_a_signal_while_a_container_starts(case):
    """An engine that is busy is waited for a minute, but not by who has been told to end."""
    env = docker(case)
    case.write("docker", DOCKER.replace("run) ;;", "run) exec sleep 100 ;;"), 0o755)
    case.plan({"command": [SH, "-c", WORK]}, image("old"), image("new"), interleave="slices")
    process = case.start("ab", case.plan_path, "-o", case.db_path, env=env)
    wait_for_process(case, process, "sleep")
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    done = case.finish(process, timeout=55)
    check_code(done, 3)
    assert time.monotonic() - begun < 40, str(done)
    assert case.pairs() == 0 and case.value("SELECT state FROM run") == "interrupted", str(done)


if __name__ == "__main__":
    if ab_rig.SANITIZED:
        print("skipped: what runs in containers is not sanitized")
        sys.exit(77)
    ab_rig.main(globals(), certificates=False)
