#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs fuzz targets, as many processes at a time as there are CPUs, and says what they did: the part of ci/fuzz that needs
# no source and no compiler. `ci/fuzz --pack DIR` puts it into DIR with all that it reads; DIR then works on another machine.
#
#   run.sh SECONDS OUTDIR [TARGET…]     SECONDS 0: the corpus of each target and a fixed number of inputs, the same each time
#
# OUTDIR gets TARGET.log, what ended a target (TARGET-crash-…), found/TARGET (inputs that reached something new) and
# table.txt. CPUs that are left over go to the targets with the fewest inputs a second. The environment may say otherwise:
# FUZZ_BIN (folder of fuzz_TARGET), FUZZ_CORPUS, FUZZ_FOUND, FUZZ_RUNS (lines "TARGET RUNS"), FUZZ_JOBS, FUZZ_SEED.
# Exit status: 0 nothing found, 1 a target found something or could not run, 2 usage.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if (($# < 2)) || ! [[ $1 =~ ^[0-9]+$ ]]; then
    echo "usage: run.sh SECONDS OUTDIR [TARGET…]" >&2
    exit 2
fi
start=()
if [[ -f $here/pack.tar.gz ]]; then # packed: its own libraries where this machine has none, its own libc where that is too old
    packed=$here/pack.tar.gz here=$(mktemp -d)
    trap 'rm -rf "$here"' EXIT
    tar -xzf "$packed" -C "$here"
    export LD_LIBRARY_PATH=$here/lib FUZZ_TEMPLATE=$here/template.db
    read -r any _ <"$here/runs"
    if ! "$here/bin/fuzz_$any" -help=1 >/dev/null 2>&1; then
        start=("$here/libc/ld.so" --library-path "$here/libc:$here/lib")
    fi
fi
seconds=$1 out=$2
shift 2
bin=${FUZZ_BIN:-$here/bin} corpus=${FUZZ_CORPUS:-$here/corpus} found=${FUZZ_FOUND:-$out/found} runs=${FUZZ_RUNS:-$here/runs}
jobs=${FUZZ_JOBS:-$(nproc)} seed=${FUZZ_SEED:-0}
if (($#)); then
    targets=("$@")
else
    mapfile -t targets < <(sort -n -k 2 "$runs" | cut -d ' ' -f 1) # the slowest first
fi
if ((${#targets[@]} == 0)); then
    echo "run.sh: no targets in '$runs'" >&2
    exit 2
fi
mkdir -p "$out"
rm -f "$out"/*.failed "$out"/*.inputs "$out"/*.log "$out"/*.ok "$out/table.txt"

# What tells one run of a target from the next is the time, and where things lie in memory: what the target compared, pointers
# too, becomes part of inputs (use_cmp). Without these a seed says it all.
if ((seconds == 0)) && setarch -R true 2>/dev/null; then
    start=(setarch -R "${start[@]}")
fi

# One process: its log stays in OUTDIR, and what it found in a file of its own beside it.
one() { # TARGET NUMBER
    local target=$1 name=$1 status=0 how input log
    (($2 == 1)) || name=$1.$2
    log=$out/$name.log
    if ((seconds)); then
        mkdir -p "$found/$target"
        how=(-max_total_time="$seconds" -seed="$((seed ? seed + $2 - 1 : 0))" "$found/$target" "$corpus/$target")
    else
        # By name: in the order that a folder happens to have they are another start.
        printf '%s\n' "$corpus/$target"/* | LC_ALL=C sort | paste -sd, >"$out/$target.inputs"
        how=(-runs="$(sed -n "s/^$target //p" "$runs")" -seed=$((seed ? seed : 1)) -use_cmp=0 -seed_inputs=@"$out/$target.inputs")
    fi
    # 120 s for one input: the slowest of the corpora takes 1 s of CPU time, and the machine may be ten times as busy.
    # 2 GB: the largest targets had 550 MB. No slow growth of lengths: the lists of the targets want long inputs.
    "${start[@]}" "$bin/fuzz_$target" -timeout=120 -rss_limit_mb=2048 -len_control=0 -print_final_stats=1 \
        -artifact_prefix="$out/$target-" "${how[@]}" >"$log" 2>&1 &
    wait $! || status=$?
    rm -rf /dev/shm/upgate-fuzz-$! # a target that crashed leaves its files
    if ((status == 0)); then
        printf 'ok    %-13s %9s inputs, %6s a second, %s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
            "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")" "$(sed -n 's/.*DONE *\(cov: [0-9]* ft: [0-9]*\).*/\1/p' "$log")" |
            tee "$out/$name.ok"
        return 0
    fi
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    {
        printf 'FAIL  %s: %s\n' "$name" "$(grep -m 1 -E 'runtime error|does not hold|ERROR: ' "$log" || echo "exit $status: $(tail -n 1 "$log")")"
        grep -E '^ *#[0-9]+ ' "$log" | grep -v -E 'fuzzer::|interceptor|libc_start' | head -n 12 || true
        printf '      the input is kept:  %s\n' "${input:-none was written; see $log}"
        if [[ -s $input && $(wc -c <"$input") -le 3000 ]]; then # who only has this text can make it again
            printf '      by base64 -d of:    %s\n' "$(base64 -w 0 "$input")"
        fi
        printf '      once more:          build/fuzz/tests/fuzz/fuzz_%s %s\n' "$target" "$input"
        printf '      once it is mended:  cp %s tests/fuzz/corpus/%s/regress-WORD\n' "$input" "$target"
    } >"$out/$name.failed"
    printf 'FAIL  %s, see below\n' "$name"
    return 0
}

works=()
for ((number = 1; number == 1 || (seconds && ${#works[@]} < jobs); number++)); do
    for target in "${targets[@]}"; do
        ((number == 1 || (seconds && ${#works[@]} < jobs))) && works+=("$target $number")
    done
done
if ((seconds)); then
    echo "fuzzing ${#targets[@]} targets for $seconds s each, ${#works[@]} processes, $jobs at a time"
else
    echo "fuzzing ${#targets[@]} targets with the same inputs as ever, $jobs at a time"
fi
for work in "${works[@]}"; do
    while (($(jobs -rp | wc -l) >= jobs)); do
        wait -n || true
    done
    read -r target number <<<"$work"
    one "$target" "$number" &
done
wait
ended=$(find "$out" -maxdepth 1 -type f \( -name '*.ok' -o -name '*.failed' \) -size +0 | wc -l)
{
    cat "$out"/*.ok 2>/dev/null || true
    cat "$out"/*.failed 2>/dev/null || true
} >"$out/table.txt"
rm -f "$out"/*.ok
if compgen -G "$out/*.failed" >/dev/null; then
    cat "$out"/*.failed
    exit 1
fi
if ((ended != ${#works[@]})); then
    echo "run.sh: only $ended of ${#works[@]} processes have said how they ended; is the disk of '$out' full?" >&2
    exit 1
fi
