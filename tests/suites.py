"""Which tests belong to which files: what `make test` leaves out, what `make test-changed` runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path, PurePath

# Tests of these run when their files change, and in the full run: `make test` leaves them out.
LEFT_OUT = (
    "tests/benchmarks/*",
    "tests/*coreml*",
    "tests/*static*",
    "tests/unit/export/test_export_ranges.py",
    "tests/*optimum*",
    "tests/contract/test_traced.py",
    "tests/*rpc*",
    "tests/android/built/*",
)
# What the kernels of one class of processors may do otherwise: `make avx2` runs these.
OF_KERNELS = (
    "tests/unit/tools/test_processor_class.py",
    "tests/unit/runtimes/test_onnx_padding.py",
    "tests/unit/runtimes/test_openvino_choice.py",
    "tests/unit/decoding/test_exact_text.py",
    "tests/contract/test_onnx.py",
    "tests/contract/test_onnx_hub.py",
    "tests/contract/test_onnx_hybrids.py",
    "tests/contract/test_onnx_shared.py",
    "tests/contract/test_openvino.py",
    "tests/golden/test_quantized_graph.py",
    "tests/unit/library/test_ready.py",
    "tests/unit/export/test_export_genai.py",
    "tests/benchmarks/test_matrix.py",
)
# A changed file, and the tests to run; files of tests stand for themselves. Every row that fits
# counts, and a file of a folder ROOM of the package has the tests of tests/unit/ROOM as well.
TESTS_OF: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("*coreml*", ("tests/*coreml*",)),
    ("*onnx_static*", ("tests/*static*",)),
    ("*optimum*", ("tests/*optimum*", "tests/contract/test_traced.py")),
    ("runtimes/onnx_hub/*", ("tests/*optimum*", "tests/unit/library/test_ready.py")),
    ("*ready*", ("tests/unit/library/test_ready.py", "tests/contract/test_onnx_hub.py")),
    ("runtimes/_static/*", ("tests/*coreml*", "tests/*static*")),
    ("export/static_shapes.py", ("tests/*coreml*", "tests/*static*")),
    ("runtimes/onnx/openvino/*", ("tests/*openvino*",)),
    ("runtimes/onnx/streaming/*", ("tests/*stream*",)),
    ("runtimes/llamacpp/*", ("tests/*llamacpp*", "tests/*gguf*", "tests/*rpc*")),
    ("runtimes/*", ("tests/contract/*", "tests/unit/pipeline/*")),
    ("export/*", ("tests/golden/*", "tests/contract/test_exported.py")),
    ("models/*", ("tests/golden/*", "tests/contract/test_exported.py", "tests/property/*decoder*")),
    ("edgedec/testing/*", ("tests/contract/*",)),
    (
        "edgedec/decoding/*",
        (
            "tests/contract/test_fake.py",
            "tests/contract/*hybrid*",
            "tests/property/test_any_*",
            "tests/benchmarks/test_matrix.py",
        ),
    ),
    (
        "edgedec/verify/*",
        ("tests/benchmarks/test_matrix.py", "tests/benchmarks/test_certificate.py"),
    ),
    ("edgedec/text/*", ("tests/property/*token*", "tests/golden/test_tokenizers.py")),
    ("edgedec/bundle/*", ("tests/property/*bundle*",)),
    ("edgedec/gguf/*", ("tests/property/*gguf*", "tests/golden/test_tokenizers.py")),
    (
        "edgedec/hardware/outcomes.py",
        ("tests/unit/runtimes/*known*", "tests/unit/runtimes/test_llamacpp_rows.py"),
    ),
    ("edgedec/planning/*", ("tests/property/*plan*", "tests/cli/test_cli_plan.py")),
    ("edgedec/profiling/*", ("tests/cli/test_cli_profile.py",)),
    ("edgedec/serve/*", ("tests/cli/test_cli_others.py",)),
    ("edgedec/serve/static/*", ("tests/packaging/test_packaging.py",)),
    ("edgedec/batch/*", ("tests/cli/test_cli_prompts.py", "tests/*ray*", "tests/unit/cluster/*")),
    ("edgedec/cluster/*", ("tests/*ray*",)),
    ("edgedec/generation/*", ("tests/unit/pipeline/*", "tests/cli/test_cli_generate.py")),
    ("edgedec/generation/turns.py", ("tests/unit/serve/*",)),
    ("edgedec/pipeline/*", ("tests/unit/pipeline/*", "tests/cli/test_cli_generate.py")),
    ("edgedec/loading/*", ("tests/unit/pipeline/*",)),
    ("edgedec/cli/*", ("tests/cli/*", "tests/packaging/*")),
    ("edgedec/errors.py", ("tests/cli/*",)),
    ("benchmarks/*", ("tests/benchmarks/*",)),
    ("benchmarks/certificate/*", ("tests/statistical/*",)),
    ("benchmarks/models/published.py", ("tests/published/*",)),
    ("docs/guides/five-minutes.md", ("tests/published/test_commands.py",)),
    ("docs/guides/several-models.md", ("tests/unit/serve/test_serve_several.py",)),
    ("edgedec/serve/room.py", ("tests/published/test_served_models.py",)),
    ("tools/*", ("tests/unit/tools/*",)),
    (".github/*", ("tests/packaging/test_workflows.py", "tests/packaging/test_papers.py")),
    (".github/workflows/release.yml", ("tests/packaging/test_docs.py",)),
    ("docs/guides/programs.md", ("tests/unit/serve/test_serve_programs.py",)),
    ("integrations/*", ("tests/integrations/*",)),
    ("tools/workflow_steps.py", ("tests/packaging/test_workflows.py",)),
    (
        "tools/build_backend.py",
        ("tests/packaging/test_build_backend.py", "tests/packaging/test_installs.py"),
    ),
    ("android_demo/vectors/*", ("tests/unit/tools/test_vectors.py",)),
    ("docs/deploy/*", ("tests/packaging/test_deploy*.py", "tests/packaging/test_balanced.py")),
    ("docs/bundle-*", ("tests/unit/bundle/test_bundle_format.py",)),
    ("android_demo/*", ("tests/android/*",)),
    (
        "docs/server*.md",
        ("tests/unit/serve/test_serve_docs.py", "tests/unit/serve/test_serve_names.py"),
    ),
    ("*.md", ("tests/packaging/*", "tests/cli/test_examples*", "tests/cli/test_error_page.py")),
    ("pyproject.toml", ("tests/packaging/*", "tests/unit/test_no_circles.py")),
    ("tests/golden/*", ("tests/golden/*",)),
)


def left_out(test: PurePath) -> bool:
    """Whether `make test` leaves a test file out; its path is relative to the repository."""
    return any(fnmatch(test.as_posix(), pattern) for pattern in LEFT_OUT)


def tests_of(changed: Iterable[str], repository: Path) -> list[str]:
    """Return the test files to run for changed files; paths are relative to the repository."""
    files = {
        file.relative_to(repository).as_posix(): file.read_text("utf-8")
        for file in sorted((repository / "tests").rglob("test_*.py"))
    }
    wanted: set[str] = set()
    for name in changed:
        rows = [tests for row, tests in TESTS_OF if fnmatch(name, row)]
        patterns, path = [name, *itertools.chain(*rows)], PurePath(name)
        room = path.parts[path.parts[0] == "edgedec" and len(path.parts) > 1]
        patterns.append(f"tests/unit/{room}/*")
        wanted |= {file for file in files for pattern in patterns if fnmatch(file, pattern)}
        if path.parts[0] == "tests" and path.suffix == ".py":
            wanted |= _users(path, files)
    return sorted(wanted)


def _users(helper: PurePath, files: dict[str, str]) -> set[str]:
    """Return the test files that a helper is for: those that import it, or its folder."""
    if helper.name == "conftest.py":
        return {file for file in files if PurePath(file).is_relative_to(helper.parent)}
    imports = (f"import {helper.stem}", f"from {helper.stem} import")
    return {file for file, text in files.items() if any(words in text for words in imports)}
