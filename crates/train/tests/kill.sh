#!/bin/sh
# Kills a run with −9 at random moments, resumes it each time, and compares what it leaves with an
# uninterrupted run: the weights bit for bit, the metrics without their timings.
#
#     cargo build --release -p hearken-train --example small_run
#     crates/train/tests/kill.sh target/release/examples/small_run [kills]
set -eu
run=$1
kills=${2:-20}
steps=20000
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$run" "$dir/whole" $steps >"$dir/out" 2>&1
killed=0
while [ $killed -lt "$kills" ]; do
    HEARKEN_THREADS=$((killed % 3 + 1)) "$run" "$dir/killed" $steps >"$dir/out" 2>&1 &
    pid=$!
    # Between 20 and 419 milliseconds.
    sleep "$(awk -v n="$killed" -v s="$(date +%N)" 'BEGIN { srand(s + n); printf "%.3f", 0.02 + 0.4 * rand() }')"
    kill -9 $pid 2>/dev/null && killed=$((killed + 1)) || {
        echo "the run ended after $killed kills: more steps are needed"
        break
    }
    wait $pid 2>/dev/null || true
done
"$run" "$dir/killed" $steps >"$dir/out" 2>&1
untimed() {
    sed -E 's/,"tokens_per_second":[^,]*,"elapsed_seconds":[^}]*//' "$1/metrics.jsonl"
}
untimed "$dir/whole" >"$dir/a"
untimed "$dir/killed" >"$dir/b"
cmp "$dir/a" "$dir/b"
cmp "$dir/whole/diagnostics.jsonl" "$dir/killed/diagnostics.jsonl"
cmp "$dir/whole/samples.txt" "$dir/killed/samples.txt"
for file in model.safetensors optimizer.safetensors; do
    cmp "$dir/whole/checkpoints/last/$file" "$dir/killed/checkpoints/last/$file"
done
echo "$killed kills, $steps steps: the same bits"
