"""What the figures of `benches/peers/train` come to: medians, spreads and ratios."""

import statistics

KEPT = ["ms_per_step", "ms_min", "peak_rss_bytes", "gflops", "peak_fraction", "allocations_per_step"]


def compact(result):
    """What is kept of one turn."""
    return {key: result[key] for key in KEPT if key in result}


def milliseconds(turns):
    return statistics.median(turn["ms_per_step"] for turn in turns)


def mebibytes(turns):
    return statistics.median(turn["peak_rss_bytes"] for turn in turns) / 2**20


def spread(turns):
    """The least and the most of the turns' medians."""
    times = [turn["ms_per_step"] for turn in turns]
    return min(times), max(times)


def best_torch(runs):
    """The name of PyTorch's fastest way, or None."""
    torch = [name for name in runs if name.startswith("torch")]
    return min(torch, key=lambda name: milliseconds(runs[name]), default=None)


def ratios(runs):
    """Their time over ours by name, and our memory over the least of PyTorch's."""
    if "hearken" not in runs:
        return {}
    ours = milliseconds(runs["hearken"])
    against = {"best PyTorch": best_torch(runs), "PyTorch eager": "torch eager", "candle": "candle", "burn": "burn"}
    found = {
        label: milliseconds(runs[name]) / ours for label, name in against.items() if name in runs
    }
    torch = [mebibytes(turns) for name, turns in runs.items() if name.startswith("torch")]
    if torch:
        found["memory"] = mebibytes(runs["hearken"]) / min(torch)
    return found


def table(name, runs):
    """Lines for a terminal."""
    lines = [f"{name:26} {'ms per step':>12}  {'min–max of rounds':>20}  {'MiB':>7}  theirs / ours"]
    ours = milliseconds(runs["hearken"]) if "hearken" in runs else None
    for peer, turns in runs.items():
        low, high = spread(turns)
        ratio = f"{milliseconds(turns) / ours:.2f}" if ours else "–"
        lines.append(
            f"  {peer:24} {milliseconds(turns):12.1f}  {f'{low:.1f}–{high:.1f}':>20}"
            f"  {mebibytes(turns):7.0f}  {ratio:>13}"
        )
    found = ratios(runs)
    times = [f"{label} / ours {ratio:.2f}" for label, ratio in found.items() if label != "memory"]
    if times:
        lines.append("  " + ", ".join(times))
    if "memory" in found:
        lines.append(f"  memory: ours / the least of PyTorch's {found['memory']:.2f}")
    return lines
