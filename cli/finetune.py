"""`embspace finetune`: the paper's classifier of texts, on top of a pretrained model."""

from typing import TYPE_CHECKING

import click

from . import options as o
from .followed import watched, working
from .interrupt import told_what_is_kept
from .opening import Opening
from .output import Output
from .terminal import say

if TYPE_CHECKING:
    from embspace.between.classifier_texts import Keep


@o.command("finetune", "Make a classifier of texts.")
@o.model_argument
@o.data_options
@click.option("--out", required=True, metavar="FOLDER", help="Where the classifier goes.")
@click.option("--paper", is_flag=True, help="Dar et al.'s recipe: see above.")
@o.count("--blocks", least=0, help="Last ones, trained.  [default: 3]")
@o.count("--epochs", help="At most.  [default: 3]")
@o.count(
    "--patience", default=1, help="Epochs without a better validation accuracy before it stops."
)
@click.option("--rate", type=float, help="Of learning.  [default: 1e-5; 5e-4 below width 512]")
@o.count("--batch", default=16, help="Texts a step.")
@o.count(
    "--texts",
    "n_train",
    least=4,
    help="Texts to train on; a tenth of them chooses the epoch.  [default: 3000]",
)
@o.count("--test-texts", "n_test", default=1000, help="Texts to score on.")
@o.choice(
    "--text-end",
    "--keep",
    "keep",
    values=["start", "end"],
    help="Which end of too long a text is read.",
)
@click.option("--resume", is_flag=True, help="Go on after an interruption, to the same result.")
@o.seed_option
@o.output_options
@o.opening_options
def command(
    opening: Opening,
    output: Output,
    data: str,
    text_column: str | None,
    label_column: str | None,
    max_tokens: int | None,
    out: str,
    paper: bool,
    blocks: int | None,
    epochs: int | None,
    patience: int,
    rate: float | None,
    batch: int,
    n_train: int | None,
    n_test: int,
    keep: "Keep",
    resume: bool,
    seed: int,
) -> None:
    """Train a linear head on every token's last state, averaged, and the last blocks with it.

    Scores of a text: mean over its tokens of x W^T + b, x being the stream after the last block,
    before the final norm. Everything else stays as it was. After each epoch the validation
    accuracy (a tenth of the texts), with its 95 % interval; the best epoch's weights are kept and
    scored once on the test texts, beside chance. FOLDER opens like any model, and stitch and
    diff read it. The state is saved beside FOLDER as it goes.
    --paper trains as Dar et al. do (section 5.2): the matrices alone of the last 3 blocks and of
    the head, on 3,000 texts, one epoch at 1e-5, no weight decay; the paper says no batch size.

    \b
        embspace finetune sample-gpt2 --data sample --out reviews
        embspace finetune gpt2 --data imdb --paper --out gpt2-imdb
    """
    from embspace.between.classifier_folder import check_out, state_file
    from embspace.between.finetune import N_TRAIN, PAPER_TEXTS, finetune
    from embspace.text.labelled import read_split
    from embspace.weights.json_files import path_of

    chosen = {"--blocks": blocks, "--epochs": epochs, "--rate": rate, "--texts": n_train}
    given = [name for name, value in chosen.items() if value is not None]
    if paper and given:
        raise click.UsageError(f"--paper decides {', '.join(given)}: leave it out.")
    folder = path_of(out)
    check_out(folder, resume=resume)
    with working("reading the texts"):
        split = read_split(
            data,
            n_train=PAPER_TEXTS if paper else n_train or N_TRAIN,
            n_test=n_test,
            text_column=text_column,
            label_column=label_column,
            seed=seed,
        )
    model = opening.open()
    state = state_file(folder)
    with told_what_is_kept(state, lambda: [state] if state.exists() else []):
        result = finetune(
            model,
            split,
            folder,
            paper=paper,
            blocks=blocks,
            epochs=epochs,
            rate=rate,
            batch=batch,
            patience=patience,
            max_tokens=max_tokens,
            keep=keep,
            seed=seed,
            resume=resume,
            watch=watched("steps"),
        )
    say(f"wrote {out}")
    output.one(result)
