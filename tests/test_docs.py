"""Every public name has its place on the API pages."""

from pathlib import Path

import pytest

import embspace

PAGES = Path(__file__).parents[1] / "docs" / "pages"
PATHS = {"evidence": "embspace.evidence"}


@pytest.mark.parametrize("name", sorted(set(embspace.__all__) - {"__version__"}))
def test_a_public_name_is_documented_and_can_be_had(name):
    text = "\n".join(page.read_text(encoding="utf8") for page in PAGES.glob("*.md"))
    lines = text.splitlines()
    assert f"::: {PATHS.get(name, f'embspace.{name}')}" in lines
    assert getattr(embspace, name).__doc__


def test_what_can_be_had_is_what_is_listed():
    assert set(embspace.__all__) == {*embspace._WHERE, "__version__"}
