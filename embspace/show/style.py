"""Colours that read on light and dark terminals, and token text that nothing interprets."""

import unicodedata

from rich.text import Text

from .wording import WIDEST, clipped

STYLES = {
    "asks": "green",
    "attended": "cyan",
    "promoted": "magenta",
    "key": "cyan",
    "value": "magenta",
    "good": "green",
    "bad": "bold red",
    "faint": "dim",
    "plain": "",
}
ASCII = {"→": "->", "↔": "<->", "×": "x", "·": ".", "…": "...", "−": "-"}
RIGHT_TO_LEFT = ("R", "AL", "AN", "RLE", "RLO")
ISOLATE, POP = "\u2068", "\u2069"


def label_text(label: str, tone: str = "plain", encoding: str = "utf-8") -> Text:
    """A token's label: no markup, no emoji codes; right-to-left text isolated, long text cut."""
    if len(label) > WIDEST:
        label = clipped(label)
    shown = encodable(label, encoding)
    if any(unicodedata.bidirectional(char) in RIGHT_TO_LEFT for char in shown):
        shown = f"{ISOLATE}{shown}{POP}"
    return Text(shown, style=STYLES[tone], overflow="fold")


def words(text: str, style: str = "", encoding: str = "utf-8") -> Text:
    """Our own words; symbols that the terminal cannot show get their ASCII form."""
    if not _fits(text, encoding):
        text = "".join(char if _fits(char, encoding) else ASCII.get(char, char) for char in text)
    return Text(encodable(text, encoding), style=style)


def cut(text: Text, width: int, encoding: str = "utf-8") -> None:
    """Shorten a text to a number of cells, its cut end marked."""
    if text.cell_len > width:
        mark = words("…", "", encoding)
        isolated = ISOLATE in text.plain
        text.truncate(max(0, width - mark.cell_len), overflow="crop")
        text.append_text(mark).append(POP if isolated and POP not in text.plain else "")


def padded(text: Text, width: int) -> Text:
    """A text with spaces up to a number of cells."""
    text.append(" " * max(0, width - text.cell_len))
    return text


def encodable(text: str, encoding: str) -> str:
    """Text with what an encoding lacks written as escapes."""
    return text if _fits(text, encoding) else _escaped(text, encoding)


def _escaped(text: str, encoding: str) -> str:
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def _fits(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
