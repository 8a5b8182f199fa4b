"""Causal attention, forward and backward: Hearken against PyTorch, alternating in one run.

    cargo build --release -p hearken-kernels --examples
    python benches/peers/attention_torch.py target/release/examples/attention_bench

12 heads of 64, f32, batch 1, as many threads on both sides (--threads). Ours and theirs take
turns; the ratio is that of the medians, theirs / ours, with that of the minima beside it.
GFLOP/s counts seven products of T·T/2·64 per head, the causal half.
"""

import argparse
import os
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

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
    parser.add_argument("binary")
    parser.add_argument("--tokens", default="1024,4096,16384")
    parser.add_argument("--rounds", type=int, default=0, help="default: about 10 s per length")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--window", type=int, default=256, help="compared at the longest length")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    environment = {**os.environ, "HEARKEN_THREADS": str(args.threads)}
    process = subprocess.Popen(
        [args.binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )

    def ours(tokens, window=0):
        process.stdin.write(f"{tokens} {window}\n")
        process.stdin.flush()
        forward, backward, peak, operands = map(float, process.stdout.readline().split())
        return forward + backward, peak, operands

    print(f"torch {torch.__version__}, {args.threads} threads")
    print("tokens  rounds  ours ms (min)       torch ms (min)      ratio (of minima)  GFLOP/s  peak/QKVO")
    lengths = [int(word) for word in args.tokens.split(",")]
    for tokens in lengths:
        run = theirs(tokens)
        run(), ours(tokens)
        rounds = args.rounds or max(3, min(40, int(5e8 / tokens**2)))
        pairs = [(ours(tokens), run()) for _ in range(rounds)]
        mine, torchs = [own[0] for own, _ in pairs], [other for _, other in pairs]
        own, other = statistics.median(mine), statistics.median(torchs)
        gflops = 7 * tokens**2 * WIDTH * HEADS / own / 1e9
        (_, peak, operands), _ = pairs[-1]
        print(
            f"{tokens:6}  {rounds:6}  {own * 1e3:8.1f} ({min(mine) * 1e3:8.1f})"
            f"  {other * 1e3:8.1f} ({min(torchs) * 1e3:8.1f})"
            f"  {other / own:5.2f} ({min(torchs) / min(mine):5.2f})"
            f"      {gflops:7.1f}  {peak / operands:8.2f}",
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
