"""Times PyTorch's matrix product (MKL) and ours on the same shapes, alternating in one run.

    cargo build --release
    python benches/peers/gemm_torch.py [--group gpt2 ...]

For each shape of benches/shapes/gemm.json it takes turns: a few calls of one, a few of the other.
The ratio is PyTorch's median time over ours, so above 1 we are faster; `spread` is the distance
between the quartiles of our times as a share of their median.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

import torch

from ours import Ours, binary

SHAPES = pathlib.Path(__file__).parent.parent / "shapes" / "gemm.json"


def operand(rows, columns, transposed):
    """A random rows × columns matrix, stored as its transpose if asked for."""
    return torch.randn(columns, rows).t() if transposed else torch.randn(rows, columns)


class Torch:
    def __init__(self, shape):
        m, n, k, layout = shape["m"], shape["n"], shape["k"], shape["layout"]
        self.a = operand(m, k, layout[0] == "T")
        self.b = operand(k, n, layout[1] == "T")
        self.out = torch.zeros(m, n)
        self.add = shape["write"] == "add"

    def times(self, calls):
        seconds = []
        for _ in range(calls + 1):
            start = time.perf_counter()
            if self.add:
                self.out.addmm_(self.a, self.b)
            else:
                torch.mm(self.a, self.b, out=self.out)
            seconds.append(time.perf_counter() - start)
        self.out.zero_()
        return seconds[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", help="default: target/release/hearken")
    parser.add_argument("--group", nargs="*", help="only these groups of shapes")
    parser.add_argument("--only", help="only shapes whose name contains this")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.25, help="per shape and library")
    parser.add_argument("--json", action="store_true", help="one JSON object per shape")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    ours = Ours(binary(arguments.binary), "gemm", arguments.threads)
    ratios = []
    for shape in json.loads(SHAPES.read_text()):
        if arguments.group and shape["group"] not in arguments.group:
            continue
        if arguments.only and arguments.only not in shape["name"]:
            continue
        theirs = Torch(shape)
        once = statistics.median(theirs.times(2))
        turns = 20  # short ones: what disturbs the machine should disturb both
        calls = max(1, min(200, round(arguments.seconds / turns / max(once, 1e-6))))
        mine, other = [], []
        ours.ask(**shape, calls=1)
        for _ in range(turns):
            # Both libraries' idle threads spin for a moment; let them fall asleep in between.
            time.sleep(0.003)
            other += theirs.times(calls)
            time.sleep(0.003)
            mine += ours.ask(**shape, calls=calls)["seconds"]
        ratio = statistics.median(other) / statistics.median(mine)
        ratios.append(ratio)
        quartiles = statistics.quantiles(mine, n=4) if len(mine) > 1 else [mine[0]] * 3
        work = 2e-9 * shape["m"] * shape["n"] * shape["k"]
        row = {
            **shape,
            "torch_gflops": work / statistics.median(other),
            "gflops": work / statistics.median(mine),
            "ratio": ratio,
            "ratio_of_best": min(other) / min(mine),
            "spread": (quartiles[2] - quartiles[0]) / statistics.median(mine),
        }
        if arguments.json:
            print(json.dumps(row), flush=True)
        else:
            print(
                f"{shape['name']:24} {shape['layout']} {shape['m']:5}×{shape['n']:5}×{shape['k']:5}"
                f"  torch {row['torch_gflops']:6.1f}  ours {row['gflops']:6.1f} GFLOP/s"
                f"  ratio {ratio:5.2f}  of best {row['ratio_of_best']:5.2f}"
                f"  spread {row['spread']:4.0%}",
                flush=True,
            )
    if ratios and not arguments.json:
        print(f"{len(ratios)} shapes: median ratio {statistics.median(ratios):.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
