#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The work of action.yml: runs the plan, writes the reports, annotates. Reads GATE_* and GITHUB_* from the
# environment; writes $GATE_OUTPUT, $GITHUB_OUTPUT and $GITHUB_STEP_SUMMARY. Ends with 0 so that the action can
# keep the evidence; `status` in $GITHUB_OUTPUT is what the action ends with.
set -uo pipefail

plan=${GATE_PLAN:-} out=${GATE_OUTPUT:-upgate-out} program=${GATE_PROGRAM:-upgate}
inconclusive=${GATE_INCONCLUSIVE:-fail} fail_on=${GATE_FAIL_ON:-inconclusive}
output_file=${GITHUB_OUTPUT:-/dev/null}

# finish STATUS EXIT_CODE: what the action ends with, and what `upgate ab` ended with.
finish() {
    printf 'status=%s\nexit-code=%s\n' "$1" "$2" >>"$output_file" || exit 4
    exit 0
}
# refuse MESSAGE: bad input. Our own words only, so that nothing needs escaping.
refuse() {
    echo "::error title=upgate::$1"
    finish 2 2
}

[[ -n $plan ]] || refuse "the input 'plan' is empty"
[[ $inconclusive == fail || $inconclusive == skip ]] || refuse "the input 'inconclusive' is neither fail nor skip"
[[ $fail_on == inconclusive || $fail_on == fail || $fail_on == never ]] ||
    refuse "the input 'fail-on' is none of inconclusive, fail, never"
command -v "$program" >/dev/null || refuse "the input 'program' names no program; build or install upgate first"
mkdir -p "$out" || refuse "the directory of the input 'output' cannot be made"

# What an earlier attempt left must not be taken for this one's.
rm -f "$out"/{report.json,report.md,report.html,junit.xml}
if [[ -e $out/run.db ]]; then mv -f "$out/run.db" "$out/previous.db"; fi

read -r -d '' -a more <<<"${GATE_ARGS:-}" || true # of all lines; it ends at the end of the text, which read calls a failure
# In the background, so that a cancelled job reaches upgate: it ends both sides and leaves a valid store.
# The trap comes first: a job may be cancelled before the next line is read.
child='' cancelled=''
trap 'cancelled=1; [[ -z $child ]] || kill -TERM "$child" 2>/dev/null' INT TERM
"$program" ab "$plan" -o "$out/run.db" ${more[@]+"${more[@]}"} &
child=$!
[[ -z $cancelled ]] || kill -TERM "$child" 2>/dev/null
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do # a signal interrupts wait
    wait "$child"
    code=$?
done
trap - INT TERM

status=$code
case $code in
    0) ;;
    1) [[ $fail_on == never ]] && status=0 ;;
    3) [[ $fail_on == inconclusive ]] || status=0 ;;
    *) status=4 && [[ $code == 2 ]] && status=2 ;;
esac

# Evidence that cannot be written is an operational failure, whatever the verdict.
if [[ -e $out/run.db && ($code == 0 || $code == 1 || $code == 3) ]]; then
    "$program" report "$out/run.db" --github || status=4
    "$program" report "$out/run.db" -o "$out/report.json" || status=4
    "$program" report "$out/run.db" -o "$out/report.md" || status=4
    "$program" report "$out/run.db" -o "$out/junit.xml" --inconclusive="$inconclusive" || status=4
    # A page of what run.db and the others hold: a program that was built without it can gate all the same.
    "$program" report "$out/run.db" -o "$out/report.html" ||
        echo "::warning title=upgate::no report.html: the reason is in the log above"
else
    # No verdict. A store may still be there, for `upgate ab --resume`.
    [[ $code == 0 ]] && status=4
    echo "::error title=upgate::no verdict: upgate ab ended with $code; its messages are in the log above"
fi
finish "$status" "$code"
