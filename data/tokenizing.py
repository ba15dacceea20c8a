"""The tokenizers of the samples: whole words for the lexicon, pieces for everything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from .generate import Writer
from .lexicon import fact_words, vocabulary

END = "<|endoftext|>"
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_N_PASSAGES = 30_000
# Lexicon words count this much more than their text says, so that few rare ones are cut up; words
# of facts count more again, as nobody can look up a fact between pieces of words.
_LEXICON_WEIGHT, _FACT_WEIGHT = 30, 200
_REAL_POWER = 0.35
_COMMON = 30


def _flattened(
    lines: Iterable[str], pre: pre_tokenizers.PreTokenizer, power: float = 0.5, least: int = 1
) -> Iterator[str]:
    """Yield each word seen `least` times as often as a power of its count: rare words matter."""
    for word, count in _counts(lines, pre).items():
        for _ in range(max(1, round(count**power)) if count >= least else 0):
            yield word


def _counts(lines: Iterable[str], pre: pre_tokenizers.PreTokenizer) -> Counter[str]:
    """Count the words of `lines`."""
    return Counter(word for line in lines for word, _ in pre.pre_tokenize_str(line))


def _own_text() -> Iterator[str]:
    """Return passages in both styles, for what surrounds the lexicon's words."""
    return islice(Writer(None, 77).passages(), _N_PASSAGES)


def byte_level(n_tokens: int, real: list[str], n_positions: int) -> PreTrainedTokenizerFast:
    """Train a GPT-2 style tokenizer whose lexicon words are whole tokens after a space."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer = Tokenizer(models.BPE())
    words = [*_flattened(_own_text(), split), *_flattened(real, split, _REAL_POWER, _COMMON)]
    words += [f"Ġ{word}" for word in sorted(vocabulary()) for _ in range(_LEXICON_WEIGHT)]
    words += [f"Ġ{word}" for word in sorted(fact_words()) for _ in range(_FACT_WEIGHT)]
    trainer = trainers.BpeTrainer(
        vocab_size=n_tokens,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The words are already in the byte alphabet; split them only where they are apart.
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(words, trainer)
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        unk_token=END,
        model_max_length=n_positions,
        clean_up_tokenization_spaces=False,
    )


def _pieces(n_tokens: int, real: list[str]) -> list[str]:
    """Return the special tokens, letters and word pieces learned from own and real text."""
    normal, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    lines = [normal.normalize_str(line) for line in [*real, *islice(_own_text(), 2_000)]]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = split
    trainer = trainers.WordPieceTrainer(
        vocab_size=n_tokens, show_progress=False, limit_alphabet=60, special_tokens=BERT_SPECIALS
    )
    tokenizer.train_from_iterator(_flattened(lines, split), trainer)
    return sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)


def _common_words() -> set[str]:
    """Return the words our own text uses often, in lower case."""
    counts = _counts((line.lower() for line in _own_text()), pre_tokenizers.BertPreTokenizer())
    return {word for word, count in counts.items() if count >= _COMMON}


def word_piece(n_pieces: int, real: list[str], n_positions: int) -> PreTrainedTokenizerFast:
    """Build a BERT style tokenizer: lower case, every lexicon word whole, pieces for the rest."""
    learned = _pieces(n_pieces, real)
    own = {word.lower() for word in vocabulary()} | _common_words()
    words = sorted(own - set(learned))
    table = {piece: index for index, piece in enumerate([*learned, *words])}
    tokenizer = Tokenizer(models.WordPiece(table, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", table["[CLS]"]), ("[SEP]", table["[SEP]"])],
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=n_positions,
        clean_up_tokenization_spaces=False,
        **dict(zip(names, BERT_SPECIALS, strict=True)),
    )
