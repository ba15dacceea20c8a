"""Small random models built on the spot, shared by all tests."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share few cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test reaches a hub

import shutil

import numpy as np
import pytest
import torch
import transformers as hf

from embspace.maps.sums import Plan, Sums
from embspace.text.text import Text

TEXT = """The cats and the dogs saw Paris and London. Her brother sings in Rome, \
his sister in Madrid.
Doctors heal, teachers teach, and the farmers of France grow wheat for the bakers of Spain."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("EMBSPACE_CACHE", str(tmp_path_factory.getbasetemp() / "embspace-cache"))


@pytest.fixture(scope="session")
def byte_tokenizer() -> Any:
    """A byte-level BPE tokenizer of 300 tokens: 256 bytes, merges, one end-of-text token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT] * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def randomise(model: Any, seed: int = 0) -> Any:
    """Fill every 1-D parameter with random values: gains of 1 and biases of 0 hide errors."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="session")
def save_model(
    tmp_path_factory: pytest.TempPathFactory, byte_tokenizer: Any
) -> Callable[..., Path]:
    """Builds a model from a config, randomises it, and saves it with a tokenizer."""

    def save(config: Any, auto: str = "AutoModelForCausalLM", *, tokenizer: Any = byte_tokenizer):
        import torch
        import transformers

        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = randomise(getattr(transformers, auto).from_config(config))
        folder = tmp_path_factory.mktemp(config.model_type)
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def tiny_gpt2(save_model: Callable[..., Path]) -> Path:
    """GPT-2 with 3 layers of 4 heads, width 32; 304 rows for 300 tokens; no two layers alike."""
    from transformers import GPT2Config

    config = GPT2Config(
        vocab_size=304,
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_inner=52,
        n_positions=64,
        initializer_range=0.5,
        bos_token_id=0,
        eos_token_id=0,
    )
    return save_model(config)


@pytest.fixture(scope="session")
def tiny_llama(save_model: Callable[..., Path]) -> Path:
    """Llama with 2 layers, 6 query heads on 2 key/value heads of 8, width 36, untied head."""
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=300,
        hidden_size=36,
        intermediate_size=44,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.5,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return save_model(config)


AWKWARD = (
    *("<s>", "</s>", "[red]", "[/]", "[bold]x[/bold]", ":smile:", "<script>alert(1)</script>"),
    *("<b>", "&amp;", "|", "\n", "a,b", '"quoted"', "=1+1", "-2", "@x", "·", " ", "x" * 60),
    *("日本語", "漢字仮名", "שלום", "مرحبا", "\U0001f469\u200d\U0001f680", "🇫🇷"),
    *("\u00e9", "e\u0301", "\u0301", "\x1b[31mred\x1b[0m"),
    *(f"word{n}" for n in range(10)),
)


@pytest.fixture(scope="session")
def awkward(save_model: Callable[..., Path]) -> Path:
    """GPT-2 whose tokens are markup, controls, wide characters, right-to-left text and the like."""
    from tokenizers import Tokenizer, models
    from transformers import GPT2Config, PreTrainedTokenizerFast

    words = models.WordLevel({word: i for i, word in enumerate(AWKWARD)}, unk_token="<s>")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), bos_token="<s>", eos_token="</s>"
    )
    config = GPT2Config(
        vocab_size=len(AWKWARD),
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=32,
        initializer_range=0.5,
        bos_token_id=0,
        eos_token_id=1,
    )
    return save_model(config, tokenizer=tokenizer)


@pytest.fixture
def copy(tmp_path: Path):
    """A copy of a model folder that may be damaged."""

    def make(folder: Path, name: str = "copy") -> Path:
        return Path(shutil.copytree(folder, tmp_path / name))

    return make


@pytest.fixture
def sharded(tiny_gpt2: Path, tmp_path: Path) -> Path:
    """The small GPT-2 in a dozen shards."""
    folder = tmp_path / "sharded"
    live = hf.AutoModelForCausalLM.from_pretrained(tiny_gpt2)
    live.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 5
    return folder


WORDS = "cats dogs her brother his sister Paris Rome London doctors heal teach grow wheat"


@pytest.fixture(scope="session")
def corpus() -> Text:
    """120 different lines of 2 to 11 words."""
    words = WORDS.split()
    lines = (
        " ".join(words[(7 * n + 5 * t * t + n * t) % len(words)] for t in range(2 + n % 10))
        for n in range(120)
    )
    return Text(tuple(f"{line} {n}" for n, line in enumerate(lines)), "lines")


@pytest.fixture(scope="session")
def chain() -> Callable[..., list[np.ndarray]]:
    """States in which each layer is a linear map of the one before, plus noise."""

    def make(n: int, d: int, layers: int, *, seed: int = 0, mean: float = 0.0, noise: float = 0.3):
        random = np.random.default_rng(seed)
        maps = np.random.default_rng(99)
        found = [random.normal(size=(n, d)) + mean]
        for _ in range(layers):
            A = maps.normal(size=(d, d)) / np.sqrt(d)
            found.append(found[-1] @ A + noise * random.normal(size=(n, d)))
        return found

    return make


@pytest.fixture(scope="session")
def summed() -> Callable[..., Sums]:
    """Sums of all pairs of a list of states, added in pieces of a given size."""

    def make(states: list[np.ndarray], pieces: int = 0, *, pairs="all", **options) -> Sums:
        plan = Plan.of_layers(len(states) - 1, pairs)
        sums = Sums(plan, states[0].shape[1], **options)
        n = len(states[0])
        for start in range(0, n, pieces or n):
            part = slice(start, start + (pieces or n))
            sums.add({str(l): torch.from_numpy(x[part].copy()) for l, x in enumerate(states)})
        return sums

    return make


@pytest.fixture(scope="session")
def altered(tmp_path_factory: pytest.TempPathFactory, byte_tokenizer: Any) -> Callable[..., Path]:
    """`altered(folder, change)`: the same model with `change(model)` done to its weights."""

    def alter(folder: Path, change: Callable[[Any], None], tokenizer: Any = byte_tokenizer) -> Path:
        import torch
        from transformers import AutoModelForCausalLM

        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            model = AutoModelForCausalLM.from_pretrained(folder)
            change(model)
        target = tmp_path_factory.mktemp("altered")
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
        return target

    return alter


@pytest.fixture(scope="session")
def reviews() -> Any:
    """Labelled texts that even a small model tells apart, split three ways."""
    from embspace.text.labelled import Labelled, Split

    def side(first: int, n: int) -> Labelled:
        texts = [f"{'good' if i % 2 else 'bad'} film {i}" + " ever" * (i % 4) for i in range(n)]
        named = tuple(f"{text} {first}" for text in texts)
        return Labelled(named, tuple(i % 2 for i in range(n)), ("negative", "positive"))

    return Split(side(0, 24), side(1, 6), side(2, 12), "made up")


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory, tiny_gpt2: Path, reviews: Any) -> Path:
    """The folder of a classifier made from `tiny_gpt2`: two blocks trained for an epoch."""
    import embspace

    out = tmp_path_factory.mktemp("tuned") / "classifier"
    embspace.finetune(embspace.load(tiny_gpt2), reviews, out, blocks=2, epochs=1, batch=8)
    return out


@pytest.fixture(scope="session")
def fit_as() -> Callable[..., Any]:
    """`fit_as(model, text, settings, **more)`: fit with settings said where each belongs."""
    from embspace.maps.fit import fit

    of_run = {"run_dtype": "dtype", "batch_tokens": "batch_tokens"}
    of_text = ("positions", "max_tokens", "skip_first", "seed", "fit", "held_out")

    def go(model: Any, text: Text, settings: dict[str, Any], **more: Any) -> Any:
        run = {of_run[name]: value for name, value in settings.items() if name in of_run}
        taken = {name: value for name, value in settings.items() if name in of_text}
        rest = {n: v for n, v in settings.items() if n not in of_run and n not in of_text}
        return fit(model.with_run(**run), Text.read(text, **taken), **rest, **more)

    return go
