"""A bundle's card: a head that YAML reads, facts of the manifest, nothing that Markdown reads."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgedec._support.amounts import size
from edgedec.bundle import Bundle
from edgedec.bundle.card import card
from edgedec.cli import main
from edgedec.errors import InputError

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: extra docs")


def head(text: str) -> dict[str, Any]:
    _, front, _ = text.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(front)
    return found


def changed(**fields: Any) -> Bundle:
    """The demo bundle with other facts of its target and draft."""
    bundle = Bundle.open("demo")
    assert bundle.draft is not None
    target, draft = (dataclasses.replace(one, **fields) for one in (bundle.target, bundle.draft))
    return dataclasses.replace(bundle, target=target, draft=draft)


def test_the_card_has_what_the_manifest_has() -> None:
    bundle = Bundle.open("demo")
    text = card(bundle)
    assert head(text) == {
        "library_name": "edgedec",
        "pipeline_tag": "text-generation",
        "tags": ["edgedec", "speculative-decoding", "onnx"],
    }
    parity = bundle.manifest["roles"]["target"]["variants"]["onnx"]["parity"]
    assert f"| {parity['kl_nats']:.4f} | {parity['top1']:.1%} |" in text
    assert "| target | target | llama | 11,538,944 | not stated |" in text
    assert size(bundle.stored_bytes(bundle.target, "onnx")) in text
    assert "Certificate" not in text
    commands = re.findall(r"^edgedec (\w+) ", text, re.MULTILINE)
    assert commands == ["inspect", "run", "serve", "verify"]
    assert set(commands) <= set(main.list_commands(None))  # type: ignore[arg-type]


def test_names_of_a_hub_and_one_licence_stand_in_the_head() -> None:
    found = head(card(changed(source="org/Model-1B", licence="Apache-2.0")))
    assert found["base_model"] == ["org/Model-1B"] * 2
    assert found["license"] == "apache-2.0"


def test_what_is_written_by_others_breaks_neither_head_nor_page() -> None:
    evil = 'x"\n---\nlicense: mit\n| <script>[a](http://b) `c`'
    text = card(changed(source=evil, licence=evil, architecture=evil))
    assert head(text)["license"] == "other"
    assert "base_model" not in head(text)
    body = text.split("---\n", 2)[2]
    assert not re.search(r"(?<!\\)<script", body)
    assert "\nlicense: mit" not in body
    rows = [line for line in body.splitlines() if line.startswith("| target |")]
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 6


def certificate(bundle: Bundle, **changes: Any) -> dict[str, Any]:
    counts = {"texts": 10, "identical": 9, "near_ties": 1, "differ": 0}
    return {
        "certificate": 2,
        "issued": "2026-11-25T10:32:17Z",
        "verdict": {"word": "holds up to near-ties", **counts},
        "files": {name: fact.sha256 for name, fact in bundle.files.items()},
        **changes,
    }


def test_a_certificate_counts_for_its_own_files_alone(tmp_path: Path) -> None:
    bundle, file = Bundle.open("demo"), tmp_path / "certificate.json"
    file.write_text(json.dumps(certificate(bundle)), "utf-8")
    assert "**Certificate: holds up to near-ties.** 10 texts" in card(bundle, file)
    files = {**certificate(bundle)["files"], "target/model.onnx": "0" * 64}
    for wrong, words in (
        (certificate(bundle, files=files), "another bundle"),
        (certificate(bundle, verdict={"word": "x"}), "texts is missing"),
        ({"some": "thing"}, "expected the certificate.json"),
    ):
        file.write_text(json.dumps(wrong), "utf-8")
        with pytest.raises(InputError, match=words):
            card(bundle, file)


def test_the_certificate_that_ships_is_about_the_pair_that_ships(repository: Path) -> None:
    """A pair that changes needs a new one: `python -m benchmarks certificate demo`."""
    bundle, file = Bundle.open("demo"), repository / "docs" / "measurements" / "certificate.json"
    issued = json.loads(file.read_text("utf-8"))
    texts, near_ties = (issued["verdict"][name] for name in ("texts", "near_ties"))
    assert f"{texts} texts compared" in card(bundle, file)
    page = (repository / "docs" / "certificate.md").read_text("utf-8")
    assert f"{texts:,} texts were compared" in page
    assert f"{near_ties:,} leave them at a near-tie" in page
    for name, fact in bundle.files.items():
        assert (f"| `{name}` | {fact.sha256} |" in page) == (name in issued["files"])


def test_a_certificate_need_not_know_the_pieces_of_a_chat(tmp_path: Path) -> None:
    """They were added to bundles later, say what the template says, and decode nothing."""
    bundle, file = Bundle.open("demo"), tmp_path / "certificate.json"
    for left_out, known in (("chat_pieces.json", True), ("tokenizer.json", False)):
        files = certificate(bundle)["files"]
        del files[f"tokenizer/{left_out}"]
        file.write_text(json.dumps(certificate(bundle, files=files)), "utf-8")
        if known:
            assert "Certificate: holds" in card(bundle, file)
        else:
            with pytest.raises(InputError, match="another bundle"):
                card(bundle, file)


def test_the_command_writes_it(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["card", "demo"])
    out = tmp_path / "README.md"
    written = CliRunner().invoke(main, ["card", "demo", "--out", str(out)])
    assert (shown.exit_code, written.exit_code) == (0, 0)
    assert out.read_text("utf-8") == shown.stdout == card(Bundle.open("demo"))
    gone = CliRunner().invoke(main, ["card", "demo", "--out", str(tmp_path / "no" / "x.md")])
    assert gone.exit_code != 0
    assert "is missing: make it first" in gone.output
