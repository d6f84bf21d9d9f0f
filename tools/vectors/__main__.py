"""Write the vectors, or compare them with what edgedec computes: ``python -m tools.vectors``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from tools.vectors import chat, draws, files, manifests, noise, small_tokenizers, tokens

MAKERS: dict[str, Callable[[], Any]] = {
    "noise.json": noise.make,
    "draws.json": draws.make,
    "tokens.json": tokens.make,
    "chat.json": chat.make,
    "manifests.json": manifests.make,
}


def main() -> int:
    """Return the exit code: 1 if a file differs, 2 if it cannot be made here."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.vectors",
        description="Write android_demo/vectors: what edgedec computes, for ports of it.",
    )
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument(
        "--texts",
        action="store_true",
        help="write or compare texts.json alone, with the ONNX Runtime that is installed, on a"
        " processor with AVX-512 and VNNI",
    )
    asked = parser.parse_args()
    if asked.texts:
        from tools.processor_class.masking import MissingError
        from tools.vectors import texts

        try:
            return _file("texts.json", files.text_of(texts.make()), asked.check)
        except MissingError as error:
            print(f"texts.json has texts of other processors: {error}", file=sys.stderr)
            return 2
    code = 0
    for name, text in small_tokenizers.make().items():  # first, since tokens.json reads them
        code = max(code, _file(f"tokenizers/{name}.json", text, asked.check))
    for name, make in MAKERS.items():
        code = max(code, _file(name, files.text_of(make()), asked.check))
    return code


def _file(name: str, text: str, check: bool) -> int:
    """Write a file, or say whether it is up to date; return the exit code."""
    if not check:
        files.write(name, text)
        return 0
    difference = files.difference(name, text)
    if difference:
        print(difference)
        options = " --texts" if name == "texts.json" else ""
        print(f"vectors/{name} is out of date: python -m tools.vectors{options}", file=sys.stderr)
        return 1
    print(f"vectors/{name} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
