"""Both ways between hearken and `transformers` for encoder-decoders, with the binary as a person runs it.

1. Random checkpoints that `transformers` has written, of T5 (1.0 and 1.1, tied and untied) and Marian,
   with padding on both sides: the results of `hearken inspect logits` and every gradient of `hearken
   inspect gradients` against PyTorch's, with the loss that the class itself computes.
2. Models that hearken has written: `transformers` loads them as they are, and gives the results and
   gradients that hearken gives.

    cargo build --release && cargo build --release -p hearken-formats --example random_model
    python scripts/check_encoder_decoders.py [--hearken target/release/hearken]
        [--writer target/release/examples/random_model]

Exits with 1 if a result differs by more than 1e-4 of the largest, or a gradient by more than 1e-4 of
the largest of its parameter (or, where that is less, of a hundredth of the largest of all: the gradient
of a bias of keys is zero but for rounding).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

BOUND = 1e-4
SOURCES, TARGETS = [64, 41, 17], [23, 37, 5]

T5 = dict(vocab_size=1003, d_model=130, d_kv=23, d_ff=301, num_layers=3, num_heads=5, dropout_rate=0.0)
MARIAN = dict(vocab_size=1003, d_model=130, max_position_embeddings=131, encoder_layers=3,
              decoder_layers=3, encoder_ffn_dim=301, decoder_ffn_dim=301, encoder_attention_heads=5,
              decoder_attention_heads=5, dropout=0.0, pad_token_id=1002, eos_token_id=0,
              decoder_start_token_id=1002, forced_eos_token_id=0)


def t5(**changes):
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**(T5 | changes)))


def untied(**changes):
    model = t5(tie_word_embeddings=False, **changes)
    model.lm_head.weight = torch.nn.Parameter(0.1 * torch.randn_like(model.shared.weight))
    return model


def marian(**changes):
    return transformers.MarianMTModel(transformers.MarianConfig(**(MARIAN | changes)))


RANDOM = {
    "T5 small itself": lambda: t5(vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6,
                                  num_heads=8),
    "T5 1.0": t5,
    "T5 1.0, 4 and 2 layers": lambda: t5(num_layers=4, num_decoder_layers=2),
    "T5 1.1": lambda: untied(feed_forward_proj="gated-gelu"),
    "T5 1.0, own head": untied,
    "T5 gated, tied": lambda: t5(feed_forward_proj="gated-silu"),
    "T5 other buckets": lambda: t5(relative_attention_num_buckets=10,
                                   relative_attention_max_distance=33),
    "Marian": lambda: marian(scale_embedding=True, activation_function="swish"),
    "Marian, own embeddings": lambda: marian(share_encoder_decoder_embeddings=False,
                                             activation_function="relu"),
    "Marian, other encoder": lambda: marian(encoder_layers=2, encoder_attention_heads=13,
                                            encoder_ffn_dim=211),
}

COMMON = """
kind = "encoder-decoder"
vocabulary = 701
context = 131
layers = 3
width = 78
heads = 13
"""
VASWANI = COMMON + """
norm = { kind = "layer", placement = "post" }
position = { kind = "sinusoidal", order = "halves" }
feed_forward = { kind = "relu", width = 211 }
bias = true
scaled_embeddings = true
"""
PRE = COMMON + """
norm = { kind = "rms", eps = 1e-6 }
position = "t5"
bias = false
scaled_scores = false
head_width = 11
"""
# What hearken writes, and as what.
WRITTEN = {
    "written T5 1.0": (PRE + 'feed_forward = { kind = "relu", width = 211 }\nscaled_logits = true', "t5"),
    "written T5 1.1": (PRE + 'feed_forward = { kind = "geglu-tanh", width = 211 }\ntied = false', "t5"),
    "written T5, 2 and 3": (PRE + "feed_forward = \"relu\"\nscaled_logits = true\nencoder = { layers = 2 }",
                            "t5"),
    "written Marian": (VASWANI, "marian"),
    "written Marian, bias": (VASWANI + "logits_bias = true", "marian"),
    "written Marian, own embeddings": (VASWANI + "shared = false", "marian"),
    "written Marian, other encoder": (
        VASWANI + "encoder = { layers = 2, heads = 6, feed_forward_width = 99 }", "marian"),
}


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}\n{done.stderr}")


def flags_of(name, rows):
    return [flag for row in rows for flag in (f"--{name}", ",".join(str(x) for x in row))]


def inside(lengths):
    return torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]


def compare(hearken, directory, model, folder):
    """Largest difference of the results, and of each gradient."""
    torch.manual_seed(1)
    mask, real = inside(SOURCES), inside(TARGETS)
    # Ids that are not padding: PyTorch gives Marian's padding token no gradient.
    most = model.config.vocab_size - 1
    ids = torch.randint(5, most, mask.shape)
    decoder_ids = torch.randint(5, most, real.shape)
    targets = torch.randint(0, most, real.shape)
    targets[~real] = -100
    bias = getattr(model, "final_logits_bias", None)
    if bias is not None:
        bias.requires_grad_(True)
    out = model(input_ids=ids, attention_mask=mask.long(), decoder_input_ids=decoder_ids,
                labels=targets, output_hidden_states=True)
    flags = (flags_of("ids", ids.tolist()) + flags_of("mask", mask.long().tolist())
             + flags_of("decoder-ids", decoder_ids.tolist()))
    path = str(folder / "out.safetensors")
    run(hearken, "inspect", "logits", "--model", str(directory), *flags, "--out", path)
    found, worst = load_file(path), 0.0
    for name, want, seen in [("encoder_hidden", out.encoder_last_hidden_state, mask),
                             ("hidden", out.decoder_hidden_states[-1], real),
                             ("logits", out.logits, real)]:
        got, want = found[name] * seen[:, :, None], want * seen[:, :, None]
        worst = max(worst, ((got - want).abs().max() / want.abs().max()).item())
    flags += flags_of("targets", targets.tolist())
    run(hearken, "inspect", "gradients", "--model", str(directory), *flags, "--out", path)
    found = load_file(path)
    out.loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    if bias is not None and "final_logits_bias" in found:
        gradients["final_logits_bias"] = bias.grad
    assert set(gradients) | {"loss"} == set(found), set(gradients) ^ set(found)
    floor = 0.01 * max(gradient.abs().max().item() for gradient in gradients.values())
    error, where = 0.0, "-"
    for name, gradient in gradients.items():
        off = ((found[name] - gradient).abs().max() / max(gradient.abs().max(), floor)).item()
        if not off <= error:  # NaN counts as worst
            error, where = off, name
    return worst, error, where


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--writer", default="target/release/examples/random_model")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, make in RANDOM.items():
            torch.manual_seed(0)
            model = make().eval()
            with torch.no_grad():
                for parameter in model.parameters():  # norms off 1, biases off 0
                    if parameter.requires_grad:
                        parameter.add_(0.02 * torch.randn_like(parameter))
                if hasattr(model, "final_logits_bias"):
                    model.final_logits_bias.add_(torch.randn_like(model.final_logits_bias))
            model.save_pretrained(folder / "theirs")
            rows.append((name, *compare(arguments.hearken, folder / "theirs", model, folder)))
        for name, (text, family) in WRITTEN.items():
            config, saved = folder / "model.toml", folder / name
            config.write_text("[model]\n" + text + "\n")
            run(arguments.writer, str(config), str(saved))
            chosen = json.loads((saved / "config.json").read_text())["model_type"]
            if chosen != family:
                sys.exit(f"{name} is saved as {chosen}")
            maker = transformers.AutoModelForSeq2SeqLM
            model, info = maker.from_pretrained(saved, dtype=torch.float32,
                                                output_loading_info=True)
            lost = {key: sorted(value) for key, value in info.items() if value}
            if lost:
                sys.exit(f"{name}: transformers does not take it as it is: {json.dumps(lost)}")
            rows.append((name, *compare(arguments.hearken, saved, model.eval(), folder)))
    print(f"{'model':34} {'results':>9} {'gradients':>9}  worst gradient")
    for name, results, gradients, where in rows:
        print(f"{name:34} {results:9.1e} {gradients:9.1e}  {where}")
    if not all(results <= BOUND and gradients <= BOUND for _, results, gradients, _ in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
