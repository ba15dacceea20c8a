"""`embspace reproduce`: a paper's experiments, claim by claim."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embspace.weights.aliases import DEFAULT_SAMPLE, bundled

from . import options as o
from .followed import Followed
from .interrupt import stop_if_interrupted
from .opening import Opening
from .output import Output
from .places import model_or_option
from .terminal import say
from .texts import read_text, require_text

if TYPE_CHECKING:
    from embspace.evidence.steps import Step
    from embspace.weights.model import Model

OTHER_TEXT = "sample:story"
PAIR, TUNED, KEPT, DATA = (
    ("sample-bert-a", "sample-bert-b"),
    "sample-gpt2-reviews",
    "sample-gpt2-b",
    "sample",
)


def _options(command: o.Command) -> o.Command:
    """MODEL, --out, --quick, --resume, --seed, and what every command takes."""
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
        o.seed_option,
        o.output_options,
        o.opening_options,
    )
    for option in reversed(options):
        command = option(command)
    return command


@o.command("jump", "Jump to Conclusions.")
@click.option(
    "--text",
    "texts",
    multiple=True,
    metavar="TEXT",
    help="Sentences, as in `embspace fit`; a second one for transfer.  [default: our own for a "
    "bundled sample, else Wikipedia from the Hub]",
)
@_options
def jump(
    opening: Opening,
    output: Output,
    texts: tuple[str, ...],
    out: str | None,
    quick: bool,
    resume: bool,
    seed: int,
) -> None:
    """Jump to Conclusions (Yom Din et al. 2024), measured on MODEL.

    r² of all pairs, Precision@k and Surprisal by layer for mat and id, transfer to another text,
    linear sub-modules, exits that are fixed or by confidence with the layers saved at 95 %, blocks
    and jumps in turn. Prints each claim, the paper's figure, ours, and whether it holds.

    \b
        embspace reproduce jump --quick
        embspace reproduce jump gpt2 --text wiki.txt --text news.txt --out gpt2-jump
    """
    if len(texts) > 2:
        raise click.UsageError("give --text once or twice.")
    from embspace.evidence.jump_steps import QUICK_LINES, jump_steps

    for text in texts:
        require_text(text)
    model = opening.open()
    if not texts and bundled(opening.model):
        texts = ("sample:reference", OTHER_TEXT)
    limit = QUICK_LINES if quick else None
    first = read_text(model, texts[0] if texts else None, limit=limit)
    second = read_text(model, texts[1], limit=limit) if len(texts) > 1 else None
    steps = jump_steps(model, first, second, quick=quick, seed=seed)
    _run("jump", steps, {"model": model}, output, out, quick=quick, resume=resume)


@o.command("embedding", "Analyzing Transformers in Embedding Space.")
@click.option("--text", metavar="TEXT", help="Sentences to run on, as in `embspace fit`.")
@click.option("--weights-only", is_flag=True, help="Leave out what runs the model.")
@click.option(
    "--pair", nargs=2, metavar="A B", help="Two training runs of one vocabulary, to align."
)
@click.option(
    "--tuned", metavar="FOLDER", help="A classifier made of MODEL by `embspace finetune`."
)
@click.option("--kept", metavar="A", help="Pretrained model to stitch onto it.  [default: MODEL]")
@click.option("--data", metavar="WHERE", help="Labelled texts for it, as in `embspace stitch`.")
@_options
def embedding(
    opening: Opening,
    output: Output,
    text: str | None,
    weights_only: bool,
    pair: tuple[str, str] | None,
    tuned: str | None,
    kept: str | None,
    data: str | None,
    out: str | None,
    quick: bool,
    resume: bool,
    seed: int,
) -> None:
    """Analyzing Transformers in Embedding Space (Dar et al. 2022), measured on MODEL.

    Pairs of matching vectors, activated vectors against the layer's and the final state, what
    fine-tuning changed, two training runs aligned, models stitched, both inverses of E. Prints each
    claim, the paper's figure, ours, and whether it holds. Without MODEL the bundled samples play
    all parts; with one, what is not given is not measured.

    \b
        embspace reproduce embedding --quick
        embspace reproduce embedding gpt2 --text wiki.txt --pair bert-seed1 bert-seed2
    """
    if weights_only and text:
        raise click.UsageError("--weights-only takes no --text.")
    from embspace.evidence.embedding_steps import Cast, Sizes, embedding_steps

    if opening.model == DEFAULT_SAMPLE:
        if not (tuned or kept or data):
            tuned, kept, data = TUNED, KEPT, DATA
        pair = pair or PAIR

    def other(name: str) -> "Model":
        return replace(opening, model=name, revision=None).open()

    require_text(text)
    model = opening.open()
    cast = Cast(
        model,
        text=None if weights_only else read_text(model, text, limit=Sizes.of(quick).texts),
        tuned=other(tuned) if tuned else None,
        kept=other(kept) if kept else model if tuned else None,
        pair=(other(pair[0]), other(pair[1])) if pair else None,
        data=data,
    )
    steps = embedding_steps(cast, quick=quick, seed=seed)
    _run("embedding", steps, cast.members(), output, out, quick=quick, resume=resume)


PAPERS: dict[str, click.Command] = {"jump": jump, "embedding": embedding}


@click.group(
    "reproduce",
    cls=o.ExampledGroup,
    commands=PAPERS,
    context_settings=o.CONTEXT,
    short_help="A paper's claims, measured on a model.",
)
def command() -> None:
    """Measure what a paper claims on a model of your own: which claims hold, and which do not.

    Writes a folder: figures (PNG, SVG), tables (CSV, JSON) and one page, index.html. Interrupted,
    the same command goes on where it was.

    \b
        embspace reproduce jump --quick
        embspace reproduce embedding --quick
        embspace reproduce jump gpt2 --text wiki.txt --text news.txt
    """


def _run(
    paper: str,
    steps: "list[Step]",
    models: "dict[str, Model]",
    output: Output,
    out: str | None,
    *,
    quick: bool,
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
