"""What both reproductions share, and the work behind them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embspace.weights.aliases import DEFAULT_SAMPLE, bundled

from .followed import Followed
from .interrupt import stop_if_interrupted
from .opening import Opening
from .options import seed_option
from .output import Output
from .places import model_or_option
from .terminal import say

if TYPE_CHECKING:
    from embspace.evidence.embedding_steps import Cast
    from embspace.evidence.steps import Step
    from embspace.text.corpus import Corpus
    from embspace.weights.model import Model

OTHER_TEXT = "sample:story"
PAIR, TUNED, KEPT, DATA = (
    ("sample-bert-a", "sample-bert-b"),
    "sample-gpt2-reviews",
    "sample-gpt2-b",
    "sample",
)
Command = Callable[..., Any]


def reproduce_options(command: Command) -> Command:
    """MODEL, --out, --quick, --resume and --seed."""
    options = (
        model_or_option,
        click.option("--out", metavar="DIR", help="Folder to write.  [default: PAPER-MODEL]"),
        click.option("--quick", is_flag=True, help="Few rows and vectors: a first look."),
        click.option(
            "--resume/--fresh",
            default=True,
            help="Keep steps that were finished with the same settings, or measure all again.  "
            "[default: resume]",
        ),
        seed_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def jump(
    opening: Opening, output: Output, texts: tuple[str, ...], *, quick: bool, seed: int, **how: Any
) -> None:
    """Open the model and its texts, measure, show the claims."""
    from embspace.evidence.jump_steps import QUICK_LINES, jump_steps

    model = opening.open()
    if not texts and bundled(opening.model):
        texts = ("sample:reference", OTHER_TEXT)
    limit = QUICK_LINES if quick else None
    first = _corpus(model, texts[0] if texts else None, limit)
    second = _corpus(model, texts[1], limit) if len(texts) > 1 else None
    steps = jump_steps(model, first, second, quick=quick, seed=seed)
    _run("jump", steps, {"model": model}, output, quick=quick, **how)


def embedding(
    opening: Opening, output: Output, *, quick: bool, seed: int, out: str | None, **given: Any
) -> None:
    """Open all models that take part, measure, show the claims."""
    from embspace.evidence.embedding_steps import embedding_steps

    resume = given.pop("resume")
    cast = _cast(opening, quick, **given)
    steps = embedding_steps(cast, quick=quick, seed=seed)
    _run("embedding", steps, cast.members(), output, quick=quick, out=out, resume=resume)


def _cast(
    opening: Opening,
    quick: bool,
    *,
    text: str | None,
    weights_only: bool,
    pair: tuple[str, str] | None,
    tuned: str | None,
    kept: str | None,
    data: str | None,
) -> "Cast":
    """The models by the parts they play; samples where the bundled one is read."""
    from embspace.evidence.embedding_steps import Cast, Sizes

    if weights_only and text:
        raise click.UsageError("--weights-only takes no --text.")
    if opening.model == DEFAULT_SAMPLE:
        if not (tuned or kept or data):
            tuned, kept, data = TUNED, KEPT, DATA
        pair = pair or PAIR

    def other(name: str) -> "Model":
        return replace(opening, model=name, revision=None).open()

    model = opening.open()
    corpus = None if weights_only else _corpus(model, text, Sizes.of(quick).texts)
    classifier = other(tuned) if tuned else None
    first = other(kept) if kept else model if tuned else None
    aligned = (other(pair[0]), other(pair[1])) if pair else None
    return Cast(model, corpus, aligned, classifier, first, data)


def _corpus(model: "Model", text: str | None, limit: int | None) -> "Corpus":
    from embspace.text.corpus import default_corpus, read_corpus

    return default_corpus(model, limit) if text is None else read_corpus(text, limit=limit)


def _run(
    paper: str,
    steps: "list[Step]",
    models: "dict[str, Model]",
    output: Output,
    *,
    quick: bool,
    out: str | None,
    resume: bool,
) -> None:
    from embspace.evidence.reproduction import PAGE, reproduce
    from embspace.show import LOOKS
    from embspace.show.wording import model_name

    name = model_name(models["model"].provenance).replace("/", "--")
    folder = Path(out or f"{paper}-{name}")
    with _Shown(len(steps)) as shown:
        found = reproduce(
            paper,
            steps,
            folder,
            models=models,
            looks=LOOKS,
            quick=quick,
            fresh=not resume,
            progress=shown.progress,
            on_step=shown.on_step,
        )
    output.one(found)
    say(f"wrote {folder / PAGE}")


class _Shown:
    """A line on stderr for every step, and a bar while one runs."""

    def __init__(self, total: int) -> None:
        self.total, self.n = total, 0
        self._bar: Followed | None = None

    def __enter__(self) -> "_Shown":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)
            self._bar = None

    def progress(self, what: str, done: int, total: int) -> None:
        """How far the step is."""
        if self._bar is None:
            self._bar = Followed().__enter__()
        self._bar(what, done, total)

    def on_step(self, step: "Step", what: str) -> None:
        """What became of a step."""
        self.__exit__(None, None, None)
        stop_if_interrupted()
        self.n += 1
        said = {"kept": "kept from before", "measured": "measured"}.get(what, f"left out: {what}")
        say(f"{self.n} of {self.total}  {step.title}: {said}")
