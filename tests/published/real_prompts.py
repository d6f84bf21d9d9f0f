"""Eight prompts of eight kinds, and a long one, written for these tests."""

PROMPTS = {
    "question": "Why is the sky dark at night although there are so many stars? Explain briefly.",
    "edit": """\
Correct the spelling and give the text back: Our shop opend in 1998 and sels bicicles, tools and
spare parts. We repare every bicicle within too days.""",
    "code": '''\
def moving_average(values: list[float], width: int) -> list[float]:
    """Return the mean of every run of ``width`` neighbouring values."""
''',
    "table": """\
Write these lines as a JSON list of objects with the keys name, age and town.
name,age,town
Mina,31,Oslo
Paul,45,Lyon
Ida,28,Graz
""",
    "summary": """\
Summarise in two sentences. The lighthouse on the northern cape was built in 1871, after two ships
had run aground in one winter. Its lamp burned oil until 1924, when a cable was laid from the
village. The last keeper left in 1982; since then a timer turns the light on, and a volunteer climbs
the stairs once a month to clean the lens.""",
    "story": "Tell a short story about a baker who finds a letter in a sack of flour.",
    "sums": "A train leaves at 9:40 and arrives at 13:05. How long does it travel? Show the steps.",
    "translation": "Translate into French: The museum is closed on Mondays, the garden is open.",
}
_SOWN = (
    ("carrots", "Monday and Thursday", "dry"),
    ("beetroot", "Tuesday", "heavy after rain"),
    ("spinach", "Monday, Wednesday and Friday", "loose"),
    ("peas", "every second day", "cold in the morning"),
    ("leeks", "Sunday", "full of stones"),
    ("beans", "Tuesday and Saturday", "warm"),
    ("onions", "Wednesday", "dry"),
)
_WEEKS = [
    f"Week {week}: sowed {plant} in bed {week % 5 + 1}, watered on {days}, and counted"
    f" {7 * week % 23 + 2} new shoots; the soil was {soil}."
    for week, (plant, days, soil) in enumerate(_SOWN * 3, 1)
]
# Longer than the window of 512 tokens in which most layers of Gemma 3 look back.
LONG = "\n".join(["Below are a gardener's notes, a line for each week.", *_WEEKS, "Week 22: sowed"])
