"""How long the page takes, and how much memory: figures of docs/guide/explain.md.

    cargo build --release
    python scripts/time_page.py [--hearken target/release/hearken]     (needs torch and transformers)

1. A random model of GPT-2 small's size, 64 tokens: until the page is served and its first answers are
   there, a click (a heat map, a number, the heads of a layer, one head), gradients, the peak of memory.
2. A random RoPE model of 8 layers × 512 with 2,000 tokens: a view of one head.
3. One file of a 20-token prompt of a small model.

Wall time and CPU time of the server, median of five clicks, and the load of the machine: on a busy one
only CPU time means something.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import urllib.request

import transformers


def save(model, folder, name):
    model.save_pretrained(folder / name)
    return folder / name


def llama(**sizes):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))


class Page:
    def __init__(self, program, model, ids):
        self.start = time.monotonic()
        command = [program, "explain", "--model", str(model), "--page", "--ids", ",".join(map(str, ids))]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().strip()
        self.served = time.monotonic() - self.start
        self.ids = ids

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e9

    def ask(self, question, **body):
        data = json.dumps({"ids": self.ids, **body} if question != "model" else {}).encode()
        request = urllib.request.Request(f"{self.address}api/{question}", data, {"content-type": "application/json"})
        wall, cpu = time.monotonic(), self.cpu()
        with urllib.request.urlopen(request) as answer:
            found = json.load(answer)
        return found, time.monotonic() - wall, self.cpu() - cpu

    def clicks(self, what, each):
        """Five clicks: `each(i)` gives the question and its fields."""
        found = [self.ask(name, **body) for name, body in map(each, range(5))]
        wall, cpu = (statistics.median(one[k] for one in found) for k in (1, 2))
        report(what, wall, cpu)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def report(what, wall, cpu):
    print(f"  {what:58} {wall:7.3f} s   CPU {cpu:7.3f} s", flush=True)


def gpt2(program, folder):
    model = save(transformers.GPT2LMHeadModel(transformers.GPT2Config()), folder, "gpt2")
    with Page(program, model, [(i * 7919) % 50257 for i in range(64)]) as page:
        print("GPT-2 small's size, 64 tokens")
        report("until the page is served", page.served, page.cpu())
        first = [page.ask("model"), page.ask("tokens"), page.ask("run")]
        report("the answers of its first view", sum(f[1] for f in first), sum(f[2] for f in first))
        name = "blocks.{}.attention.weights"
        page.clicks("click: a heat map", lambda i: ("tensor", {"name": f"blocks.{2 * i}.feed_forward.up"}))
        page.clicks("click: a number with its sum", lambda i: ("number", {"name": name.format(i), "row": 50, "column": i}))
        page.clicks("click: the heads of a layer", lambda i: ("heads", {"site": f"blocks.{2 * i}.attention"}))
        page.clicks("click: one head", lambda i: ("tensor", {"name": name.format(i), "head": i}))
        page.clicks("click: the stream of a token", lambda i: ("stream", {"place": 10 * i}))
        page.clicks("a switched-off head", lambda i: ("intervene", {"target": [63, 5], "changes": [{"ablate": f"blocks.{i}.attention.mixed[1]"}]}))
        print(f"  peak of memory, forward views: {page.peak():.2f} GB")
        _, wall, cpu = page.ask("run", target=[63, 5])
        report("gradients on", wall, cpu)
        print(f"  peak of memory with gradients: {page.peak():.2f} GB")


def long(program, folder):
    model = llama(vocab_size=5000, hidden_size=512, num_hidden_layers=8, num_attention_heads=8,
                  intermediate_size=2048, max_position_embeddings=2048)
    model = save(model, folder, "rope")
    with Page(program, model, [(i * 7919) % 5000 for i in range(2000)]) as page:
        print("RoPE, 8 layers × 512, 2,000 tokens")
        _, wall, cpu = page.ask("run")
        report("the run", wall, cpu)
        page.clicks("a view of one head", lambda i: ("tensor", {"name": f"blocks.{i}.attention.weights", "head": i}))
        _, wall, cpu = page.ask("heads", site="blocks.5.attention")
        report("all 8 heads of a layer, small", wall, cpu)
        print(f"  peak of memory: {page.peak():.2f} GB")


def one_file(program, folder):
    model = llama(vocab_size=27, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                  intermediate_size=256, max_position_embeddings=64)
    model = save(model, folder, "small")
    out = folder / "page.html"
    ids = ",".join(str(1 + i % 26) for i in range(20))
    wall = time.monotonic()
    subprocess.run([program, "explain", "--model", str(model), "--ids", ids, "--out", str(out)],
                   check=True, capture_output=True)
    print(f"one file, 20 tokens, 2 layers × 64: {out.stat().st_size / 1e6:.2f} MB in {time.monotonic() - wall:.1f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearken", default="target/release/hearken")
    program = str(pathlib.Path(parser.parse_args().hearken).resolve())
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        for part in (gpt2, long, one_file):
            part(program, pathlib.Path(folder))


if __name__ == "__main__":
    main()
