"""`hearken train` killed with SIGKILL at random moments, resumed, and compared with a run that was
left alone: metrics.jsonl (timings aside), samples.txt and everything in the last checkpoint must
be the same, bit for bit, whatever the number of threads before and after.

    cargo build --release
    python scripts/check_kill.py --hearken target/release/hearken [--data FILE…] \
        [--kills 20] [--seed N] [--set KEY=VALUE…] [--kinds [NAME…]]

Without --data it trains on the generated stories. The small model below uses what has a state of
its own: dropout, accumulation, AdamW with warm-up, averaged weights, evaluation and early
stopping; it saves every 7 steps, so that some kills fall into the writing of a checkpoint. The
steps at which it is killed are spread evenly over the run, one of them before the first; the
moment within the step is random, too. With --kinds, a small model of every kind (or of those that
are named) is killed once instead. Exits with 1 if anything differs.
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

MODEL = """
kind = "decoder"
context = 240
layers = 3
width = 64
heads = 4
position = { kind = "rope" }
dropout = { residual = 0.1, attention = 0.1, embedding = 0.1 }
"""
SMALL = "context = 240\nlayers = 2\nwidth = 32\n"
BLOCKS = SMALL + "heads = 2\n"
DECODER = 'kind = "decoder"\n' + BLOCKS
PAIRS = "context = 48\nlayers = 1\nwidth = 32\n"
# Name, [model], what else is set. Pairs and labelled rows are made from the seed, as stories are.
KINDS = {
    "rnn": ('kind = "recurrent"\ncell = "rnn"\n' + SMALL, []),
    "gru": ('kind = "recurrent"\ncell = "gru"\n' + SMALL, []),
    "lstm": ('kind = "recurrent"\ncell = "lstm"\n' + SMALL, []),
    "convolution": ('kind = "convolution"\nkernel = 3\n' + SMALL, []),
    "linear": (DECODER + 'mechanism = "linear"\n', []),
    "performer": (DECODER + 'mechanism = { kind = "performer", redraw = 9 }\n', []),
    "lsh": (DECODER + 'mechanism = "lsh"\n', []),
    "reversible": (DECODER + "reversible = true\n", []),
    "experts": (DECODER + "experts = { count = 4, top = 2, balance = 0.01 }\n", []),
    "encoder": ('kind = "encoder"\nhead = { kind = "classes" }\n' + BLOCKS, []),
    "encoder-decoder": ('kind = "encoder-decoder"\nheads = 2\n' + PAIRS, ["data.generated=dates"]),
    "fixed-vector": ('kind = "recurrent-seq2seq"\nattention = "none"\ncell = "lstm"\n' + PAIRS,
                     ["data.generated=numbers"]),
    "bahdanau": ('kind = "recurrent-seq2seq"\nattention = "additive"\ncell = "gru"\n' + PAIRS,
                 ["data.generated=numbers"]),
}
REST = """
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


def check(arguments, rng, folder, options, kills):
    """Kills so many runs, and gives how many of them differ from one that was left alone."""
    failures = 0
    began = time.monotonic()
    finish(start(arguments, 2, *options, "--out", folder / "whole"))
    seconds = time.monotonic() - began
    whole = result(folder / "whole")
    steps = len(whole["metrics.jsonl"])
    print(f"whole run: {steps} steps in {seconds:.1f} s, best {whole['best']}, {whole['last']} with "
          f"model {whole['model.safetensors'][:16]}")
    for i in range(kills):
        run = folder / f"killed-{i}"
        before, after = [(1, 2), (2, 3), (3, 1)][i % 3]
        # Ten steps before the end at the latest, so that it is still running. A single kill falls
        # into the middle; of several, the first one comes before the first step.
        share = 0.5 if kills == 1 else (i + rng.random() * (i > 0)) / kills
        moment = int(share * (steps - 10))
        process = start(arguments, before, *options, "--out", run)
        while process.poll() is None and steps_of(run) < moment:
            time.sleep(0.001)
        # Up to two steps, or the time in which the text is prepared.
        time.sleep(rng.random() * (0.2 if moment == 0 else 2 * seconds / steps))
        alive = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done = steps_of(run)
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
        print(f"{i + 1:3}. killed{'' if alive else ' (had ended)'} after {done:3} steps, "
              f"{before} → {after} threads; {how}"
              f"{f'; half written: {half_written}' if half_written else ''}: "
              f"{'DIFFERS in ' + ', '.join(different) if different else 'the same'}", flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--set", nargs="*", default=[], dest="sets")
    parser.add_argument("--kinds", nargs="*", choices=KINDS)
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    rng = random.Random(seed)
    print(f"seed {seed}")
    if arguments.kinds is None:
        runs = {"decoder": (MODEL, [], arguments.kills)}
    else:
        short = ["train.steps=60", "train.checkpoint_every=7"]
        runs = {name: (*KINDS[name], 1) for name in arguments.kinds or KINDS}
        runs = {name: (model, sets + short, kills) for name, (model, sets, kills) in runs.items()}
    failures = 0
    for name, (model, sets, kills) in runs.items():
        print(f"{name}: ", end="", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "small.toml").write_text("[model]\n" + model + REST)
            options = ["--config", folder / "small.toml"]
            options += [part for setting in sets + arguments.sets for part in ("--set", setting)]
            options += ["--data", *arguments.data] if arguments.data else []
            failures += check(arguments, rng, folder, options, kills)
    total = sum(kills for _, _, kills in runs.values())
    print(f"{total - failures} of {total} the same, bit for bit")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
