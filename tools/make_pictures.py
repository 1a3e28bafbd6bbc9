"""Write the images of docs/pictures.md again, by running the snippets that stand above them.

    python tools/make_pictures.py            # all images
    python tools/make_pictures.py --check    # run the snippets, write nothing

A snippet's last figure becomes the image that follows it on the page.
"""

import argparse
import io
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

PAGE = Path(__file__).resolve().parents[1] / "docs" / "pictures.md"
PART = re.compile(r"```python\n(?P<code>.*?)```|!\[[^\]]*\]\((?P<image>[^)]+)\)", re.DOTALL)

# Sharp enough on a page, and small enough for a repository.
DPI = 90


def main() -> None:
    """Run the page from top to bottom."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    mpl.use("agg")
    run_page(None if check else PAGE.parent)


def run_page(folder: Path | None) -> list[str]:
    """Run all snippets in one namespace; images go below `folder`, if there is one.

    Returns the names of the images. A snippet before an image must leave a figure.
    """
    from matplotlib import pyplot

    names: dict[str, object] = {}
    images = []
    for part in PART.finditer(PAGE.read_text(encoding="utf-8")):
        if part["code"] is not None:
            pyplot.close("all")
            exec(part["code"], names)
            continue
        if not pyplot.get_fignums():
            raise SystemExit(f"{part['image']}: the snippet above it draws nothing")
        images.append(part["image"])
        if folder is not None:
            write(pyplot.gcf(), folder / part["image"])
    pyplot.close("all")
    return images


def write(figure: Figure, path: Path) -> None:
    """A small PNG: 256 colours are enough for lines and bands."""
    from PIL import Image

    with io.BytesIO() as raw:
        figure.savefig(raw, dpi=DPI)
        with Image.open(raw) as image:
            few = image.convert("RGB").quantize(256, kmeans=5, dither=Image.Dither.NONE)
            few.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
