"""A copy to damage, and the command line in this process or in one forked from it."""

import contextlib
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a model folder that may be damaged."""
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture
def run() -> Callable[..., Result]:
    """`run("heads", folder)` in this process."""
    from embspace_cli.main import cli

    return lambda *a: CliRunner().invoke(cli, [str(x) for x in a], prog_name="embspace")


class Forked:
    """The command line in a process of its own, without a second start of Python."""

    def __init__(self, arguments: list[str], stdout: int, encoding: str) -> None:
        self._err, err = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of threads, which wait for nothing
            self.pid = os.fork()
        if self.pid == 0:
            _run(arguments, stdout, err, encoding)
        os.close(err)

    def wait(self) -> tuple[int, str]:
        """Exit code and what was written to stderr."""
        with os.fdopen(self._err, "rb") as errors:
            said = errors.read().decode()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), said


def _run(arguments: list[str], stdout: int, stderr: int, encoding: str) -> NoReturn:
    code = 70
    try:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        for number, (stream, name) in enumerate(((stdout, "stdout"), (stderr, "stderr")), 1):
            os.dup2(stream, number)
            setattr(sys, name, open(number, "w", encoding=encoding))  # noqa: SIM115
        os.closerange(3, 256)
        sys.argv = ["embspace", *arguments]
        from embspace_cli.main import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 70
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    os._exit(code)


@pytest.fixture
def forked() -> Callable[..., Forked]:
    """`forked(arguments, stdout=number, encoding="ascii").wait()`."""

    def start(arguments: list[str], *, stdout: int, encoding: str = "utf8") -> Forked:
        return Forked([str(a) for a in arguments], stdout, encoding)

    return start
