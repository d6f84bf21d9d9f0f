"""Says in words how a text was decoded, and how to go on where it was cut; docs/figures.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgedec._support.amounts import size
from edgedec.cli._terminal import wrapped
from edgedec.decoding.drafting import PLAIN
from edgedec.generation.figures import ENOUGH, gained, is_busy, speedup, took

if TYPE_CHECKING:
    from edgedec.decoding.metrics import Metrics
    from edgedec.generation.options import GenerateOptions
    from edgedec.generation.result import Generation

# Passes slower by more than this factor than at opening are reported.
_SLOWER = 1.5
# A long-lived process has some pages in swap that it never needs.
_SWAPPED = 16 * 1024 * 1024


def short(
    result: Generation, *, sampled: bool, joules: float | None = None, said_busy: bool = False
) -> list[str]:
    """Return the clauses that everybody sees; the seed if it had an effect.

    ``joules`` are those of a token, None if the machine does not tell. With ``said_busy`` an
    earlier line has mentioned that the machine is busy, and this one does not.
    """
    metrics = result.metrics
    parts = gained(metrics, result.plan) + _energy(joules)
    parts += ["stopped"] if result.finish_reason == "cancelled" else []
    if is_busy(metrics) and not said_busy:
        # Threads that wait for each other wait for the slowest, which has to share its core.
        more = result.plan.get("threads") != 1
        parts.append("busy machine" + (": fewer threads (-t 1) may be faster" if more else ""))
    parts += _strain(metrics)
    parts += _memory(metrics)
    parts += [f"seed {result.seed}"] if sampled else []
    parts[-1] += " (details: -v)"
    return parts


def details(result: Generation, *, sampled: bool, joules: float | None = None) -> list[str]:
    """Return all clauses; the arguments are those of ``short``."""
    metrics, plan = result.metrics, result.plan
    plain = plan.get("drafter") == PLAIN
    parts = [f"{took(metrics)} ({result.finish_reason})"]
    if result.thinking:
        parts.append(f"{result.thinking_tokens} of them thinking")
    if metrics.tokens_per_second:
        parts.append(f"{metrics.tokens_per_second:.0f} tokens/s")
    if not plain and metrics.drafted_tokens:
        parts.append(_compared(result))
    if metrics.emitted:
        known = metrics.reused_tokens
        kept = f" ({known} prompt tokens kept from before)" if known else ""
        parts.append(f"first token {metrics.ttft_s * 1000:.0f} ms{kept}")
        parts.append(f"{metrics.block_efficiency:.2f} tokens per target pass")
    parts += [] if plain else _accepted(metrics)
    parts += _energy(joules)
    parts += _busy(metrics)
    parts += _strain(metrics)
    parts += _memory(metrics)
    if "shared_of_sample" in plan:
        parts.append(f"vocabularies: {plan['vocabulary']}")
    if metrics.emitted and "drafter" in plan:
        drafted_by = "plain decoding" if plain else f"drafter {plan['drafter']}"
        parts.append(drafted_by + _place(plan))
    parts += _exact(plan)
    if metrics.emitted and plan.get("plan"):
        parts.append(f"plan {plan['plan']}")
    elif metrics.emitted and plan.get("no_plan"):
        parts.append(f"no plan ({plan['no_plan']})")
    if sampled:
        parts.append(f"seed {result.seed}")
    return parts


def cut(
    result: Generation, options: GenerateOptions, trained: int, *, turns: int | None = None
) -> str | None:
    """Return how to go on where a limit cut a text; None if it ended by itself.

    Args:
        trained: the longest context of the model.
        turns: before it in `edgedec chat`; None elsewhere.

    """
    chat = turns is not None
    what, written = "answer" if chat else "text", len(result.events)
    if result.finish_reason == "timeout" and options.timeout_s is not None:
        return f"the {what} was cut after {options.timeout_s:g} s: give it more with --timeout"
    if result.finish_reason != "length":
        return None
    if written >= options.max_new_tokens:
        more = f"/tokens {2 * written} for longer ones" if chat else f"-n {2 * written} for more"
        where = ", while thinking" if result.thinking and not result.text else ""
        return f"the {what} was cut at {written} tokens{where}: {more}"
    context = int(result.plan["max_context"])
    full = f"the {what} was cut where the context of {context} tokens ends"
    if turns:
        return f"{full}: /drop makes room, /reset starts a new conversation"
    if context < trained:
        return f"{full}: give more with --max-context, --memory or --kv-memory"
    return f"{full}, which is the longest of this model"


def packed(parts: Iterable[str], room: int) -> list[str]:
    """Pack clauses into lines of at most ``room`` characters, broken after a comma if possible."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}, {part}" if lines[-1] else part
        # Plus one for the comma after it.
        if len(longer) < room or not lines[-1]:
            lines[-1] = longer
        else:
            lines[-1] += ","
            lines.append(part)
    return [piece for line in lines for piece in wrapped(line, room)]


def _compared(result: Generation) -> str:
    """Return how much faster than plain decoding a text was, or why that cannot be told."""
    metrics = result.metrics
    faster = speedup(metrics, result.plan)
    if faster is not None:
        return f"about {faster:.2f}x plain decoding"
    if metrics.emitted < ENOUGH:
        return "too short to compare with plain decoding"
    return "not comparable with plain decoding"


def _place(plan: Mapping[str, Any]) -> str:
    """Return where the target ran, such as `` on onnx (openvino)``."""
    if "format" not in plan:
        return ""
    named = plan.get("provider") or plan.get("device")
    return f" on {plan['format']} ({named})" if named else f" on {plan['format']}"


def _accepted(metrics: Metrics) -> list[str]:
    """Describe the share of drafted tokens that the target accepted."""
    drafted = metrics.drafted_tokens
    if drafted:
        return [f"{metrics.acceptance_rate:.0%} of {drafted} drafted tokens accepted"]
    return ["nothing drafted"] if metrics.emitted else []


def _energy(joules: float | None) -> list[str]:
    return [] if joules is None else [f"{joules:.3g} J/token"]


def _busy(metrics: Metrics) -> list[str]:
    """Describe the effect of other load on the machine; empty if it is small."""
    if not is_busy(metrics):
        return []
    if metrics.slowdown is not None and metrics.slowdown >= _SLOWER:
        return [f"busy machine: {metrics.slowdown:.1f}x slower passes"]
    return [f"busy machine: {min(metrics.waited_share, 1):.0%} of the time waiting for a core"]


def _strain(metrics: Metrics) -> list[str]:
    """Describe what else slowed the machine: heat, a weak supply, swap."""
    parts = [f"slowed by {metrics.slowed_by}"] if metrics.slowed_by else []
    swapped = metrics.swapped_bytes
    return [*parts, f"{size(swapped)} in swap"] if swapped >= _SWAPPED else parts


def _memory(metrics: Metrics) -> list[str]:
    """Describe the last retreat or return due to the memory limit; empty if there was none."""
    if metrics.memory is None or not metrics.memory.events:
        return []
    last = metrics.memory.events[-1]
    return [f"memory: {last.after} after {last.emitted} tokens, of {size(metrics.memory.granted)}"]


def _exact(plan: Mapping[str, object]) -> list[str]:
    """Return a clause if the text is guaranteed to equal plain decoding's, including near-ties."""
    from edgedec.decoding.acceptance import RULES

    rule = RULES.get(str(plan.get("accept")))
    drafts = plan.get("drafter") != PLAIN
    exact = plan.get("batch_invariant") and rule is not None and rule.seeds_text
    return ["its text exactly that of plain decoding"] if exact and drafts else []
