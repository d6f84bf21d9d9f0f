"""``edgedec generate --prompts``: many prompts, and runs that were cut short."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from waiting import until

from edgedec import errors
from edgedec.batch.jobs import Job

PROMPT = "def fibonacci(n):\n    return"

TEXTS = ["def add(", "for index in", "The quick brown", "import os", "hello world"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": f"p{n}", "prompt": text}) for n, text in enumerate(TEXTS)]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def records(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.fixture
def batch(run, bundle, prompts, tmp_path):
    def call(*args: object):
        ask = ["generate", "--bundle", bundle, "--prompts", prompts, "--max-new-tokens", 8]
        return run(*ask, "--out", tmp_path / "out.jsonl", *args)

    return call


def test_a_line_for_each_prompt(batch, run, bundle, prompts, tmp_path: Path) -> None:
    assert batch().exit_code == 0
    found = records(tmp_path / "out.jsonl")
    assert [record["id"] for record in found] == [f"p{n}" for n in range(5)]
    one = run("generate", "--bundle", bundle, "--json", "--max-new-tokens", 8, TEXTS[2])
    assert found[2]["token_ids"] == json.loads(one.stdout)["token_ids"]
    printed = run("generate", "--bundle", bundle, "--prompts", prompts, "--max-new-tokens", 8)
    shown = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [r["token_ids"] for r in shown] == [r["token_ids"] for r in found]


def test_what_is_there_is_not_decoded_again(batch, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert batch().exit_code == 0
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    marked = lines[0].replace(b'"text"', b'"seen": 1, "text"')
    out.write_bytes(marked + lines[1] + lines[2][:30])  # the third is torn
    assert batch().exit_code == 0
    found = records(out)
    assert [record["id"] for record in found] == [f"p{n}" for n in range(5)]
    assert "seen" in found[0]
    again = [record["token_ids"] for record in found]
    assert again == [json.loads(line)["token_ids"] for line in lines]
    before = out.read_bytes()
    result = batch()
    assert result.exit_code == 0
    assert f"{out} already has 5 of 5 results" in " ".join(result.stderr.split())
    assert out.read_bytes() == before


def test_one_file_never_mixes_two_runs(batch, one_line, tmp_path: Path) -> None:
    assert batch().exit_code == 0
    before = (tmp_path / "out.jsonl").read_bytes()
    assert "out.jsonl:1: written with other options" in one_line(batch("--temperature", 1))
    assert (tmp_path / "out.jsonl").read_bytes() == before


@pytest.mark.parametrize("text", ["my diary\n", "my diary", '{"id": 7}', "{"])
def test_a_file_of_something_else_is_left_alone(batch, one_line, tmp_path: Path, text: str) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(text, "utf-8")
    if text == "{":  # as short as that it may be ours
        assert batch().exit_code == 0
        return
    assert "not a result of edgedec" in one_line(batch())
    assert out.read_text("utf-8") == text


def test_a_longer_context_is_another_run(batch, one_line) -> None:
    assert batch().exit_code == 0
    assert "other options" in one_line(batch("--max-context", 64))


def test_a_prompt_that_cannot_be_decoded_does_not_stop_the_others(
    batch, prompts: Path, tmp_path: Path
) -> None:
    """Nor a chat template that is stopped."""

    def chat(text: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": text}]

    entries = [{"id": "long", "prompt": "a " * 6000}, {"id": "empty", "prompt": ""},
               {"id": "huge", "messages": chat("x" * 5_000_000)},
               {"id": "chat", "messages": chat("x")}]  # fmt: skip
    prompts.write_text("\n".join(map(json.dumps, entries)), "utf-8")
    result = batch("--temperature", 0)  # a chat is sampled otherwise, and may end at once
    assert result.exit_code == 2
    assert "3 of 4 prompts could not be decoded" in result.stderr
    *failed, chatted = records(tmp_path / "out.jsonl")
    for record, word in zip(failed, ("the context holds", "empty", "template"), strict=True):
        assert word in record["error"]
    assert len(chatted["token_ids"]) == 8


HALF = "\ud800"  # of a surrogate pair, which JSON can say and UTF-8 cannot


def test_an_id_that_is_not_utf8_is_named_and_the_others_go_on(
    run, batch, bundle, prompts: Path, tmp_path: Path
) -> None:
    entries = [{"id": HALF, "prompt": "a"}, {"id": "prompt", "prompt": f"a {HALF}"},
               {"id": "chat", "messages": [{"role": HALF, "content": HALF}]},
               {"id": "draft", "prompt": "a", "draft": HALF},
               {"id": "é", "prompt": "def add("}]  # fmt: skip
    prompts.write_text("\n".join(map(json.dumps, entries)), "utf-8")
    assert batch().exit_code == 2
    out = tmp_path / "out.jsonl"
    before = out.read_bytes()
    found = {record["id"]: record for record in records(out)}
    assert list(found) == [entry["id"] for entry in entries]
    assert "the id '\\ud800' is not valid UTF-8: give another" in found[HALF]["error"]
    for name in ("prompt", "chat", "draft"):
        assert found[name]["error"]
    assert len(found["é"]["token_ids"]) == 8
    assert '"id": "é"'.encode() in before  # what UTF-8 can hold is not escaped
    # The next run has nothing to do, and says that not all went well.
    again = batch()
    assert again.exit_code == 0
    assert "5 of 5 results, of which 4 are errors" in " ".join(again.stderr.split())
    assert out.read_bytes() == before
    shown = run("generate", "--bundle", bundle, "--prompts", prompts, "--max-new-tokens", 8)
    assert [json.loads(line)["id"] for line in shown.stdout.splitlines()] == list(found)


FAILURES = {
    "BundleError": True, "SessionError": True, "StateError": True, "CapacityExceeded": True,
    "InputError": True, "PassFailed": False, "RuntimeUnavailable": False,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "recorded"), FAILURES.items())
def test_an_error_of_one_line_is_its_own_and_a_failed_device_is_the_run_s(
    batch, monkeypatch, tmp_path: Path, kind: str, recorded: bool
) -> None:
    honest = Job.stream

    def failing(self, pipeline, options):
        if self.id == "p1":
            raise getattr(errors, kind)("this one fails")
        return honest(self, pipeline, options)

    monkeypatch.setattr(Job, "stream", failing)
    result = batch()
    assert result.exit_code == 2
    found = records(tmp_path / "out.jsonl")
    if recorded:
        assert [record["id"] for record in found] == [f"p{n}" for n in range(5)]
        assert found[1]["error"] == "this one fails"
    else:
        assert [record["id"] for record in found] == ["p0"]
        assert "this one fails" in result.stderr
    monkeypatch.undo()
    assert batch().exit_code == 0
    assert len(records(tmp_path / "out.jsonl")) == 5


def test_the_rule_decides_the_text_and_so_belongs_to_the_run(batch, one_line) -> None:
    assert batch("--accept", "coupling").exit_code == 0
    assert batch("--accept", "coupling").exit_code == 0
    assert "written with other options" in one_line(batch("--accept", "match"))


def test_a_file_that_begins_with_a_byte_order_mark(batch, prompts: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"id": name, "prompt": "def add("}) for name in "ab"]
    prompts.write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())
    assert batch().exit_code == 0
    assert [record["id"] for record in records(tmp_path / "out.jsonl")] == ["a", "b"]
    prompts.write_bytes("\n".join([lines[0], "\ufeff" + lines[1]]).encode())
    assert batch("--temperature", 0).exit_code == 2  # only a file begins with one


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "no prompts"),
        (b"{}", 'in.jsonl:1: expected a JSON object with "prompt"'),
        (b'{"prompt": "a"}\n[1]\n', "in.jsonl:2: expected"),
        (b'{"prompt": "a"}\n\n{"prompt": 3}\n', "in.jsonl:3: expected"),
        (b'{"prompt": "a"}\n\xff\n', "in.jsonl:2: not UTF-8"),
        (b'{"prompt": "a", "messages": []}', 'in.jsonl:1: "prompt" and "messages": expected one'),
        (b'{"prompt": "a", "max_new_tokens": 5}', '"max_new_tokens" is one for all prompts'),
        (b'{"prompt": "a", "temperature": 1}', '"temperature" is one for all prompts'),
        (b'{"id": 1, "prompt": "a"}\n{"id": "1", "prompt": "b"}\n', "'1' occurs twice"),
    ],
)
def test_bad_prompt_files(batch, one_line, prompts: Path, content, expected) -> None:
    prompts.write_bytes(content)
    assert expected in one_line(batch())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disks(start, bundle, prompts) -> None:
    ask = ["generate", "--bundle", bundle, "--max-new-tokens", 8]
    with Path("/dev/full").open("wb") as full:
        process = start(*ask, "a", stdout=full)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    said = "edgedec: error: No space left on device: make room and run it again"
    assert errors.decode().splitlines()[-1] == said
    process = start(*ask, "--prompts", prompts, "--out", "/dev/full")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"/dev/full: No space left on device: make room" in errors.splitlines()[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_keeps_what_is_done_and_the_next_run_goes_on(
    start, bundle, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    ask = ["generate", "--bundle", bundle, "--prompts", prompts, "--out", out,
           "--max-new-tokens", 600, "--logit-bias", "0=-100000", "--drafter", "none"]  # fmt: skip
    process = start(*ask)
    until(lambda: out.exists() and out.stat().st_size)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.decode().splitlines()[-1] == "stopped: run the same command again to continue"
    kept = records(out)
    assert 0 < len(kept) < 5
    process = start(*ask)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert [record["id"] for record in records(out)] == [f"p{n}" for n in range(5)]
    assert records(out)[: len(kept)] == kept
    assert {record["finish_reason"] for record in records(out)} == {"length"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_prints_what_there_is(start, bundle) -> None:
    ask = ["generate", "--bundle", bundle, "a", "--max-new-tokens", 4000, "--drafter", "none"]
    process = start(*ask, "--logit-bias", "0=-100000")
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert first + output
    (line,) = errors.decode().splitlines()
    assert ", stopped" in line


@pytest.fixture
def ctrl_c_in_round(monkeypatch):
    """Press Ctrl-C right after round ``number`` was computed."""
    from edgedec.decoding.engine import Engine

    honest = Engine.run

    def arrange(number: int) -> None:
        def run(self, request, metrics):
            for count, emissions in enumerate(honest(self, request, metrics), 1):
                if count == number:
                    signal.raise_signal(signal.SIGINT)
                yield emissions

        monkeypatch.setattr(Engine, "run", run)

    return arrange


def test_ctrl_c_with_json(run, bundle, ctrl_c_in_round) -> None:
    ctrl_c_in_round(7)
    result = run("generate", "--bundle", bundle, "a", "--json", "--drafter", "none")
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert found["finish_reason"] == "cancelled"
    assert len(found["token_ids"]) == 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_the_prompt_is_read(run, bundle, monkeypatch) -> None:
    from edgedec.runtimes.onnx.session import OnnxSession

    honest = OnnxSession.prefill

    def prefill(self, tokens, on_chunk=None):
        if on_chunk is not None:
            signal.raise_signal(signal.SIGINT)
        honest(self, tokens, on_chunk)

    monkeypatch.setattr(OnnxSession, "prefill", prefill)
    result = run("generate", "--bundle", bundle, "a few tokens", "--drafter", "none")
    assert (result.exit_code, result.stdout) == (130, "")
    assert re.match(r"0 tokens in \d+ m?s, stopped", result.stderr)


def test_ctrl_c_while_the_bundle_is_loaded(run, bundle, one_line, monkeypatch) -> None:
    from edgedec.pipeline import Pipeline

    monkeypatch.setattr(Pipeline, "open", lambda *args: signal.raise_signal(signal.SIGINT))
    assert one_line(run("generate", "--bundle", bundle, "a"), 130).endswith("interrupted")


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on(run, bundle, ctrl_c_in_round) -> None:
    ctrl_c_in_round(3)
    ask = ["chat", "--bundle", bundle, "--drafter", "none", "--logit-bias", "0=-100000"]
    result = run(*ask, stdin="Hello\nAgain\n")
    assert result.exit_code == 0
    first, second = result.stderr.splitlines()
    assert re.match(r"3 tokens in [\d.]+ m?s, stopped", first)
    assert re.match(r"3 tokens in [\d.]+ m?s, stopped", second)


def test_ids_that_are_null_are_line_numbers(tmp_path: Path) -> None:
    from edgedec.batch.jobs import read_jobs

    file = tmp_path / "in.jsonl"
    file.write_text('{"id": null, "prompt": "a"}\n{"id": null, "prompt": "b"}\n', "utf-8")
    assert [job.id for job in read_jobs(file)] == ["1", "2"]


def test_a_line_may_say_who_drafts_for_it(run, bundle, tmp_path: Path) -> None:
    lines = [
        {"id": "auto", "prompt": PROMPT},
        {"id": "plain", "prompt": PROMPT, "draft": "none"},
        {"id": "none", "prompt": PROMPT, "draft_length": 0},
        {"id": "also", "prompt": PROMPT, "drafter": "none"},
        {"id": "two", "prompt": PROMPT, "draft_length": 2},
    ]
    file, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    ask = ["generate", "--bundle", bundle, "--prompts", file, "--out", out]
    done = run(*ask, "--drafter", "model", "--draft-length", 3, "--max-new-tokens", 24)
    assert done.exit_code == 0, done.output
    found = {entry["id"]: entry for entry in map(json.loads, out.read_text("utf-8").splitlines())}
    assert len({tuple(entry["token_ids"]) for entry in found.values()}) == 1
    assert found["auto"]["drafted_tokens"] > 0
    assert [found[one]["drafted_tokens"] for one in ("plain", "none", "also")] == [0, 0, 0]
    assert 0 < found["two"]["drafted_tokens"] <= 2 * found["two"]["target_passes"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"prompt": "a", "draft": 1}, "a drafter's name"),
        ({"prompt": "a", "draft_length": "2"}, "a number"),
        ({"prompt": "a", "draft_length": True}, "a number"),
    ],
)
def test_a_line_with_a_wrong_draft(run, bundle, one_line, tmp_path: Path, line, expected) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps(line) + "\n", "utf-8")
    found = one_line(run("generate", "--bundle", bundle, "--prompts", file))
    assert f"{file}:1: " in found
    assert expected in found


def test_a_line_with_an_unknown_drafter_says_which_there_are(run, bundle, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps({"prompt": PROMPT, "draft": "oracle"}) + "\n", "utf-8")
    result = run("generate", "--bundle", bundle, "--prompts", file)
    assert result.exit_code == 2
    assert "no drafter 'oracle': expected one of" in json.loads(result.stdout)["error"]


def test_chat_can_switch_the_draft_off_and_on(run, bundle) -> None:
    ask = ["chat", "--bundle", bundle, "--drafter", "lookup", "--max-new-tokens", 24, "-v"]
    ask += ["--temperature", 0]
    result = run(*ask, stdin="/draft none\naaaa\n/reset\n/draft auto\naaaa\n/draft x\n")
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stderr.splitlines() if "was cut at" not in line]
    off, plain, anew, on, drafted, mistake = lines
    assert off == "plain decoding from here on"
    assert anew == "new conversation"
    assert on == "drafter auto from here on"
    assert "drafted tokens accepted" not in plain
    assert "drafted tokens accepted" in drafted
    assert mistake.startswith("no drafter 'x': expected one of")
    first, second = (
        result.stdout[: len(result.stdout) // 2],
        result.stdout[len(result.stdout) // 2 :],
    )
    assert first == second
