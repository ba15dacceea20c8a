"""A prompt through the lens: each layer of one forward pass, decoded at each position. [DIN] §4"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checking import indices, positive
from ..errors import ModelError, TextError, VocabularyError
from ..live.capture import States, capture_all
from ..live.greedy import ends_of, steps
from ..live.running import Running, run
from ..progress import Progress
from ..text.passages import Encoder, Passage
from ..text.text import AnyText
from ..weights.run_settings import AS_USUAL
from .decoding import Head
from .inside_block import inside as stream_inside
from .inside_block import parts_inside, passed_on
from .lens_grid import INSIDE, Grid, Lens, Lenses, Place
from .lens_rows import Reading, read
from .maps import Maps
from .named import Asked, named_maps
from .remembered import fitted

if TYPE_CHECKING:
    from ..weights.model import Model

TOP = 10
CAPITALS = "The capital of Sweden is Stockholm, while the capital of Denmark is"
LONGEST = 1 << 16  # tokens of a prompt where the model itself sets no limit
POLICY = "over the tokens that the tokenizer names; padded rows of the head take no part"


def lens(
    model: "Model",
    prompt: str | Sequence[str] | None = None,
    maps: "Asked | Iterable[Asked]" = None,
    *,
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | Literal["last", "masks"] | None = None,
    k: int = TOP,
    track: str | int | None = None,
    generate: int = 0,
    inside: bool = False,
    submodules: Maps | None = None,
    special: bool = True,
    text: AnyText | None = None,
    rows: int | None = None,
    running: Running | None = None,
    progress: Progress | None = None,
) -> Lens | Lenses:
    """Decode every state of a prompt through the whole head: softmax(head(norm(x A (+ b)))).

    prompt: one, or several (the model is loaded once); None: one of our own.
    maps: "id" (the logit lens, A = I), "mat", "affine", "ridge", "refined" (fitted now on `text`,
    or remembered), a file, Maps, or several; None: id, and mat where `text` is given or the model
    is a bundled sample. layers: states to show, of 0 … L
    (all); positions: of the prompt's tokens with the special ones, "last", or "masks" (all).
    track: a word or id whose rank and probability are kept, in each spelling that is one token.
    generate: so many new tokens, greedily; the grid then has a column for each of them. inside:
    also after each block's attention, for maps through `submodules` (fitted now if None).
    text: what maps are fitted on now (see `Text`); rows: so many lines of it at most.
    special: with the tokenizer's own special tokens, once. Natural logarithms; probabilities over
    the V named tokens. State L gives the model's own logits. running: a live model of these weights
    (`attach`), run in eval mode. Cost: one forward pass and one head
    product a state. [DIN] §4
    Raises TextError, VocabularyError, MapsError, ModelError, EmbspaceError.
    """
    given: Any = prompt
    several = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    prompts: list[Any] = list(given) if several else [given]
    if not prompts:
        raise TextError("no prompt was given: give one, or None for one of our own.")
    works = [_Lensing(model, k, track, special, layers, inside) for _ in prompts]
    framed = [w.encoded(p, goes_on=bool(generate)) for w, p in zip(works, prompts, strict=True)]
    needed = None if layers is None else works[0].mapped()
    looking = {"layers": needed, "prompts": prompts, "rows": rows, "progress": progress}
    lenses, notes = named_maps(model, maps, text, **looking)
    if inside and submodules is None and any(m is not None for m in lenses.values()):
        submodules, _ = fitted(model, text, parts="submodules", rows=rows, progress=progress)
    if running is None:
        how = model.run_settings  # a prompt is read in the dtype of the arithmetic, if not told
        dtype = model.dtype if how == AS_USUAL else how.torch_dtype
        running = run(model, dtype=dtype, attention="fast", device_map=how.device_map)
    elif running.model.checkpoint.fingerprint != model.checkpoint.fingerprint:
        raise ModelError(
            f"the live model is {running.model.name}'s, not {model.name}'s: attach it to the "
            "model that is read."
        )
    found = []
    for work, ids in zip(works, framed, strict=True):
        if generate:
            ids, states = work.generated(running, ids, positive(generate, "generate"))
        else:
            states = work.captured(running, ids, positions)
        grids, answers = work.grids(states, lenses, submodules)
        said = (*notes, *work.notes, *_other_dtype(model, running))
        found.append(work.result(ids, states, grids, answers, lenses, said, generate, running))
    return Lenses(tuple(found)) if several else found[0]


def default_prompt(model: "Model") -> str:
    """A short prompt of our own; masked models get one with a mask in it."""
    if model.family.causal:
        return CAPITALS
    return f"{CAPITALS} {_mask_token(model)}."


@dataclass(frozen=True)
class _Taken:
    """States at the positions shown, and what they are of."""

    states: States
    places: tuple[int, ...]


class _Lensing:
    """One prompt on its way through one model."""

    def __init__(
        self,
        model: "Model",
        k: int,
        track: str | int | None,
        special: bool,
        layers: Sequence[int] | None,
        inside: bool,
    ) -> None:
        self.model, self.special = model, special
        self.head, self.k = Head(model), positive(k, "k")
        self.tracked = _tracked(model, track)
        n = model.n_layers + 1
        self.layers = list(range(n)) if layers is None else indices(layers, n, "layer")
        self.layers = sorted(set(self.layers))
        if not self.layers:
            raise ModelError("no layers were given to decode.")
        self.parts = parts_inside(model) if inside else ()
        self.notes: list[str] = []

    def mapped(self) -> list[int]:
        """The layers whose maps are needed: one at least, though state L needs none."""
        after = {l + 1 for l in self.layers} if self.parts else set()
        needed = {*self.layers, *after} & set(range(self.model.n_layers))
        return sorted(needed or {self.model.n_layers - 1})

    # running -----------------------------------------------------------------------------
    def encoded(self, prompt: str | None, *, goes_on: bool) -> tuple[int, ...]:
        """Ids of the prompt as the model reads it; a prompt that does not fit is refused.

        goes_on: without a token that closes it.
        """
        prompt = default_prompt(self.model) if prompt is None else prompt
        if not isinstance(prompt, str):
            raise TextError(f"a prompt is text, not {str(prompt)[:40]!r}.")
        if not prompt.strip():
            raise TextError("the prompt is empty: give a text.")
        encoder = Encoder(self.model, special=self.special)
        limit = encoder.limit or LONGEST
        encoder = Encoder(self.model, special=self.special, max_tokens=limit)
        own = encoder.encode([prompt])[0]
        framed = encoder.framed(own)
        if framed.cut:
            raise TextError(
                f"the prompt has {len(own)} tokens, and {self.model.name} takes {limit} with the "
                "special ones: give a shorter one."
            )
        if not framed.n:
            raise TextError("the prompt has no token.")
        return framed.ids[: framed.first + framed.n] if goes_on else framed.ids

    def captured(self, running: Running, ids: tuple[int, ...], positions: Any) -> "_Taken":
        """One forward pass; states at the positions to show."""
        places = self._places(ids, positions)
        passage = Passage(ids, places, 0)
        dtype = torch.float64 if self.model.dtype == torch.float64 else torch.float32
        layers = sorted({*self.layers, self.model.n_layers})
        return _Taken(
            capture_all(running, [passage], layers=layers, parts=self.parts, dtype=dtype), places
        )

    def _places(self, ids: tuple[int, ...], asked: Any) -> tuple[int, ...]:
        if asked is None:
            return tuple(range(len(ids)))
        if asked == "last":
            return (len(ids) - 1,)
        if asked == "masks":
            mask = _mask_id(self.model)
            found = tuple(n for n, i in enumerate(ids) if i == mask)
            if not found:
                raise TextError(f"the prompt has no {_mask_token(self.model)}.")
            return found
        chosen = indices(asked, len(ids), "position", error=TextError)
        if not chosen:
            raise TextError("no positions were given to show.")
        return tuple(sorted(set(chosen)))

    def generated(
        self, running: Running, ids: tuple[int, ...], n: int
    ) -> tuple[tuple[int, ...], "_Taken"]:
        """Greedy tokens with the key/value cache; the states that each was decoded from."""
        if not self.model.family.causal:
            raise ModelError(f"{self.model.name} is a masked model: it generates no text.")
        if self.parts:
            raise ModelError("generated tokens are shown between blocks only, not inside them.")
        limit = Encoder(self.model).limit
        if limit is not None and len(ids) + n - 1 > limit:
            raise TextError(
                f"{len(ids)} tokens and {n} new ones are more than the {limit} that "
                f"{self.model.name} takes."
            )
        found: list[dict[int, Tensor]] = []
        new: list[int] = []
        ends = ends_of(self.model)
        for kept, token in steps(running, ids, n, lambda x: self._greedy(x)):
            found.append(kept)
            new.append(token)
            if token in ends:
                self.notes.append(f"the text ended after {len(new)} tokens.")
                break
        every = (*ids, *new)
        places = tuple(range(len(ids) - 1, len(every) - 1))
        like = {l: torch.cat([x[l] for x in found]) for l in range(self.model.n_layers + 1)}
        layers = {l: x.to(self.model.device, _rows_dtype(self.model)) for l, x in like.items()}
        at = torch.tensor(places)
        tokens = torch.tensor([every[p] for p in places])
        return every, _Taken(States(torch.zeros_like(at), at, tokens, layers), places)

    def _greedy(self, state: Tensor) -> int:
        x = state.to(self.model.device, _rows_dtype(self.model))
        return int(read(self.head, x, 1, None).ids[0, 0])

    # decoding ----------------------------------------------------------------------------
    def grids(
        self, taken: "_Taken", lenses: Mapping[str, Maps | None], submodules: Maps | None
    ) -> tuple[dict[str, Grid], Int[Tensor, "T"]]:
        """A grid for each lens, and the model's final answer at each position."""
        final = self.model.n_layers
        last = read(self.head, taken.states.layers[final], self.k, None, self.tracked)
        answers = last.ids[:, 0]
        found = {}
        for name, maps in lenses.items():
            names, rows = self._rows(taken.states, maps, submodules)
            below = None
            if rows:
                repeated = answers.repeat(len(rows))
                below = read(self.head, torch.cat(rows), self.k, repeated, self.tracked)
            shown = last if final in self.layers else None
            found[name] = _grid(names, below, shown, str(final))
        return found, answers

    def _rows(
        self, states: States, maps: Maps | None, submodules: Maps | None
    ) -> tuple[list[str], list[Float[Tensor, "T d"]]]:
        """Names and vectors to decode of all rows but the last state's, in order."""
        names, rows = [], []
        for l in self.layers:
            if l == self.model.n_layers:
                continue
            x = states.layers[l]
            names.append(str(l))
            rows.append(x if maps is None else maps.apply(x, l))
            if self.parts:
                names.append(f"{l}{INSIDE}")
                rows.append(self._inside(states, l, maps, submodules))
        return names, rows

    def _inside(
        self, states: States, l: int, maps: Maps | None, submodules: Maps | None
    ) -> Float[Tensor, "T d"]:
        if maps is None or submodules is None:
            return stream_inside(self.model, states, l)
        return maps.apply(passed_on(self.model, states, l, submodules), l + 1)

    # result ------------------------------------------------------------------------------
    def result(
        self,
        ids: tuple[int, ...],
        taken: "_Taken",
        grids: dict[str, Grid],
        answers: Tensor,
        lenses: Mapping[str, Maps | None],
        notes: Iterable[str],
        generate: int,
        running: Running,
    ) -> Lens:
        """What is shown, with the labels of every token that occurs."""
        labels = self.model.vocabulary.labels
        mask = getattr(self.model.vocabulary.tokenizer, "mask_token_id", None)
        masked = not self.model.family.causal and mask is not None
        places = tuple(
            Place(at, ids[at], labels[ids[at]], masked and ids[at] == mask, answer, labels[answer])
            for at, answer in zip(taken.places, answers.tolist(), strict=True)
        )
        used = {i for grid in grids.values() for i in grid.ids.unique().tolist()}
        padding = self.model.vocabulary.n_rows - len(self.model.vocabulary)
        tokenizer = self.model.vocabulary.tokenizer
        settings = {
            "prompt": tokenizer.decode(ids) if tokenizer else "",
            "lenses": {name: _about(maps) for name, maps in lenses.items()},
            "k": self.k,
            "special_tokens": self.special,
            "generated": generate or None,
            "probabilities": POLICY,
            "padded_rows": padding,
            "causal": self.model.family.causal,
            "run_dtype": str(running.dtype).removeprefix("torch."),
        }
        said = f"{padding} padded rows of the head are no tokens and take no part."
        return Lens(
            places,
            grids,
            tuple((i, labels[i]) for i in self.tracked),
            {i: labels[i] for i in sorted(used)},
            self.model.n_layers,
            tuple(ids),
            settings,
            (*notes, *((said,) if padding else ())),
            self.model.provenance,
        )


def _grid(names: list[str], below: Reading | None, last: Reading | None, final: str) -> Grid:
    """Rows of all but the last state, stacked, with the last state's below them."""
    parts: dict[str, list[Tensor]] = {name: [] for name in Reading.__dataclass_fields__}
    for name, tensors in parts.items():
        if below is not None:
            flat = getattr(below, name)
            tensors.append(flat.reshape(len(names), len(flat) // len(names), *flat.shape[1:]))
        if last is not None:
            tensors.append(getattr(last, name)[None])
    if last is not None:
        names = [*names, final]
    return Grid(tuple(names), **{name: torch.cat(tensors) for name, tensors in parts.items()})


def _other_dtype(model: "Model", running: Running) -> Iterator[str]:
    if running.dtype != model.dtype:
        ran, read_in = (str(x).removeprefix("torch.") for x in (running.dtype, model.dtype))
        yield f"The live model ran in {ran}; its states were decoded in {read_in}."


def _about(maps: Maps | None) -> dict[str, Any] | None:
    """What is recorded of maps."""
    if maps is None:
        return None
    names = ("kind", "text", "text_hash", "rows", "seed", "positions", "seconds")
    return {name: maps.about.get(name) for name in names}


def _tracked(model: "Model", track: str | int | None) -> tuple[int, ...]:
    """Ids of the spellings of a word that are one token. Raises VocabularyError."""
    if track is None:
        return ()
    return tuple(model.vocabulary.token_ids(f"#{track}" if isinstance(track, int) else track))


def _mask_token(model: "Model") -> str:
    found = getattr(model.vocabulary.tokenizer, "mask_token", None)
    if found is None:
        raise VocabularyError(f"the tokenizer of {model.name} has no mask token.")
    return str(found)


def _mask_id(model: "Model") -> int:
    _mask_token(model)
    assert model.vocabulary.tokenizer is not None
    return int(model.vocabulary.tokenizer.mask_token_id)


def _rows_dtype(model: "Model") -> torch.dtype:
    return torch.float64 if model.dtype == torch.float64 else torch.float32
