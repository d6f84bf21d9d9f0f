# SPDX-License-Identifier: Apache-2.0
"""Questions of many kinds, made of text that is at hand: documentation, metadata, licences.

Their seeds are docstrings and functions of the standard library, paragraphs of the README files and
licences of installed packages, and a list of everyday topics. What benchmarks ask is left out.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path

TOPICS = """photosynthesis; volcanoes; the water cycle; gravity; black holes; the French Revolution;
the Roman Empire; vaccines; the immune system; inflation; supply and demand; compound interest;
electric cars; batteries; solar panels; wind turbines; bees; coral reefs; whales; migrating birds;
the moon landing; the printing press; encryption; neural networks; databases; version control;
operating systems; compilers; recursion; sorting; binary search; hash tables; linked lists; bread;
coffee; tea; chess; football; marathons; yoga; sleep; stress; time management; public speaking;
job interviews; a CV; learning a language; pianos; guitars; jazz; impressionism; Shakespeare;
poetry; short stories; mystery novels; travel to Japan; Italian food; vegetarian food; gardening;
tomatoes; houseplants; dogs; cats; goldfish; camping; hiking; bicycles; trains; bridges;
skyscrapers; earthquakes; hurricanes; climate change; recycling; plastic; rivers; deserts;
rainforests; the Arctic; penguins; dinosaurs; fossils; DNA; atoms; chemical reactions; magnets;
light; sound; lenses; telescopes; probability; statistics; prime numbers; fractions; triangles;
calculus; democracy; elections; human rights; contracts; insurance; mortgages; budgets; taxes;
small businesses; marketing; customer service; remote work; meetings; email; friendship;
birthdays; weddings; moving house"""

GENERAL = (
    "What is important to know about {}?",
    "Explain {} to a child.",
    "Write a short paragraph about {}.",
    "Give me five facts about {}.",
    "List three advantages and three disadvantages of {}.",
    "Write a poem about {}.",
    "Why do people care about {}?",
    "How would you teach {} in one lesson?",
    "Write a short story that involves {}.",
    "What are common mistakes with {}?",
    "Write an email to a friend about {}.",
    "What should I ask an expert on {}?",
    "Write a dialogue between two people about {}.",
    "Translate the words for {} into French, German and Spanish.",
)
PASSAGE = (
    ("summary", "Summarize the following text in two sentences:\n\n{}"),
    ("rewrite", "Rewrite this text in simpler words:\n\n{}"),
    ("questions", "Read the text and say what it is mainly about.\n\nText: {}"),
    ("list", "List the main points of this text:\n\n{}"),
    (
        "json",
        'Give a title and three keywords of this text as JSON, {{"title", "keywords"}}:\n\n{}',
    ),
    ("edit", "Correct the grammar of this text and return only the text:\n\n{}"),
)
DOCUMENTED = (
    ("code", "Write a Python function called `{}` that does the following:\n\n{}"),
    ("explain", "Explain in plain words what `{}` does. Its documentation says:\n\n{}"),
)
SOURCE = (
    ("code", "Explain what this Python function does:\n\n```python\n{}\n```"),
    ("code", "Add a docstring to this Python function:\n\n```python\n{}\n```"),
    ("code", "Write a unit test for this function:\n\n```python\n{}\n```"),
)
MATHS = (
    "What is {a} times {c}?",
    "A shop sells {a} apples a day for {c} days. How many apples is that?",
    "Tom has {a} marbles and gets {b} more. How many has he? Explain step by step.",
    "Solve for x: {c}x + {b} = {d}.",
)

Question = tuple[str, str]  # its kind and its text


def questions(count: int, held_out: str = "", seed: int = 7) -> list[Question]:
    """Return about ``count`` questions in a random order; equal arguments return equal ones.

    Args:
        count: of the questions; fewer where there is too little text at hand.
        held_out: the prompts of benchmarks, joined; a question that begins as a part of it is
            left out.
        seed: of the choice.

    """
    rng = random.Random(seed)
    documented, functions = library()
    passages = sorted(set(paragraphs(package_texts())))
    for texts in (documented, functions, passages):
        rng.shuffle(texts)
    share = count // 5
    topics = [topic.strip() for topic in TOPICS.replace("\n", " ").split(";")]
    made = [("general", form.format(topic)) for topic in topics for form in GENERAL]
    rng.shuffle(made)
    made = made[:share]
    for passage in passages[: 2 * share]:
        kind, form = rng.choice(PASSAGE)
        made.append((kind, form.format(passage)))
    for name, text in documented[:share]:
        kind, form = rng.choice(DOCUMENTED)
        made.append((kind, form.format(name, text)))
    for text in functions[: share // 2]:
        kind, form = rng.choice(SOURCE)
        made.append((kind, form.format(text)))
    made += [("maths", _sum(rng)) for _ in range(share // 2)]
    rng.shuffle(made)
    return [(kind, text) for kind, text in made if text[:80] not in held_out]


def texts(count: int, seed: int = 8) -> list[str]:
    """Return ``count`` texts as they are, a third each documentation, source and prose.

    They cost a pass of the target each and no decoding.
    """
    rng = random.Random(seed)
    documented, functions = library()
    kinds = [[text for _, text in documented], functions, sorted(set(paragraphs(package_texts())))]
    for kind in kinds:
        rng.shuffle(kind)
    chosen = [text for kind in kinds for text in kind[: count // 3]]
    rng.shuffle(chosen)
    return chosen


def _sum(rng: random.Random) -> str:
    a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 20)
    return rng.choice(MATHS).format(a=a, b=b, c=c, d=c * a + b)


def library() -> tuple[list[tuple[str, str]], list[str]]:
    """Return the standard library's (name, docstring) pairs, and its short functions."""
    root = Path(sysconfig.get_path("stdlib"))
    documented, functions = [], []
    for file in sorted(root.rglob("*.py")):
        if {"site-packages", "test", "tests", "idlelib", "lib2to3"} & set(file.parts):
            continue
        try:
            source = file.read_text("utf-8")
            tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):  # some are broken on purpose
            continue
        lines = source.splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            text = ast.get_docstring(node) or ""
            if 40 < len(text) < 900:
                documented.append((node.name, text))
            body = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            if isinstance(node, ast.FunctionDef) and 80 < len(body) < 700:
                functions.append(body)
    return documented, functions


def package_texts() -> Iterator[str]:
    """Yield the descriptions and the licences of the installed packages."""
    for package in sorted(distributions(), key=lambda one: one.name or ""):
        yield package.read_text("METADATA") or ""
        for file in package.files or ():
            if file.name.upper().startswith(("LICENSE", "NOTICE", "README")):
                path = Path(str(package.locate_file(file)))
                if path.is_file():
                    yield path.read_text("utf-8", errors="replace")


def paragraphs(texts: Iterable[str]) -> Iterator[str]:
    """Yield the paragraphs that are prose, each on one line."""
    for text in texts:
        for part in re.split(r"\n\s*\n", text):
            line = " ".join(part.split())
            letters = sum(letter.isalpha() or letter == " " for letter in line)
            if 160 < len(line) < 900 and "http" not in line and letters > 0.85 * len(line):
                yield line
