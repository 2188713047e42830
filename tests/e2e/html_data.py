#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Documents for the page of the HTML report (reports/render/html/page/DATA.md): an example that has every part, a hostile one, one
of 200,000 events, a small one. Test data: drawn from a seed, measured nowhere. `html_data.py KIND [PAGE.html]` prints the document,
or puts it into a built page."""
import copy
import json
import os
import random
import sys

CLASSES = [("gpu_compute", "GPU compute"), ("comm_exposed", "Exposed communication"), ("copy", "Copies"),
           ("launch_bound", "Launch-bound"), ("host_run", "Host runs"), ("host_stalled", "Host stalled"),
           ("data_wait", "Data wait"), ("idle", "Idle")]
MS = 1e6
STEP = 16.80 * MS  # of the baseline
KERNELS = ["void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>",
           "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1",
           "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x1_tn_align8>",
           "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
           "flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true, false>",
           "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
           "triton_poi_fused_add_mul_silu_7", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"]
FUNCTIONS = [("Linear.forward (torch/nn/modules/linear.py)", 1), ("at::native::embedding_bag", 0), ("mkl_blas_avx512_sgemm_kernel_0", 0),
             ("at::native::add_kernel", 0), ("c10::TensorImpl::~TensorImpl", 0), ("Adam.step (torch/optim/adam.py)", 1),
             ("__memset_avx512_unaligned_erms", 0), ("do_user_addr_fault", 2), ("clear_page_erms", 2), ("omp_fn.0 at::parallel_for", 0)]


def contribution(rank, kind, title, label, where, a, b, spread, **more):
    delta = b - a
    return dict({"rank": rank, "kind": kind, "title": title, "label": label, "where": where, "name_a": label, "name_b": label,
                 "a_ns": round(a), "b_ns": round(b), "delta_ns": round(delta), "ci_ns": [round(delta - spread), round(delta + spread)],
                 "share": round(delta / STEP, 6), "named": abs(delta) > spread, "count_a": 12, "count_b": 12, "busy_a_ns": round(a * 1.1),
                 "busy_b_ns": round(b * 1.1), "evidence": [], "suspects": []}, **more)


def cell(rng, metric, unit, a, ratio, sd, pairs, gating, verdict, margin=0.02, direction="lower", **more):
    points = []
    for pair in range(pairs):
        r = ratio * (1 + rng.gauss(0, sd))
        left = a * (1 + rng.gauss(0, sd / 2))
        points.append([pair, r, left, left * r])
    half = 2.6 * sd / pairs ** 0.5
    return dict({"metric": metric, "unit": unit, "direction": direction, "gating": gating, "verdict": verdict, "median_a": a, "reason": "",
                 "median_b": a * ratio, "ratio": ratio, "ci_lower": ratio - half, "ci_upper": ratio + half, "level": 0.99, "margin": margin,
                 "mde": 0.006, "alpha": 0.01, "pairs": pairs, "look": 2, "improved": False, "points": points}, **more)


def strip(rng, pairs, steps, median, slow=None):
    """All steps of `pairs` pairs: 5 of warm-up, blocks of 20; slow: (every, ns) of the candidate."""
    launches, sides = [], []
    for side in range(2):
        slows = [k for k in range(4, pairs * steps) if slow and side and k % slow[0] == slow[0] - 1 and k % steps >= 5]
        for pair in range(pairs):
            most = [round(median * (3 if k < 5 else rng.gauss(1, 0.02)) / 1000) for k in range(steps)]
            for k in slows:
                if k // steps == pair:
                    most[k % steps] = round(slow[1] / 1000)
            launches.append({"pair": pair, "side": "ab"[side], "steps": steps, "numbers": [[0, 0]], "from": 5, "steady": 5, "median_ns": round(median),
                             "marked": sum(k // steps == pair for k in slows), "blocks": [[0, 1, 1], [1, 20, steps // 20 - 1], [steps - 19, 19, 1]],
                             "unit_ns": 1000, "width": 1, "most": most})
        sides.append({"launches": pairs, "steps": pairs * steps, "steady_steps": pairs * (steps - 5), "median_ns": round(median), "slowest_ns": round(slow[1] if slows else 3 * median),
                      "marked": len(slows), "slow": len(slows), "slow_ns": slow[1] if slows else None, "first_ns": round(1.02 * median), "other_ns": round(median)})
    return {"mark": 2, "sides": sides, "launches": sorted(launches, key=lambda launch: (launch["pair"], launch["side"])), "left_out": 0}


def gpu_diff():
    items = [
        contribution(1, "kernel_added", "Kernel added", "vectorized_elementwise_kernel<4, FillFunctor<float>>",
                     "forward > layers.*.attn > scaled_dot_product_attention", 0, 1.92 * MS, 0.09 * MS, name_a=None, name_b=KERNELS[5],
                     count_a=None, count_b=48, busy_a_ns=None,
                     evidence=["48 launches a step of 40.0 µs each, 0 in old", "grid 4096x1x1, 128 threads, 16 registers; writes 32 MiB each",
                               "launched by torch/nn/functional.py:5473 scaled_dot_product_attention in all 48 cases",
                               "on the critical path for 1.92 ms of its 2.11 ms"],
                     suspects=["torch 2.1.2 -> 2.2.0: libtorch_cuda.so holds the kernel",
                               "default changed: torch.backends.cuda.preferred_linalg_library"]),
        contribution(2, "kernel_replaced", "Kernel replaced by a slower one", "gemm bf16 128x128x64 -> wmma 32x32",
                     "backward > layers.*.mlp", 4.10 * MS, 5.02 * MS, 0.12 * MS, name_a=KERNELS[1], name_b=KERNELS[2],
                     evidence=["24 launches a step on both sides, same shapes (4096x4096x11008)", "tensor-core tile 128x128x64 became 32x32x16"],
                     suspects=["nvidia-cublas-cu12 12.1.3.1 -> 12.3.4.1"]),
        contribution(3, "host_stall", "Host stalled longer", "minor page faults", "dataloader", 0.20 * MS, 0.36 * MS, 0.07 * MS,
                     evidence=["412 faults a step, 96 in old", "thread 'pt_data_worker'"], suspects=["transparent_hugepage always -> madvise"]),
        contribution(4, "comm_exposed", "Communication less exposed", "AllReduce bf16 ring LL", "backward", 1.40 * MS, 1.12 * MS, 0.10 * MS,
                     name_a=KERNELS[7], name_b=KERNELS[7], evidence=["the longer backward hides more of it"]),
    ]
    total, rng = 0, random.Random(3)
    for rank in range(5, 40):
        delta = rng.gauss(0, 0.01 * MS)
        total += delta
        items.append(contribution(rank, "kernel_slower", "Kernel slower" if delta > 0 else "Kernel faster", "elementwise kernel %d" % rank,
                                  "forward > layers.%d" % (rank % 24), 0.3 * MS, 0.3 * MS + delta, 0.03 * MS))
    delta = 2.72 * MS + total + 0.02 * MS
    shares = [0.62, 0.083, 0.03, 0.11, 0, 0.06, 0.05, 0.047]
    moves = [2.84, -0.28, 0, 0.02, 0, 0.16, -0.02, 0]
    parts = [{"class": word, "title": title, "a_ns": round(STEP * share), "b_ns": round(STEP * share + move * MS)}
             for (word, title), share, move in zip(CLASSES, shares, moves)]
    rows = [[c["label"], c["name_a"], c["name_b"], c["where"], "kernel" if "kernel" in c["kind"] else "stall", "gpu_compute", "exact",
             c["a_ns"], c["b_ns"], c["busy_a_ns"], c["busy_b_ns"], c["count_a"], c["count_b"]] for c in items]
    for i in range(300):
        a = rng.expovariate(1 / 20000)
        rows.append(["%s [%d]" % (KERNELS[i % 7][:60], i), None, None, "forward > layers.%d.mlp" % (i % 24), "kernel", "gpu_compute", "exact",
                     round(a), round(a * rng.gauss(1, 0.03)), round(a), round(a), 2, 2])
    return {"unexplained": None, "step_a_ns": round(STEP), "step_b_ns": round(STEP + delta), "delta_ns": round(delta),
            "delta_ci_ns": [round(delta - 0.15 * MS), round(delta + 0.15 * MS)], "traced_ratio": [1.012, 1.015],
            "traced": "a traced step took 1.012 (a) and 1.015 (b) times as long as an untraced one", "match_coverage": 0.983,
            "residual_ns": round(0.02 * MS), "unaccounted": [0.004, 0.005], "traced_pairs": 2, "windows": [412, 409],
            "cold_a_ns": 2_100_000_000, "cold_b_ns": 2_450_000_000, "parts": parts, "contributions": items, "rows": rows, "rows_left_out": 12,
            "collectives": {"answer": "NCCL 2.28.3 -> 2.28.9: 4.6 -> 6.2 ms a step", "nccl_a": "2.28.3", "nccl_b": "2.28.9",
                            "kinds": [{"name": "AllReduce f32", "size": "more than 16 MiB", "how_a": "RING SIMPLE", "how_b": "RING LL", "count_a": 12,
                                       "count_b": 12, "busy_a_ns": 4600000, "busy_b_ns": 6200000, "exposed_a_ns": 390000, "exposed_b_ns": 520000},
                                      {"name": "Broadcast u8", "size": "", "how_a": None, "how_b": "", "count_a": None, "count_b": 0.5,
                                       "busy_a_ns": None, "busy_b_ns": 10000, "exposed_a_ns": None, "exposed_b_ns": 0}]},
            "stragglers": [{"side": "b", "rank": 3, "last_count": 171, "collectives": 204, "late_ns": 410000, "wait_ns": 8100000,
                            "why": "its GPU ran at 1590 MHz, the others at 1980 MHz"},
                           {"side": "a", "rank": 1, "last_count": 60, "collectives": 204, "late_ns": 35000, "wait_ns": 900000, "why": None}],
            "late": "Rank 3 arrives last at 171 of 204 collectives, by 410 us: <i>function</i> gemm",
            "first_step": {"a_ns": 2_100_000_000, "b_ns": 2_450_000_000, "phases": [{"name": "forward", "a_ns": 2_050_000_000, "b_ns": 2_400_000_000},
                                                                                   {"name": "backward", "a_ns": 50_000_000, "b_ns": 50_000_000}],
                           "contributions": [dict(contribution(1, "cold_start", "Slower first use", "cuLibraryLoadData", "forward", 0, 348 * MS, 0,
                                                               evidence=["a: nothing; b: 348 ms a first step", "most of it: load_module +340 ms"]),
                                                  ci_ns=None, launches_ns={"a": [0, 0], "b": [350 * MS, 346 * MS]})]},
            "notes": ["1.7 % of the time has no partner on the other side and is compared at its place as a whole."]}


def lane_of(kind, title, events):
    events = sorted(events)
    lane, last = {"kind": kind, "title": title, "start": [], "dur": [], "name": [], "depth": []}, 0
    for start, dur, name, depth in events:
        lane["start"].append(round(start) - last)
        last = round(start)
        lane["dur"].append(round(dur))
        lane["name"].append(name)
        lane["depth"].append(depth)
    return lane


def timeline(rng, events):
    """Two steps; events: about as many in all."""
    names = KERNELS + ["forward", "backward", "optimizer", "dataloader"] + [f for f, _ in FUNCTIONS] + ["cudaLaunchKernel", "page fault",
                                                                                                        "cudaStreamSynchronize"]
    classes = [word for word, _ in CLASSES] + ["phase", "stall", "python", "sync", "call"]
    name_class = [0] * 7 + [1] + [8] * 4 + [10, 4, 4, 4, 4, 10, 4, 5, 5, 4] + [12, 9, 11]
    name_contribution = [0] * len(names)
    name_contribution[5], name_contribution[1], name_contribution[2], name_contribution[7] = 1, 2, 2, 3
    sides = []
    for side, span in ((0, 16.8 * MS), (1, 19.54 * MS)):
        lanes = []
        forward = span * 0.36
        phases = [(0, span * 0.04, 11), (span * 0.04, forward, 8), (span * 0.04 + forward, span * 0.5, 9), (span * 0.9 + 10, span * 0.1 - 10, 10)]
        lanes.append(lane_of("phase", "phases", [(s, d, n, 0) for s, d, n in phases]))
        count = max(20, events // 5)
        for stream in range(2):
            at, out, kinds = span * 0.05, [], ([0, 1, 3, 4, 6] if side == 0 else [0, 5, 2, 3, 4, 6])
            step = span * 0.9 / (count if stream == 0 else count // 4)
            while at < span * 0.97:
                dur = step * rng.uniform(0.3, 0.95)
                out.append((at, dur, 7 if stream else rng.choice(kinds), 0))
                at += step * (1 if rng.random() < 0.97 else 3)
            lanes.append(lane_of("stream", "GPU 0 stream %d" % (7 + 13 * stream), out))
        calls, at, step = [], 0, span / count
        while at < span * 0.95:
            calls.append((at, step * 0.8, 12 + rng.randrange(10), 0))
            calls.append((at + step * 0.1, step * 0.5, 22, 1))
            at += step
        lanes.append(lane_of("thread", "python 4242 (main thread)", calls))
        lanes.append(lane_of("stall", "stalls", [(span * k / 9 + rng.random() * MS / 4, span / 90, 23 + k % 2, 0) for k in range(9)]))
        sides.append({"span_ns": round(span), "mark_ns": [0, round(span)], "lanes": lanes})
    return {"title": "step 41 of pair 1", "names": names, "classes": classes, "name_class": name_class, "name_contribution": name_contribution,
            "sides": sides, "aligned": [[round(16.8 * MS * f), round(19.54 * MS * f)] for f in (0.04, 0.4, 0.9)], "left_out": 0}


def flame(rng, ident, title, nodes):
    names = ["all", "python", "train_step", "forward", "backward", "optimizer"] + [f for f, _ in FUNCTIONS]
    kinds = [4, 4, 1, 4, 4, 4] + [k for _, k in FUNCTIONS]
    tree = {"id": ident, "title": title, "unit": "ns", "names": names, "parent": [-1, 0, 1, 2, 2, 2], "name": [0, 1, 2, 3, 4, 5],
            "kind": [4, 4, 1, 4, 4, 4], "a": [0] * 6, "b": [0] * 6, "left_out": 0.002}
    depth = [0, 1, 2, 3, 3, 3]
    while len(tree["parent"]) < nodes:
        parent = rng.randrange(3, len(tree["parent"]))
        if depth[parent] > 30:
            continue
        name = 6 + rng.randrange(10)
        a = round(rng.expovariate(1 / 30000)) if rng.random() < 0.95 else 0
        tree["parent"].append(parent)
        depth.append(depth[parent] + 1)
        tree["name"].append(name)
        tree["kind"].append(kinds[name])
        tree["a"].append(a)
        tree["b"].append(round(a * (2.2 if name == 6 else rng.gauss(1, 0.05))) if a and rng.random() < 0.97 else round(rng.expovariate(1 / 20000)))
    return tree


def heat():
    """Ranks by time: rank 1 of 4 is late in the last third."""
    return {"text": "Ranks by time: how long the others waited for each rank, over 1.45 s in 24 parts; most for rank 1: 23.0 % of the part from 1.03 s to 1.09 s",
            "span_ns": 1_450_000_000,
            "rows": [{"label": "rank %d" % rank, "values": [210 + 10 * (part % 3) if rank == 1 and part >= 16 else 3 * rank + part % 2 for part in range(24)]}
                     for rank in range(4)]}


def example(events=1500):
    rng = random.Random(7)
    gpu = {"name": "llama-train", "mode": "train", "unit": "step", "verdict": "fail", "note": None,
           "cells": [cell(rng, "step_time", "ns", 16.8 * MS, 1.163, 0.008, 14, True, "fail"),
                     cell(rng, "peak_gpu_memory", "bytes", 31.2 * 2 ** 30, 1.001, 0.0004, 14, True, "pass", margin=0.01),
                     cell(rng, "throughput", "1/s", 59.5, 0.86, 0.008, 14, False, "unchecked", margin=None, direction="higher"),
                     cell(rng, "first_step_time", "ns", 2.1e9, 1.166, 0.05, 14, False, "unchecked", margin=None)],
           "steps": strip(rng, 6, 100, 16.8 * MS),
           "stalls": [{"side": side, "pair": 0, "recording": k + 1, "window_ns": 1_450_000_000, "answer": "train.py lost %s of 1.45 s: a thread copies pages" % lost,
                       "watched": "1.45 s of python train.py, 9 threads; 93 waits of 1 ms and longer, 637 samples",
                       "items": [{"rank": 1, "cause": "page_faults", "title": "Pages are made when they are first touched", "total_ns": total, "share": total / 1.45e9, "count": 412,
                                  "max_ns": 1_900_000, "period_ns": None, "confidence": 0.8, "blame": "minor page faults", "lost": "412 times, the longest 1.9 ms", "steps": "61 of 80",
                                  "victim": "pt_data_worker 4711", "culprit": None, "where": "clear_page_erms", "python": "collate (data.py:12)", "advice": "pin the buffers"}], **({"heat": heat()} if side == "b" else {})}
                      for k, (side, lost, total) in enumerate((("a", "1.1 %", 16_000_000), ("b", "2.0 %", 29_000_000)))],
           "diff": gpu_diff(), "timeline": timeline(rng, events), "flames": [flame(rng, "cpu", "On the CPU", 900), flame(rng, "off_cpu", "Off the CPU: waits that held up the work", 120)]}
    cpu = {"name": "dlrm-train", "mode": "train", "unit": "step", "verdict": "pass",
           "cells": [cell(rng, "step_time", "ns", 14.66 * MS, 0.992, 0.01, 10, True, "pass"),
                     cell(rng, "total_time", "ns", 3.7e9, 1.004, 0.01, 10, False, "unchecked", margin=None)],
           "diff": {"unexplained": "No launch of this workload was traced: set schedule.traced_launches in the plan, or run `upgate ab --trace 2`."}}
    how = {"verdict": "A run fails when one gating cell is worse than its margin with the error rate the plan allows; it passes when all are inside.",
           "cells": "Medians over launches. The ratio is the median of the ratios of pairs (candidate over baseline), both sides alive at the "
                    "same time and taking turns.\n\nThe interval is one of the sequential test: it holds at every look.",
           "pairs": "Each dot is one pair of launches.", "waterfall": "Every instant of a step belongs to exactly one leaf, so the sums close.",
           "decomposition": "By interval union: an instant belongs to the first class that holds.",
           "contributions": "Differences of aligned groups per step, scaled to the untraced difference; intervals from pairs of traced launches at "
                            "99 % for all together.", "timeline": "The window of median length on both sides.",
           "table": "Each function, kernel and stall with its partner on the other side.", "flames": "Samples at 199 Hz in the side's own turns.",
           "fingerprint": "What differs between the two environments.", "steps": "Every step of the pairs that were judged.", "stragglers": "Who arrived last at each collective.",
           "first": "What of the first step takes longer in every traced launch.",
           "parity": "Outputs against an fp64 reference.", "trust": "What was lost, by who lost it."}
    return {
        "schema": "upgate.report/1", "made_by": "upgate 0.1.0", "sides": ["torch-2.1", "torch-2.2"],
        "verdict": {"word": "fail", "reason": "1 of 3 gated cells is worse than its margin: llama-train step_time 16.3 % slower (15.7 to 16.9 %), "
                    "margin 2 %", "margin_note": "step_time 2 %, peak_gpu_memory 1 %; one-sided error rate 1 % a cell over 4 looks"},
        "run": {"facts": [{"label": k, "value": v} for k, v in (
            ("Run", "232451d4"), ("Started", "2026-01-12 01:35 UTC"), ("Took", "12 min 40 s"), ("Plan", "plan.yaml"), ("Machine", "node17, Linux 6.8"),
            ("CPU", "2 x 48 cores, pinned to 0-15"), ("GPU", "8 x 80 GB, 1980 MHz, driver 550.54"), ("Workloads", "llama-train, dlrm-train"))]},
        "findings": [{"effect": "fail", "text": "step_time is worse than its margin in 2 of 2 confirmations", "workload": "llama-train", "side": None}],
        "workloads": [gpu, cpu],
        "parity": [{"workload": "llama-train", "tensor": t, "rule": r, "error_a": a, "error_b": b, "verdict": "pass", "reason": None}
                   for t, r, a, b in (("output", "fp64-anchored", 6.6e-9, 6.8e-9), ("loss", "loss-tube", 0.00067, 0.0001))],
        "fingerprint": [
            {"kind": "package", "name": "torch", "a": "2.1.2+cu121", "b": "2.2.0+cu121", "suspicion": 0.95, "why": "holds contributions 1 and 2"},
            {"kind": "package", "name": "nvidia-cublas-cu12", "a": "12.1.3.1", "b": "12.3.4.1", "suspicion": 0.8, "why": "holds contribution 2"},
            {"kind": "default", "name": "transparent_hugepage", "a": "always", "b": "madvise", "suspicion": 0.4, "why": "contribution 4 is page faults"}] +
            [{"kind": "package", "name": "package-%02d" % i, "a": "1.%d" % i, "b": "1.%d" % (i + 1), "suspicion": 0.02, "why": None} for i in range(22)] +
            [{"kind": "library", "name": "libtriton.so", "a": None, "b": "build 9f1c", "suspicion": None, "why": None}],
        "trust": {"ok": False, "breaches": [{"producer": "gpu.activity", "kind": "dropped", "count": 14, "detail": "buffer full in launch 7"}],
                  "ledger": [{"producer": p, "kind": k, "seen": s, "dropped": d, "rows": 28, "detail": None} for p, k, s, d in (
                      ("gpu.activity", "dropped", 1_204_551, 14), ("bpf.sample", "dropped", 15_860, 0), ("step protocol", "dropped", 4_660, 0))]},
        "calibration": {"calibrated": True, "note": "train: a side held 2 % longer was found, +1.72 to +2.27 % in step_time, at 14 pairs of this run; 0 false fails in 12 A/A gates here"},
        "notes": [{"level": "note", "text": "sides are stopped by cgroup v2; pinned to CPUs 0-15"},
                  {"level": "warning", "text": "GPU clocks were not locked; they moved by 0.4 %"}],
        "how": [{"id": k, "title": k.capitalize(), "text": v} for k, v in how.items()]}


HOSTILE = ["<img src=x onerror=\"window.hacked=1\">", "</script><script>window.hacked=1</script>", "<!-- <script>", "\"'><svg onload=window.hacked=1>",
           "a\nb\tc\u2028d\u2029", "\u202eright to left", "&lt;b&gt;&amp;", "javascript:window.hacked=1", "x" * 65536, "", " ", "\ufffd\u0007\u0001",
           "__proto__", "constructor", "{{7*7}}", "😀" * 50]


def hostile():
    """Every text that is shown replaced by something nasty; numbers missing, reversed, of the wrong kind of size."""
    document, turn = example(600), [0]
    words = {"schema", "kind", "class", "verdict", "word", "direction", "unit", "side", "effect", "level", "id"}

    def walk(value, key):
        if isinstance(value, dict):
            return {k: walk(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(v, key) for v in value]
        if isinstance(value, str) and key not in words and not (key == "classes"):
            turn[0] += 1
            text = HOSTILE[turn[0] % len(HOSTILE)]
            return text if turn[0] < 200 else text[:300]  # a dozen of 64 KB do
        return value
    document = walk(document, None)
    diff = document["workloads"][0]["diff"]
    for i, item in enumerate(diff["contributions"]):
        item["kind"] = ["kernel_slower", "no_such_kind", "constructor", HOSTILE[0]][i % 4]
        if i % 3 == 0:
            item["ci_ns"] = None
        if i % 5 == 0:
            item["a_ns"] = item["busy_a_ns"] = None
    diff["residual_ns"], diff["traced_ratio"], diff["unaccounted"] = None, [None, None], None
    diff["parts"][0]["class"] = "__proto__"
    steps = document["workloads"][0]["steps"]
    steps["launches"][0].update(most=[None, "x"], numbers=HOSTILE, unit_ns=-1)
    steps["launches"][1].update(numbers=HOSTILE, blocks=[[0, 0, 1e9], None, [-5, 1e300, 3]], median_ns=None, at="no")
    steps["launches"][2].update(side=HOSTILE[0], pair=HOSTILE[1], width=1e9)
    steps["sides"][0], steps["mark"], steps["left_out"] = HOSTILE[0], HOSTILE[1], 1e300
    document["workloads"][0]["cells"][0]["verdict"] = HOSTILE[0]
    document["workloads"][0]["cells"][1]["points"] = [[0, None, None, None], [1, -1e300, 5, 1e300], [2, 1, 0, 0]]
    document["workloads"][0]["timeline"]["classes"][0] = HOSTILE[0]
    document["workloads"][1]["timeline"] = {"title": "", "names": [], "classes": [], "name_class": [], "sides": [None, {"span_ns": 0, "lanes": []}]}
    document["workloads"][1]["flames"] = [{"id": "cpu", "title": "", "unit": "ns", "names": [""], "parent": [-1], "name": [0], "a": [0], "b": None}]
    document["fingerprint"].append({"kind": "__proto__", "name": None, "a": None, "b": None, "suspicion": 7, "why": None})
    return document


def small():
    return {"schema": "upgate.report/1", "sides": ["old", "new"],
            "verdict": {"word": "inconclusive", "reason": "too few pairs: 3 of 10", "margin_note": None}, "workloads": []}


def slow():
    """Steps are equal but for every 250th of the candidate's, which takes 250 ms."""
    rng, reason = random.Random(11), "8 slow steps of 2,000 (baseline 0), 250 ms each, every 250th"
    workload = {"name": "rare-train", "mode": "train", "unit": "step", "verdict": "fail", "diff": None, "steps": strip(rng, 10, 200, 1.0 * MS, (250, 250 * MS)),
                "cells": [cell(rng, "mean_step_time", "ns", 1.0 * MS, 1.992, 0.01, 10, True, "fail"),
                          cell(rng, "slow_steps", "ratio", 0.25, 1.991, 0.01, 10, True, "fail", reason=reason), cell(rng, "throughput", "1/s", 32000, 0.502, 0.01, 10, True, "fail", direction="higher"),
                          cell(rng, "step_time", "ns", 1.0 * MS, 1.0, 0.0004, 10, True, "pass"), cell(rng, "warm_up_time", "ns", 10 * MS, 1.0001, 0.0004, 10, True, "pass")]}
    workload["cells"][1].update(median_a=0, median_b=0.498)
    note = "; ".join("control %d of 12: a planted slow-down of 2 %% was found in 10 of 10 pairs of %s" % (i, "w" * (3 * i)) for i in range(12))
    return {"schema": "upgate.report/1", "sides": ["old", "new"], "verdict": {"word": "fail", "reason": "rare-train slow_steps: " + reason + "; 2 more cells fail", "margin_note": None},
            "workloads": [workload], "calibration": {"calibrated": True, "note": note}, "trust": {"ok": True, "breaches": [], "ledger": []}}


def passing():
    document = example(300)
    document["verdict"] = {"word": "pass", "reason": "all 3 gated cells are within their margins", "margin_note": None}
    document["workloads"] = [document["workloads"][1]]
    document["workloads"][0]["diff"] = None
    document["findings"] = []
    return document


KINDS = {"example": example, "slow": slow, "hostile": hostile, "small": small, "passing": passing, "large": lambda: example(200_000)}


def dump(document):
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def escape(text):
    for old, new in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(old, new)
    return text


def write_page(folder, document, path):
    """The pieces in the build's folder and a document become a report, as the C side does it."""
    pieces = []
    for index in range(4):
        with open(os.path.join(folder, "verdict.html.%d" % index), encoding="utf-8") as file:
            pieces.append(file.read())
    between = [escape("upgate: " + str(document["verdict"]["word"])), escape("%s: %s" % (document["verdict"]["word"], document["verdict"]["reason"])),
               dump(document), ""]
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write("".join(piece + text for piece, text in zip(pieces, between)))
    return path


if __name__ == "__main__":
    made = copy.deepcopy(KINDS[sys.argv[1]]())
    if len(sys.argv) > 2:
        write_page(os.path.join(os.environ.get("UPGATE_BUILD", "build/release"), "reports/render/page"), made, sys.argv[2])
    else:
        print(json.dumps(made, ensure_ascii=False, indent=None, separators=(",", ":")))
