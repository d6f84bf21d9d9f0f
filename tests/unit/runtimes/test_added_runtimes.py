"""A runtime that an installed package adds: listed, profiled, planned, run, and it decodes."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest
from installed import Install, installer

from edgedec import OpenOptions, Pipeline
from edgedec.cli import _options, main
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.loading.options import LoadOptions
from edgedec.loading.sources import Models
from edgedec.planning.decisions import plan
from edgedec.planning.plan_files import save
from edgedec.profiling import measuring
from edgedec.profiling.places import PlaceFilter
from edgedec.profiling.run import ProfileOptions
from edgedec.records.workload import Workload
from edgedec.runtimes import _added, registry

DEMO = Path(__file__).parents[3] / "models/demo/bundle"
INFO = """
    from edgedec.records.adapter import AdapterInfo, LoadOption

    INFO = AdapterInfo(
        name="tiny",
        module="tiny_runtime.adapter",
        formats=("tiny",),
        packages=("tiny-runtime",),
        options=(LoadOption("flavour", int, "which hash the logits are.", least=1),),
    )
"""
ADAPTER = """
    import json

    from edgedec.hardware.device import Device
    from edgedec.testing import FakeModel

    def load(path, options):
        facts = json.loads(path.read_text())
        flavour = options.own.get("flavour", 7)
        target = FakeModel(facts["vocab_size"], seed=flavour, context=2)
        if facts["role"] == "target":
            return target
        return FakeModel(facts["vocab_size"], seed=1, context=2, like=(target, 0.9))

    def devices():
        return [Device("tiny", "cpu", "cpu", "a list of tokens")]
"""


def forget() -> None:
    _added.found.cache_clear()
    _options.runtime_flags.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    yield installer(tmp_path / "site-packages", monkeypatch, forget)
    forget()


@pytest.fixture
def tiny(install: Install) -> None:
    files = {"tiny_runtime/__init__.py": INFO, "tiny_runtime/adapter.py": ADAPTER}
    install("tiny-runtime", files, edgedec_runtimes={"tiny": "tiny_runtime:INFO"})


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The demo's tokenizer, and models that are a line of JSON."""
    root = tmp_path / "bundle"
    manifest = json.loads((DEMO / "manifest.json").read_text("utf-8"))
    shutil.copytree(DEMO / "tokenizer", root / "tokenizer")
    manifest["files"] = {k: v for k, v in manifest["files"].items() if k.startswith("tokenizer")}
    for role in ("target", "draft"):
        name = f"{role}/model.tiny"
        data = json.dumps({"vocab_size": 4096, "role": role}).encode()
        (root / role).mkdir()
        (root / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        manifest["files"][name] = {"sha256": digest, "bytes": len(data)}
        variant = {"file": name, "files": [name], "weights": "none", "kv": "fp32"}
        manifest["roles"][role]["variants"] = {"tiny": variant}
    (root / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return root


def call(*arguments: object) -> click.testing.Result:
    words = [str(argument) for argument in arguments]
    return click.testing.CliRunner().invoke(main, words, prog_name="edgedec")


def test_it_is_listed(tiny: None) -> None:
    facts = json.loads(call("doctor", "--json").stdout)
    assert facts["added_runtimes"]["tiny"] == {
        "formats": ["tiny"], "packages": {"tiny-runtime": "1.0"}
    }  # fmt: skip
    assert "tiny; tiny-runtime 1.0" in call("doctor").stdout
    assert "a list of tokens" in call("devices", "--no-try").stdout
    shown = " ".join(call("verify", "--help-all").stdout.split())
    assert f"[auto|{'|'.join(registry.formats())}]" in shown
    assert "flavour: which hash the logits are." in shown
    assert registry.formats()[-1] == "tiny", "built-in formats are preferred"


def test_without_it_nothing_is_listed() -> None:
    forget()
    assert "added_runtimes" not in json.loads(call("doctor", "--json").stdout)
    assert registry.added() == {}
    assert "tiny" not in call("generate", "--help-all").stdout


@pytest.mark.full
def test_it_is_profiled_planned_run_and_decodes(
    tiny: None, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "BUDGET_S", 0.02)
    monkeypatch.setattr(measuring, "WIDTHS", (1, 2, 4, 8))
    monkeypatch.setattr(measuring, "CONTEXTS", (32, 64))
    workload = Workload(prompt_tokens=16, new_tokens=16)
    wanted = PlaceFilter(threads=(1,))
    decision = plan(Models.find(bundle), workload, options=ProfileOptions(wanted=wanted))
    ran = [one for one in decision.candidates if one.measured]
    assert {one.plan.target.format for one in ran} == {"tiny"}
    assert decision.chosen.plan.target.format == "tiny"
    assert any(one.plan.draft and one.plan.draft.format == "tiny" for one in ran)
    save(decision, tmp_path / "plan.json")
    planned = OpenOptions(plan=tmp_path / "plan.json")
    drafting = OpenOptions(drafter="model", draft_length=4, plan="none")
    texts = set()
    for options in (planned, drafting, OpenOptions(drafter="none", plan="none")):
        with Pipeline.open(bundle, options) as pipeline:
            assert pipeline.plan["format"] == "tiny"
            texts.add(tuple(pipeline.generate("def f(x):", max_new_tokens=24).token_ids))
    assert len(texts) == 1


def test_its_own_options(tiny: None, bundle: Path) -> None:
    def text(**options: object) -> list[int]:
        with Pipeline.open(bundle, drafter="none", plan="none", **options) as pipeline:  # type: ignore[arg-type]
            return list(pipeline.generate("def f(x):", max_new_tokens=8).token_ids)

    assert text(flavour=1) == text(runtime_options={"flavour": 1}) != text()
    plain = ("generate", bundle, "def f(x):", "-n", "8", "--drafter", "none", "--plan", "none")
    given = ((), ("--flavour", "1"), ("--runtime-option", "flavour=1"))
    shown = [call(*plain, *more) for more in given]
    assert [one.exit_code for one in shown] == [0, 0, 0], shown[1].output
    assert shown[0].stdout != shown[1].stdout == shown[2].stdout
    with pytest.raises(InputError, match="flavour is 0: expected 1 or more"):
        text(flavour=0)
    with pytest.raises(InputError, match=r"kv \(--kv\) is not a choice of the runtime tiny"):
        text(kv="f16")
    with pytest.raises(InputError, match=r"flavour \(--flavour\) is not a choice of .* onnx"):
        Pipeline.open("demo", plan="none", runtime_options={"flavour": 1})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_module", "does not load: No module named 'no_such_module'"),
        ("raise SystemExit('no licence')", "does not load: no licence"),
        ("", "does not load: "),
        ("INFO = 3", "is left out: expected an AdapterInfo, got 3"),
        (INFO.replace('name="tiny"', 'name="onnx"'), "there is a runtime 'onnx' already"),
        (INFO.replace('("tiny",)', '("gguf",)'), "the runtime 'llamacpp' runs the format 'gguf'"),
        (INFO.replace('"flavour"', '"kv"'), "there is another option 'kv' already"),
    ],
)
def test_a_package_that_cannot_be_added_says_why(install: Install, code: str, words: str) -> None:
    install("odd-runtime", {"odd_runtime.py": code}, edgedec_runtimes={"odd": "odd_runtime:INFO"})
    (problem,) = registry.problems()
    assert problem.startswith("odd-runtime: ")
    assert words in problem
    assert "\n" not in problem
    assert registry.names() == sorted(info.name for info in _added.built_in())
    assert problem in call("doctor").stderr
    assert problem in call("devices", "--no-try").stdout
    with Pipeline.open("demo", plan="none", drafter="none") as pipeline:
        assert pipeline.generate("def", max_new_tokens=1).token_ids


def test_batch_invariance_that_it_does_not_give_is_refused(install: Install, bundle: Path) -> None:
    lacks = "target.capabilities = Capabilities(batch_invariant=False)"
    adapter = ADAPTER.replace('if facts["role"]', f'{lacks}\n        if facts["role"]')
    imported = "\n    from edgedec.decoding.session import Capabilities\n    from edgedec.testing"
    adapter = adapter.replace("\n    from edgedec.testing", imported)
    files = {"tiny_runtime/__init__.py": INFO, "tiny_runtime/adapter.py": adapter}
    install("tiny-runtime", files, edgedec_runtimes={"tiny": "tiny_runtime:INFO"})
    Pipeline.open(bundle, drafter="none", plan="none").close()
    with pytest.raises(RuntimeUnavailable, match="the runtime tiny has no batch invariance"):
        Pipeline.open(bundle, drafter="none", plan="none", batch_invariant=True)


def test_one_whose_library_is_missing_harms_no_other(install: Install) -> None:
    files = {"tiny_runtime/__init__.py": INFO, "tiny_runtime/adapter.py": "import tiny_library"}
    install("tiny-runtime", files, edgedec_runtimes={"tiny": "tiny_runtime:INFO"})
    with pytest.raises(
        RuntimeUnavailable, match="'tiny' needs tiny_library, which is not installed"
    ):
        registry.load("tiny", Path("model.tiny"), LoadOptions())
    shown = call("devices", "--no-try").stdout
    assert "tiny: the runtime 'tiny' needs tiny_library, which is not installed" in shown
    assert "onnx" in shown
