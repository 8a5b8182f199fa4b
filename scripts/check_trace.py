"""`hearken inspect trace` against `transformers`, with the binary as a person runs it.

Random models of GPT-2, Llama, Mistral, Qwen2, BERT and T5, and directories that are given, which
transformers must know. Compared are

1. `output_hidden_states`, `output_attentions` and the logits of `transformers` (eager attention);
2. every value inside, and the gradient of each, as PyTorch's hooks see them
   (crates/formats/tests/fixtures/make_trace.py).

    cargo build --release
    python scripts/check_trace.py [--hearken target/release/hearken] [--saved DIR…]

Exits with 1 if a value differs by more than 1e-5 of the largest of its tensor, or a gradient by more
than 1e-4.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "crates/formats/tests/fixtures"))
import make_trace as fixture  # noqa: E402  (beside the fixtures that it makes)

VALUES, GRADIENTS = 1e-5, 1e-4


def random_models():
    """Name and maker: GPT-2 small in width, and others of sizes that divide nothing."""
    yield "gpt2", lambda: GPT2LMHeadModel(GPT2Config(n_layer=4))
    llama = dict(vocab_size=7001, hidden_size=390, intermediate_size=1031, num_hidden_layers=5,
                 num_attention_heads=15, num_key_value_heads=3, head_dim=38,
                 max_position_embeddings=131)
    yield "llama", lambda: LlamaForCausalLM(LlamaConfig(**llama))
    # Shorter than the 64 tokens of a comparison.
    yield "mistral", lambda: MistralForCausalLM(MistralConfig(**llama, sliding_window=17))
    yield "qwen2", lambda: Qwen2ForCausalLM(Qwen2Config(**llama, tie_word_embeddings=True))
    bert = dict(vocab_size=1003, hidden_size=390, intermediate_size=1031, num_hidden_layers=5,
                num_attention_heads=13, max_position_embeddings=131)
    yield "bert", lambda: BertForMaskedLM(BertConfig(**bert))
    t5 = dict(vocab_size=1003, d_model=130, d_kv=23, d_ff=301, num_layers=3, num_decoder_layers=2,
              num_heads=5, dropout_rate=0.0)
    yield "t5 1.0", lambda: T5ForConditionalGeneration(T5Config(**t5))
    yield "t5 1.1", lambda: T5ForConditionalGeneration(
        T5Config(**t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    )


def hearken_trace(program, directory, given, out):
    command = [program, "inspect", "trace", "--model", str(directory), "--out", str(out)]
    for flag, rows in given.items():
        for row in rows.tolist():
            command += [flag, ",".join(str(i) for i in row)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return load_file(out)


def error(got, want):
    """The largest difference as a share of the largest number; hidden scores must be so in both."""
    assert got.shape == want.shape, (got.shape, want.shape)
    hidden = torch.isinf(want)
    if not torch.equal(hidden, torch.isinf(got)):
        return float("inf")
    got, want = got.masked_fill(hidden, 0), want.masked_fill(hidden, 0)
    return ((got - want).abs().max() / want.abs().max()).item()


def compare(program, directory, folder):
    """The worst value among what `transformers` gives out, among all, and the worst gradient."""
    model = fixture.load(directory)
    torch.manual_seed(1)
    length = min(64, getattr(model.config, "max_position_embeddings", 64))
    ids = torch.randint(0, model.config.vocab_size, (2, length))
    targets = torch.randint(0, model.config.vocab_size, (2, length))
    given = {"--ids": ids, "--targets": targets}
    source = None
    if model.config.is_encoder_decoder:
        source = torch.randint(0, model.config.vocab_size, (2, 41))
        given = {"--ids": source, "--decoder-ids": ids, "--targets": targets}
    want, loss, own = fixture.reference(model, ids, targets, source)
    got = hearken_trace(program, directory, given, folder / "trace.safetensors")
    assert set(want) | {"loss"} == set(got), (set(want) | {"loss"}) ^ set(got)
    assert abs(got["loss"].item() - loss) <= 1e-5 * loss, (got["loss"].item(), loss)
    outputs = [(error(got[name], value), name) for name, value in own.items()]
    values = [(error(got[name], want[name]), name) for name in want if not name.startswith("d.")]
    gradients = [(error(got[name], want[name]), name) for name in want if name.startswith("d.")]
    # A NaN is worse than anything.
    worst = [max(each, key=lambda e: (e[0] != e[0], e[0])) for each in (outputs, values, gradients)]
    return worst, len(values)


def show(name, worst, count):
    """Prints a row, and says whether all of it is within bounds."""
    (outputs, _), (values, _), (gradients, where) = worst
    print(f"{name:40} {count:6} {outputs:9.1e} {values:9.1e} {gradients:9.1e}  {where}", flush=True)
    return outputs <= VALUES and values <= VALUES and gradients <= GRADIENTS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--saved", nargs="*", default=[], help="model directories")
    arguments = parser.parse_args()
    rows = []
    print(f"{'model':40} {'values':>6} {'outputs':>9} {'values':>9} {'gradients':>9}  worst gradient")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, make in random_models():
            torch.manual_seed(0)
            model = make().eval()
            with torch.no_grad():
                for parameter in model.parameters():  # norms off 1, biases off 0
                    parameter.add_(0.02 * torch.randn_like(parameter))
            model.save_pretrained(folder / name)
            rows.append(show(name, *compare(arguments.hearken, folder / name, folder)))
        for saved in arguments.saved:
            directory = pathlib.Path(saved)
            rows.append(show(saved, *compare(arguments.hearken, directory, folder)))
    sys.exit(0 if all(rows) else 1)


if __name__ == "__main__":
    main()
