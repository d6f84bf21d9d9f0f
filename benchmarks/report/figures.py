"""Draws a page's plots as SVG, with matplotlib, in the page's own colours.

Plots are drawn in unique colours, which are then replaced by the page's variables, so that one
drawing suits light mode, dark mode and paper. Plots contain no scripts, and text remains text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from edgedec._support import installation
from edgedec.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Facts = Mapping[str, Any]
# The width of a phone in inches (of 72 points), so that text is not scaled there.
_WIDTH = 5.4
_INK, _FAINT, _GROUND = "#010203", "#010204", "#010205"
_SERIES = tuple(f"#0102{number:02x}" for number in range(0x10, 0x18))
_VARIABLES = {
    _INK: "var(--ink)",
    _FAINT: "var(--line)",
    _GROUND: "var(--ground)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES)},
}
_MARKERS = "osD^vPX*"


def check() -> None:
    """Raise RuntimeUnavailable if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RuntimeUnavailable(
            installation.needs("a page of plots", "report", "matplotlib")
        ) from None


def speeds(groups: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Draw each prompt's speed-up, by group and candidate; a bar marks the median."""
    rows = [(group, name, ratios) for group, own in groups.items() for name, ratios in own.items()]
    names = list(dict.fromkeys(name for _, name, _ in rows))
    with _plot(0.9 + 0.27 * (len(rows) + len(groups)), "speed") as (axes, out):
        place, ticks, labels = 0.0, [], []
        for group in groups:
            if len(groups) > 1:
                axes.text(0, place, group, transform=axes.get_yaxis_transform(), **_HEAD)
                place += 1
            for name, ratios in groups[group].items():
                colour = _SERIES[names.index(name) % len(_SERIES)]
                axes.plot(ratios, [place] * len(ratios), "o", color=colour, **_DOT)
                axes.plot([median(ratios)] * 2, [place - 0.36, place + 0.36], color=colour, lw=3)
                ticks.append(place)
                labels.append(name)
                place += 1
            place += 0.5
        axes.axvline(1, color=_INK, lw=1, ls=":")
        axes.set_yticks(ticks, labels)
        axes.set_ylim(place - 0.4, -0.7)
        axes.set_xlim(left=min(0.5, *(min(ratios) * 0.9 for *_, ratios in rows)))
        axes.set_xlabel("times as fast as plain decoding (1 = as fast)")
        axes.grid(axis="x", color=_FAINT, lw=0.6)
    return out[0]


def accepted(survival: Mapping[str, Sequence[float]]) -> str:
    """Draw the share of rounds in which at least n drafted tokens were accepted, from n = 1."""
    from matplotlib.ticker import MaxNLocator

    with _plot(3.1, "accepted") as (axes, out):
        # A candidate has the same colour in all plots, even if some have no line for it.
        for number, (name, shares) in enumerate(survival.items()):
            if shares:
                _line(axes, number, range(1, len(shares) + 1), shares, name)
        axes.set_ylim(0, 1)
        axes.set_xlim(left=0.7)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.set_xlabel("n drafted tokens accepted in a round")
        axes.set_ylabel("rounds with at least n")
        _legend(axes)
    return out[0]


def costs(curves: Sequence[Facts], marks: Sequence[tuple[str, float, str]]) -> str:
    """Draw the milliseconds of a pass by its rows, in each format.

    Args:
        curves: records of the kind ``curve``.
        marks: points to mark on a curve: format, rows and label.

    """
    with _plot(3.1, "costs") as (axes, out):
        for number, curve in enumerate(curves):
            milliseconds = [1000 * seconds for seconds in curve["seconds"]]
            _line(axes, number, curve["widths"], milliseconds, curve["format"])
            for format, rows, label in marks:
                if format == curve["format"]:
                    at = float(np.interp(rows, curve["widths"], milliseconds))
                    _mark(axes, number, rows, at, label)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.set_xlabel("rows of a pass (tokens that are checked at once)")
        axes.set_ylabel("milliseconds")
        _legend(axes)
    return out[0]


def predicted(
    texts: Mapping[str, Sequence[tuple[float, float]]], plans: Sequence[tuple[str, float, float]]
) -> str:
    """Draw predicted against measured speed-ups.

    Args:
        texts: by candidate, each text's own estimate and the measured value.
        plans: by candidate, the planner's prediction and the measured value.

    """
    with _plot(4.2, "predicted") as (axes, out):
        every = [value for pairs in texts.values() for pair in pairs for value in pair]
        every += [value for _, *pair in plans for value in pair]
        ends = 0.92 * min(every), 1.05 * max(every)
        axes.plot(ends, ends, color=_INK, lw=1, ls=":")
        for number, (name, pairs) in enumerate(texts.items()):
            if pairs:
                xs, ys = zip(*pairs, strict=True)
                colour = _SERIES[number % len(_SERIES)]
                axes.plot(xs, ys, "o", color=colour, label=name, **_DOT)
        for name, by_plan, measured in plans:
            number = list(texts).index(name)
            colour = _SERIES[number % len(_SERIES)]
            axes.plot([by_plan], [measured], "D", color=colour, ms=9, mec=_INK, mew=1.2,
                      label=f"{name}, by the planner")  # fmt: skip
        axes.set_xlim(*ends)
        axes.set_ylim(*ends)
        axes.set_aspect("equal")
        axes.set_xlabel("predicted speed-up")
        axes.set_ylabel("measured speed-up")
        axes.grid(color=_FAINT, lw=0.6)
        _legend(axes)
    return out[0]


def progress(sides: Mapping[str, Facts]) -> str:
    """Draw the tokens of one text over time, decoded plainly and speculatively."""
    with _plot(3.1, "progress") as (axes, out):
        for number, (name, side) in enumerate(sides.items()):
            rounds, tokens = side["rounds"], 0
            xs, ys = [0.0], [0]
            for one in rounds:
                tokens += one["emitted"]
                xs.append(one["seconds"])
                ys.append(tokens)
            axes.step(xs, ys, where="post", color=_SERIES[number], lw=1.8, label=name)
        _over_time(axes, "tokens")
    return out[0]


def memory(sides: Mapping[str, Facts]) -> str:
    """Draw the memory of the process over the same text."""
    with _plot(2.4, "memory") as (axes, out):
        for number, (name, side) in enumerate(sides.items()):
            xs = [one["seconds"] for one in side["rounds"]]
            ys = [one["memory_bytes"] / 1e6 for one in side["rounds"]]
            axes.step(xs, ys, where="post", color=_SERIES[number], lw=1.8, label=name)
        _over_time(axes, "megabytes of the process")
    return out[0]


_HEAD: dict[str, Any] = {"fontweight": "bold", "va": "center", "ha": "left", "color": _INK}
_DOT: dict[str, Any] = {"ms": 5, "alpha": 0.6, "mew": 0}


def _over_time(axes: Axes, what: str) -> None:
    """Label a plot over the seconds of a text."""
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel(what)
    axes.grid(color=_FAINT, lw=0.6)
    _legend(axes)


def _line(axes: Axes, number: int, xs: Sequence[Any], ys: Sequence[float], name: str) -> None:
    marker, colour = _MARKERS[number % len(_MARKERS)], _SERIES[number % len(_SERIES)]
    axes.plot(xs, ys, f"-{marker}", color=colour, lw=1.8, ms=4.5, label=name)
    axes.grid(color=_FAINT, lw=0.6)


def _mark(axes: Axes, number: int, x: float, y: float, label: str) -> None:
    colour = _SERIES[number % len(_SERIES)]
    axes.plot([x], [y], "o", ms=13, mfc="none", mec=colour, mew=2)
    axes.annotate(label, (x, y), (11, -13), textcoords="offset points", color=_INK)


def _legend(axes: Axes) -> None:
    """Put the legend above the plot, where it covers nothing."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.01), ncols=3, borderaxespad=0, frameon=False,
        handlelength=1.4, columnspacing=1.2,
    )  # fmt: skip


@contextmanager
def _plot(height: float, name: str) -> Iterator[tuple[Axes, list[str]]]:
    """Yield axes to draw on, and a list that holds the SVG afterwards."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {  # the names of settings are types of their own in some versions
        "svg.fonttype": "none", "svg.hashsalt": name, "text.parse_math": False, "font.size": 10,
        "text.color": _INK, "axes.edgecolor": _INK, "axes.labelcolor": _INK, "axes.linewidth": 0.8,
        "xtick.color": _INK, "ytick.color": _INK, "axes.spines.top": False,
        "axes.spines.right": False, "legend.labelcolor": _INK, "axes.unicode_minus": False,
    }  # fmt: skip
    with rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        out: list[str] = []
        yield figure.add_subplot(), out
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
        out.append(_inline(file.getvalue(), name))


def _inline(svg: str, name: str) -> str:
    """Return an SVG for a page with others, in the page's font and colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r"(font: [^;\"]*?[\d.]+px)[^;\"]*", r"\1 system-ui, sans-serif", svg)
    return re.sub(r"#0102[0-9a-f]{2}", lambda found: _VARIABLES.get(found[0], found[0]), svg)
