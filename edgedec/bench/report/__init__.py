"""``edgedec bench --html``: a race's records as one self-contained page.

``observed`` adds records that the race does not make (pass times, one generation token by token,
the planner's predictions); ``page`` makes the page from the records alone.
"""
