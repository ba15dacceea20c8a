"""Every result is also JSON, CSV and an HTML fragment.

python examples/export.py [MODEL [FOLDER]]
"""

import sys
from pathlib import Path

import embspace
from embspace.show import as_html


def main(name: str = "sample-gpt2", folder: str = ".") -> None:
    """Write one head's pairs in three formats."""
    found = embspace.load(name).heads[2, 1].vo.top_pairs(50)
    texts = {"json": found.to_json(), "csv": found.to_csv(), "html": as_html(found)}
    for ending, text in texts.items():
        path = Path(folder) / f"head.{ending}"
        path.write_text(text, encoding="utf8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
