"""Both ways between hearken and `transformers`, with the binary as a person runs it.

1. Random checkpoints that `transformers` has written: the logits of `hearken inspect logits` and
   every gradient of `hearken inspect gradients` against PyTorch's.
2. Checkpoints that hearken has written, random ones of every family and any that are given
   (--saved DIR…): `transformers` loads them as they are, and gives the logits and gradients that
   hearken gives.

    cargo build --release && cargo build --release -p hearken-formats --example random_model
    python scripts/check_transformers.py [--hearken target/release/hearken]
        [--writer target/release/examples/random_model] [--small] [--saved DIR…]

Exits with 1 if a logit differs by more than 1e-4 of the largest, or a gradient by more than 1e-4 of
the largest of its parameter.
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
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

BOUND = 1e-4


def random_models(small):
    """Name and maker: GPT-2 small itself, and others of sizes that divide nothing."""
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
    yield "llama-attention-biases", lambda: LlamaForCausalLM(
        LlamaConfig(**llama, attention_bias=True)
    )
    # Windows are shorter than the 64 tokens of a comparison, so that they matter.
    yield "mistral-window", lambda: MistralForCausalLM(
        MistralConfig(**(llama | dict(num_attention_heads=15, num_key_value_heads=3, head_dim=38)),
                      sliding_window=17)
    )
    yield "mistral-no-window-tied", lambda: MistralForCausalLM(
        MistralConfig(**llama, sliding_window=None, tie_word_embeddings=True)
    )
    mixtral = llama | dict(intermediate_size=211, num_local_experts=7, num_experts_per_tok=3)
    yield "mixtral-odd", lambda: MixtralForCausalLM(MixtralConfig(**mixtral))
    yield "mixtral-window-tied", lambda: MixtralForCausalLM(
        MixtralConfig(**(mixtral | dict(num_experts_per_tok=2)), sliding_window=17,
                      tie_word_embeddings=True)
    )
    yield "qwen2-odd", lambda: Qwen2ForCausalLM(Qwen2Config(**llama))
    yield "qwen2-window-tied", lambda: Qwen2ForCausalLM(
        Qwen2Config(**(llama | dict(num_attention_heads=15, num_key_value_heads=5, head_dim=38)),
                    tie_word_embeddings=True, use_sliding_window=True, sliding_window=17,
                    max_window_layers=0)
    )
    yield "qwen2-yarn", lambda: Qwen2ForCausalLM(
        Qwen2Config(**llama, rope_parameters=dict(
            rope_type="yarn", rope_theta=1e6, factor=2.5, original_max_position_embeddings=53))
    )


LLAMA_LIKE = """
vocabulary = 701
context = 131
layers = 3
width = 78
heads = 13
kv_heads = 1
norm = { kind = "rms", eps = 1e-6 }
position = { kind = "rope", base = 500000.0 }
feed_forward = { kind = "swiglu", width = 211 }
"""

# Directories for hearken to write: the model_type that it must choose, and the model.
WRITTEN = {
    "written-gpt2": ("gpt2", """
vocabulary = 503
context = 77
layers = 3
width = 99
heads = 11
feed_forward = { kind = "gelu-tanh", width = 301 }
bias = true
"""),
    "written-llama": ("llama", LLAMA_LIKE + "tied = false"),
    "written-llama-feed-forward-biases": (
        "llama", LLAMA_LIKE + "bias = { feed_forward = true }"),
    "written-mistral": (
        "mistral", LLAMA_LIKE + 'tied = false\nattention = { kind = "window", size = 17 }'),
    "written-mistral-uneven-heads": (
        "mistral", LLAMA_LIKE.replace("width = 78", "width = 79\nhead_width = 6")),
    "written-mixtral": ("mixtral", LLAMA_LIKE + "experts = 5\ntied = false"),
    "written-mixtral-capacity": (
        "mixtral", LLAMA_LIKE + "experts = { count = 3, top = 2, capacity = 1.25, z_loss = 0.01 }\n"
        'attention = { kind = "window", size = 17 }'),
    "written-qwen2": ("qwen2", LLAMA_LIKE + "bias = { attention_in = true }"),
    "written-qwen2-window-wide-heads": (
        "qwen2", LLAMA_LIKE + "bias = { attention_in = true }\nhead_width = 10\ntied = false\n"
        'attention = { kind = "window", size = 17 }'),
}


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def write(writer, folder):
    """Lets hearken write a directory of each family."""
    for name, (model_type, model) in WRITTEN.items():
        config = folder / f"{name}.toml"
        config.write_text('[model]\nkind = "decoder"\n' + model)
        run(writer, str(config), str(folder / name))
        chosen = json.loads((folder / name / "config.json").read_text())["model_type"]
        if chosen != model_type:
            sys.exit(f"{name} is saved as {chosen}, expected {model_type}")
        yield folder / name


def listed(row):
    return ",".join(str(i) for i in row)


def in_files(name, tensor):
    """A parameter as tensors of a file: Mixtral has its experts one by one there."""
    if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
        yield name.replace(".mlp.gate.weight", ".block_sparse_moe.gate.weight"), tensor
        return
    start, which = name.rsplit(".", 1)
    start = start.replace(".mlp.", ".block_sparse_moe.")
    for expert, own in enumerate(tensor):
        parts = [("w2", own)] if which == "down_proj" else zip(("w1", "w3"), own.chunk(2))
        for part, rows in parts:
            yield f"{start}.{expert}.{part}.weight", rows


def compare(hearken, directory, model, folder):
    """Largest difference of the logits, and of each gradient, relative to the largest of them."""
    torch.manual_seed(1)
    if model.config.model_type == "mixtral":
        model.set_experts_implementation("eager")  # the others want even sizes
    length = min(64, model.config.max_position_embeddings)
    ids = torch.randint(0, model.config.vocab_size, (2, length))
    targets = torch.randint(0, model.config.vocab_size, (2, length))
    flags = [flag for row in ids.tolist() for flag in ("--ids", listed(row))]
    out = str(folder / "out.safetensors")
    run(hearken, "inspect", "logits", "--model", str(directory), *flags, "--out", out)
    logits = model(ids).logits
    logit_error = ((load_file(out)["logits"] - logits).abs().max() / logits.abs().max()).item()
    flags += [flag for row in targets.tolist() for flag in ("--targets", listed(row))]
    run(hearken, "inspect", "gradients", "--model", str(directory), *flags, "--out", out)
    ours = load_file(out)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    theirs = {name: gradient for parameter_name, parameter in model.named_parameters()
              for name, gradient in in_files(parameter_name, parameter.grad)}
    names = set(theirs)
    assert names | {"loss"} == set(ours), names ^ set(ours)
    worst, where = 0.0, "-"
    for name, gradient in theirs.items():
        error = ((ours[name] - gradient).abs().max() / gradient.abs().max()).item()
        if not error <= worst:  # NaN counts as worst
            worst, where = error, name
    return logit_error, worst, where


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--writer", default="target/release/examples/random_model")
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
            rows.append((name, *compare(arguments.hearken, folder / name, model, folder)))
        for saved in [*write(arguments.writer, folder), *arguments.saved]:
            model, info = AutoModelForCausalLM.from_pretrained(
                saved, dtype=torch.float32, output_loading_info=True
            )
            lost = {key: sorted(value) for key, value in info.items() if value}
            if lost:
                sys.exit(f"{saved}: transformers does not take it as it is: {json.dumps(lost)}")
            name = f"{pathlib.Path(saved).name} ({type(model).__name__})"
            rows.append((name, *compare(arguments.hearken, saved, model.eval(), folder)))
    print(f"{'model':58} {'logits':>9} {'gradients':>9}  worst gradient")
    for name, logits, gradients, where in rows:
        print(f"{name:58} {logits:9.1e} {gradients:9.1e}  {where}")
    if not all(logits <= BOUND and gradients <= BOUND for _, logits, gradients, _ in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
