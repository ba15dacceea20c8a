"""Pages in a real browser, where there is one: how wide they are, and what keys and scripts do."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
WIDTH = "return page.document.documentElement.scrollWidth;"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")


def in_browser(
    html: str, script: str, folder: Path, *, width: int = 1200, height: int = 800
) -> Any:
    """What `script`, a function body with `page` (its window), returns once a page is loaded.

    The page stands in a frame of so many pixels, for a window cannot be as narrow as a phone.
    """
    outer = folder / "outer.html"
    outer.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre>'
        f'<iframe width="{width}" height="{height}" style="border:0" srcdoc="{escape(html)}">'
        "</iframe>"
        "<script>const frame = document.querySelector('iframe');"
        f"const look = (page) => {{ {script} }};"
        "frame.addEventListener('load', () => document.getElementById('found').textContent ="
        " JSON.stringify(look(frame.contentWindow)));</script>",
        encoding="utf8",
    )
    ran = subprocess.run(
        [str(CHROMIUM), *FLAGS, "--disable-background-networking",
         f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", "--dump-dom",
         outer.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = re.search(r'<pre id="found">(.*?)</pre>', ran.stdout, flags=re.DOTALL)
    assert found, ran.stdout[-500:]
    return json.loads(unescape(found[1]))
