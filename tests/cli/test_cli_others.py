"""demo, bench, inspect, export, devices, doctor, chat and the help pages."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import demo_head
import pytest
from broken_rules import accepts_one_more

from edgedec._support import installation
from edgedec.cli import main
from edgedec.doctor import report
from edgedec.hardware import strain
from edgedec.hardware.strain import Swap

COMMANDS = {
    "bench", "cache", "card", "chat", "config", "demo", "devices", "doctor", "export", "generate",
    "inspect", "list", "plan", "profile", "pull", "rm", "run", "show", "verify",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_has_examples_that_parse(run, name: str) -> None:
    shown = run(name, "--help").stdout
    examples = [line for line in shown.splitlines() if re.match(rf"  .*edgedec {name}", line)]
    assert examples
    command = main.get_command(click.Context(main), name)
    assert command is not None
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    used = {word for line in examples for word in re.findall(r"(?<= )--[a-z-]+", line)}
    assert used <= known


@pytest.mark.parametrize("name", ["", *sorted(COMMANDS)])
def test_help_fits_80_columns(run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*name.split(), "--help").stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines[1:] if not name and line.endswith("...")] == [], "cut short"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from edgedec.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])), file=sys.stderr)"
    )
    heavy = ["numpy", "onnxruntime", "tokenizers", "jinja2", "rich", "onnx"]
    done = subprocess.run(
        [sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


# What a text needs that is neither planned, streamed, constrained nor one of many.
MOST_MODULES = 205
UNUSED = (
    "edgedec.batch", "benchmarks", "edgedec.export", "edgedec.grammar.grammars",
    "edgedec.library", "edgedec.overlap.engine", "edgedec.planning.decisions",
    "edgedec.profiling.run", "edgedec.records.profile",
    "edgedec.runtimes.llamacpp.adapter", "edgedec.runtimes.onnx.streaming",
    "edgedec.runtimes.onnx_hub.adapter", "edgedec.serve",
    "importlib.metadata", "jinja2", "onnx", "rich", "safetensors",
)  # fmt: skip


def imported_by(*arguments: object) -> set[str]:
    """The modules of a process that ran a command."""
    code = (
        "import sys; from edgedec.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as empty:  # a plan of another test would be followed
        own = {**os.environ, "EDGEDEC_CACHE": empty}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=own)
    return set(done.stderr.splitlines()[-1].split())


def test_generate_imports_what_it_uses(bundle: Path) -> None:
    imported = imported_by("generate", "--bundle", bundle, "a", "--max-new-tokens", 2)
    assert {"numpy", "onnxruntime", "edgedec.pipeline"} <= imported
    assert sorted(imported & set(UNUSED)) == []
    own = {name for name in imported if name.partition(".")[0] == "edgedec"}
    assert len(own) <= MOST_MODULES, sorted(own)


def test_what_is_asked_for_is_imported(bundle: Path, tmp_path: Path) -> None:
    """The control: none of these is left out because it is never imported."""
    pytest.importorskip("llguidance")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a"}\n')
    asked = ("--json-mode", "--weight-memory", "1MB")
    imported = imported_by("generate", bundle, "--prompts", prompts, "-n", 2, *asked)
    assert {"edgedec.batch", "edgedec.grammar.grammars"} <= imported
    assert "edgedec.runtimes.onnx.streaming" in imported


def test_version_and_module(start) -> None:
    process = start("--version")
    output, _ = process.communicate(timeout=60)
    assert output.decode().startswith("edgedec, version ")


def test_debug_shows_the_traceback(run, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("EDGEDEC_DEBUG", "1")
    result = run("inspect", tmp_path)
    assert result.exception is not None
    assert "BundleError" in type(result.exception).__name__


def test_the_help_says_what_auto_is(run) -> None:
    from edgedec.decoding import drafting

    shown = " ".join(run("generate", "--help").stdout.split())
    both = [drafting.default(with_model=with_model) for with_model in (True, False)]
    told = "auto, which is {} if the target has a head, else {} if there is a draft model, else {};"
    assert told.format(drafting.HEADED, *both) in shown
    assert f"Way of drafting: auto, {', '.join(drafting.names())};" in shown


def test_a_reader_that_goes_away_is_no_error(start, bundle) -> None:
    ask = ["generate", "--bundle", bundle, "a", "--max-new-tokens", 2000]
    with start(*ask, "--logit-bias", "0=-100000") as process:
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors


# -- inspect ------------------------------------------------------------


def test_inspect(run, bundle, plain_bundle) -> None:
    shown = run("inspect", bundle).stdout
    for words in ("target", "draft", "weights fp32", "vocab size 342", "as the manifest says"):
        assert words in shown
    assert "weights int4" in run("inspect", plain_bundle).stdout
    found = json.loads(run("inspect", bundle, "--json").stdout)
    assert found["hashed"] is True
    assert set(found["manifest"]["roles"]) == {"target", "draft"}
    assert found["size_bytes"] == sum(f["bytes"] for f in found["manifest"]["files"].values())
    assert found["chat"] == {"template": True, "pieces": True}
    assert "chat template, chat pieces with system messages" in shown
    assert "no chat template" in run("inspect", plain_bundle).stdout


def test_inspect_counts_the_weights_that_a_head_shares_once(run) -> None:
    folder = demo_head.bundle()
    head, _, _, form, *_ = run("inspect", folder).output.partition("head  ")[2].splitlines()
    files = [*folder.glob("target/head.*"), *folder.glob("target/fuse.*")]
    stored = sum(file.stat().st_size for file in files)
    assert head.strip().startswith("eagle3 from head")
    assert form.endswith(f"KV fp32, {stored / 1e6:.1f} MB")


def test_inspect_for_android(run, bundle, tmp_path: Path) -> None:
    found = run("inspect", bundle, "--for", "android")
    assert (found.exit_code, found.stdout.startswith("runs on Android with ONNX Runtime")) == (
        0,
        True,
    )
    copied = tmp_path / "bundle"
    shutil.copytree(bundle, copied)
    # As bundles of before there were pieces.
    manifest = json.loads((copied / "manifest.json").read_text("utf-8"))
    del manifest["files"]["tokenizer/chat_pieces.json"]
    (copied / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    lacking = run("inspect", copied, "--for", "android")
    assert lacking.exit_code == 1
    assert lacking.stdout.startswith("chat: the template has no chat pieces")
    assert len(lacking.stdout.splitlines()) == 1
    facts = json.loads(run("inspect", copied, "--for", "android", "--json").stdout)
    assert facts["problems"] == lacking.stdout.splitlines()
    assert facts["needs"] == []


# -- export ------------------------------------------------------------


def test_export_and_use(run, checkpoints, tmp_path: Path) -> None:
    source = checkpoints
    out = tmp_path / "new"
    ask = ["export", source / "target", "--draft", source / "draft", "--out", out, "--no-parity"]
    result = run(*ask, "--weights", "int8", "--max-context", 128, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["path"] == str(out)
    assert [model["role"] for model in found["models"]] == ["target", "draft"]
    shown = run("inspect", out).stdout
    assert "weights int8" in shown
    assert "max context 128" in shown
    assert run("generate", "--bundle", out, "a", "--max-new-tokens", 4).exit_code == 0


# -- doctor and devices ------------------------------------------------------------


def test_doctor(run, monkeypatch) -> None:
    result = run("doctor", "--json")
    facts = json.loads(result.stdout)
    assert facts["packages"]["numpy"]
    assert facts["cpu"]["cores"] >= 1
    assert facts["memory"]["total_bytes"] > 1 << 28
    assert result.exit_code == (1 if facts["problems"] else 0)
    assert facts["demo"]["whole"] is not any("demo bundle" in p for p in facts["problems"])
    monkeypatch.setattr("edgedec.doctor.report.needed", lambda: ["no-such-package"])
    broken = run("doctor")
    assert broken.exit_code == 1
    assert (
        f"no-such-package is not installed: `{installation.install('no-such-package')}`"
        in broken.stderr
    )


@pytest.mark.parametrize(
    ("found", "facts", "words"),
    [
        (None, None, None),
        (Swap(4_000_000_000, 2_000_000, 0), (4_000_000_000, 2_000_000, 0),
         "4.00 GB, 2.0 MB in use"),
        (Swap(4_000_000_000, 0, 4_000_000_000), (4_000_000_000, 0, 4_000_000_000),
         "4.00 GB of compressed memory, 0.0 MB in use"),
        (Swap(4_000_000_000, 0, 1_000_000_000), (4_000_000_000, 0, 1_000_000_000),
         "4.00 GB, 1.00 GB of it compressed memory, 0.0 MB in use"),
    ],
)  # fmt: skip
def test_doctor_counts_swap_in_bytes(run, monkeypatch, found, facts, words) -> None:
    monkeypatch.setattr(strain, "swap", lambda: found)
    told = json.loads(run("doctor", "--json").stdout)["swap"]
    keys = ("total_bytes", "used_bytes", "compressed_bytes")
    assert told == (None if facts is None else dict(zip(keys, facts, strict=True)))
    shown = re.search(r"^swap +(.*)$", run("doctor").stdout, re.MULTILINE)
    assert (None if shown is None else shown[1]) == words


def test_doctor_says_how_to_get_an_extra(run, monkeypatch) -> None:
    extras = {"export": (("numpy", "no-such-package"), "makes bundles of checkpoints")}
    monkeypatch.setattr("edgedec.doctor.report.extras", lambda: extras)
    shown = run("doctor")
    assert "no-such-package (missing); makes bundles of checkpoints; get it: " in shown.stdout
    assert installation.install(extra="export") in shown.stdout
    assert "problem" not in shown.stderr  # who does not need it lacks nothing
    (extra,) = json.loads(run("doctor", "--json").stdout)["extras"].values()
    assert extra["complete"] is False
    assert extra["packages"]["numpy"]
    assert "prebuilt" not in extra


def test_doctor_names_prebuilt_wheels_of_llama_cpp(run, monkeypatch) -> None:
    extras = {"gguf": (("no-such-package",), "decodes GGUF files")}
    monkeypatch.setattr("edgedec.doctor.report.extras", lambda: extras)
    how = f"{installation.install(extra='gguf')} --prefer-binary --extra-index-url https://"
    assert f"prebuilt, if there is a wheel: {how}" in run("doctor").stdout
    extras["gguf"] = (("numpy",), "decodes GGUF files")
    assert "prebuilt" not in run("doctor").stdout


def test_doctor_knows_the_packages_of_the_plain_installation(monkeypatch) -> None:
    """Those of pyproject, but for what only an older Python needs."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    body = text.split("\ndependencies = [")[1].split("\n]")[0]
    names = set(re.findall(r'^ *"([\w-]+)[^";]*",$', body, re.MULTILINE))
    assert {"filelock", "platformdirs", "prompt_toolkit"} < names
    assert set(report.needed()) == names
    lines = ["rich>=13", 'torch; extra == "reference"', 'tomli>=2; python_version < "3.11"']
    monkeypatch.setattr(report.metadata, "requires", lambda name: lines)
    assert report.needed() == ["rich"]


def test_doctor_knows_the_extras_for_users() -> None:
    """Every package of an extra that pyproject has, but for what is for developers."""
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    text = pyproject.read_text("utf-8")
    section = text.split("[project.optional-dependencies]")[1].split("\n[project")[0]
    extras = {}
    for name, body in re.findall(r"^(\w+) = \[(.*?)^\]", section, re.MULTILINE | re.DOTALL):
        names = re.findall(r'^ *"([\w-]+)[^"\[]*",', body, re.MULTILINE)
        extras[name] = {package for package in names if package != "edgedec"}
    for name in ("dev", "docs", "reference"):
        del extras[name]
    assert {name: set(packages) for name, (packages, _) in report.extras().items()} == extras
    assert all(purpose for _, purpose in report.extras().values())


def test_devices(run) -> None:
    shown = run("devices", "--no-try").stdout
    assert re.search(r"^onnx +cpu +cpu +\d+ core", shown, re.MULTILINE)
    assert shown == "\n".join(line.rstrip() for line in shown.split("\n"))
    before = run("devices", "--no-measure").stdout
    free = re.compile(r"[\d.]+ [KMG]B free")  # of the machine's memory, which others use too
    assert free.sub("", before) == free.sub("", shown), "its name of before"
    found = json.loads(run("devices", "--no-try", "--json").stdout)
    assert found["memory"]["total"] > 1 << 28
    first = next(one for one in found["found"] if one["device"]["runtime"] == "onnx")
    assert first["device"]["name"] == "cpu"
    assert first["device"]["provider"] == "CPUExecutionProvider"
    assert first["takes"] is None
    tried = json.loads(run("devices", "--json").stdout)
    first = next(one for one in tried["found"] if one["device"]["runtime"] == "onnx")
    assert first["takes"] == ["onnx"]


def test_devices_show_what_drivers_say_as_text(run, monkeypatch) -> None:
    from edgedec.doctor import survey
    from edgedec.hardware.device import Device

    card = Device("onnx", "card", "gpu", "[bold]A\x1b[31m card[/]", "X", 8 * 10**9, 10**9)
    other = Device("onnx", "other", "npu", "another")
    found = survey.Survey(
        survey.memory(),
        tuple(survey.clusters()),
        (
            survey.SurveyedDevice(card, None),
            survey.SurveyedDevice(other, None, refusal="it is \x07 broken"),
            survey.SurveyedDevice(other, None, refusal="it is \x07 broken"),
        ),
        ("llamacpp: pip install something",),
    )
    monkeypatch.setattr(survey, "survey", lambda **_: found)
    shown = run("devices").stdout
    assert re.search(r"^onnx +card +gpu +8.0 GB, 1.0 GB free$", shown, re.M)
    assert "[bold]A?[31m card[/]" in shown
    assert shown.count("it is ? broken") == 1
    assert "llamacpp: pip install something" in shown


# -- demo and bench ------------------------------------------------------------


def test_demo(run, bundle) -> None:
    result = run("demo", "--bundle", bundle, "--count", 2, "--max-new-tokens", 24)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("identical tokens") == 2
    assert result.stdout.count("speculative, ") == 2


def test_demo_facts(run, bundle) -> None:
    ask = ["demo", "--bundle", bundle, "--count", 1, "--max-new-tokens", 24, "--json"]
    (found,) = json.loads(run(*ask, "--drafter", "model", "--draft-length", 3).stdout)
    assert found["identical"] is True
    assert found["plain"]["token_ids"] == found["speculative"]["token_ids"]
    assert found["plain"]["drafted_tokens"] == 0
    assert found["sources"].count("draft") == found["speculative"]["accepted_tokens"] > 0


def test_demo_says_when_tokens_differ(run, bundle, monkeypatch) -> None:
    accepts_one_more(monkeypatch)
    ask = ["demo", "--bundle", bundle, "--count", 1, "--max-new-tokens", 48, "--drafter", "model"]
    result = run(*ask, "--temperature", 1.5, "--draft-length", 4)
    assert result.exit_code == 1
    assert "TOKENS DIFFER" in result.stdout


# -- chat ------------------------------------------------------------


def test_chat_refuses_invalid_utf8_and_goes_on(start, bundle) -> None:
    process = start("chat", "--bundle", bundle, "--max-new-tokens", 4)
    _, errors = process.communicate(b"ab\xff\nTwo\n", timeout=60)
    assert process.returncode == 0
    refused, figures, cut = errors.decode().splitlines()
    assert "not valid UTF-8" in refused
    assert "4 tokens" in figures
    assert "/tokens 8" in cut
