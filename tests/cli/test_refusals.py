"""Wrong uses beside those of docs/errors.md: each is one line, and leaves the folder as it was."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# A command, and a part of its line. What users do wrong more often stands in tools/wrong_uses.py.
REFUSED = """
generate bundle -> the prompt is empty
generate -m demo Once upon -> edgedec generate -m demo 'Once upon'
generate bundle a --messages chat.json -> give one of PROMPT, --messages and --prompts
generate bundle a --prompts in.jsonl -> give one of PROMPT, --messages and --prompts
generate bundle --messages chat.json --out x -> --out goes with --prompts
generate bundle a --temperature nan -> temperature nan: expected
generate bundle a --top-k -1 -> top_k -1: expected
generate bundle a --timeout 0 -> timeout is 0.0 s: expected more than 0
generate bundle a --provider NoSuchProvider -> NoSuchProvider
generate bundle a --kv-memory "3 bananas" -> expected a size such as 512MB
generate bundle a --kv-memory 4096 -> did you mean 4096MB?
generate bundle a --memory 1.5 -> did you mean 1.5GB?
generate bundle "one two three four five" --max-context 3 -> --max-context
generate bundle --messages no-such-file -> does not exist
generate bundle --messages three.json -> expected a list such as
generate plain --messages chat.json -> no chat template
generate plain a --drafter model -> has none
generate bundle --prompts in.jsonl --system x -> --system goes with PROMPT or --messages
generate demo x --plan none --runtime-option mlock=on -> mlock (--mlock) is not a choice of the
generate demo x --row-invar -> No such option '--row-invar': did you mean --batch-invariant
generate bundle a --rpc 127.0.0.1:1 -> rpc (--rpc) is not a choice of the runtime onnx
generate checkpoint/model.safetensors Hi -> is a file of a checkpoint: give the folder, checkpoint
generate x --output x -> did you mean --out?
generate x --n-predict 1 -> did you mean --max-new-tokens?
generate x --ctx-size 1 -> did you mean --max-context?
generate llama3.2:1b -> llama3.2:1b looks like a name of Ollama's library: give the model's name on
generate llama3.2:1b Hi -> llama3.2:1b looks like a name of Ollama's library
generate demo Hi --draft llama3.2:1b -> llama3.2:1b looks like a name of Ollama's library
llama3.2:1b Hi -> llama3.2:1b looks like a name of Ollama's library
chat llama3.2:1b -> llama3.2:1b looks like a name of Ollama's library
chat plain -> no chat template: use `edgedec generate` instead
chat demo --temp 1 -> did you mean --temperature?
chat demo -sys x -> No such option '-sys': did you mean --system?
run llama3.2:1b Hi -> llama3.2:1b looks like a name of Ollama's library
run two Hi -> give a file, two/a.gguf, two/b.gguf
run bundle Hi --name mine -> used where it is, and is not in the library: leave --name mine out
run x --num_predict 1 -> did you mean --max-new-tokens?
run x --max_new_tokens 1 -> did you mean --max-new-tokens?
run -hf org/name -> '-hf': the model is the first argument, as org/name
pull llama3.2:1b -> llama3.2:1b looks like a name of Ollama's library
gen -> No such command 'gen': did you mean generate?
zzz -> No such command 'zzz' (see edgedec --help)
ps -> No such command 'ps': no model stays loaded: each command loads its own, and
models -> No such command 'models': edgedec list shows the library (see
create x -f y -> edgedec export FOLDER --out DIR converts a model
model.gguf -> edgedec generate model.gguf "PROMPT", or edgedec chat model.gguf
export x --outtype q8_0 -> did you mean --weights?
export x --outfile y -> did you mean --out?
export target --out bundle -> bundle
generate x --zzz 1 -> No such option '--zzz' (see
doctor -o x -> No such option '-o' (see
doctor --coreml bundle -> has no CoreML program, only onnx: make one with
devices bundle --no-try -> has no CoreML program, only onnx: make one with
devices --measure -> edgedec profile MODEL measures every device
show -m x -> the model is the first argument
serve demo -n 9 -> '-n': each request gives its own, as "max_tokens"
plan bundle --rpc 127.0.0.1:1 -> expected a target in GGUF, this one is in onnx
bench demo --row-invariant -> No such option '--row-invariant' (see edgedec bench --help)
bench bundle --prompts question.jsonl --out x -> question.jsonl:1: a question with turns: in a clone
generate demo x --spec lokup -> no drafter 'lokup': did you mean lookup?
generate demo x --spec lookup --drafter recycle -> --spec and --drafter exclude each other
generate demo x --drafter lookup:n -> lookup: expected KEY=NUMBER, such as k=4, got 'n'
generate demo x --spec lookup --draft demo -> the drafter lookup takes no draft model
generate plain x --spec lookup,model -> has none
run bundle x --no-draft --yes -> --no-draft and --yes exclude each other: leave one out
chat bundle --no-draft --draft demo -> --no-draft and --draft exclude each other: leave one out
serve bundle --no-draft --yes -> --no-draft and --yes exclude each other: leave one out
pull target --no-draft --yes -> --no-draft and --yes exclude each other: leave one out
generate bundle --prompts specs.jsonl --out x -> expected "spec" to be a stage, such as lookup:k=4
verify bundle --drafter none -> --drafter none is what verify compares with
"""
FILES = {
    "chat.json": '[{"role": "user", "content": "x"}]',
    "three.json": "3",
    "in.jsonl": '{"prompt": "def f(x):"}\n',
    "question.jsonl": '{"question_id": 1, "turns": ["x"]}\n',
    "specs.jsonl": '{"prompt": "x", "spec": 4}\n',
    "model.gguf": "",
    "two/a.gguf": "",
    "two/b.gguf": "",
    "checkpoint/config.json": "",
    "checkpoint/model.safetensors": "",
}


@pytest.fixture
def folder(
    tmp_path: Path, bundle: Path, plain_bundle: Path, checkpoints: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:  # fmt: skip
    """The present folder: files, and links to models."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    for name, model in (("bundle", bundle), ("plain", plain_bundle)):
        (tmp_path / name).symlink_to(model)
    (tmp_path / "target").symlink_to(checkpoints / "target")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_it_is_one_line(
    folder: Path, run: Callable[..., Any], one_line: Callable[..., str], row: str
) -> None:
    command, expected = row.split(" -> ")
    before = sorted(folder.rglob("*"))
    assert expected in one_line(run(*shlex.split(command), stdin=""))
    assert sorted(folder.rglob("*")) == before
