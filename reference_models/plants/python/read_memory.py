# SPDX-License-Identifier: Apache-2.0
"""Culprit: asks psutil for all there is to know about the memory of a process, every 300 ms, as a monitor does."""
import sys

import psutil

import stage

stage.name("pl-psutil")
process = psutil.Process(int(sys.argv[1]))
stage.every(0.3, process.memory_full_info)
