"""Times training steps of BERT's shape in PyTorch, as `hearken bench train` does in hearken.

    hearken bench train --config configs/bench/bert.toml --steps 10
    python benches/peers/bert_torch.py [--steps 10] [--threads 2] [--compile] [--bf16]

The same sizes, batch, share of guessed tokens, clipping and AdamW; the head only sees the tokens that
are guessed, as hearken's does. Run them in turns on a quiet machine.
"""

import argparse
import statistics
import time

import torch
from transformers import BertConfig, BertModel


class Masked(torch.nn.Module):
    """BertForMaskedLM whose head is given the guessed tokens alone."""

    def __init__(self, config):
        super().__init__()
        self.body = BertModel(config, add_pooling_layer=False)
        self.dense = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = torch.nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = torch.nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, ids, places, targets):
        hidden = self.body(ids).last_hidden_state.flatten(0, 1)[places]
        hidden = self.norm(torch.nn.functional.gelu(self.dense(hidden)))
        table = self.body.embeddings.word_embeddings.weight
        logits = torch.nn.functional.linear(hidden, table, self.bias)
        return torch.nn.functional.cross_entropy(logits, targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    config = BertConfig(num_hidden_layers=arguments.layers, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0, max_position_embeddings=arguments.tokens)
    model = Masked(config).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    step = torch.compile(model) if arguments.compile else model
    ids = torch.randint(0, config.vocab_size, (arguments.batch, arguments.tokens))
    places = torch.arange(3, ids.numel(), 7)
    targets = torch.randint(0, config.vocab_size, (len(places),))
    seconds = []
    for i in range(arguments.steps + 2):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
            loss = step(ids, places, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if i >= 2:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    print(f"{1e3 * median:.1f} ms per step (best {1e3 * min(seconds):.1f}), "
          f"{ids.numel() / median:.0f} tokens/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
