"""``python -m benchmarks simulate``: plans for another machine, described by its device card."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from benchmarks.program import Program
from benchmarks.simulation import cards
from benchmarks.simulation.what_if import ASSUMED, Elsewhere, WhatIf, between, elsewhere
from edgedec._support.amounts import speed
from edgedec._support.fields import to_json
from edgedec.cli import _decision, _options, _output, _progress, _terminal, _values
from edgedec.records.workload import Workload


@click.command(cls=Program)
@click.argument("bundle", metavar="[MODEL]", default="demo")
@click.option(
    "--card",
    metavar="NAME|FILE.toml",
    help="The machine: a card that comes with the clone (see --cards), or a file.",
)
@click.option("--cards", "list_cards", is_flag=True, help="List the available cards.")
@click.option(
    "--target", metavar="SIZE", help="Target size to plan for instead of MODEL's, as '7B int4'."
)
@click.option("--draft", metavar="SIZE", help="Draft size to plan for, as '0.5B int4'.")
@click.option(
    "--target-device",
    "target_devices",
    metavar="NAME",
    multiple=True,
    help="Only use this device of the card for the target; repeatable.",
)
@click.option(
    "--draft-device",
    "draft_devices",
    metavar="NAME",
    multiple=True,
    help="Only use this device of the card for the draft; repeatable.",
)
@click.option(
    "--acceptance",
    type=click.FloatRange(0, 1),
    metavar="CHANCE",
    help="Probability that a drafted token is accepted; default: as measured with MODEL; for "
    "models of other sizes, a range from 0.5 to 0.8.",
)
@click.option(
    "--memory",
    type=_values.size,
    metavar="SIZE",
    help="Limit on weights, caches and buffers together; default: the card's memory.",
)
@_options.options(_options.WORKLOAD)
@_options.as_json
def command(
    bundle: str,
    card: str | None,
    list_cards: bool,
    show_all: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Predict the best plan, and its speed, on another machine.

    A formula predicts the speed: the time of a pass follows from the card's bandwidth and peak
    rate, and the tokens of a round from MODEL's acceptance, measured on this machine; for models of
    other sizes give it with --acceptance, or a range is assumed.

    \b
    python -m benchmarks simulate --cards
    python -m benchmarks simulate demo --card raspberry-pi-5
    python -m benchmarks simulate --card jetson-orin-nx --target "7B int4" --draft "0.5B int4"
    """  # fmt: skip
    if list_cards:
        _options.alone(
            "--cards",
            {"list_cards", "as_json"},
            "it lists all of them: give it alone, or with --json",
        )
        _cards(as_json)
        return
    if card is None:
        raise _no_machine()

    changes = WhatIf(**{each.name: chosen[each.name] for each in fields(WhatIf)})
    workload = Workload(chosen["prompt_tokens"], chosen["new_tokens"], chosen["temperature"])
    if changes.unknown:
        _span(between(bundle, card, changes, workload), as_json=as_json)
        return
    with _progress.steps() as on_progress:
        found = elsewhere(bundle, card, changes, workload, on_progress=on_progress)
    _show(found, as_json=as_json, show_all=show_all)


def _no_machine() -> click.UsageError:
    known = ", ".join(cards.names())
    return click.UsageError(
        f"no machine to simulate: give --card a .toml file or one of {known}; --cards describes"
        " them"
    )


def _show(found: Elsewhere, *, as_json: bool, show_all: bool) -> None:

    if as_json:
        _output.print_json(to_json(found))
        return
    _decision.show(found.decision, show_all=show_all)
    click.echo()
    ends = (found.slow, found.fast, found.plain_slow, found.plain_fast)
    slow, fast, plain_slow, plain_fast = (one.tokens_per_second for one in ends)
    _terminal.print_text(
        f"Over the card's ranges the choice gives {speed(slow)} to {speed(fast)} tokens/s, plain"
        f" decoding {speed(plain_slow)} to {speed(plain_fast)}: {slow / plain_slow:.2f} and"
        f" {fast / plain_fast:.2f} times as much at the two ends."
    )
    for sentence in found.assumed:
        _terminal.print_text(sentence)


def _span(ends: tuple[Elsewhere, Elsewhere], *, as_json: bool) -> None:
    """Show the speeds at both ends of the acceptance range."""
    if as_json:
        _output.print_json({"acceptance": ASSUMED, "span": [to_json(one) for one in ends]})
        return
    rows, gains = [], []
    for chance, one in zip(ASSUMED, ends, strict=True):
        slow, fast, plain_slow, plain_fast = (
            end.tokens_per_second for end in (one.slow, one.fast, one.plain_slow, one.plain_fast)
        )
        gains += [slow / plain_slow, fast / plain_fast]
        rows.append((
            one.decision.chosen.plan.label, f"{chance:g}", f"{speed(slow)} to {speed(fast)}",
            f"{speed(plain_slow)} to {speed(plain_fast)}",
        ))  # fmt: skip
    _terminal.columns([("plan", "acceptance", "tokens/s", "plain"), *rows])
    click.echo()
    _terminal.print_text(
        f"Between {min(gains):.2f} and {max(gains):.2f} times plain decoding, over the card's"
        f" ranges and where {ASSUMED[0]:.0%} to {ASSUMED[1]:.0%} of drafted tokens are accepted."
        " That was not measured for these models: give --acceptance once it is (`edgedec profile`)."
    )
    for sentence in ends[0].assumed:
        if "probability" not in sentence:
            _terminal.print_text(sentence)


def _cards(as_json: bool) -> None:
    found = [cards.load(name) for name in cards.names()]
    if as_json:
        _output.print_json(
            [
                {"name": one.name, "description": one.description, "devices": list(one.devices)}
                for one in found
            ]
        )
        return
    _output.table((one.name, f"{one.description} ({', '.join(one.devices)})") for one in found)
