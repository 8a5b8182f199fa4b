"""Times training steps of models other than decoders in PyTorch and in hearken, in turns.

    python benches/peers/kinds_torch.py lstm|bert|transformer [--turns 5] [--steps 4] [--threads 2]
        [--compile] [--bf16] [--binary PATH]

Sizes and batches are those of configs/bench/KIND.toml; both sides clip by the global norm and take
a step of AdamW. PyTorch runs eagerly and, with --compile, compiled as well: the ratio is that of its
better median.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

import torch
from torch import nn
from torch.nn import functional as F

from ours import ROOT, binary


class Lstm(nn.Module):
    """2 layers × 512, T 128, B 16, V 65, a tied head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(65, 512)
        self.lstm = nn.LSTM(512, 512, 2, batch_first=True)
        self.batch = tuple(torch.randint(0, 65, (2, 16, 128)))

    def forward(self, ids, targets):
        logits = F.linear(self.lstm(self.embedding(ids))[0], self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Bert(nn.Module):
    """BERT base, T 128, B 8; its head is given the guessed tokens alone, one in seven."""

    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                            max_position_embeddings=128)
        self.body = BertModel(config, add_pooling_layer=False)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        places = torch.arange(3, 8 * 128, 7)
        draw = lambda *shape: torch.randint(0, config.vocab_size, shape)
        self.batch = (draw(8, 128), places, draw(len(places)))

    def forward(self, ids, places, targets):
        hidden = self.body(ids).last_hidden_state.flatten(0, 1)[places]
        hidden = self.norm(F.gelu(self.dense(hidden)))
        logits = F.linear(hidden, self.body.embeddings.word_embeddings.weight, self.bias)
        return F.cross_entropy(logits, targets)


class Transformer(nn.Module):
    """Transformer base with V 8,000, T 64 on either side, B 16, shared embeddings."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8000, 512)
        nn.init.normal_(self.embedding.weight, std=512**-0.5)
        angles = torch.arange(64)[:, None] / 10000 ** (torch.arange(256) / 256)
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))
        self.body = nn.Transformer(512, 8, 6, 6, 2048, dropout=0.0, batch_first=True)
        # As hearken's: with post-norm the last block's norm is the only one at the end.
        self.body.encoder.norm = self.body.decoder.norm = None
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(64))
        self.batch = tuple(torch.randint(0, 8000, (3, 16, 64)))

    def embed(self, ids):
        return self.embedding(ids) * 512**0.5 + self.positions

    def forward(self, source, inputs, targets):
        hidden = self.body(self.embed(source), self.embed(inputs), tgt_mask=self.mask,
                           tgt_is_causal=True)
        logits = F.linear(hidden, self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Theirs:
    def __init__(self, kind, compiled, bf16):
        torch.manual_seed(1)
        self.model = kind().train()
        self.run = torch.compile(self.model) if compiled else self.model
        self.bf16 = bf16
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, fused=True)
        self.step()
        self.step()

    def step(self):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.run(*self.model.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start


def ours(path, kind, threads, steps):
    """The median seconds of so many steps, in a process of their own."""
    config = ROOT / "configs" / "bench" / f"{kind}.toml"
    command = [path, "bench", "train", "--config", config, "--steps", str(steps), "--json"]
    environment = dict(os.environ, HEARKEN_THREADS=str(threads))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout)["ms_per_step"] / 1e3


def main():
    kinds = dict(lstm=Lstm, bert=Bert, transformer=Transformer)
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--binary")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    path, kind = binary(arguments.binary), kinds[arguments.kind]
    theirs = {"eager": Theirs(kind, False, arguments.bf16)}
    if arguments.compile:
        theirs["compiled"] = Theirs(kind, True, arguments.bf16)
    times = {name: [] for name in ["hearken", *theirs]}
    ratios = []
    for _ in range(arguments.turns):
        turn = {"hearken": ours(path, arguments.kind, arguments.threads, arguments.steps)}
        for name, other in theirs.items():
            turn[name] = statistics.median(other.step() for _ in range(arguments.steps))
        for name, seconds in turn.items():
            times[name].append(seconds)
        best = min(seconds for name, seconds in turn.items() if name != "hearken")
        ratios.append(best / turn["hearken"])
        print(", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in turn.items())
              + f": {ratios[-1]:.2f}", flush=True)
    print(f"median {statistics.median(ratios):.2f} times as fast as PyTorch {torch.__version__} "
          f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
