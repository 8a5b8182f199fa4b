#!/usr/bin/env python3
"""Times one training step of the same model in Hearken and in PyTorch, alternating.

    python benches/peers/train_torch.py --hearken target/release/hearken [--rounds 3] [small mid gpt2]

PyTorch runs eager, eager with a malloc that keeps its memory, and compiled; each in a process of
its own, so that peak memory is its own too. Every step is forward, backward, clipping to norm 1
and AdamW, in f32, on random tokens. Prints medians, the spread, and the ratio theirs / ours.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, "..", "..", "configs", "bench")
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
STEPS = {"small": 60, "mid": 6, "gpt2": 4}


def load(name):
    with open(os.path.join(CONFIGS, f"{name}.toml"), "rb") as file:
        return tomllib.load(file)


def worker(name, steps, compiled):
    """Trains in PyTorch and prints milliseconds per step and peak memory as JSON."""
    import resource

    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(int(os.environ.get("HEARKEN_THREADS", os.cpu_count())))
    torch.manual_seed(0)
    config = load(name)
    m, batch = config["model"], config["bench"]["batch"]
    C, H, T, V, L = m["width"], m["heads"], m["context"], m["vocabulary"], m["layers"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = (nn.LayerNorm(C, bias=False) for _ in range(2))
            self.qkv = nn.Linear(C, 3 * C, bias=False)
            self.out = nn.Linear(C, C, bias=False)
            self.up = nn.Linear(C, 4 * C, bias=False)
            self.down = nn.Linear(4 * C, C, bias=False)

        def forward(self, x):
            B, T, _ = x.shape
            q, k, v = (
                y.view(B, T, H, C // H).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(C, 2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(V, C)
            self.positions = nn.Embedding(T, C)
            self.blocks = nn.ModuleList(Block() for _ in range(L))
            self.norm = nn.LayerNorm(C, bias=False)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.view(-1, V), targets.view(-1))

    model = Gpt()
    run = torch.compile(model) if compiled else model
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    # Fused AdamW is PyTorch's fastest on the CPU.
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    ids = torch.randint(V, (batch, T + 1))
    times = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(1000 * (time.perf_counter() - start))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"ms_per_step": statistics.median(times[2:]), "peak_rss_bytes": peak}))


def torch_run(name, kind):
    env = dict(os.environ, **(KEEP_MEMORY if kind == "eager, kept memory" else {}))
    command = [sys.executable, __file__, "--worker", name, "--steps", str(STEPS[name])]
    if kind == "compiled":
        command.append("--compiled")
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"  {kind} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def hearken_run(binary, name):
    config = os.path.join(CONFIGS, f"{name}.toml")
    command = [binary, "bench", "train", "--config", config, "--steps", str(STEPS[name]), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["small", "mid", "gpt2"])
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker, args.steps, args.compiled)
    kinds = ["eager", "eager, kept memory", "compiled"]
    figures = {}
    for name in args.names:
        runs = {"hearken": [], **{kind: [] for kind in kinds}}
        for _ in range(args.rounds):
            runs["hearken"].append(hearken_run(args.hearken, name))
            for kind in kinds:
                result = torch_run(name, kind)
                if result:
                    runs[kind].append(result)
        print(f"\n{name}")
        ours = None
        for kind, results in runs.items():
            if not results:
                continue
            times = sorted(r["ms_per_step"] for r in results)
            median = statistics.median(times)
            peak = max(r["peak_rss_bytes"] for r in results) / 2**20
            ours = ours or (median, peak)
            print(
                f"  {kind:20} {median:9.1f} ms  ({times[0]:.1f}–{times[-1]:.1f})  {peak:7.0f} MiB"
                f"  time × {median / ours[0]:.2f}  memory × {peak / ours[1]:.2f}"
            )
        figures[name] = runs
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
