"""Causal attention, forward and backward: Hearken against PyTorch, alternating in one run.

    cargo build --release
    python benches/peers/attention_torch.py

12 heads of 64, f32, batch 1, as many threads on both sides (--threads). Ours and theirs take
turns; the ratio is that of the medians, theirs / ours, with that of the minima beside it.
GFLOP/s counts seven products of T·T/2·64 per head, the causal half.
"""

import argparse
import os
import statistics
import time

import torch
import torch.nn.functional as F

from ours import Ours, binary

HEADS, WIDTH = 12, 64


def theirs(tokens):
    q, k, v = (torch.randn(1, HEADS, tokens, WIDTH, requires_grad=True) for _ in range(3))
    dout = torch.randn(1, HEADS, tokens, WIDTH)

    def once():
        q.grad = k.grad = v.grad = None
        start = time.perf_counter()
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(dout)
        return time.perf_counter() - start

    return once


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", help="default: target/release/hearken")
    parser.add_argument("--tokens", default="1024,4096,16384")
    parser.add_argument("--rounds", type=int, default=0, help="default: about 10 s per length")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--window", type=int, default=256, help="compared at the longest length")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    hearken = Ours(binary(args.binary), "attention", args.threads)

    def ours(tokens, window=None):
        """Seconds of a run, and the most memory of the process as a share of Q, K, V and O."""
        answer = hearken.ask(
            tokens=tokens, heads=HEADS, kv_heads=HEADS, head_width=WIDTH, causal=True,
            window=window, backward=True, calls=1,
        )
        seconds = answer["forward_seconds"][0] + answer["backward_seconds"][0]
        return seconds, (answer["memory"]["resident"] or 0) / answer["operand_bytes"]

    print(f"torch {torch.__version__}, {args.threads} threads")
    print("tokens  rounds  ours ms (min)       torch ms (min)      ratio (of minima)  GFLOP/s  memory/QKVO")
    lengths = [int(word) for word in args.tokens.split(",")]
    for tokens in lengths:
        run = theirs(tokens)
        run(), ours(tokens)
        rounds = args.rounds or max(3, min(40, int(5e8 / tokens**2)))
        pairs = [(ours(tokens), run()) for _ in range(rounds)]
        mine, torchs = [own[0] for own, _ in pairs], [other for _, other in pairs]
        own, other = statistics.median(mine), statistics.median(torchs)
        gflops = 7 * tokens**2 * WIDTH * HEADS / own / 1e9
        (_, memory), _ = pairs[-1]
        print(
            f"{tokens:6}  {rounds:6}  {own * 1e3:8.1f} ({min(mine) * 1e3:8.1f})"
            f"  {other * 1e3:8.1f} ({min(torchs) * 1e3:8.1f})"
            f"  {other / own:5.2f} ({min(torchs) / min(mine):5.2f})"
            f"      {gflops:7.1f}  {memory:8.2f}",
            flush=True,
        )
    tokens = lengths[-1]
    pairs = [(ours(tokens)[0], ours(tokens, args.window)[0]) for _ in range(3)]
    full, near = (statistics.median(times) for times in zip(*pairs))
    print(
        f"window {args.window} at {tokens}: {near * 1e3:.1f} ms, full causal {full * 1e3:.1f} ms,"
        f" {full / near:.1f} times faster"
    )


if __name__ == "__main__":
    main()
