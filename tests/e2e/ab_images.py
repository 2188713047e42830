#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate ab` of sides that are container images, without an engine: `docker` is a script here, whose containers are upgate-inside on this
machine, with nothing of their own but a variable that says which image they are of. Real ones: tests/root/images.py."""
import os
import sys

import ab_rig
from ab_rig import BUILD, SH, WORK, check_code

INSIDE = os.path.join(BUILD, "harness/image/upgate-inside")
DOCKER = """#!/bin/sh
case $1 in
version) echo 27.0.1; exit ;;
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
    return {"PATH": case.dir + ":" + os.environ["PATH"]}


def image(name, **more):
    return dict({"image": "stack:" + name, "engine": "docker"}, **more)


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
        with open(case.path("said")) as file:
            said = file.read().split()
        assert launches(case, "p.phase = 'control'") >= 6, str(done)
        assert said.count("in:old") == launches(case, "l.side = 0 OR p.phase = 'control'"), (said, str(done))
        assert len(said) == launches(case, "true"), (said, str(done))
        os.unlink(case.db_path)


if __name__ == "__main__":
    if ab_rig.SANITIZED:
        print("skipped: what runs in containers is not sanitized")
        sys.exit(77)
    ab_rig.main(globals(), certificates=False)
