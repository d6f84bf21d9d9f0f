"""Progress on stderr: bars in a terminal, elsewhere a plain line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import click

from edgedec._support.fields import printable
from edgedec.cli._terminal import note

# Takes a stage's name, work done, and its total, which may be unknown.
Listen = Callable[[str, int, int | None], None]
_EVERY_S = 5.0
# An opening that takes longer is explained.
_USUAL_S = 1.5


class Lines:
    """Prints a line such as ``target: 40%``, at most one every few seconds.

    Each line says more than the one before: stages that go on at the same time are one line, of the
    one that began last, and a share that does not grow is not printed again.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._last = self._clock()
        self._stage, self._left = "", set[str]()
        self._printed = -1

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Print a line if the last one is long ago and this one says more."""
        if stage in self._left:
            if done or stage == self._stage:
                return
            self._left.discard(stage)  # it begins again
        if stage != self._stage:
            self._left.add(self._stage)
            self._stage, self._printed = stage, -1
        percent = round(100 * done / total) if total else None
        now = self._clock()
        if now - self._last < _EVERY_S or (percent is not None and percent <= self._printed):
            return
        self._last, self._printed = now, -1 if percent is None else percent
        share = "" if percent is None else f": {percent}%"
        click.echo(f"{printable(stage)}{share}", err=True)


def announced(what: str, listen: Listen) -> Listen:
    """Return a listener that prints a sentence once a part of the work is done."""
    said = False

    def announce(stage: str, done: int, total: int | None) -> None:
        nonlocal said
        if not said and not done:
            return  # what listens would draw before the sentence
        if not said:
            said = True
            note(what)
        listen(stage, done, total)

    return announce


@contextmanager
def opening(name: str) -> Iterator[None]:
    """Say in a terminal that a model is being opened, if that takes longer than usual."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    said = f"opening {printable(name)}: the first time on a machine, its kernels are tried as well"
    status = Console(stderr=True).status(said)
    timer = threading.Timer(_USUAL_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Return a listener ``(done, total)`` that draws a bar on stderr; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with stages(transient=True) as listen:
        listen(what, 0, None)
        yield partial(listen, what)


@contextmanager
def stages(*, transient: bool = False) -> Iterator[Listen]:
    """Return a listener with a bar on stderr for each stage; it prints ``Lines`` elsewhere.

    Transient bars are removed at the end.
    """
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import Progress

    tasks = {}
    with Progress(console=Console(stderr=True), transient=transient) as bar:

        def listen(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield listen


@contextmanager
def steps() -> Iterator[Listen]:
    """Return a listener that draws a bar on stderr; it prints ``Lines`` elsewhere.

    All steps share one bar, which names the current step and ends at 100%.
    """
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    what = TextColumn(
        "{task.description}",
        markup=False,
        table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
    )
    columns = (what, BarColumn(bar_width=16), TaskProgressColumn())
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task("planning", total=None)
        # Removed at the end if no step was reported, since an empty bar would remain.
        bar.live.transient = True

        def listen(step: str, done: int, total: int | None) -> None:
            bar.live.transient = False
            bar.update(task, description=step, completed=done, total=total)

        yield listen
