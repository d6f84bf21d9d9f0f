"""Valid inputs damaged at random.

Everything is drawn from the given ``random.Random``, so a seed identifies an input.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

SIZES = (0, 1, 2, 7, 31, 255, 2**16, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
NAMES = ("model", "../model", "/model", "model/..", "", "a\nb", "\ud800", "a" * 9999)
NUMBERS = (0, 1, 2, -1, 13, 48, 64, 2**63, 10**400, 0.5, float("nan"), float("inf"), -1e308)
BYTES = b"\x00\x01\x02\x08\x0aaz\x7f\xff"
WORDS = ("F32", "BF16", "I64", "F8_E5M2", "Sequence", "Fuse", "ByteLevel", "Split", "é😀\0")


def value(rng: random.Random, depth: int = 2) -> Any:
    """Return any JSON value, or a number that JSON cannot represent."""
    kind = rng.randrange(8 if depth else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.randint(-(2**70), 2**70) >> rng.randrange(70)
    if kind == 2:
        return rng.choice(NUMBERS)
    if kind == 3:
        return rng.choice(NAMES)
    if kind == 4:
        return rng.choice(WORDS)
    if kind == 5:
        return "".join(chr(rng.randrange(1, 0x3000)) for _ in range(rng.randrange(9)))
    inner = [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return inner if kind == 6 else {str(key)[:20]: key for key in inner}


def document(rng: random.Random, good: Any) -> Any:
    """Return a valid document with up to four places removed, added or replaced."""
    damaged = copy.deepcopy(good)
    for _ in range(rng.randint(1, 4)):
        place, key = _place(rng, damaged)
        if place is None:
            continue
        kind = rng.choice(("replace", "remove", "add"))
        if kind == "remove":
            del place[key]
        elif kind == "add" and isinstance(place, dict):
            place[rng.choice((*NAMES, *WORDS))] = value(rng)
        else:
            place[key] = value(rng)
    return damaged


def _place(rng: random.Random, inside: Any) -> tuple[Any, Any]:
    """Return a container in a document and one of its keys, or None if it is empty."""
    while isinstance(inside, (dict, list)) and inside:
        key = rng.choice(list(inside)) if isinstance(inside, dict) else rng.randrange(len(inside))
        if not isinstance(inside[key], (dict, list)) or rng.random() < 0.5:
            return inside, key
        inside = inside[key]
    return None, None


def json_bytes(found: Any) -> bytes:
    """Return a document as the bytes of a file; lone surrogates are kept."""
    return json.dumps(found).encode("utf-8", "surrogatepass")


def data(rng: random.Random, whole: bytes, until: int | None = None) -> bytes:
    """Return a valid file with up to three places overwritten, removed, inserted or cut off.

    Args:
        rng: source of the damage.
        whole: the valid file.
        until: the last byte at which damage begins; None is the end of the file.

    """
    damaged = bytearray(whole)
    last = len(whole) if until is None else until
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, min(last, len(damaged)))
        kind = rng.choice(("byte", "size", "junk", "take", "put", "cut"))
        junk = rng.randbytes(rng.randint(1, 9))
        if kind == "byte":
            damaged[at : at + 1] = junk[:1]
        elif kind == "size":
            damaged[at : at + 8] = struct.pack("<Q", rng.choice(SIZES))
        elif kind == "junk":
            damaged[at : at + len(junk)] = junk
        elif kind == "take":
            del damaged[at : at + len(junk)]
        elif kind == "put":
            damaged[at:at] = junk
        elif rng.random() < 0.5:  # rarely, or little else remains
            del damaged[at:]
    return bytes(damaged)


def single_bytes(rng: random.Random, whole: bytes) -> bytes:
    """Return a valid file with up to three bytes replaced, so that most lengths stay right."""
    damaged = bytearray(whole)
    for _ in range(rng.randint(1, 3)):
        damaged[rng.randrange(len(damaged))] = rng.choice(BYTES)
    return bytes(damaged)


def one_clear_line(error: Exception) -> None:
    """What is damaged is refused in one line that can be read."""
    assert "\n" not in str(error)
    assert len(str(error)) < 2000
