"""``edgedec bench --html``: a race's records as one page that needs nothing else.

``observed`` adds to the records what the race does not tell (costs of passes, one generation token
by token, what the planner predicted); ``page`` draws a page of the records alone.
"""
