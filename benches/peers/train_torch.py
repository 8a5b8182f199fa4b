#!/usr/bin/env python3
"""The training step of `hearken bench train`, written in PyTorch; prints one line of JSON.

A decoder with pre-norm LayerNorm, learned positions, tanh GELU, no biases and a tied head; forward,
backward, clipping to norm 1 and AdamW, in f32 on random tokens. `benches/peers/train` runs it in
turn with Hearken and the others, each in a process of its own, so that peak memory is its own too.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, C, H, gelu):
        super().__init__()
        self.heads, self.gelu = H, gelu
        self.norm1, self.norm2 = (nn.LayerNorm(C, bias=False) for _ in range(2))
        self.qkv = nn.Linear(C, 3 * C, bias=False)
        self.out = nn.Linear(C, C, bias=False)
        self.up = nn.Linear(C, 4 * C, bias=False)
        self.down = nn.Linear(4 * C, C, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (
            y.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).split(C, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))


class Decoder(nn.Module):
    def __init__(self, L, C, H, T, V, gelu="tanh"):
        super().__init__()
        self.tokens = nn.Embedding(V, C)
        self.positions = nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(C, H, gelu) for _ in range(L))
        self.norm = nn.LayerNorm(C, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for size in ["layers", "width", "heads", "context", "batch", "vocab", "steps"]:
        parser.add_argument(f"--{size}", type=int, required=True)
    parser.add_argument("--compiled", action="store_true", help="by torch.compile")
    parser.add_argument("--json", action="store_true", help="as the others take it: always so")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("HEARKEN_THREADS") or os.cpu_count()))
    torch.manual_seed(0)
    model = Decoder(args.layers, args.width, args.heads, args.context, args.vocab)
    run = torch.compile(model) if args.compiled else model
    # Weight decay is for matrices alone, as in Hearken. Fused AdamW is PyTorch's fastest on the CPU.
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
    ids, targets = (torch.randint(args.vocab, (args.batch, args.context)) for _ in range(2))
    times, losses = [], []
    for _ in range(args.steps + 2):  # two to warm up
        start = time.perf_counter()
        loss = run(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        times.append(1000 * (time.perf_counter() - start))
    result = {
        "ms_per_step": statistics.median(times[2:]),
        "ms_min": min(times[2:]),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "version": torch.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
