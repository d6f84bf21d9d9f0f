"""Writes a certificate as one page of Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.certificate.enumerable import SUSPICIOUS
from benchmarks.certificate.texts import TURN
from benchmarks.certificate.verdict import BROKEN, OPEN
from benchmarks.certificate.ways import DRAFT_LENGTH, TREE_LENGTH
from edgedec._support.fields import printable
from edgedec.records.plan import OVERLAPPED
from edgedec.verify.results import COUNTS

Facts = Mapping[str, Any]
# Number of differences that are listed; the JSON file has all of them.
_LISTED = 12
_LONGEST = 60


def markdown(certificate: Facts) -> str:
    """Return the page."""
    sections = (
        _verdict(certificate),
        _facts(certificate),
        _what_was_run(certificate),
        *(_texts(name, found["texts"]) for name, found in certificate["runtimes"].items()),
        _matrix(certificate),
        _controls(certificate),
        _differences(certificate),
        _files(certificate),
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _verdict(certificate: Facts) -> Iterator[str]:
    found = certificate["verdict"]
    yield f"# {certificate['model']}: speculative against plain decoding".replace("`", "'")
    yield ""
    counts = f"{found['texts']:,} texts were compared with those that plain decoding writes"
    yield (
        f"**{found['word'][0].upper()}{found['word'][1:]}.** {counts}: {found['identical']:,} are"
        f" identical, {found['near_ties']:,} leave them at a near-tie, {found['differ']:,} differ"
        " by more."
    )
    if found["word"] in (BROKEN, OPEN):
        yield ""
        yield from (f"- {_plain(reason)}" for reason in found["reasons"])
    elif not found["differ"]:
        # The rule of three. Texts of one prompt are not independent, so prompts are counted.
        share = min(1.0, 3 / certificate["prompts"])
        yield ""
        yield (
            f"None of {certificate['prompts']:,} prompts has a text that differs by more. If such"
            f" prompts are drawn at random, fewer than {share:.2g} of them do (95% confidence)."
        )
    yield ""
    yield (
        f"The claim is about one class of processors: {certificate['machine']['processors']}. On"
        " others, other kernels compute, and texts meet other near-ties."
    )
    yield ""
    yield (
        "A near-tie is the first token at which two texts part, if plain decoding itself chooses"
        " the other token once the gap between the two changes by as much as it changes between"
        " passes of one and of several tokens: by at most the 99.9th percentile of those changes,"
        " measured on other prompts, or the change at that very place. What follows in a text that"
        " has parted is not compared."
    )


def _facts(certificate: Facts) -> Iterator[str]:
    machine, cpu = certificate["machine"], certificate["machine"]["cpu"]
    versions = ", ".join(f"{name} {one}" for name, one in certificate["versions"].items())
    options = ", ".join(f"{name} {one}" for name, one in certificate["options"].items())
    rows = [
        ("issued", certificate["issued"]),
        *certificate["models"].items(),
        ("compared", ", ".join(certificate["compared"])),
        ("options", options or "none: everything is the default"),
        ("prompts", f"{certificate['prompts']} ({certificate['prompts_from']})"),
        ("machine", f"{cpu['name']}, {cpu['cores']} cores, {machine['system']}"),
        ("features", ", ".join(cpu["features"])),
        ("versions", versions),
        ("program", f"sha256 {certificate['program']}"),
    ]
    return _table(("", ""), rows)


def _what_was_run(certificate: Facts) -> Iterator[str]:
    count, tokens = certificate["prompts"], certificate["tokens"]
    last = certificate["seed"] + count - 1
    yield "## What was run"
    yield ""
    yield (
        f"- With each format and device, each of {count} prompts was decoded plainly twice:"
        f" greedily, and at temperature {certificate['temperature']:g} with a seed of its own"
        f" ({certificate['seed']} to {last}). Every text has {tokens} tokens and runs on past an"
        " end-of-text token."
    )
    yield (
        "- Each prompt was decoded once by each drafter with the rule `coupling` and"
        f" {DRAFT_LENGTH} drafted tokens a round ({TREE_LENGTH} in trees), greedily or sampled in"
        " alternation, and once by `auto` with lengths by measured cost."
    )
    ways = [row["way"] for one in certificate["runtimes"].values() for row in one["texts"]["rows"]]
    overlaps = any(way.startswith(OVERLAPPED) for way in ways)
    once = ", and once overlapped (drafting while the target verifies)" if overlaps else ""
    yield (
        f"- Each prompt was decoded once more with each other lossless rule{once}, by drafters that"
        " take turns. The rule `speculative` promises a seed's distribution and not its text, so"
        f" its texts are greedy.{'' if overlaps else ' None of the drafters can be overlapped.'}"
    )
    yield (
        f"- The sampling options were gone through with {certificate['matrix_prompts']} prompts,"
        f" {certificate['matrix_tokens']} tokens a text, as `python -m benchmarks matrix` does."
    )
    notes = [*certificate["left_out"]]
    for name, found in certificate["runtimes"].items():
        notes += [
            f"{name}: {note}" for part in ("texts", "matrix") for note in found[part]["notes"]
        ]
    yield from (f"- Note: {_plain(note)}" for note in dict.fromkeys(notes))


def _texts(name: str, found: Facts) -> Iterator[str]:
    yield f"## {name}: drafters, rules, schedules"
    yield ""
    rows = _summed(found["rows"], lambda row: str(row["way"]).split(TURN)[0])
    yield from _counted("way", rows)


def _matrix(certificate: Facts) -> Iterator[str]:
    yield "## Sampling options"
    yield ""
    every = [row for one in certificate["runtimes"].values() for row in one["matrix"]["rows"]]
    yield from _counted("case", _summed(every, lambda row: str(row["case"])))


def _controls(certificate: Facts) -> Iterator[str]:
    rows = certificate["distribution"]
    honest = [row for row in rows if row["flagged"] is not row["as_expected"]]
    broken = [row for row in rows if row not in honest]
    yield "## Distribution, and what is broken on purpose"
    yield ""
    yield (
        f"- {len(honest)} ways of decoding an enumerable model, whose {rows[0]['texts']:,} sampled"
        " texts can be held against their exact distribution by chi-squared: the smallest p is"
        f" {min(row['p_value'] for row in honest):.2g} (suspicious below {SUSPICIOUS:g}). This"
        " tests the rules, not this model."
    )
    caught = sum(row["flagged"] for row in broken)
    yield (
        f"- {caught} of {len(broken)} broken or lossy rules were flagged by the same test"
        f" ({', '.join(str(row['setting']) for row in broken)}); the largest p is"
        f" {max(row['p_value'] for row in broken):.2g}."
    )
    for name, found in certificate["runtimes"].items():
        control = found["control"]
        yield (
            f"- {name}: of {control['texts']} texts decoded with {control['control']},"
            f" {control['flagged_texts']} were found to differ by more than a near-tie."
        )


def _differences(certificate: Facts) -> Iterator[str]:
    every = [
        (name, one)
        for name, found in certificate["runtimes"].items()
        for part in ("texts", "matrix")
        for one in found[part]["divergences"]
    ]
    if not every:
        return
    every.sort(key=lambda pair: (pair[1]["near_tie"], -_excess(pair[1])))
    shown = every[:_LISTED]
    yield "## Differences"
    yield ""
    yield f"{len(shown)} of {len(every)}, the furthest first; the JSON file lists all of them."
    yield ""
    rows = [
        (
            f"{name}, {one['way']}, {one['case']}",
            _code(one["prompt"]),
            f"{one['what']} at {one['position']}",
            _gap(one),
            "a near-tie" if one["near_tie"] else "**more**",
        )
        for name, one in shown
    ]
    yield from _table(("where", "prompt", "what", "gap (explained)", ""), rows)


def _excess(one: Facts) -> float:
    """Return a difference's gap relative to its tolerance."""
    gap, explained = one["gap"], one["tolerance"]
    return float(gap / explained) if gap is not None and explained else float("inf")


def _gap(one: Facts) -> str:
    if one["gap"] is None:
        return ""
    return f"{one['gap']:.2g} ({one['tolerance']:.2g})"


def _files(certificate: Facts) -> Iterator[str]:
    yield "## Files"
    yield ""
    yield from _table(("file", "sha256"), [(_code(n), h) for n, h in certificate["files"].items()])
    yield ""
    given = "".join(_flag(name, one) for name, one in certificate["options"].items())
    yield "To repeat it, with the model and the same prompts at hand:"
    yield ""
    yield "```"
    yield (
        f"python -m benchmarks certificate MODEL --count {certificate['prompts']}"
        f" --max-new-tokens {certificate['tokens']} --temperature {certificate['temperature']:g}"
        f" --seed {certificate['seed']}{given}"
    )
    yield "```"


def _flag(name: str, value: object) -> str:
    """Return a load option as the command takes it."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f" --{flag}" if value else f" --no-{flag}"
    return f" --{flag} {shlex.quote(str(value))}"


def _summed(rows: Iterable[Facts], group: Any) -> dict[str, dict[str, int]]:
    """Return the sums of the rows of each group, in the order in which groups come."""
    sums: dict[str, dict[str, int]] = {}
    for row in rows:
        own = sums.setdefault(group(row), dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            own[name] += row[name]
    return sums


def _counted(what: str, groups: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield a table of these sums."""
    heads = (what, "texts", "identical", "near-ties", "differ", "drafted tokens", "accepted")
    rows = []
    for name, one in groups.items():
        drafted = one["drafted_tokens"]
        rate = f"{one['accepted_tokens'] / drafted:.0%}" if drafted else "-"
        rows.append((name, *(f"{one[key]:,}" for key in COUNTS[:-1]), rate))
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield _row(heads)
    yield "|" + "---|" * len(heads)
    yield from (_row(row) for row in rows)


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(_plain(str(cell)) for cell in cells)} |"


def _plain(text: str) -> str:
    """Escape untrusted text so that it stays text within its line and cell."""
    shown = printable(text)
    for character, instead in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|")):
        shown = shown.replace(character, instead)
    return shown


def _code(text: str) -> str:
    """Return an untrusted name as code, shortened."""
    shown = printable(text).replace("`", "'")
    return f"`{shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + '...'}`"
