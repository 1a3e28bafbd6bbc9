"""The pages in a real browser, where there is one: nothing runs, nothing sticks out."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from bayeseq import CRF, TaggedSentence, load_dataset, report_html, show, word_features
from tests.report.pages import HOSTILE

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=4000",
]
WIDTHS = (1200, 400)

# Each page stands in frames of several widths; a script outside of them measures and looks.
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><title>waiting</title>{frames}
<pre id="found"></pre><script>
onload = () => {{
  const frames = [...document.querySelectorAll("iframe")];
  document.getElementById("found").textContent = JSON.stringify(frames.map(frame => {{
    const page = frame.contentDocument, root = page.documentElement;
    return {{
      name: frame.name, title: page.title, wide: root.scrollWidth, room: root.clientWidth,
      strange: page.querySelectorAll("img,script,iframe,object,embed,link").length,
      marked: root.hasAttribute("data-owned"),
      text: page.body.textContent.length,
      ink: getComputedStyle(page.body).color,
    }};
  }}));
}};
</script>"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a browser says of each page at each width, by name, and what it complained of."""
    if BROWSER is None:
        pytest.skip("chromium is not installed")
    folder = tmp_path_factory.mktemp("browser")
    frames = "".join(
        f'<iframe name="{name} {width}" width="{width}" height="600" style="border:0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
        for name, page in pages().items()
        for width in WIDTHS
    )
    path = folder / "harness.html"
    path.write_text(HARNESS.format(frames=frames), encoding="utf-8")
    command = [
        BROWSER,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        path.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    answer = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer is not None
    rows = json.loads(html.unescape(answer[1]))
    return {row["name"]: row for row in rows}, done.stderr


def pages() -> dict[str, str]:
    dataset = load_dataset("newswire")
    part = [word_features(words) for words in dataset["train"].tokens[:30]]
    model = CRF(l2=0.1, progress=False).fit(part, dataset.labels("train")[:30])
    words, labels = dataset["test"].tokens[:20], dataset.labels("test")[:20]
    bad = [
        word.replace("document.title=1", "document.documentElement.dataset.owned=1")
        for word in HOSTILE
        if word != "\ud800"  # no file can hold it
    ]
    tags = [f"B-{word}" if word else "O" for word in bad]
    X = [[[f"f{k}"] for k in range(len(bad))]] * 2
    hostile = CRF(l2=0.1, progress=False).fit(X, [tags] * 2)
    page = report_html(hostile, [bad] * 2, X, [[*tags[1:], tags[0]]] * 2)
    return {
        "report": report_html(model, words, None, labels),
        # what escaping alone does, without the page's policy to back it
        "hostile": re.sub("<meta http-equiv[^>]*>", "", page),
        "control": "<script>document.documentElement.dataset.owned = 1</script>"
        "<div style='width:2000px'>wide</div>",
        "show": f"<!DOCTYPE html>{show(TaggedSentence(bad, tags)).html}",
    }


def test_the_browser_would_notice(found):
    for width in WIDTHS:
        row = found[0][f"control {width}"]
        assert row["marked"]
        assert row["strange"] == 1
        assert row["wide"] > row["room"]


def test_nothing_of_a_hostile_page_runs(found):
    rows, _ = found
    for name in ("hostile", "show"):
        for width in WIDTHS:
            row = rows[f"{name} {width}"]
            assert row["title"] in ("CRF: report", "")
            assert row["strange"] == 0
            assert not row["marked"]


def test_nothing_sticks_out_at_any_width(found):
    rows, _ = found
    for name in ("report", "hostile", "show"):
        for width in WIDTHS:
            row = rows[f"{name} {width}"]
            assert width - 20 <= row["room"] <= width  # but for the bar to scroll
            assert row["text"] > 300
            assert row["wide"] <= row["room"], row


def test_no_complaints(found):
    _, errors = found
    assert [line for line in errors.splitlines() if ":CONSOLE" in line] == []
