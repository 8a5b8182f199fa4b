"""`hearken train` killed with SIGKILL at random moments, resumed, and compared with a run that was
left alone: metrics.jsonl (timings aside), samples.txt and everything in the last checkpoint must
be the same, bit for bit, whatever the number of threads before and after.

    cargo build --release
    python scripts/check_kill.py --hearken target/release/hearken [--data FILE…] \
        [--kills 20] [--seed N] [--set KEY=VALUE…]

Without --data it trains on the generated stories. The small model below uses what has a state of
its own: dropout, accumulation, AdamW with warm-up, averaged weights, evaluation and early
stopping; it saves every 7 steps, so that some kills fall into the writing of a checkpoint. The
steps at which it is killed are spread evenly over the run, one of them before the first; the
moment within the step is random, too. Exits with 1 if anything differs.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = """
[model]
kind = "decoder"
context = 240
layers = 3
width = 64
heads = 4
position = { kind = "rope" }
dropout = { residual = 0.1, attention = 0.1, embedding = 0.1 }
[data]
stories = 60
[train]
steps = 300
batch_size = 8
accumulate = 2
lr = 2e-3
schedule = { kind = "cosine", warmup = 20, floor = 0.1 }
ema = { decay = 0.99 }
early_stopping = { patience = 20 }
evaluate_every = 25
checkpoint_every = 7
sample_every = 60
observe_every = 30
keep = 2
"""
TIMINGS = {"tokens_per_second", "elapsed_seconds"}


def start(arguments, threads, *options):
    command = [arguments.hearken, "train", *map(str, options)]
    environment = os.environ | {"HEARKEN_THREADS": str(threads)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process):
    """Its messages; the run must end well."""
    _, messages = process.communicate(timeout=3600)
    if process.returncode != 0:
        sys.exit(f"{' '.join(process.args)} ended with {process.returncode}\n{messages}")
    return messages


def without_timings(value):
    return {key: part for key, part in value.items() if key not in TIMINGS}


def result(run):
    """Everything that must not depend on kills and threads, by name."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    found = {"metrics.jsonl": [without_timings(json.loads(line)) for line in lines],
             "samples.txt": (run / "samples.txt").read_text()}
    last = (run / "checkpoints" / "last").resolve()
    found["last"] = last.name
    found["best"] = (run / "checkpoints" / "best").resolve().name
    for path in sorted(last.iterdir()):
        if path.name == "trainer_state.json":
            found[path.name] = without_timings(json.loads(path.read_text()))
        elif path.name != "SHA256SUMS":  # holds the sum of the file above
            found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def steps_of(run):
    try:
        return len((run / "metrics.jsonl").read_text().splitlines())
    except FileNotFoundError:
        return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--set", nargs="*", default=[], dest="sets")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    rng = random.Random(seed)
    print(f"seed {seed}")
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "small.toml").write_text(CONFIG)
        options = ["--config", folder / "small.toml"]
        options += [part for setting in arguments.sets for part in ("--set", setting)]
        options += ["--data", *arguments.data] if arguments.data else []
        began = time.monotonic()
        finish(start(arguments, 2, *options, "--out", folder / "whole"))
        seconds = time.monotonic() - began
        whole = result(folder / "whole")
        print(f"whole run: {len(whole['metrics.jsonl'])} steps in {seconds:.1f} s, best "
              f"{whole['best']}, {whole['last']} with model {whole['model.safetensors'][:16]}")
        for i in range(arguments.kills):
            run = folder / f"killed-{i}"
            before, after = [(1, 2), (2, 3), (3, 1)][i % 3]
            # Ten steps before the end at the latest, so that it is still running.
            most = len(whole["metrics.jsonl"]) - 10
            moment = int((i + rng.random() * (i > 0)) / arguments.kills * most)
            process = start(arguments, before, *options, "--out", run)
            while process.poll() is None and steps_of(run) < moment:
                time.sleep(0.001)
            # Up to two steps, or the time in which the text is prepared.
            time.sleep(rng.random() * (0.2 if i == 0 else 2 * seconds / len(whole["metrics.jsonl"])))
            alive = process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.communicate()
            steps = steps_of(run)
            half_written = [path.name for path in (run / "checkpoints").glob("*")
                            if not path.name.startswith(("step-", "best", "last"))] \
                if run.exists() else []
            if (run / "config.toml").exists():
                messages = finish(start(arguments, after, "--resume", run))
                how = next((line for line in messages.splitlines()
                            if line.startswith(("continuing", "no checkpoint"))), "?")
            else:  # killed before the run began: the same command is given again
                finish(start(arguments, after, *options, "--out", run))
                how = "begun again"
            found = result(run)
            different = [name for name in whole if found.get(name) != whole[name]]
            different += [name for name in found if name not in whole]
            failures += bool(different)
            print(f"{i + 1:3}. killed{'' if alive else ' (had ended)'} after {steps:3} steps, "
                  f"{before} → {after} threads; {how}"
                  f"{f'; half written: {half_written}' if half_written else ''}: "
                  f"{'DIFFERS in ' + ', '.join(different) if different else 'the same'}", flush=True)
    print(f"{arguments.kills - failures} of {arguments.kills} the same, bit for bit")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
