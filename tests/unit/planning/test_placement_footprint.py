"""Bytes of a plan: by hand, and against what a process really takes."""

import subprocess
import sys
from dataclasses import fields, replace

import pytest
from simulated import OTHER, PLACE, measured

from edgedec.decoding import drafting
from edgedec.decoding.drafting._earlier import EARLIER_BYTES
from edgedec.memory.account import AUTO_LENGTH, Account
from edgedec.planning.memory_fit import footprint
from edgedec.records.place import REMOTE, Place
from edgedec.records.plan import Plan
from edgedec.records.profile import SCHEMA, Measured, PassTimes, Profile

MB = 1_000_000


def model(role: str, rss_bytes: int, kv: int, **changes: object) -> Measured:
    return measured(
        role,
        rss_bytes=rss_bytes,
        weight_bytes=rss_bytes // 2,
        process_bytes=30 * MB,
        kv_bytes_per_token=kv,
        vocab_size=1000,
        times=(PassTimes(0, (1,), (1e-3,), (0.0,)),),
        **changes,
    )


def profile(*models: Measured) -> Profile:
    return Profile(SCHEMA, {}, "", {}, models, (), (), 0.0)


NOISE = 32 * 4 * 1000 + 8 * 1000
PAIR = profile(model("target", 50 * MB, 8000), model("draft", 10 * MB, 2000, place=OTHER))


def test_plain_decoding_by_hand():
    found = footprint(PAIR, Plan(PLACE), 1000)
    assert found == Account(
        target=50 * MB,
        draft=0,
        sessions=0,
        target_kv=1001 * 8000,
        draft_kv=0,
        rows=0,
        bias=4 * 1001,
        workspace=0,
        drafter=0,
        sampler=NOISE + 4 * 1000,
        text=160 * 1000,
        tokenizer=440 * 1000,
        process=54 * MB,
    )
    assert found.total == 104 * MB + 8_008_000 + 4004 + NOISE + 4000 + 160_000 + 440_000


def test_a_drafted_chain_by_hand():
    plain = footprint(PAIR, Plan(PLACE), 1000)
    assert footprint(PAIR, Plan(PLACE, OTHER, "model", 3), 1000) == replace(
        plain,
        draft=10 * MB,
        target_kv=1004 * 8000,
        draft_kv=256 * 2000,  # what a draft model holds of a longer text
        rows=3 * 4 * 1000,
        bias=4 * 4 * 1004,
        sampler=NOISE + 4 * 4 * 1000,
        process=84 * MB,
    )


def test_two_runtimes_are_two_processes_worth():
    other = replace(PAIR.measured[1], place=Place("gguf"), process_bytes=20 * MB)
    both = profile(PAIR.measured[0], other)
    assert footprint(both, Plan(PLACE, Place("gguf"), "model", 3), 1000).process == 74 * MB


def test_drafters_remember():
    lookup = footprint(PAIR, Plan(PLACE, None, "lookup", 3), 1000)
    recycle = footprint(PAIR, Plan(PLACE, None, "recycle", 3), 1000)
    assert lookup.drafter == 320 * 1000
    assert recycle.drafter == 32 * 1000
    # What is made of several keeps what they keep.
    for draft, drafter, own in (
        (OTHER, "hybrid", 320),
        (OTHER, "adaptive", 352),
        (None, "text", 352),
    ):
        found = footprint(PAIR, Plan(PLACE, draft, drafter, 3), 1000)
        assert found.drafter == own * 1000 + EARLIER_BYTES


def test_what_is_decided_each_round_counts_at_its_longest():
    auto = footprint(PAIR, Plan(PLACE, OTHER, "model", None), 1000)
    assert auto == footprint(PAIR, Plan(PLACE, OTHER, "model", AUTO_LENGTH), 1000)


def test_a_draft_with_a_shorter_context_keeps_no_more():
    short = profile(PAIR.measured[0], replace(PAIR.measured[1], max_context=200))
    assert footprint(short, Plan(PLACE, OTHER, "model", 3), 1000).draft_kv == 200 * 2000


def test_one_model_in_both_roles_is_loaded_once():
    same = profile(
        model("target", 50 * MB, 8000, name="one"), model("draft", 50 * MB, 8000, name="one")
    )
    found = footprint(same, Plan(PLACE, PLACE, "model", 3), 1000)
    assert found.draft == 0
    assert found.draft_kv == 256 * 8000
    other = profile(same.measured[0], replace(same.measured[1], name="two"))
    assert footprint(other, Plan(PLACE, PLACE, "model", 3), 1000).draft == 50 * MB


def test_the_cache_that_was_filled_while_measuring_is_not_counted_twice():
    times = (PassTimes(32, (1,), (1e-3,), (0.0,)), PassTimes(2048, (1,), (1e-3,), (0.0,)))
    seen = profile(replace(PAIR.measured[0], times=times))
    assert footprint(seen, Plan(PLACE), 1000).target == 50 * MB - 2048 * 8000
    mapped = profile(replace(PAIR.measured[0], rss_bytes=0))
    assert footprint(mapped, Plan(PLACE), 1000).target == 25 * MB


def test_every_part_counts():
    models = [replace(one, scratch_bytes_per_token=600) for one in PAIR.measured]
    found = footprint(profile(*models), Plan(PLACE, OTHER, "hybrid", 3), 1000)
    # All but the sessions of further texts, which a plan is not made for.
    parts = [getattr(found, field.name) for field in fields(Account) if field.name != "sessions"]
    assert min(parts) > 0
    assert found.sessions == 0
    assert found.total == sum(parts)


# The process's growth with one model and a short context, and with a pair and a full one.
SCRIPT = """
import sys
from pathlib import Path
from edgedec.bundle import Bundle
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.records.load import LoadOptions
from edgedec.hardware.resident import resident_bytes
from edgedec.runtimes import registry

adapter, bundle = registry.adapter("onnx"), Bundle.open("demo")
import onnxruntime
role, context = sys.argv[1], int(sys.argv[2])
prompt = [(17 * i) % 4000 + 8 for i in range(context - 120)]
before = resident_bytes()
if role == "pair":
    options = OpenOptions(drafter="hybrid", draft_length=8, max_context=context)
    with Pipeline.open("demo", options) as pipeline:
        list(pipeline.stream(prompt, GenerateOptions(max_new_tokens=100, ignore_eos=True)))
        print(resident_bytes() - before)
else:
    chosen = bundle.target if role == "target" else bundle.draft
    model = adapter.load(chosen.variant("onnx").path, LoadOptions(threads=1))
    session = model.open(context)
    session.prefill(prompt)
    info = model.info
    print(resident_bytes() - before, info.weight_bytes, info.kv_bytes_per_token)
"""


def grown(role: str, context: int) -> list[int]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, role, str(context)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in ran.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize("context", [1024, 6144])
def test_the_demo_pair_takes_about_what_the_formula_says(context):
    found = []
    for role, place in (("target", PLACE), ("draft", OTHER)):
        rss, weights, kv = grown(role, 512)
        found.append(
            measured(
                role,
                place=place,
                rss_bytes=rss,
                weight_bytes=weights,
                kv_bytes_per_token=kv,
                vocab_size=4096,
                max_context=8192,
                times=(PassTimes(512 - 120, (1,), (1e-3,), (0.0,)),),
            )
        )
    whole = footprint(profile(*found), Plan(PLACE, OTHER, "hybrid", 8), context)
    # Earlier texts may fill their share; there are none in this process.
    expected = whole.total - whole.process - drafting.info("suffix").shared_bytes
    (took,) = grown("pair", context)
    # The formula is above what is taken: by 16% here, and by a few more where pages are scarce.
    assert took == pytest.approx(expected, rel=0.25)
    without_cache = replace(found[0], kv_bytes_per_token=0)
    broken = footprint(profile(without_cache, found[1]), Plan(PLACE, OTHER, "hybrid", 8), context)
    if context > 2048:
        assert took != pytest.approx(broken.total - broken.process, rel=0.2), (
            "the twin must be caught"
        )
    print(f"{context} tokens: {took / MB:.1f} MB, by the formula {expected / MB:.1f}")


def test_weights_on_other_machines_are_not_ours():
    """Only what the process grew by counts; the control is the same model on a card of its own."""
    away = Place("gguf", f"{REMOTE}10.0.0.2:50052")
    big = {"weight_bytes": 900 * MB}
    there = profile(replace(model("target", 20 * MB, 8000, place=away), **big))
    found = footprint(there, Plan(away), 1000)
    assert (found.target, found.target_kv) == (20 * MB, 0)
    card = Place("gguf", "Vulkan0")
    here = profile(replace(model("target", 20 * MB, 8000, place=card), **big))
    found = footprint(here, Plan(card), 1000)
    assert (found.target, found.target_kv) == (900 * MB, 1001 * 8000)
