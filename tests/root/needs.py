# SPDX-License-Identifier: Apache-2.0
"""What the tests of recordings cannot do without."""
import json
import os
import subprocess

UPGATE = os.path.join(os.environ["UPGATE_BUILD"], "upgate")


def lacks(symbols=False, gib=0):
    """Why nothing can be recorded here, or None. symbols: functions of the kernel by name; gib: of memory that is available."""
    if not os.access(UPGATE, os.X_OK):
        return "no program at " + UPGATE
    doctor = subprocess.run([UPGATE, "doctor", "--json"], stdout=subprocess.PIPE)
    checks = {check["id"]: check for check in json.loads(doctor.stdout)["checks"]}
    if checks["capture"]["status"] == "missing":
        return "nothing can be recorded here: " + checks["capture"]["found"]
    if symbols and checks["kernel-symbols"]["status"] != "ok":
        return "kernel functions have no names here: " + checks["kernel-symbols"]["found"]
    with open("/proc/meminfo", encoding="utf-8") as file:
        available = [int(line.split()[1]) for line in file if line.startswith("MemAvailable:")][0]
    return "less than %d GiB of memory are available" % gib if available < gib << 20 else None
