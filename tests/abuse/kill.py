"""Kill long work at random moments, again and again: what goes on must end as if never broken.

    python tests/abuse/kill.py --kills 20 fit finetune lens reproduce

Not a test of pytest's: it takes minutes. Each kind of work runs once unbroken; then it is killed
(SIGKILL) at moments drawn over its processor time and resumed until it is done, over and over.
Every result must equal the unbroken one byte for byte, every state must be readable, no temporary
file may stay.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import psutil

os.environ.setdefault("OMP_NUM_THREADS", "1")  # also: a child of fork must not wait for threads
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@dataclass
class Work:
    """A command line, its result below the folder it runs in, and how it is told to go on."""

    arguments: Callable[[Path], list[str]]
    result: str
    state: str | None
    kills: int = 0
    ends: int = 0
    resumed: int = 0
    failures: list[str] = field(default_factory=list)

    def counts(self) -> str:
        """How often it was killed, went on and ended."""
        return f"{self.kills} kills, {self.resumed} resumptions, {self.ends} results"


def works(model: Path, text: Path) -> dict[str, Work]:
    """All kinds of work that can be killed."""
    told = ["--no-check", "--json"]

    def fit(home: Path) -> list[str]:
        out = ["--out", str(home / "x.maps"), "--pairs", "all", "--positions", "6"]
        return ["fit", str(model), "--text", str(text), *out, *told]

    def finetune(home: Path) -> list[str]:
        out = ["--out", str(home / "made"), "--texts", "48", "--test-texts", "20"]
        return ["finetune", str(model), "--data", "sample", *out, "--epochs", "2", *told]

    def lens(home: Path) -> list[str]:
        return ["lens", "The cat", "-m", str(model), "--text", str(text), *told]

    def reproduce(home: Path) -> list[str]:
        out = ["--out", str(home / "out"), "--weights-only", "--quick"]
        return ["reproduce", "embedding", "-m", str(model), *out, *told]

    return {
        "fit": Work(fit, "x.maps", "x.maps.state"),
        "finetune": Work(finetune, "made", "made.training.safetensors"),
        "lens": Work(lens, "cache/maps", None),
        "reproduce": Work(reproduce, "out", None),
    }


def child(arguments: list[str], home: Path) -> int:
    """Start a command in a process of its own, with states saved all the time; its number."""
    number = os.fork()
    if number:
        return number
    code = 1
    with contextlib.suppress(BaseException):
        os.environ["EMBSPACE_CACHE"] = str(home / "cache")
        sys.stdout, sys.stderr = io.StringIO(), (home / "stderr").open("w")
        from embspace_cli.main import cli

        from embspace.between import finetune as finetuning
        from embspace.maps import fit as fitting

        fitting.SAVE_EVERY_S = finetuning.SAVE_EVERY = 0.0
        fitting.fit.__kwdefaults__["batch_tokens"] = 256  # many batches, and so many states
        try:
            cli.main(arguments, prog_name="embspace")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        sys.stderr.flush()
    os._exit(code)


def content(path: Path) -> dict[str, bytes]:
    """All files of a result."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="kill-"))
    try:
        yield home
    finally:
        shutil.rmtree(home)


def ended(number: int, seconds: float | None) -> tuple[int | None, float]:
    """(exit code, seconds of processor time) of a child; None where it was killed after so many."""
    used = 0.0
    process = psutil.Process(number)
    while seconds is None or used < seconds:
        found, status, usage = os.wait4(number, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        used = sum(process.cpu_times()[:2])
        time.sleep(0.002)
    os.kill(number, signal.SIGKILL)
    _, status = os.waitpid(number, 0)
    code = os.waitstatus_to_exitcode(status)
    return (code if code >= 0 else None), used


def unbroken(work: Work) -> tuple[dict[str, bytes], float]:
    """The result of a run that nobody kills, and the processor time it took."""
    with folder() as home:
        code, seconds = ended(child(work.arguments(home), home), None)
        if code != 0:
            raise SystemExit((home / "stderr").read_text())
        return content(home / work.result), seconds


def broken(work: Work, seconds: float, kills: int, draw: random.Random) -> dict[str, bytes] | None:
    """The result of one run that is killed and resumed until it is done."""
    with folder() as home:
        while True:
            go_on = work.state is not None and (home / work.state).is_file()
            arguments = [*work.arguments(home), *(["--resume"] if go_on else [])]
            work.resumed += go_on
            left = draw.uniform(0, seconds) if work.kills < kills else None
            code, used = ended(child(arguments, home), left)
            if code is None:
                work.kills += 1
                print(f"killed after {used:.2f} s, {work.counts()}", flush=True)
                continue
            if code:
                work.failures.append((home / "stderr").read_text()[-300:])
                return None
            work.ends += 1
            strays = [path.name for path in home.rglob(".embspace-*")]
            if strays or (work.state and (home / work.state).exists()):
                work.failures.append(f"left behind: {strays or work.state}")
            return content(home / work.result)


def _prepare() -> None:
    """Import what the work needs, so that little of its time is spent on that."""
    for name in (
        *("embspace_cli.group", "embspace.maps.lens", "embspace.read.reader"),
        *("embspace.evidence.reproduction", "embspace.evidence.embedding_steps"),
    ):
        import_module(name)
    for name in ("GPT2LMHeadModel", "AutoModelForCausalLM", "AutoTokenizer", "TokenizersBackend"):
        getattr(import_module("transformers"), name, None)


def main() -> int:
    """Kill, compare, count; 1 where anything differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["fit", "finetune", "lens", "reproduce"])
    parser.add_argument("--kills", type=int, default=20, help="of each kind (default 20)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    _prepare()
    from embspace.weights.aliases import bundled

    draw, failed = random.Random(asked.seed), 0
    with folder() as home:
        sample = bundled("sample-gpt2")
        assert sample is not None
        model = Path(shutil.copytree(sample, home / "model"))
        text = home / "lines.txt"
        text.write_text("\n".join(f"The cat number {n} saw Rome and Paris." for n in range(400)))
        for name in asked.what:
            work = works(model, text)[name]
            true, seconds = unbroken(work)
            print(f"{name}: {seconds:.1f} s unbroken", flush=True)
            while work.kills < asked.kills and not work.failures:
                found = broken(work, seconds, asked.kills, draw)
                if found is not None and found != true:
                    differ = sorted(k for k in {*found, *true} if found.get(k) != true.get(k))
                    work.failures.append(f"another result: {differ}")
                print(f"{name}: {work.counts()}", *work.failures, flush=True)
            failed += len(work.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
