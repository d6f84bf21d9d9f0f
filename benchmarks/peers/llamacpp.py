"""llama.cpp's speculative program: a draft model, n-grams, both.

Its sources are those inside llama-cpp-python, so that all users of llama.cpp compared here have
the same version. llama-cpp-python itself is installed beside it without a library of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.race.protocol import Kinds, Maker, Models, Request, Tools

NAME = "llama.cpp"
VERSION = "0.3.36"
TITLE = f"llama.cpp of llama-cpp-python {VERSION}"
ENVIRONMENT = NAME
# llama-cpp-python's own requirements; it is built here, with cmake and a C++ compiler that the
# machine must have.
REQUIREMENTS: tuple[str, ...] | None = (
    "numpy==2.4.6", "jinja2==3.1.6", "diskcache==5.6.3", "typing-extensions==4.16.0",
)  # fmt: skip

_PROGRAM = "llama-speculative-simple"
_DRAFT_WEIGHTS = "q8_0"
_ATTEMPTS = 5
_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8)
_NGRAMS = (4, 8, 16, 48)
_ENCODED = re.compile(r"encoded\s+(\d+) tokens in\s+([\d.]+) seconds")
_DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")
_COUNTS = re.compile(r"n_(drafted|accept)\s*=\s*(\d+)")


WEIGHTS = ("q4_0", "q4_k_m")
WEIGHTS_OF_FILE = ("file",)
KINDS: Kinds = tuple(
    (kind, {**settings, "flash": flash})
    for flash in ("on", "off")
    for kind, settings in (
        ("plain", {}),
        *(("draft", {"length": length}) for length in _LENGTHS),
        *(("ngram", {"length": length}) for length in _NGRAMS),
        *(("draft+ngram", {"length": length}) for length in _LENGTHS),
    )
)

# The program has no plain mode: n-grams longer than any prompt never draft.
_NEVER = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "1000")
_DRAFTERS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "plain": lambda length: _NEVER,
    "draft": lambda length: ("--spec-type", "draft-simple", "--spec-draft-n-max", length),
    "ngram": lambda length: ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", length),
    "draft+ngram": lambda length: (
        "--spec-type", "ngram-simple,draft-simple", "--spec-draft-n-max", length
    ),
}  # fmt: skip


def models(maker: Maker, weights: str) -> Models:
    """Return GGUF files of both models, or of the target alone."""
    target = {"target": str(maker.gguf("target", weights))}
    return target | ({"draft": str(maker.gguf("draft", _DRAFT_WEIGHTS))} if maker.drafts else {})


def build(request: Request, tools: Tools) -> None:
    """Compile the program, and install llama-cpp-python to use the same library."""
    folder = Path(request["folder"])
    pip = request["pip"]
    package = ["--no-deps", "--no-binary", "llama-cpp-python"]
    with tempfile.TemporaryDirectory() as name:
        command = [*pip, "download", "--quiet", *package, "--dest", name]
        subprocess.run([*command, f"llama-cpp-python=={VERSION}"], check=True)
        (archive,) = Path(name).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(name, filter="data")
        (source,) = Path(name).glob("*/vendor/llama.cpp")
        _compile(source, folder / "llama.cpp")
        # Not into pip's cache: a package without a library is of no use elsewhere.
        install = [*pip, "install", "--quiet", "--no-cache-dir", *package, str(archive)]
        alone = {**os.environ, "CMAKE_ARGS": "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"}
        subprocess.run(install, env=alone, check=True)


def _compile(source: Path, out: Path) -> None:
    options = [
        "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=ON", "-DLLAMA_BUILD_TOOLS=ON",
        "-DBUILD_SHARED_LIBS=ON",
    ]  # fmt: skip
    cpu = Path("/proc/cpuinfo")
    if cpu.is_file() and "amx_tile" in cpu.read_text("ascii", errors="replace"):
        # Built by gcc 12 the AMX kernels crash; no laptop has them, and ours go without them.
        without = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
        options += [f"-DCMAKE_{language}_FLAGS={without}" for language in ("C", "CXX")]
    subprocess.run(["cmake", "-S", source, "-B", out, *options], check=True)
    jobs = str(os.cpu_count() or 1)
    targets = ["--target", _PROGRAM, "llama-bench"]
    subprocess.run(["cmake", "--build", out, "-j", jobs, *targets], check=True)


def run(request: Request, tools: Tools) -> dict[str, Any]:
    """Decode with the program; it reports its own times, without loading.

    It does not report processor time. That of decoding is what it used beyond a second run, which
    loads and reads the prompt in the same way but ends after its first round.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(request["prompt"])
        file.flush()
        # It decodes one token more than it is asked for, and its last round may write a few more.
        output, said, used = _said(_command(request, file.name, request["tokens"] - 1), tools)
        _, first, before = _said(_command(request, file.name, 0), tools)
    encoded, decoded, begun = _ENCODED.search(said), _DECODED.search(said), _DECODED.search(first)
    if encoded is None or decoded is None or begun is None:
        raise RuntimeError(f"{_PROGRAM} gave no figures {_ATTEMPTS} times")
    counts = {name: int(count) for name, count in _COUNTS.findall(said)}
    return {
        "text": _continuation(output, request["prompt"]),
        "prompt_tokens": int(encoded[1]),
        "times": {
            "prompt_s": float(encoded[2]),
            "decode_s": float(decoded[2]),
            "decoded": int(decoded[1]),
            **used.since(before).per(max(1, int(decoded[1]) - int(begun[1]))),
        },
        "drafted_tokens": counts.get("drafted", 0),
        "accepted_tokens": counts.get("accept", 0),
    }


def _command(request: Request, prompt: str, tokens: int) -> list[str]:
    """Return the command that continues the prompt in a file."""
    settings, threads = request["settings"], str(request["threads"])
    program = Path(request["folder"], "llama.cpp", "bin", _PROGRAM)
    draft = ("-md", request["models"]["draft"]) if "draft" in request["kind"] else ()
    return [
        str(program), "-m", request["models"]["target"], *draft, "-f", prompt,
        "-n", str(tokens), "-c", str(request["context"]), *_sampling(request),
        "--ignore-eos", "-t", threads, "-td", threads, "-fa", settings["flash"],
        *_DRAFTERS[request["kind"]](str(settings.get("length"))),
        *(() if settings.get("repack", True) else ("--no-repack",)),
    ]  # fmt: skip


def _sampling(request: Request) -> tuple[str, ...]:
    """Return the options of sampling; a drafted token is accepted if the sampled one is equal."""
    if request["temperature"] == 0:
        return ("--temp", "0")
    # By default it filters with top-k 40, top-p and min-p before the temperature.
    return (
        "--samplers", "temperature;top_p", "--temp", str(request["temperature"]),
        "--top-p", str(request["top_p"]), "--seed", str(request["seed"]),
    )  # fmt: skip


def _said(command: list[str], tools: Tools) -> tuple[str, str, Any]:
    """Return what the program wrote to standard output, everything it wrote, and what it used.

    Its end does not wait for the thread that writes its log, so that some runs lose the last
    lines. Such a run ended well and is repeated.
    """
    output, said, used = "", "", tools.meter.read()
    for _ in range(_ATTEMPTS):
        before = tools.meter.read()
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        output, said = done.stdout, done.stdout + done.stderr
        used = tools.meter.read().since(before)
        if done.returncode != 0:
            last = (said.strip().splitlines() or ["it said nothing"])[-1]
            raise RuntimeError(f"{_PROGRAM} ended with {done.returncode}: {last}")
        if _DECODED.search(said):
            break
    return output, said, used


def _continuation(output: str, prompt: str) -> str:
    """Return what the program wrote after the prompt, which it repeats."""
    _, found, after = output.partition(prompt)
    return after.rstrip("\n") if found else output


def perplexity(request: Request, tools: Tools) -> dict[str, Any]:
    """Measure through llama-cpp-python, with the library the program has."""
    os.environ["LLAMA_CPP_LIB_PATH"] = str(Path(request["folder"], "llama.cpp", "bin"))
    import llama_cpp

    model: Any = llama_cpp.Llama(
        request["models"]["target"], n_ctx=512, n_batch=512, logits_all=True, verbose=False,
        n_threads=request["threads"], n_threads_batch=request["threads"],
    )  # fmt: skip

    def logits(ids: list[int]) -> Any:
        model.reset()
        model.eval(ids)
        return model.scores[: len(ids)]

    return {"perplexity": tools.perplexity(request["ids"], logits)}
