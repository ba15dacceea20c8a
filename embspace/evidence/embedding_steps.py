"""The measurements of "Analyzing Transformers in Embedding Space", as they apply. [DAR]"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..between.alignment import align
from ..between.diff import diff
from ..between.stitch import stitch
from ..errors import VocabularyError
from ..progress import Progress
from ..results import Result
from ..text.labelled import read_test
from ..text.text import Text
from ..weights.settings import model_key
from .concepts import concept
from .hidden_states import hidden_states
from .inverse_check import KEPT, InverseCheck, inverse_check
from .matching_pairs import pair_similarity
from .state_overlap import Against, state_overlap
from .steps import Step

if TYPE_CHECKING:
    from ..weights.model import Model

# Topics to look up: the first whose words are tokens of the model.
TOPICS = (
    ("Paris", "London", "Rome", "Berlin", "Madrid", "Vienna"),
    ("mother", "father", "brother", "sister", "daughter", "son"),
    ("red", "green", "blue", "yellow", "black", "white"),
)
TOPIC_WORDS = 3  # that a topic has at least
NO_FORWARD = "it runs the model, and only the weights were to be read"


@dataclass(frozen=True)
class Cast:
    """The models that take part; None where a part is not filled.

    model: read on its own; pair: two training runs of one vocabulary, aligned; tuned: a classifier
    made of `model`; kept: the pretrained model whose first blocks are stitched onto it; data: the
    labelled texts; text: sentences to run on (None: only weights are read).
    """

    model: "Model"
    text: Text | None
    pair: "tuple[Model, Model] | None" = None
    tuned: "Model | None" = None
    kept: "Model | None" = None
    data: str | None = None

    def members(self) -> "dict[str, Model]":
        """Role -> model, of the parts that are filled."""
        a, b = self.pair or (None, None)
        every = {
            "model": self.model,
            "aligned, A": a,
            "aligned, B": b,
            "fine-tuned": self.tuned,
            "stitched, A": self.kept,
        }
        return {role: model for role, model in every.items() if model is not None}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    pairs: int | None
    vectors: int
    texts: int
    stitched_texts: int
    turns: int
    draws: int

    @classmethod
    def of(cls, quick: bool) -> "Sizes":
        """Few for a first look; else those of the commands themselves."""
        return cls(200, 100, 60, 100, 39, 199) if quick else cls(1000, 300, 300, 400, 99, 999)


def embedding_steps(cast: Cast, *, quick: bool = False, seed: int = 0) -> list[Step]:
    """Pairs, topic, states, logits, differences, alignment, stitching, inverses; what applies."""
    sizes = Sizes.of(quick)
    every = (_pairs, _topic, _states, _logits, _diff, _align, _stitch, _inverse)
    return [build(cast, sizes, seed) for build in every]


def _step(
    name: str,
    title: str,
    place: str,
    work: Callable[[], Result],
    settings: dict[str, Any],
    why_not: str = "",
) -> Step:
    def done(progress: Progress | None) -> Result:
        return work()

    decided = {key: _named(value) for key, value in settings.items()}
    return Step(name, title, place, done, decided, why_not)


def _named(value: Any) -> Any:
    """A model by its weights, a text by its content."""
    if isinstance(value, Text):
        return value.digest
    if hasattr(value, "provenance"):
        return [model_key(value), str(value.dtype)]
    return value


def _pairs(cast: Cast, sizes: Sizes, seed: int) -> Step:
    return _step(
        "pairs",
        "Matching vectors against shuffled ones",
        "§4.1, App. B, Fig. 6",
        lambda: pair_similarity(cast.model, sample=sizes.pairs, seed=seed),
        {"model": cast.model, "sample": sizes.pairs, "seed": seed},
    )


def _topic(cast: Cast, sizes: Sizes, seed: int) -> Step:
    words = _words(cast.model)
    return _step(
        "topic",
        "Vectors nearest to a topic",
        "§4.1",
        lambda: concept(cast.model, words, draws=sizes.draws, seed=seed),
        {"model": cast.model, "words": words, "draws": sizes.draws, "seed": seed},
        why_not="" if words else "no topic has three words that are one token of this model",
    )


def _words(model: "Model") -> tuple[str, ...]:
    """The words of the first topic of which enough are one token."""
    for words in TOPICS:
        found = tuple(word for word in words if _is_token(model, word))
        if len(found) >= TOPIC_WORDS:
            return found
    return ()


def _is_token(model: "Model", word: str) -> bool:
    try:
        return bool(model.vocabulary.token_ids(word))
    except VocabularyError:
        return False


def _states(cast: Cast, sizes: Sizes, seed: int) -> Step:
    return _overlap("states", "state", "Activated vectors and the state", "§4.2, Fig. 2")(
        cast, sizes, seed
    )


def _logits(cast: Cast, sizes: Sizes, seed: int) -> Step:
    return _overlap("logits", "final", "Activated vectors and the final state", "App. B.2, Fig. 5")(
        cast, sizes, seed
    )


def _overlap(
    name: str, against: Against, title: str, place: str
) -> Callable[[Cast, Sizes, int], Step]:
    def build(cast: Cast, sizes: Sizes, seed: int) -> Step:
        text = _few(cast.text, sizes.texts, seed)
        return _step(
            name,
            title,
            place,
            lambda: state_overlap(cast.model, text, against=against),
            {"model": cast.model, "text": text, "against": against, "seed": seed},
            why_not="" if text else NO_FORWARD,
        )

    return build


def _few(text: Text | None, n: int, seed: int) -> Text | None:
    return None if text is None else replace(text, lines=text.lines[:n], seed=seed)


def _diff(cast: Cast, sizes: Sizes, seed: int) -> Step:
    tuned = cast.tuned
    return _step(
        "diff",
        "What fine-tuning changed",
        "§4.3, App. D",
        lambda: diff(cast.model, tuned, turns=sizes.turns, seed=seed),  # type: ignore[arg-type]
        {"base": cast.model, "tuned": tuned, "turns": sizes.turns, "seed": seed},
        "" if tuned else "it takes a classifier made of the model: give --tuned",
    )


def _align(cast: Cast, sizes: Sizes, seed: int) -> Step:
    a, b = cast.pair or (None, None)
    return _step(
        "align",
        "Two models, layer by layer",
        "§5.1",
        lambda: align(a, b, seed=seed),  # type: ignore[arg-type]
        {"a": a, "b": b, "seed": seed},
        why_not="" if cast.pair else "it takes two training runs of one vocabulary: give --pair",
    )


def _stitch(cast: Cast, sizes: Sizes, seed: int) -> Step:
    tuned, kept, data = cast.tuned, cast.kept, cast.data
    ready = tuned and kept and data
    n = sizes.stitched_texts
    digest = read_test(str(data), n_test=n, seed=seed).digest if ready else None
    return _step(
        "stitch",
        "One model's first blocks on another's fine-tuned last ones",
        "§5.2",
        lambda: stitch(kept, tuned, str(data), n_test=n, seed=seed),  # type: ignore[arg-type]
        {"a": kept, "b": tuned, "data": data, "digest": digest, "n_test": n, "seed": seed},
        _why_not_stitched(bool(ready), cast),
    )


def _why_not_stitched(ready: bool, cast: Cast) -> str:
    if not ready:
        return "it takes --tuned, --kept and --data"
    return "" if cast.text else NO_FORWARD


def _inverse(cast: Cast, sizes: Sizes, seed: int) -> Step:
    text = _few(cast.text, sizes.texts, seed)

    def work() -> InverseCheck:
        states = hidden_states(cast.model, text) if text else None
        return inverse_check(cast.model, n=sizes.vectors, states=states, seed=seed)

    return _step(
        "inverse",
        "E^T against E^+ as the inverse of E",
        "App. A, Figs. 3–4",
        work,
        {"model": cast.model, "n": sizes.vectors, "kept": KEPT, "text": text, "seed": seed},
    )
