"""Options of a generation, the stream of its events, and its result."""

# Most tokens of a text by default, the same through every door; and of an answer to messages, which
# its own end limits, or that of the context.
TEXT_TOKENS, ANSWER_TOKENS = 128, 1 << 24
