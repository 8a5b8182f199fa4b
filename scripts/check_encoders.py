"""Both ways between hearken and `transformers` for encoders, with the binary as a person runs it.

1. Random checkpoints that `transformers` has written, of every class of BERT, RoBERTa and DistilBERT,
   with padding and two sentences: the results of `hearken inspect logits` and every gradient of
   `hearken inspect gradients` against PyTorch's, with the loss that the class itself computes.
2. Encoders that hearken has written, of every class: `transformers` loads them as they are, and
   gives the results and gradients that hearken gives.

    cargo build --release && cargo build --release -p hearken-formats --example random_model
    python scripts/check_encoders.py [--hearken target/release/hearken]
        [--writer target/release/examples/random_model] [--small]

Exits with 1 if a result differs by more than 1e-4 of the largest, or a gradient by more than 1e-4 of
the largest of its parameter (or, where that is less, of a hundredth of the largest of all: some
gradients are zero but for rounding).
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
ENDS = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
        "ForQuestionAnswering"]
BERT = dict(vocab_size=1003, hidden_size=390, intermediate_size=1031, num_hidden_layers=5,
            num_attention_heads=13, max_position_embeddings=131)
DISTILBERT = dict(vocab_size=1003, dim=390, hidden_dim=1031, n_layers=4, n_heads=13,
                  max_position_embeddings=131, seq_classif_dropout=0.0, qa_dropout=0.0)
SEVERAL = dict(problem_type="multi_label_classification", num_labels=7)


def build(family, end, **changes):
    sizes = DISTILBERT if family == "DistilBert" else BERT
    if family == "Roberta":
        sizes = sizes | dict(type_vocab_size=1)
    config = getattr(transformers, family + "Config")(**(sizes | changes))
    return getattr(transformers, family + end)(config)


def random_models(small):
    """Name and maker: BERT base itself, and others of sizes that divide nothing."""
    layers = 2 if small else 12
    base = transformers.BertConfig(num_hidden_layers=layers)
    yield "bert-base masked", lambda: transformers.BertForMaskedLM(base)
    for family in ["Bert", "Roberta", "DistilBert"]:
        for end in ENDS:
            labels = dict(num_labels=5) if "Classification" in end else {}
            yield f"{family}{end}", lambda f=family, e=end, l=labels: build(f, e, **l)
        yield f"{family} untied", lambda f=family: build(f, "ForMaskedLM", tie_word_embeddings=False)
        yield f"{family} several", lambda f=family: build(f, "ForSequenceClassification", **SEVERAL)
        yield f"{family} number", lambda f=family: build(f, "ForSequenceClassification", num_labels=1)


ENCODER = """
kind = "encoder"
vocabulary = 701
context = 131
layers = 3
width = 78
heads = 13
embedding_norm = true
norm = { kind = "layer", placement = "post", eps = 1e-12 }
feed_forward = { kind = "gelu", width = 211 }
bias = true
"""
LABELS = 'labels = ["a", "b", "c"]'
# Heads for hearken to write, and whether a pooler belongs to them.
HEADS = {
    "Model": ("none", "", True),
    "ForMaskedLM": ("tokens", "", False),
    "ForSequenceClassification": ("classes", LABELS, True),
    "ForTokenClassification": ("tags", LABELS, False),
    "ForQuestionAnswering": ("spans", "", False),
}


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def written(writer, folder):
    """Lets hearken write a directory of each class."""
    for family, types in [("Bert", 2), ("Roberta", 1), ("DistilBert", 0)]:
        for end, (kind, more, pools) in HEADS.items():
            pooler = '"relu"' if family == "DistilBert" else "true"
            pools = pools and not (family == "DistilBert" and kind == "none")
            head = ", ".join(part for part in [f'kind = "{kind}"', more] if part)
            model = ENCODER + f"types = {types}\nhead = {{ {head} }}\n"
            model += f"pooler = {pooler if pools else 'false'}\n"
            name = f"written-{family}{end}"
            config = folder / f"{name}.toml"
            config.write_text("[model]\n" + model)
            run(writer, str(config), str(folder / name))
            chosen = json.loads((folder / name / "config.json").read_text())["architectures"]
            if chosen != [family + end]:
                sys.exit(f"{name} is saved as {chosen}")
            yield folder / name, getattr(transformers, family + end)


def listed(row):
    return ",".join(str(x) for x in row)


def flags_of(name, rows):
    return [flag for row in rows for flag in (f"--{name}", listed(row))]


def targets_of(model, mask):
    """As the class reads them, and as `inspect gradients` does."""
    config, name = model.config, type(model).__name__
    rows, length = mask.shape
    if name.endswith("ForMaskedLM") or name.endswith("ForTokenClassification"):
        most = config.vocab_size if name.endswith("LM") else config.num_labels
        labels = torch.randint(0, most, mask.shape)
        labels[(mask == 0) | (torch.rand(mask.shape) < 0.3)] = -100
        return {"labels": labels}, labels.tolist()
    if name.endswith("ForQuestionAnswering"):
        starts, ends = torch.randint(0, length // 3, (2, rows))
        return ({"start_positions": starts, "end_positions": ends},
                [list(pair) for pair in zip(starts.tolist(), ends.tolist())])
    if name.endswith("ForSequenceClassification"):
        if config.problem_type == "multi_label_classification":
            labels = torch.randint(0, 2, (rows, config.num_labels)).float()
            return {"labels": labels}, labels.tolist()
        if config.num_labels == 1:
            labels = torch.randn(rows, 1)
            return {"labels": labels}, labels.tolist()
        labels = torch.randint(0, config.num_labels, (rows,))
        return {"labels": labels}, [[label] for label in labels.tolist()]
    return {}, None


def compare(hearken, directory, model, folder):
    """Largest difference of the results, and of each gradient."""
    torch.manual_seed(1)
    lengths = torch.tensor([64, 41, 17])
    mask = (torch.arange(64)[None, :] < lengths[:, None]).long()
    # Ids that are not padding: PyTorch gives the padding token no gradient.
    ids = torch.randint(5, model.config.vocab_size, mask.shape)
    given = dict(input_ids=ids, attention_mask=mask)
    flags = flags_of("ids", ids.tolist()) + flags_of("mask", mask.tolist())
    types = getattr(model.config, "type_vocab_size", 0)
    if types > 1:
        given["token_type_ids"] = (torch.arange(64)[None, :] >= lengths[:, None] // 2).long()
        flags += flags_of("type-ids", given["token_type_ids"].tolist())
    theirs, ours = targets_of(model, mask)
    out = model(**given, **theirs, output_hidden_states=True)
    wanted = {"hidden": out.hidden_states[-1]}
    if getattr(out, "pooler_output", None) is not None:
        wanted["pooled"] = out.pooler_output
    if getattr(out, "start_logits", None) is not None:
        wanted |= {"start_logits": out.start_logits, "end_logits": out.end_logits}
    elif theirs:
        wanted["logits"] = out.logits
    path = str(folder / "out.safetensors")
    run(hearken, "inspect", "logits", "--model", str(directory), *flags, "--out", path)
    found, worst = load_file(path), 0.0
    for name, want in wanted.items():
        got = found[name]
        if want.dim() == 3:  # what stands in padding means nothing
            got, want = got * mask[:, :, None], want * mask[:, :, None]
        worst = max(worst, ((got - want).abs().max() / want.abs().max()).item())
    if not theirs:
        return worst, 0.0, "-"
    flags += flags_of("targets", ours)
    run(hearken, "inspect", "gradients", "--model", str(directory), *flags, "--out", path)
    found = load_file(path)
    out.loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
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
    parser.add_argument("--small", action="store_true", help="2 layers of BERT base instead of 12")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, make in random_models(arguments.small):
            torch.manual_seed(0)
            model = make().eval()
            with torch.no_grad():
                for parameter in model.parameters():  # norms off 1, biases off 0
                    parameter.add_(0.02 * torch.randn_like(parameter))
            model.save_pretrained(folder / "theirs")
            rows.append((name, *compare(arguments.hearken, folder / "theirs", model, folder)))
        for saved, maker in written(arguments.writer, folder):
            model, info = maker.from_pretrained(saved, dtype=torch.float32,
                                                output_loading_info=True)
            lost = {key: sorted(value) for key, value in info.items() if value}
            if lost:
                sys.exit(f"{saved}: transformers does not take it as it is: {json.dumps(lost)}")
            rows.append((saved.name, *compare(arguments.hearken, saved, model.eval(), folder)))
    print(f"{'model':46} {'results':>9} {'gradients':>9}  worst gradient")
    for name, results, gradients, where in rows:
        print(f"{name:46} {results:9.1e} {gradients:9.1e}  {where}")
    if not all(results <= BOUND and gradients <= BOUND for _, results, gradients, _ in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
