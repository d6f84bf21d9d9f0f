"""``edgedec demo``: plain and speculative decoding side by side."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _model, _options

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

    from edgedec.bench.showcase import Duel, Showcase
    from edgedec.decoding.engine import Emission
    from edgedec.decoding.metrics import Metrics
    from edgedec.pipeline import GenerateOptions

DRAFTED = "bold green"
FRAMES_PER_SECOND = 12


@click.command()
@_model.model
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How many function heads.",
)
@click.option(
    "-n",
    "--max-new-tokens",
    type=click.IntRange(min=2),
    default=120,
    show_default=True,
    metavar="N",
    help="Tokens to write after each.",
)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Which function heads, and of all random choices.",
)
@_options.options(_options.OPEN)
@_options.as_json
def command(
    bundle: str,
    count: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Decode side by side, plainly and speculatively.

    Functions are continued that the models never saw. Green tokens came from the draft and were
    accepted by the target. The text is the same on both sides.

    \b
    edgedec demo
    edgedec demo --count 5 --temperature 0.8 --seed 3
    edgedec demo large.gguf --draft small.gguf
    """  # fmt: skip
    from edgedec.bench.showcase import Showcase
    from edgedec.bench.workloads import heldout_prompts
    from edgedec.cli import _output
    from edgedec.decoding.sampling import SamplingParams
    from edgedec.pipeline import GenerateOptions

    prompts = [(prompt.name, prompt.text) for prompt in heldout_prompts(count, seed=seed)]
    sampling = SamplingParams(temperature=temperature, seed=seed)
    options = GenerateOptions(max_new_tokens=max_new_tokens, sampling=sampling)
    with Showcase(bundle, _options.open_options(chosen)) as showcase:
        showcase.warm_up(prompts[0][1])
        if as_json:
            duels = [showcase.duel(*prompt, options, lambda *token: None) for prompt in prompts]
            _output.print_json([_facts(duel) for duel in duels])
        else:
            duels = _perform(showcase, prompts, options)
    if not all(duel.identical for duel in duels):
        raise click.exceptions.Exit(1)


def _facts(duel: Duel) -> dict[str, Any]:
    from edgedec import batch

    return {
        "name": duel.name,
        "identical": duel.identical,
        "speedup": duel.speedup,
        "plain": batch.record(duel.plain),
        "speculative": batch.record(duel.speculative),
        "sources": [event.source for event in duel.speculative.events],
    }


def _perform(
    showcase: Showcase, prompts: list[tuple[str, str]], options: GenerateOptions
) -> list[Duel]:
    from rich.console import Console

    console = Console()
    console.print(
        "Each function is continued twice. [bold green]Green[/] tokens were proposed by the "
        "draft and accepted by the target."
    )
    duels = []
    for name, prompt in prompts:
        console.rule(f"[bold]{name}[/]")
        console.print(prompt.rstrip("\n"), style="dim", markup=False, highlight=False)
        with _Stage(console) as stage:
            duels.append(showcase.duel(name, prompt, options, stage.on_token))
        stage.end(duels[-1])
    console.print(_totals(duels))
    return duels


class _Stage:
    """Two columns that fill while the tokens come."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.text import Text

        self._console = console
        self._texts = {"plain": Text(), "speculative": Text()}
        self._shown = 0.0
        self._live: Live | None = None
        if console.is_terminal:
            # Drawn between tokens, by this thread: a thread of its own would compete.
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> _Stage:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *details: object) -> None:
        if self._live is not None:  # also after Ctrl-C: it gives the cursor back
            self._live.stop()

    def on_token(self, side: str, event: Emission) -> None:
        """Append a token, and redraw now and then."""
        self._texts[side].append(event.text, DRAFTED if event.source == "draft" else "")
        now = time.monotonic()
        if self._live is not None and now - self._shown > 1 / FRAMES_PER_SECOND:
            self._shown = now
            self._live.update(self._columns("plain", "speculative"), refresh=True)

    def end(self, duel: Duel) -> None:
        """Leave the finished columns on the screen."""
        rates = [m.metrics.tokens_per_second for m in (duel.plain, duel.speculative)]
        heads = [f"plain, {rates[0]:.0f} tokens/s", f"speculative, {rates[1]:.0f} tokens/s"]
        self._console.print(self._columns(*heads))
        self._console.print(_verdict(duel), highlight=False)

    def _columns(self, *heads: str) -> RenderableType:
        from rich import box
        from rich.table import Table

        table = Table(*heads, box=box.SIMPLE, expand=True, show_edge=False)
        for column in table.columns:
            column.ratio = 1
            column.overflow = "fold"
        table.add_row(self._texts["plain"], self._texts["speculative"])
        return table


def _verdict(duel: Duel) -> str:
    metrics = duel.speculative.metrics
    same = "[green]identical tokens[/]" if duel.identical else "[bold red]TOKENS DIFFER[/]"
    return (
        f"{same}; {metrics.accepted_tokens} of {metrics.drafted_tokens} drafted tokens accepted "
        f"({metrics.acceptance_rate:.0%}); {metrics.block_efficiency:.2f} tokens a target pass; "
        f"{duel.speedup:.2f}x"
    )


def _totals(duels: list[Duel]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    # On a narrow terminal the names fold and the figures stay whole.
    table.add_column("function", overflow="fold")
    for head in (
        "tokens",
        "plain",
        "speculative",
        "speed-up",
        "accepted",
        "tokens\na pass",
        "same",
    ):
        table.add_column(head, justify="right", no_wrap=True)
    for duel in duels:
        table.add_row(duel.name.replace(":", ": "), *_row([duel]))
    if len(duels) > 1:
        table.add_section()
        table.add_row("all", *_row(duels))
    return table


def _row(duels: list[Duel]) -> list[str]:
    """The figures of some duels together."""
    plain, other = ([getattr(d, side).metrics for d in duels] for side in ("plain", "speculative"))
    rates = [_rate(plain), _rate(other)]
    drafted, passes = (sum(m.drafted_tokens for m in other), sum(m.target_passes for m in other))
    return [
        str(sum(m.emitted for m in other)),
        f"{rates[0]:.0f}/s",
        f"{rates[1]:.0f}/s",
        f"{rates[1] / rates[0]:.2f}x" if rates[0] else "",
        f"{sum(m.accepted_tokens for m in other) / drafted:.0%}" if drafted else "",
        f"{sum(m.emitted for m in other) / passes:.2f}",
        "yes" if all(duel.identical for duel in duels) else "NO",
    ]


def _rate(metrics: list[Metrics]) -> float:
    """Tokens a second after the first rounds."""
    seconds = sum(m.decode_s for m in metrics)
    return sum(m.emitted - m.first_round for m in metrics) / seconds if seconds else 0.0
