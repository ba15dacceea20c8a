"""The command line, run in this process and in others."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result


@pytest.fixture
def run() -> Callable[..., Result]:
    """`run("heads", folder, "--json")` as a pipe sees it: stdout, stderr and exit code."""
    from embspace_cli.main import cli

    def invoke(*arguments: object, **env: str) -> Result:
        return CliRunner().invoke(cli, [str(a) for a in arguments], env=env, prog_name="embspace")

    return invoke


@pytest.fixture
def process() -> Callable[..., Any]:
    """The same as a process of its own; returns the Popen.

    It gets interrupts even where the tests run in a background that ignores them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def start(*arguments: object, **env: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "embspace", *(str(a) for a in arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | env,
        )

    return start


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
