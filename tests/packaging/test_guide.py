"""The files of docs/guides/extend.md in a copy of the tree: no other file there changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from copied_tree import ROOT, copied, extended, files_of, rules, run, run_tests

GUIDE = ROOT / "docs" / "guides" / "extend.md"
# Where a family, a format, a runtime, a drafter and a head stand, with a runtime's test.
FOLDERS = {
    "models", "export/formats", "runtimes", "edgedec/decoding/drafting", "models/heads",
    "tests/contract",
}  # fmt: skip
# Tests of what is in these folders.
ROOMS = (
    "tests/contract/test_bigram.py", "tests/golden/test_golden.py",
    "tests/golden/test_golden_gguf.py", "tests/unit/models", "tests/unit/library/test_published.py",
    "tests/unit/export/test_export_registry.py", "tests/unit/export/test_export_formats.py",
    "tests/unit/runtimes/test_added_runtimes.py", "tests/unit/decoding/test_added_drafters.py",
    "tests/unit/decoding/test_drafting_lookup.py", "tests/cli/test_cli_help.py",
    "tests/cli/test_error_page.py",
)  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = ("tests", "docs", "tools", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml")
    folder = copied(tmp_path_factory.mktemp("tree"), *more, "src", "LICENSE", "examples")
    added = extended(folder, GUIDE)
    assert {str(Path(name).parent) for name in added} == FOLDERS
    return folder


def wrong(copy: Path) -> str:
    """Decode with all that was added; return what is wrong, empty if nothing is."""
    done = run(copy, "tests/support/guide_child.py")
    if done.returncode:
        return done.stderr
    found = json.loads(done.stdout)
    if found.pop("gguf") != "qwen3" or found["bigram"]["none"][0] != found.pop("after"):
        return done.stdout
    for model, texts in found.items():
        plain, _ = texts.pop("none")
        for drafter, (text, drafted) in texts.items():
            if text != plain or not drafted:
                return f"{drafter} of {model}: {drafted} drafted, {text} for {plain}"
    return ""


def test_all_of_them_decode(copy: Path) -> None:
    assert not (said := wrong(copy)), said
    ruled = rules(copy)
    assert ruled.returncode == 0, ruled.stdout[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_checks_and_the_tests_of_their_folders_pass(copy: Path) -> None:
    assert not wrong(copy), "it records the family's case"
    added = [name for name in files_of(GUIDE) if "tests" not in name]
    for command in ("tools/help_pages.py", "-m ruff check", "-m ruff format --check", "-m mypy"):
        done = run(copy, *command.split(), *(added if "-m" in command else []))
        assert done.returncode == 0, done.stdout[-3000:]
    done = run_tests(copy, *ROOMS)
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "right", "mistake"),
    [
        ("models/flint.py", "qkv_bias=True", "qkv_bias=False"),
        ("models/flint.py", '("qwen3",)', '("llama",)'),
        ("models/heads/flint_mtp.py", '"mtp.project.weight"', '"mtp.projects"'),
        ("export/formats/bigram.py", "(read(tensors,", "(2 * read(tensors,"),
        ("runtimes/_bigram.py", "self._embed[token]", "self._embed[token - 1]"),
        ("edgedec/decoding/drafting/repeats.py", "range(limits.nodes)", "range(0)"),
    ],
)
def test_a_mistake_is_seen(name: str, right: str, mistake: str, tmp_path: Path) -> None:
    """The control."""
    folder = copied(tmp_path, "tests")
    extended(folder, GUIDE)
    code = (folder / name).read_text("utf-8")
    assert right in code
    (folder / name).write_text(code.replace(right, mistake), "utf-8")
    assert wrong(folder)
