"""Shows plain and speculative decoding of the same prompt, one above the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from edgedec.compare.side_by_side import PairedText
    from edgedec.decoding.emission import Emission

SIDES = ("plain", "speculative")
_DRAFTED = "bold green"
_FRAMES_PER_SECOND = 12
_BAR = 24
_MOST_LINES = 10
# Lines of the screen without text: two headings and blank lines.
_HEADS = 6


class Track:
    """One side: its text so far, and when it began and ended."""

    def __init__(self, total: int) -> None:
        from rich.text import Text

        self.text: Text = Text()
        self._total, self._tokens = total, 0
        self._began = self._last = 0.0

    def add(self, event: Emission, now: float) -> None:
        self._began = self._began or now
        self._tokens, self._last = self._tokens + 1, now
        self.text.append(event.text, _DRAFTED if event.source == "draft" else "")

    def head(self, name: str) -> Text:
        """Return a bar, the tokens so far and tokens per second."""
        from rich.text import Text

        done = round(_BAR * self._tokens / self._total)
        seconds = self._last - self._began
        rate = f"{(self._tokens - 1) / seconds:5.0f} tokens/s" if seconds else ""
        bar = f"{'━' * done}{' ' * (_BAR - done)}"
        return Text.assemble(
            (f"{name:11} ", "bold"), (bar, "green" if name == "speculative" else ""),
            f" {self._tokens:4} of {self._total}{rate}",
        )  # fmt: skip

    def tail(self, console: Console, lines: int) -> Text:
        """Return the last lines of the text, exactly ``lines``, empty ones included."""
        from rich.text import Text

        wrapped = list(self.text.wrap(console, console.width, overflow="fold"))[-lines:]
        return Text("\n").join(wrapped + [Text()] * (lines - len(wrapped)))


class SideBySideView:
    """The view of both sides while they write; leaves the finished text. A context manager."""

    def __init__(self, console: Console, total: int) -> None:
        from rich.live import Live

        self._console = console
        self._tracks = {side: Track(total) for side in SIDES}
        self._lines = max(2, min(_MOST_LINES, (console.height - _HEADS) // 2))
        self._shown = 0.0
        self._live: Live | None = None
        if console.is_terminal:
            # Redrawn between tokens in this thread, since another thread would compete for cores.
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> SideBySideView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *details: object) -> None:
        if self._live is not None:  # also after Ctrl-C, to restore the cursor
            self._live.stop()

    def on_token(self, side: str, event: Emission) -> None:
        """Append a token, and redraw occasionally."""
        now = time.monotonic()
        self._tracks[side].add(event, now)
        if self._live is not None and now - self._shown > 1 / _FRAMES_PER_SECOND:
            self._shown = now
            self._live.update(self._both(), refresh=True)

    def end(self, pair: PairedText) -> None:
        """Leave the finished text on the screen, only once if both sides are equal."""
        for side in SIDES[pair.identical :]:
            if not pair.identical:
                self._console.print(side, style="bold")
            self._console.print(self._tracks[side].text, overflow="fold", highlight=False)
        self._console.print(verdict(pair), highlight=False)

    def _both(self) -> Group:
        from rich.console import Group

        parts = []
        for side in SIDES:
            track = self._tracks[side]
            parts += [track.head(side), track.tail(self._console, self._lines)]
        return Group(*parts)


def verdict(pair: PairedText) -> str:
    """Return both speeds, the acceptance, and whether the texts are equal."""
    other = pair.speculative.metrics
    speeds = [
        f"{side}, {one.metrics.tokens_per_second:.0f} tokens/s"
        + (f", {pair.joules[side]:.3g} J/token" if side in pair.joules else "")
        for side, one in zip(SIDES, (pair.plain, pair.speculative), strict=True)
    ]
    same = "[green]identical tokens[/]" if pair.identical else "[bold red]TOKENS DIFFER[/]"
    return (
        f"{'; '.join(speeds)}: [bold]{pair.speedup:.2f}x[/]; {same}\n"
        f"{other.accepted_tokens} of {other.drafted_tokens} drafted tokens accepted "
        f"({other.acceptance_rate:.0%}); {other.block_efficiency:.2f} tokens per target pass"
    )
