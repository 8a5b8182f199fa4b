#!/usr/bin/env python3
"""Holds `hearken plan` against what `hearken train` really takes.

Trains a few steps of each configuration with each way to train, watches the resident memory of the process, and
compares its growth, from before the model is built, with the plan. Linux only (reads /proc).

    python scripts/check_plan.py --hearken target/release/hearken [--config stories …] [--way AdamW …]

"Before the model is built" is the resident memory when the line "writing to …" is printed, less the parameters, which
are there by then.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

WAYS = {
    "AdamW": ["train.optimizer=adamw"],
    "SGD": ["train.optimizer=sgd"],
    "Lion": ["train.optimizer=lion"],
    "Muon": ["train.optimizer=muon"],
    "EMA": ["train.optimizer=adamw", "train.ema.decay=0.99"],
    "bf16": ["train.optimizer=adamw", "train.precision=bf16"],
    "checkpointing": ["train.optimizer=adamw", "train.gradient_checkpointing=true"],
}


def kilobytes(pid, key):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith(key):
                return int(line.split()[1])
    return 0


def measure(hearken, config, sets, folder):
    """The most resident memory minus what it was before the model, and what `train` said."""
    command = [hearken, "train", "--config", config, "--out", folder]
    for text in sets:
        command += ["--set", text]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    start, before, peak, said = None, 0, 0, ""
    lines = []

    def read():
        for line in process.stderr:
            lines.append(line)

    reader = threading.Thread(target=read)
    reader.start()
    while process.poll() is None:
        try:
            now, most = (1024 * kilobytes(process.pid, key) for key in ("VmRSS:", "VmHWM:"))
        except (FileNotFoundError, ProcessLookupError):
            break
        if start is None:
            if any(line.startswith("writing to") for line in lines):
                start = before
            before = now
        peak = max(peak, most)
        time.sleep(0.002)
    process.wait()
    reader.join()
    text = "".join(lines)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{text}")
    for line in lines:
        if ", about " in line:
            said = line.rsplit(", about ", 1)[1].strip()
    return peak - (start or 0), said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--config", nargs="+", required=True)
    parser.add_argument("--way", nargs="+", default=list(WAYS))
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    worst = 0.0
    for config in arguments.config:
        for way in arguments.way:
            sets = WAYS[way] + [f"train.steps={arguments.steps}", "train.schedule=constant", "data.stories=100"]
            sets += arguments.set
            plan = [arguments.hearken, "plan", "--config", config, "--json"]
            plan += [word for text in sets for word in ("--set", text)]
            planned = json.loads(subprocess.check_output(plan, text=True))
            total = planned["memory"]["total"]
            with tempfile.TemporaryDirectory() as folder:
                taken, said = measure(arguments.hearken, config, sets, os.path.join(folder, "run"))
            taken += planned["memory"]["parameters"]
            off = total - taken
            allowed = max(0.05 * taken, 8e6)
            worst = max(worst, abs(off) / allowed)
            name = os.path.basename(config).removesuffix(".toml")
            print(
                f"{name:>10} {way:>13}: planned {total / 1e6:8.1f} MB, train says {said:>9}, taken "
                f"{taken / 1e6:8.1f} MB: {off / 1e6:+7.1f} MB, {100 * off / taken:+6.1f} %"
                f"{'' if abs(off) <= allowed else '   TOO FAR'}",
                flush=True,
            )
    sys.exit(worst > 1)


if __name__ == "__main__":
    main()
