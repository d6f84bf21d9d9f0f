"""``edgedec demo``: plain and speculative decoding side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _help, _library, _model, _options, _output, _progress

if TYPE_CHECKING:
    from rich.table import Table

    from edgedec.compare.side_by_side import OnToken, PairedText, SideBySide
    from edgedec.decoding.metrics import Metrics
    from edgedec.pipeline import GenerateOptions

    Decode = Callable[[str, str, GenerateOptions, OnToken], PairedText]

# Pace of the shipped pair's target, whose own half a millisecond is too fast to watch.
_PACE_MS = 50.0
# Held-out functions considered for each one shown.
_LOOKED_AT = 8


@click.command(cls=_help.GroupedCommand)
@_model.model
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Number of function heads.",
)
@click.option(
    "-n",
    "--max-new-tokens",
    type=click.IntRange(min=2),
    default=120,
    show_default=True,
    metavar="N",
    help="Tokens to generate after each.",
)
@click.option(
    "--pace",
    type=click.FloatRange(0),
    metavar="MS",
    help="Slow the target down to this many milliseconds for a pass over one token; 0 is its own "
    "speed. Default: 50 for the pair that ships, else 0.",
)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option(
    "-s",
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Random seed, also for the choice of function heads.",
)
@_options.options(_options.OPEN)
@_options.as_json
def command(
    bundle: str,
    count: int,
    max_new_tokens: int,
    pace: float | None,
    temperature: float,
    seed: int,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Decode the same text plainly and with a draft, side by side.

    Continues functions that the models were not trained on. Green tokens were drafted and accepted.
    Both sides generate the same text: passes are padded as with --batch-invariant, if the runtime
    can. The pair that ships is too fast to watch: its target is slowed down to the pace of a larger
    one, and both sides run at once; any other pair runs at its own speed, one side after the other.
    MODEL is what `edgedec run` takes.

    \b
    edgedec demo
    edgedec demo --count 5 --temperature 0.8 --seed 3
    edgedec demo --pace 0
    edgedec demo large.gguf --draft small.gguf
    """  # fmt: skip
    from edgedec.compare.side_by_side import SideBySide
    from edgedec.decoding.sampling import SamplingParams
    from edgedec.pipeline import GenerateOptions

    pace_ms = pace if pace is not None else _PACE_MS if bundle == "demo" else 0.0
    sampling = SamplingParams(temperature=temperature, seed=seed)
    options = GenerateOptions(max_new_tokens=max_new_tokens, sampling=sampling)
    target = _library.path(bundle)
    with SideBySide(target, _options.open_options(chosen, target)) as sides:
        prompts = _prompts(sides, count, seed, options, look=bundle == "demo")
        if pace_ms:
            sides.hold(pace_ms / 1000)
        else:
            sides.warm_up(prompts[0][1])
        decode = sides.at_once if pace_ms else sides.in_turn
        if as_json:
            pairs = [decode(*prompt, options, lambda *token: None) for prompt in prompts]
            _output.print_json([_facts(pair) for pair in pairs])
        else:
            pairs = _perform(decode, prompts, options, _caption(pace_ms, bundle == "demo"))
            _library.suggest(bundle, target)
    if not all(pair.identical for pair in pairs):
        raise click.exceptions.Exit(1)


def _facts(pair: PairedText) -> dict[str, Any]:
    from edgedec.batch import run

    return {
        "name": pair.name,
        "identical": pair.identical,
        "speedup": pair.speedup,
        **({"joules_per_token": pair.joules} if pair.joules else {}),
        "plain": run.record(pair.plain),
        "speculative": run.record(pair.speculative),
        "sources": [event.source for event in pair.speculative.events],
    }


def _prompts(
    sides: SideBySide, count: int, seed: int, options: GenerateOptions, *, look: bool
) -> list[tuple[str, str]]:
    """Return held-out function heads; with ``look``, those whose continuations repeat least."""
    from edgedec.compare.side_by_side import least_repetitive
    from edgedec.models.demo.heldout import heldout_prompts

    found = heldout_prompts(count * (_LOOKED_AT if look else 1), seed=seed)
    if look:
        with _progress.progress("choosing functions") as listen:
            found = least_repetitive(
                found, lambda text: sides.write(text, options), count, options.max_new_tokens,
                listen,
            )  # fmt: skip
    return [(prompt.name, prompt.text) for prompt in found]


def _caption(pace_ms: float, chosen: bool) -> str:
    """Return the caption, which begins with why the target is slowed down."""
    lines = []
    if pace_ms:
        why = "is so small that nobody could watch it" if chosen else "is to be watched"
        lines.append(
            f"The target {why}, so it is slowed down to {pace_ms:g} ms for one token and more for"
            " several, in the proportions measured on a decoder of half a billion parameters; the"
            " draft runs at its own speed."
        )
    at_once = ", both at once" if pace_ms else ""
    lines.append(f"Each function is continued twice{at_once}: plainly, and with a draft.")
    lines.append("[bold green]Green[/] tokens were proposed by the draft and accepted.")
    if chosen:
        lines.append(
            "The functions are those that repeat themselves least, out of"
            f" {_LOOKED_AT} times as many."
        )
    return " ".join(lines)


def _perform(
    decode: Decode, prompts: list[tuple[str, str]], options: GenerateOptions, caption: str
) -> list[PairedText]:
    from rich.console import Console

    from edgedec.cli._side_by_side import SideBySideView

    console = Console()
    console.print(caption, highlight=False)
    pairs = []
    for name, prompt in prompts:
        console.rule(f"[bold]{name}[/]")
        console.print(prompt.rstrip("\n"), style="dim", markup=False, highlight=False)
        with SideBySideView(console, options.max_new_tokens) as stage:
            pairs.append(decode(name, prompt, options, stage.on_token))
        stage.end(pairs[-1])
    console.print(_totals(pairs))
    console.print(_closing(pairs), highlight=False)
    return pairs


def _closing(pairs: list[PairedText]) -> str:
    """Return what was seen, in one sentence."""
    if not all(pair.identical for pair in pairs):
        return "The two texts differ, which `edgedec verify` looks into."
    tokens = sum(pair.speculative.metrics.emitted for pair in pairs)
    plain, other = (
        _rate([getattr(pair, side).metrics for pair in pairs]) for side in ("plain", "speculative")
    )
    how = f"{other / plain:.1f} times as fast" if plain else "too short to be timed"
    return f"Both ways gave the same {tokens} tokens; with the draft it was {how}."


def _totals(pairs: list[PairedText]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    # On a narrow terminal the names are wrapped and the figures are not.
    table.add_column("function", overflow="fold")
    for head in (
        "tokens",
        "plain",
        "speculative",
        "speed-up",
        "accepted",
        "tokens\nper pass",
        "same",
    ):
        table.add_column(head, justify="right", no_wrap=True)
    for pair in pairs:
        table.add_row(pair.name.replace(":", ": "), *_row([pair]))
    if len(pairs) > 1:
        table.add_section()
        table.add_row("all", *_row(pairs))
    return table


def _row(pairs: list[PairedText]) -> list[str]:
    """Return the combined figures of some pairs."""
    plain, other = ([getattr(d, side).metrics for d in pairs] for side in ("plain", "speculative"))
    rates = [_rate(plain), _rate(other)]
    drafted, passes = (sum(m.drafted_tokens for m in other), sum(m.target_passes for m in other))
    return [
        str(sum(m.emitted for m in other)),
        f"{rates[0]:.0f}/s",
        f"{rates[1]:.0f}/s",
        f"{rates[1] / rates[0]:.2f}x" if rates[0] else "",
        f"{sum(m.accepted_tokens for m in other) / drafted:.0%}" if drafted else "",
        f"{sum(m.emitted for m in other) / passes:.2f}",
        "yes" if all(pair.identical for pair in pairs) else "NO",
    ]


def _rate(metrics: list[Metrics]) -> float:
    """Return tokens per second after the first rounds."""
    seconds = sum(m.decode_s for m in metrics)
    return sum(m.emitted - m.first_round for m in metrics) / seconds if seconds else 0.0
