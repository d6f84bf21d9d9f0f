"""The page of a comparison: what it shows, how it escapes, and that a browser takes it."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click.testing
import pytest

pytest.importorskip("matplotlib", reason="matplotlib not installed: install the extra report")

from benchmarks.report import page
from benchmarks.report.__main__ import main
from benchmarks.report.observed import record_more, watch
from edgedec.compare.drafters import DrafterTask, bench_bundle
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline

# Would run, load or break out if any of it reached the page unescaped.
HOSTILE = "</pre><script>alert(1)</script><img src=http://x.invalid/a.png onerror=a()>\"'&$x^2$"
RUN = {
    "kind": "run", "tokens": 8, "target_passes": 4, "drafted_tokens": 6, "accepted_tokens": 4,
    "accepted_lengths": {"0": 2, "2": 2}, "plan": {"format": "onnx"}, "speedup_estimate": 1.8,
}  # fmt: skip


def run(candidate: str, prompt: str, tpot_s: float) -> dict[str, Any]:
    return {**RUN, "candidate": candidate, "prompt": prompt, "tpot_s": tpot_s}


def summary(candidate: str, speedup: float) -> dict[str, Any]:
    figures = {"speedup": speedup, "tokens_per_second": 100 * speedup, "worst_ratio": speedup}
    counts = {"identical": 2, "prompts": 2}
    return {"kind": "summary", "candidate": candidate, "baseline": "plain", **figures, **counts}


def records(text: str = "plain words") -> list[dict[str, Any]]:
    """What a comparison leaves, with a text from elsewhere wherever one may stand."""
    rounds = [
        {"seconds": 0.1, "source": "lookup", "accepted": [f"<kept>{text}"], "own": text,
         "rejected": ["\n", text], "emitted": 2, "memory_bytes": 300_000_000},
        {"seconds": 0.2, "source": "none", "accepted": [], "own": "end", "rejected": [],
         "emitted": 1, "memory_bytes": 310_000_000},
    ]  # fmt: skip
    side = {"tokens": 3, "rounds": rounds}
    return [
        {"kind": "machine", "time": "now", "cpu": text, "cores": 2, "edgedec": "0"},
        {"kind": "about", "model": text, "tokens": 8, "sampling": "greedy", "source": text},
        *(run("plain", name, 0.02) for name in ("one", text)),
        *(run("auto", name, 0.01) for name in ("one", text)),
        summary("plain", 1.0),
        summary("auto", 2.0),
        *({"kind": "question", "prompt": name, "category": text} for name in ("one", text)),
        {"kind": "category", "category": text, "candidate": "auto", "questions": 2,
         "speedup": 1.7, "speedup_decoding": None, "mean_accepted_tokens": 2.0},
        {"kind": "curve", "format": "onnx", "widths": [1, 4], "seconds": [0.01, 0.02],
         "steady": True},
        {"kind": "curve", "format": "gguf", "runtime": "llamacpp", "left_out": text},
        {"kind": "prediction", "chosen": True, "plan": text, "drafters": ["hybrid", "auto"],
         "format": "onnx", "draft_length": 3, "tokens_per_second": 90.0, "speedup": 1.9},
        {"kind": "prediction", "chosen": False, "plan": text, "drafters": ["hybrid", "auto"],
         "format": "onnx", "draft_length": None, "tokens_per_second": 90.0, "speedup": 1.9},
        {"kind": "generation", "prompt": text, "text": text,
         "sides": {"none": side, "auto": side}},
    ]  # fmt: skip


class Read(HTMLParser):
    """Tags with their attributes, and the text that a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_shows_what_was_measured() -> None:
    html = page.html(records())
    read = Read(html)
    for shown in ("2.00x", "tokens/s", "plan: hybrid, 4 rows", "67%", "<kept>"):
        assert shown in read.text
    assert [tag for tag, _ in read.tags].count("svg") == 6
    assert "megabytes of the process" in read.text
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    titles = [attrs["title"] for tag, attrs in read.tags if tag == "span" and "title" in attrs]
    assert titles[0] == "round 1: 1 of 3 drafted tokens accepted (lookup), at 100 ms"
    assert "nothing drafted" in str(titles[1])


def test_energy_is_a_column_where_the_machine_told() -> None:
    assert "joules a token" not in page.html(records())
    told = records()
    for one in told:
        if one["kind"] == "summary":
            one["joules_per_token"] = 0.125
    html = page.html(told)
    assert html.count("<td>0.125</td>") == 2


def test_records_without_memory_have_no_plot_of_it() -> None:
    older = records()
    for one in older[-1]["sides"]["none"]["rounds"]:
        one.pop("memory_bytes", None)
    read = Read(page.html(older))
    assert [tag for tag, _ in read.tags].count("svg") == 5


def test_text_from_elsewhere_is_shown_and_does_nothing() -> None:
    html = page.html(records(HOSTILE))
    read = Read(html)
    assert read.text.count(HOSTILE) >= 8
    assert {tag for tag, _ in read.tags} & {"script", "img", "iframe", "object", "link"} == set()
    for _, attrs in read.tags:
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("href", "xlink:href", "src"):
            assert str(attrs.get(name, "#")).startswith("#")
    # As many elements as for a harmless text.
    assert len(read.tags) == len(Read(page.html(records())).tags)


def test_plots_are_in_the_colours_of_the_page_and_share_no_names() -> None:
    html = page.html(records())
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "var(--series-0)" in drawn
    assert "var(--ink)" in drawn
    # No colour of their own, which would be wrong in one of the two modes.
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", drawn)) == set()
    names = re.findall(r'\bid="([^"]+)"', drawn)
    assert len(set(names)) == len(names) > 20
    assert set(re.findall(r'href="#([^"]+)"', drawn)) <= set(names)


def test_tokens_by_what_became_of_them() -> None:
    found = page.shown(records()[-1])
    assert (found["accepted"], found["rejected"], found["own"]) == (1, 2, 2)
    assert found["rounds"][0]["rejected"][0] == "\N{RETURN SYMBOL}"
    long = {**records()[-1], "text": "x" * 5000}
    assert len(page.shown(long)["prompt"]) < 2000


def test_a_watched_text_is_the_same_text() -> None:
    options = GenerateOptions(40, ignore_eos=True)
    opened = OpenOptions(plan="none", drafter="model", draft_length=4, threads=1)
    prompt = "for a in b:\n    c(a)\nfor a in b:\n"
    with Pipeline.open("demo", opened) as pipeline:
        expected = pipeline.generate(prompt, options)
        rule = pipeline.engine.rule
        found = watch(pipeline, prompt, options)
        assert pipeline.engine.rule is rule
    rounds = found["rounds"]
    assert "".join("".join(one["accepted"]) + one["own"] for one in rounds) == expected.text
    assert sum(one["emitted"] for one in rounds) == found["tokens"] == 40
    metrics = expected.metrics
    assert len(rounds) == metrics.target_passes
    assert sum(len(one["accepted"]) for one in rounds) == metrics.accepted_tokens
    drafted = sum(len(one["accepted"]) + len(one["rejected"]) for one in rounds)
    assert drafted == metrics.drafted_tokens > metrics.accepted_tokens


@pytest.fixture(scope="module")
def real_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a real race."""
    folder = tmp_path_factory.mktemp("race")
    prompts = [(f"{n} {HOSTILE}", f"def add_{n}(a, b):\n    # {HOSTILE}\n") for n in range(2)]
    options, common = GenerateOptions(16, ignore_eos=True), OpenOptions(plan="none", threads=1)

    def also(prompts, found, recorder):
        record_more("demo", common, prompts, options, found, recorder)

    bench_bundle(DrafterTask("demo", prompts, options, common), folder, also=also)
    page.write(folder / "bundle.jsonl", folder / "page.html")
    return folder / "page.html"


def test_a_real_comparison_has_every_plot_and_every_token(real_page: Path) -> None:
    read = Read(real_page.read_text("utf-8"))
    assert [tag for tag, _ in read.tags].count("svg") >= 4
    lines = (real_page.parent / "bundle.jsonl").read_text("utf-8").splitlines()
    raw = [json.loads(line) for line in lines]
    (generation,) = (one for one in raw if one["kind"] == "generation")
    for one in generation["sides"]["auto"]["rounds"]:
        assert "".join(one["accepted"]) in read.text
        assert one["memory_bytes"] > 1e6
    assert any(one["kind"] == "curve" and min(one["seconds"]) > 0 for one in raw)


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    real_page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.html"
    file.write_text("old")

    def fails(*args: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(page, "html", fails)
    with pytest.raises(KeyboardInterrupt):
        page.write(real_page.parent / "bundle.jsonl", file)
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    assert file.read_text() == "old"


# -- in a browser -------------------------------------------------------------------------------

Look = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Open a page in headless Chromium; lines on its console, and addresses it asked for."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None  # the marker skips without one

    def call(file: Path, *more: str) -> tuple[list[str], list[str]]:
        log = tmp_path / "net.json"
        quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--disable-extensions", "--disable-default-apps")  # fmt: skip
        done = subprocess.run(
            [program, "--headless", "--no-sandbox", "--disable-gpu", *quiet,
             f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0",
             "--host-resolver-rules=MAP * ~NOTFOUND", f"--log-net-log={log}",
             "--virtual-time-budget=2000", *more,
             f"--screenshot={tmp_path / 'page.png'}", file.as_uri()],
            capture_output=True, text=True, timeout=150, check=True,
        )  # fmt: skip
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        events = json.loads(log.read_text("utf-8"))["events"]
        started = [one["params"] for one in events if "initiator" in one.get("params", {})]
        # What the browser asks for of itself has no page as its origin.
        asked = [one["url"] for one in started if one["initiator"] != "not an origin"]
        return console, asked

    return call


@pytest.mark.chromium
def test_a_browser_finds_nothing_wrong_and_asks_for_nothing(look: Look, real_page: Path) -> None:
    for more in (["--window-size=1100,2400"], ["--window-size=390,2400"]):
        console, asked = look(real_page, *more)
        assert console == []
        assert asked == []


@pytest.mark.chromium
def test_the_look_sees_a_page_that_is_not_alone(look: Look, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<link rel="stylesheet" href="https://fonts.googleapis.com/css?family=x">'
        '<img src="http://127.0.0.1:9/x.png"><script>console.error("seen")</script>',
        "utf-8",
    )
    console, asked = look(bad)
    assert any("seen" in line for line in console)
    assert any("127.0.0.1:9" in url for url in asked)
    assert any("fonts.googleapis.com" in url for url in asked)


@pytest.mark.chromium
def test_nothing_is_wider_than_a_phone(look: Look, real_page: Path, tmp_path: Path) -> None:
    """A script added for the test says on the console how wide the page is."""
    html = real_page.read_text("utf-8")
    html = re.sub(r"<meta http-equiv[^>]*>", "", html)
    script = "<script>console.log('wide ' + document.documentElement.scrollWidth)</script>"
    file = tmp_path / "probe.html"
    # A window cannot be narrower than 500 pixels, a frame can.
    file.write_text(html.replace("</html>", script + "</html>"), "utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text('<iframe src="probe.html" width="390" height="3000"></iframe>', "utf-8")
    console, _ = look(frame)
    (wide,) = (int(found[1]) for line in console if (found := re.search(r"wide (\d+)", line)))
    assert 300 < wide <= 390


def ask(*arguments: object) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, [str(each) for each in arguments])


def test_a_page_without_its_package_is_refused_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = ask("demo", "--html", tmp_path / "page.html", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "needs matplotlib, which is not installed" in result.output
    assert not (tmp_path / "out").exists()


def test_a_page_without_a_folder_is_refused_before_decoding(tmp_path: Path) -> None:
    result = ask("demo", "--html", tmp_path / "no" / "page.html", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "page.html: the folder" in result.output
    assert not (tmp_path / "out").exists()


def test_a_page_of_questions(tmp_path: Path) -> None:
    file, html = tmp_path / "question.jsonl", tmp_path / "seite-名.html"
    questions = [
        {"question_id": 81, "category": "writing", "turns": ["def add(", "and now"]},
        {"question_id": 82, "category": "math", "turns": ["for index in"]},
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in questions), "utf-8")
    out = ("--out", tmp_path / "out", "-n", 8)
    result = ask("demo", "--prompts", file, "--html", html, *out)
    assert result.exit_code == 0, result.output
    page = html.read_text("utf-8")
    assert "By category" in page
    assert "question.jsonl" in page
    assert str(tmp_path) not in page
