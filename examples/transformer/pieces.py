"""Sentences as pieces of words. Hugging Face `tokenizers` builds the vocabulary when the data is prepared.

`oarlock run` does this in ingest.py; `text_ops.py` does the same splitting in TensorFlow operations. So every
step here is one that both can do exactly: two replacements, one pattern, and the longest piece that fits
each time (WordPiece).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ["[pad]", "[start]", "[end]", "[unknown]"]  # no text has these: a bracket is a separate word
VOCABULARY = "vocabulary.txt"  # one piece per line

GAP = "\u2581"  # stands for a space in a piece
SPACES = "[\x00-\x20\x7f\u00a0]+"  # and other invisible characters
ENDS = "^ | $"
# A word, a digit or a punctuation mark, each with the space before it: joined, they are the sentence again.
WORD = f"{GAP}?\\p{{L}}+|{GAP}?\\p{{N}}|{GAP}?[^{GAP}\\p{{L}}\\p{{N}}]|{GAP}"
LONGEST_WORD = 100  # letters; a longer one is unknown
COMMON = 1000  # the maximum number of different letters and marks in the vocabulary

Tokenizer = Any  # from `tokenizers`, which only ingest.py needs


def train(texts: Iterable[str], size: int) -> list[str]:
    """A vocabulary of `size` pieces that spells these texts in few of them."""
    from tokenizers import trainers

    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=SPECIAL,
        limit_alphabet=COMMON,
        continuing_subword_prefix="",
        show_progress=False,
    )
    tokenizer = empty({piece: number for number, piece in enumerate(SPECIAL)})
    tokenizer.train_from_iterator(texts, trainer)
    found = tokenizer.get_vocab()
    return sorted(found, key=found.get)


def write(folder: Path, vocabulary: Iterable[str]) -> None:
    Path(folder, VOCABULARY).write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")


def load(folder: Path) -> Tokenizer:
    """A tokenizer with the vocabulary in a folder."""
    return empty({piece: number for number, piece in enumerate(read(Path(folder, VOCABULARY)))})


def read(file: Path) -> list[str]:
    """The pieces in a vocabulary file."""
    with open(file, encoding="utf-8", errors="replace") as lines:
        return [line.rstrip("\n") for line in lines]


def is_vocabulary(found: list[str]) -> bool:
    """Whether `train` may have made it: the special pieces come first, and each piece is there once."""
    return found[: len(SPECIAL)] == SPECIAL and len(SPECIAL) < len(found) == len(set(found))


def empty(vocabulary: dict[str, int]) -> Tokenizer:
    """A tokenizer with this vocabulary."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    model = models.WordPiece(
        vocabulary,
        unk_token=SPECIAL[UNKNOWN],
        max_input_chars_per_word=LONGEST_WORD,
        continuing_subword_prefix="",
    )
    tokenizer = Tokenizer(model)
    replaced: list[tuple[Any, str]] = [(Regex(SPACES), " "), (Regex(ENDS), ""), (" ", GAP)]
    tokenizer.normalizer = normalizers.Sequence(
        [*(normalizers.Replace(*each) for each in replaced), normalizers.Prepend(GAP)]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "isolated")
    return tokenizer


def numbers(tokenizer: Tokenizer, texts: Iterable[str]) -> list[list[int]]:
    """The numbers of each text's pieces, including its end."""
    return [[*each.ids, END] for each in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
