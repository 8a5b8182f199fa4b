"""Times training steps of an LSTM language model in PyTorch and in hearken, in turns.

    python benches/peers/lstm_torch.py [--turns 5] [--steps 4] [--threads 2] [--binary PATH]

2 layers of 512, 16 rows of 128 tokens, 65 tokens, a tied head, clipping and AdamW, as
configs/bench/lstm.toml says.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

import torch

from ours import ROOT, binary

CONFIG = pathlib.Path("configs/bench/lstm.toml")


class Model(torch.nn.Module):
    def __init__(self, vocabulary=65, width=512, layers=2):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.lstm = torch.nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, ids, targets):
        hidden, _ = self.lstm(self.embedding(ids))
        logits = torch.nn.functional.linear(hidden, self.embedding.weight)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Theirs:
    def __init__(self):
        torch.manual_seed(1)
        self.model = Model().train()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, fused=True)
        self.ids, self.targets = torch.randint(0, 65, (2, 16, 128))

    def step(self):
        start = time.perf_counter()
        self.model(self.ids, self.targets).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start


def ours(path, threads, steps):
    """The median seconds of so many steps, in a process of their own."""
    command = [path, "bench", "train", "--config", ROOT / CONFIG, "--steps", str(steps), "--json"]
    environment = dict(os.environ, HEARKEN_THREADS=str(threads))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout)["ms_per_step"] / 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--binary")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    path, theirs = binary(arguments.binary), Theirs()
    theirs.step()
    ratios = []
    for _ in range(arguments.turns):
        mine = ours(path, arguments.threads, arguments.steps)
        other = statistics.median(theirs.step() for _ in range(arguments.steps))
        ratios.append(other / mine)
        print(f"hearken {1e3 * mine:.1f} ms, PyTorch {1e3 * other:.1f} ms: {ratios[-1]:.2f}")
    print(f"median: {statistics.median(ratios):.2f} times as fast as PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
