#!/usr/bin/env python3
"""nanoGPT's recipe for a CPU, in PyTorch and in Hearken, a second each in turn; prints both.

    python benches/peers/recipe_torch.py --data shakespeare.txt [--hearken target/release/hearken]
        [--seeds 1337 1 2] [--configs nanogpt-cpu shakespeare-fast]

4 layers × 128, 4 heads, context 64, batch 12, 2,000 steps, characters, the last tenth of the text
held back. PyTorch does what nanoGPT does: windows drawn at random from a mapped file, AdamW with
decay for matrices, clipping, a cosine from 1e-3 to 1e-4 after 100 steps of warm-up, a line with the
loss after every step, and every 250 steps, the first and the last among them, the loss on 20 batches
of each part and a checkpoint if it is the best. It runs twice: as nanoGPT has it, and tuned, with the
fused AdamW and with glibc's malloc told to keep memory. Hearken is timed from the start of the
program to its end. PyTorch is timed to its last step, from the start of the program, as who waits for
it would, and from the first step. While one runs, the others are stopped, which is not counted. Both
are measured on the whole held-back tenth, in non-overlapping windows of 64; PyTorch after its time is
taken.
"""
import argparse
import json
import math
import os
import sys
import tempfile

from turns import in_turns

KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
STEPS, WARMUP, LR, LEAST = 2000, 100, 1e-3, 1e-4
T, BATCH = 64, 12


def in_torch(path, seed, tuned):
    """Trains in this process; prints when it begins and ends, and then the loss as JSON."""
    import numpy
    import torch
    from train_torch import Decoder

    torch.manual_seed(seed)
    text = open(path, encoding="utf-8").read()
    letters = sorted(set(text))
    index = {letter: i for i, letter in enumerate(letters)}
    ids = numpy.array([index[letter] for letter in text], dtype=numpy.uint16)
    cut = int(0.9 * len(ids))
    folder = tempfile.TemporaryDirectory()
    for part, of_part in {"train": ids[:cut], "validation": ids[cut:]}.items():
        of_part.tofile(os.path.join(folder.name, part))
    model = Decoder(4, 128, 4, T, len(letters), gelu="none")
    for block in model.blocks:  # what is added to the residual stream starts smaller
        for layer in (block.out, block.down):
            torch.nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * 4))
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99), fused=tuned)

    def batch(part):
        mapped = numpy.memmap(os.path.join(folder.name, part), dtype=numpy.uint16, mode="r")
        starts = torch.randint(len(mapped) - T, (BATCH,))
        window = lambda i: torch.from_numpy(mapped[i : i + T].astype(numpy.int64))
        return [torch.stack([window(i + further) for i in starts]) for further in (0, 1)]

    @torch.no_grad()
    def estimate(part):
        return sum(model(*batch(part)).item() for _ in range(20)) / 20

    def rate(step):
        if step < WARMUP:
            return LR * (step + 1) / (WARMUP + 1)
        done = (step - WARMUP) / (STEPS - WARMUP)
        return LEAST + 0.5 * (1 + math.cos(math.pi * done)) * (LR - LEAST)

    best = math.inf
    print("begins", flush=True)
    for step in range(STEPS + 1):  # nanoGPT has one more, after its last evaluation
        if step % 250 == 0:
            losses = [estimate(part) for part in ("train", "validation")]
            print(f"step {step}: {losses[0]:.4f}, {losses[1]:.4f}", file=sys.stderr)
            if losses[1] < best and step > 0:
                best = losses[1]
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, os.path.join(folder.name, "checkpoint"))
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = model(*batch("train"))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"{step}: {loss.item():.4f}", file=sys.stderr)
    print("ends", flush=True)
    held_back = torch.from_numpy(ids[cut:].astype(numpy.int64))
    count = (len(held_back) - 1) // T
    rows = held_back[: count * T].view(count, T), held_back[1 : count * T + 1].view(count, T)
    with torch.no_grad():
        losses = [model(x, y).item() * len(x) for x, y in zip(*(part.split(64) for part in rows))]
    print(json.dumps({"loss": sum(losses) / count}))


def result_of_torch(program):
    (begins, _), (ends, _), (_, last) = program.lines
    seconds, before = program.running(ends), program.running(begins)
    return {"seconds": seconds, "training": seconds - before, "loss": json.loads(last)["loss"]}


def result_of_hearken(program, run):
    """Seconds, the last loss, and when the loss was first at most 1.898."""
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row.get("val_loss") is not None]
    # `elapsed_seconds` counts from the first step on; the last row was written near the end.
    begins = program.paused - program.started - rows[-1]["elapsed_seconds"]
    reached = [row["elapsed_seconds"] for row in rows if row["val_loss"] <= 1.898]
    return {
        "seconds": program.running(),
        "loss": rows[-1]["val_loss"],
        "reached": program.running(begins + reached[0]) if reached else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="Shakespeare, or another text")
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--configs", nargs="*", default=["nanogpt-cpu"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1337, 1, 2])
    parser.add_argument("--turn", type=float, default=1.0, help="seconds")
    parser.add_argument("--in-torch", choices=["plain", "tuned"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.in_torch:
        return in_torch(args.data, args.seeds[0], args.in_torch == "tuned")
    torch = {"nanoGPT": ("plain", {}), "tuned PyTorch": ("tuned", KEEP_MEMORY)}
    runs = {name: [] for name in [*torch, *args.configs]}
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as out:
            python = [sys.executable, __file__, "--data", args.data, "--seeds", seed]
            hearken = [args.hearken, "train", "--quiet", "--data", args.data, "--seed", seed]
            commands = [
                ([*python, "--in-torch", how], dict(os.environ, **environment))
                for how, environment in torch.values()
            ] + [
                ([*hearken, "--config", config, "--out", os.path.join(out, str(i))], os.environ)
                for i, config in enumerate(args.configs)
            ]
            programs = in_turns(commands, args.turn)
            for i, (name, program) in enumerate(zip(runs, programs)):
                run = os.path.join(out, str(i - len(torch)))
                result = result_of_torch(program) if name in torch else result_of_hearken(program, run)
                runs[name].append(result)
                print(f"seed {seed}: {name} {json.dumps(result)}", flush=True)
    mean = lambda name, key: sum(run[key] for run in runs[name]) / len(args.seeds)
    for name in runs:
        seconds = mean(name, "seconds")
        print(f"{name}: loss {mean(name, 'loss'):.4f} after {seconds:.1f} s")
        if name in torch:
            print(f"  {mean(name, 'training'):.1f} s of it from the first step on")
            continue
        for peer in torch:
            ratios = [mean(peer, key) / seconds for key in ("seconds", "training")]
            print(f"  × {ratios[0]:.2f} ({peer}), × {ratios[1]:.2f} (from its first step on)")


if __name__ == "__main__":
    main()
