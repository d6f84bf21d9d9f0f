"""``python -m benchmarks.report``: a comparison's records as one self-contained page.

``observed`` adds records that ``edgedec bench`` does not make (pass times, one generation token by
token, the planner's predictions); ``page`` makes the page from the records alone.
"""
