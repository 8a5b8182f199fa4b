"""Both ways between hearken and `transformers`, with the binary as a person runs it.

1. Random checkpoints that `transformers` has written: the logits of `hearken inspect logits` and
   every gradient of `hearken inspect gradients` against PyTorch's.
2. Checkpoints that hearken has written (--saved DIR…): `transformers` loads them as they are, and
   gives the logits that hearken gives.

    cargo build --release
    python scripts/check_transformers.py [--hearken target/release/hearken] [--small] [--saved DIR…]

Exits with 1 if a logit differs by more than 1e-4, or a gradient by more than 1e-4 of the largest
of its parameter.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

BOUND = 1e-4


def random_models(small):
    """Name and maker: GPT-2 small itself, and Llamas of sizes that divide nothing."""
    layers = 2 if small else 12
    yield "gpt2-small", lambda: GPT2LMHeadModel(GPT2Config(n_layer=layers))
    yield "gpt2-untied", lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=5003, n_positions=77, n_embd=99, n_layer=3, n_head=11,
                   n_inner=301, tie_word_embeddings=False)
    )
    llama = dict(vocab_size=7001, hidden_size=390, intermediate_size=1031, num_hidden_layers=5,
                 num_attention_heads=13, num_key_value_heads=1, max_position_embeddings=131)
    yield "llama-odd", lambda: LlamaForCausalLM(LlamaConfig(**llama))
    yield "llama-grouped-tied-biases", lambda: LlamaForCausalLM(
        LlamaConfig(**(llama | dict(num_attention_heads=15, num_key_value_heads=3, head_dim=38,
                                    tie_word_embeddings=True, attention_bias=True, mlp_bias=True)))
    )
    yield "llama-3-rope", lambda: LlamaForCausalLM(
        LlamaConfig(**llama, rope_parameters=dict(
            rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=64))
    )


def run(hearken, *arguments):
    done = subprocess.run([hearken, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"hearken {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def listed(row):
    return ",".join(str(i) for i in row)


def compare(hearken, directory, model, folder, gradients):
    """Largest difference of the logits, and of the gradients relative to each one's largest."""
    torch.manual_seed(1)
    length = min(64, model.config.max_position_embeddings)
    ids = torch.randint(0, model.config.vocab_size, (2, length))
    targets = torch.randint(0, model.config.vocab_size, (2, length))
    flags = [flag for row in ids.tolist() for flag in ("--ids", listed(row))]
    out = str(folder / "out.safetensors")
    run(hearken, "inspect", "logits", "--model", str(directory), *flags, "--out", out)
    logits = model(ids).logits
    logit_error = (load_file(out)["logits"] - logits).abs().max().item()
    if not gradients:
        return logit_error, 0.0, "-"
    flags += [flag for row in targets.tolist() for flag in ("--targets", listed(row))]
    run(hearken, "inspect", "gradients", "--model", str(directory), *flags, "--out", out)
    ours = load_file(out)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    names = {name for name, _ in model.named_parameters()}
    assert names | {"loss"} == set(ours), names ^ set(ours)
    worst, where = 0.0, "-"
    for name, parameter in model.named_parameters():
        error = ((ours[name] - parameter.grad).abs().max() / parameter.grad.abs().max()).item()
        if error > worst:
            worst, where = error, name
    return logit_error, worst, where


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--small", action="store_true", help="2 layers of GPT-2 instead of 12")
    parser.add_argument("--saved", nargs="*", default=[], help="directories written by hearken")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, make in random_models(arguments.small):
            torch.manual_seed(0)
            model = make().eval()
            with torch.no_grad():
                for parameter in model.parameters():  # norms off 1, biases off 0
                    parameter.add_(0.02 * torch.randn_like(parameter))
            model.save_pretrained(folder / name)
            rows.append((name, *compare(arguments.hearken, folder / name, model, folder, True)))
        for saved in arguments.saved:
            model, info = AutoModelForCausalLM.from_pretrained(
                saved, dtype=torch.float32, output_loading_info=True
            )
            lost = {key: sorted(value) for key, value in info.items() if value}
            if lost:
                sys.exit(f"{saved}: transformers does not take it as it is: {json.dumps(lost)}")
            name = f"{saved} ({type(model).__name__})"
            rows.append((name, *compare(arguments.hearken, saved, model.eval(), folder, True)))
    print(f"{'model':40} {'logits':>9} {'gradients':>9}  worst gradient")
    for name, logits, gradients, where in rows:
        print(f"{name:40} {logits:9.1e} {gradients:9.1e}  {where}")
    if any(logits > BOUND or gradients > BOUND for _, logits, gradients, _ in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
