"""Both ways between hearken's tokenizers and Hugging Face's `tokenizers`, on mixed-language text.

1. Every kind that `hearken tokenizer train` learns: the library loads the file as it is and gives
   the same ids for the text, and the ids decode to the same text.
2. Tokenizers of the forms that others publish, trained by the library: `hearken tokenizer encode`
   gives the same ids.
3. With --gpt2 DIR (`vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe`): GPT-2's own
   vocabulary on the same text, and the four ids of "The cat sat on".

    cargo build --release
    python scripts/check_tokenizers.py --hearken target/release/hearken \
        [--catalogues /usr/share/locale] [--text FILE…] [--gpt2 DIR]

The text is --bytes long (1 MB): files of --text, the translated messages of installed programs
(gettext catalogues below --catalogues, in all languages there are), and generated lines of every
script of Unicode, emoji, combining marks, odd spaces, line ends and control characters. Without
--text and --catalogues all of it is generated. Exits with 1 if any id differs.
"""

import argparse
import gettext
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

VOCABULARY = 4096
LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# `</s>` is left out: published SentencePiece models have it among their pieces, and the library
# finds it in plain text, where hearken never makes a special token from text.
ODDITIES = [
    "<|endoftext|> [MASK] ## ### Ġ▁ <0x41>", "one\r\ntwo\rthree\n\n\n four\t\tfive  six   ",
    "e\u0301 n\u0303 A\u030a \u1e9b\u0323 ﬁ ﬀ İ ı ß ẞ ſ", "\u200b\u200d\ufeff\u00a0\u2003\u3000\u2028",
    "\u0001\u0002\u007f\u0085", "👩🏽‍🚀 🏳️‍🌈 🇪🇸🇯🇵 👨‍👩‍👧‍👦 🦀🦀🦀", "it's I'LL we've they'd", "3.14159 1,000,000 ٣٤٥ ⅷ ²",
    "x" * 300, "नमस्ते दुनिया", "สวัสดีชาวโลก", "مرحبا بالعالم", "שלום עולם", "你好，世界。今天天气很好", "こんにちは世界", "안녕하세요 세계",
]


def messages(folder, rng):
    """Translated messages, a few hundred characters of one catalogue at a time."""
    files = sorted(pathlib.Path(folder).glob("*/LC_MESSAGES/*.mo"))
    languages = {}
    for path in files:
        languages.setdefault(path.parts[-3], []).append(path)
    while languages:
        language = rng.choice(sorted(languages))
        path = rng.choice(languages[language])
        try:
            with open(path, "rb") as file:
                catalogue = [text for text in gettext.GNUTranslations(file)._catalog.values()]
        except (OSError, UnicodeDecodeError, ValueError, LookupError):
            catalogue = []
        if not catalogue:
            languages[language].remove(path)
            if not languages[language]:
                del languages[language]
            continue
        yield language, "\n".join(rng.choices(catalogue, k=8)) + "\n"


def generated(rng):
    """Words of letters of one Unicode block each; every tenth line is an oddity."""
    blocks = []
    for start in [*range(0x20, 0xD800, 0x80), *range(0xF900, 0x10000, 0x80),
                  *range(0x10000, 0x20000, 0x80)]:
        letters = [chr(c) for c in range(start, start + 0x80)
                   if unicodedata.category(chr(c))[0] in "LMNPS"]
        if letters:
            blocks.append(letters)
    while True:
        if rng.random() < 0.1:
            yield rng.choice(ODDITIES) + "\n"
            continue
        letters = rng.choice(blocks)
        words = ("".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(9))
        yield " ".join(words) + "\n"


def mixed_text(arguments):
    rng = random.Random(arguments.seed)
    parts, languages, size = [], set(), 0

    def add(part, limit):
        nonlocal size
        parts.append(part)
        size += len(part.encode())
        return size >= limit

    for path in arguments.text:
        share = arguments.bytes // 5 // len(arguments.text)
        add(path.read_bytes()[:share].decode(errors="ignore"), share)
    if arguments.catalogues:
        for language, part in messages(arguments.catalogues, rng):
            languages.add(language)
            if add(part, arguments.bytes * 4 // 5):
                break
    for oddity in ODDITIES:
        add(oddity + "\n", 0)
    for part in generated(rng):
        if add(part, arguments.bytes):
            break
    return "".join(parts).encode()[:arguments.bytes].decode(errors="ignore"), len(languages)


def theirs(text):
    """Name and trained tokenizer, in the forms that others publish."""
    def trained(tokenizer, trainer):
        tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
        return tokenizer

    options = dict(vocab_size=VOCABULARY, show_progress=False)
    letters = pre_tokenizers.ByteLevel.alphabet()

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    yield "bpe as GPT-2", trained(tokenizer, trainers.BpeTrainer(
        special_tokens=["<|endoftext|>"], initial_alphabet=letters, **options))

    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA_3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    yield "bpe as Llama 3", trained(tokenizer, trainers.BpeTrainer(
        special_tokens=["<|begin_of_text|>", "<|end_of_text|>"], initial_alphabet=letters,
        **options))

    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    # Trained on words: without a pre-tokenizer a whole line would be one word.
    words = Tokenizer(models.BPE(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    model = json.loads(trained(words, trainers.BpeTrainer(
        special_tokens=["<unk>", "<s>", *bytes_], limit_alphabet=1000, **options)).to_str())
    whole = json.loads(tokenizer.to_str())
    whole["model"] |= {key: model["model"][key] for key in ("vocab", "merges")}
    whole["added_tokens"] = [t for t in model["added_tokens"] if t["content"] in ("<unk>", "<s>")]
    yield "bpe as Llama 2", Tokenizer.from_str(json.dumps(whole))

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    yield "wordpiece as BERT", trained(tokenizer, trainers.WordPieceTrainer(
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=1000,
        **options))

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    size = max(VOCABULARY, len(set(normalizers.NFKC().normalize_str(text))) + 1000)
    yield "unigram as T5", trained(tokenizer, trainers.UnigramTrainer(
        special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False,
        vocab_size=size))


OURS = [
    ("character", ["--special", "unk"]),
    ("character, bytes", ["--byte-fallback", "--vocab-size", str(VOCABULARY)]),
    ("byte", []),
    ("bpe", ["--vocab-size", str(VOCABULARY)]),
    ("wordpiece", ["--vocab-size", str(VOCABULARY)]),
    ("unigram", ["--vocab-size", str(VOCABULARY)]),
]


class Check:
    def __init__(self, hearken, folder, text):
        self.hearken, self.folder, self.text, self.failed = hearken, folder, text, False
        self.file = folder / "mixed.txt"
        self.file.write_bytes(text.encode())

    def run(self, *arguments, **options):
        command = [self.hearken, "tokenizer", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, **options)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr.decode()}")
        return done.stdout

    def compare(self, name, path, library):
        """Ids of the binary against those of the library, special tokens being plain text."""
        start = time.perf_counter()
        printed = self.run("encode", "--tokenizer", path, self.file)
        ours_seconds = time.perf_counter() - start
        ours = [int(i) for i in printed.split()]
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True
        start = time.perf_counter()
        expected = library.encode(self.text, add_special_tokens=False).ids
        seconds = time.perf_counter() - start
        pairs = enumerate(zip(ours, expected))
        first = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(expected)))
        same = ours == expected
        decoded = self.run("decode", "--tokenizer", path, input=printed).decode()
        # The command ends its line; the library says what the text is.
        same_text = decoded.removesuffix("\n") == library.decode(
            expected, skip_special_tokens=False).removesuffix("\n")
        whole = decoded.removesuffix("\n") == self.text.removesuffix("\n")
        ids = "the same ids" if same else f"{len(ours)} ids, differing from place {first} on"
        decoding = "the text itself" if whole else "the same text" if same_text else "ANOTHER TEXT"
        print(f"{name:26} {library.get_vocab_size():6,} {len(expected):9,}  {ids}, decoded to "
              f"{decoding}  ({ours_seconds:.2f} s, the library {seconds:.2f} s)", flush=True)
        self.failed |= not same or not (whole or same_text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearken", default="target/release/hearken")
    parser.add_argument("--text", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--catalogues", type=pathlib.Path)
    parser.add_argument("--gpt2", type=pathlib.Path)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    text, languages = mixed_text(arguments)
    print(f"{len(text.encode()):,} bytes, {len(text):,} characters, {len(set(text)):,} different, "
          f"catalogues of {languages} languages")
    print(f"{'':26} {'vocab':>6} {'ids':>9}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        check = Check(arguments.hearken, folder, text)
        half = folder / "half.txt"  # so that the other half has what was never seen
        half.write_text(text[: len(text) // 2], newline="")
        for name, options in OURS:
            path = folder / f"{name.replace(', ', '-')}.json"
            kind = name.partition(",")[0]
            check.run("train", "--kind", kind, *options, "--out", path, half)
            check.compare(f"ours: {name}", path, Tokenizer.from_file(str(path)))
        for name, tokenizer in theirs(text[: len(text) // 2]):
            path = folder / "theirs.json"
            tokenizer.save(str(path))
            check.compare(f"theirs: {name}", path, tokenizer)
        if arguments.gpt2:
            names = [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")]
            vocabulary, merges = next((arguments.gpt2 / a, arguments.gpt2 / b) for a, b in names
                                      if (arguments.gpt2 / a).exists())
            library = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
            library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            library.decoder = decoders.ByteLevel()
            library.add_special_tokens(["<|endoftext|>"])
            check.compare("GPT-2's vocabulary", arguments.gpt2, library)
            ids = check.run("encode", "--tokenizer", arguments.gpt2, "--text", "The cat sat on")
            print(f"The cat sat on: {ids.decode().strip()}")
            check.failed |= ids.split() != [b"464", b"3797", b"3332", b"319"]
    if check.failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
