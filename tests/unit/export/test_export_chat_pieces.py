"""Which templates become pieces, and that pieces give the template's own text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_tokenizers
from tiny_models import tiny_checkpoint

from edgedec.bundle import Bundle
from edgedec.bundle.chat import Chat
from edgedec.export import ExportOptions, chat_pieces, export_bundle
from edgedec.export.chat_pieces import conversations, pieces_of, write_pieces
from edgedec.text.chat import ChatTemplate
from edgedec.text.chat_pieces import CHAT_PIECES, ChatPieces
from tools.vectors.samples import SAMPLES

WITH_PIECES = [name for name, sample in SAMPLES.items() if sample.pieces]


@pytest.mark.parametrize("name", SAMPLES)
def test_which_templates_have_pieces(name: str) -> None:
    sample = SAMPLES[name]
    pieces = pieces_of(sample.template)
    assert (pieces is not None) == sample.pieces
    if pieces is not None:
        assert ("system" in pieces.roles) == sample.system


@pytest.mark.parametrize("name", WITH_PIECES)
def test_other_conversations_than_those_that_were_tried(name: str) -> None:
    sample = SAMPLES[name]
    pieces = pieces_of(sample.template)
    assert pieces is not None
    for talk in conversations(30, system=sample.system, seed=99):
        messages = [{"role": role, "content": content} for role, content in talk]
        assert pieces.render(messages) == sample.template.render(messages)


def test_pieces_that_are_good_to_read() -> None:
    """Marks stay whole: an app may show where a turn begins."""
    qwen, gemma = (pieces_of(SAMPLES[name].template) for name in ("qwen2", "gemma3"))
    assert qwen is not None
    assert gemma is not None
    assert qwen.default_system == "You are a helpful assistant."
    assert qwen.roles["user"].open == "<|im_start|>user\n"
    assert qwen.roles["assistant"].close == "<|im_end|>\n"
    assert qwen.generation == "<|im_start|>assistant\n"
    assert gemma.after_system is not None
    assert gemma.after_system.open == ""


CHATML = SAMPLES["chatml"].source


def with_content(expression: str) -> str:
    return CHATML.replace("m.content", expression)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (with_content("m.content | upper"), "capitals"),
        (with_content("m.content[:40]"), "a bound on contents"),
        (with_content("m.content | replace('{', '(')"), "a character replaced"),
        (with_content("(m.content.lstrip() if loop.last else m.content)"), "the last one"),
        (with_content("(m.content if loop.index < 5 else '...')"), "the fifth message"),
        (with_content("(m.content if m.content != 'Hi' else 'Hello')"), "a word"),
        ("{{ messages | length }}" + CHATML, "the number of messages"),
        ("{{ messages | tojson }}", "JSON"),
        ("{{ messages[-1].content }}", "the last message alone"),
        ("x", "nothing of the messages"),
        ("{{ strftime_now('%Y') }}" + CHATML, "the date"),
        ("{% for %}", "no Jinja"),
        ("{{ raise_exception('no') }}", "no messages at all"),
    ],
)  # fmt: skip
def test_what_pieces_cannot_say(source: str, why: str) -> None:
    assert pieces_of(ChatTemplate(source)) is None, why


def test_without_the_random_conversations_wrong_pieces_would_pass(monkeypatch) -> None:
    """The control: what is learnt from marked words alone is not enough."""
    monkeypatch.setattr(chat_pieces, "_TRIED", 0)
    assert pieces_of(ChatTemplate(with_content("m.content[:40]"))) is not None


# -- exports ------------------------------------------------------------


def with_template(folder: Path, source: str | None) -> Path:
    target = tiny_checkpoint(folder)
    tiny_tokenizers.save(tiny_tokenizers.byte_level(), target)
    config = {"eos_token": "<|end|>"} | ({} if source is None else {"chat_template": source})
    (target / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return target


@pytest.mark.parametrize(
    ("source", "written", "words"),
    [
        (CHATML, True, "chat template, chat pieces with system messages"),
        (SAMPLES["gemma2"].source, True, "chat template, chat pieces without system messages"),
        (SAMPLES["numbered"].source, False, "chat template, no chat pieces"),
        ("{% for %}", False, "chat template, no chat pieces"),
        (None, False, "no chat template"),
    ],
)
def test_the_exporter_writes_them(source: str | None, written: bool, words: str, tmp_path) -> None:
    target = with_template(tmp_path / "target", source)
    (target / CHAT_PIECES).write_text("of somebody else", "utf-8")
    report = export_bundle(ExportOptions(target, tmp_path / "bundle", weights="fp32", parity=False))
    bundle = Bundle.open(report.path, verify=True)
    assert (f"tokenizer/{CHAT_PIECES}" in bundle.files) == written
    assert Chat.of(bundle).describe() == words


def test_the_demo_has_the_pieces_of_its_template() -> None:
    chat = Chat.of(Bundle.open("demo"))
    assert chat.template
    from edgedec.text.tokenizer import Tokenizer

    template = Tokenizer.load(Bundle.open("demo").target.tokenizer).chat_template
    assert template is not None
    assert chat.pieces == pieces_of(template)


def test_a_folder_gets_them(tmp_path: Path) -> None:
    tiny_tokenizers.save(tiny_tokenizers.byte_level(), tmp_path)
    assert write_pieces(tmp_path) is False
    (tmp_path / "chat_template.jinja").write_text(CHATML, "utf-8")
    assert write_pieces(tmp_path) is True
    assert ChatPieces.parse((tmp_path / CHAT_PIECES).read_bytes(), "it").bos == ""
