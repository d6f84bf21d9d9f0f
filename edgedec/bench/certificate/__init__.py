"""``edgedec verify --certificate``: the whole comparison with plain decoding, on one page.

A run consists of parts (``texts``, ``controls``, the matrix, the toy model's distribution), which
are kept as they finish, so that an interrupted run goes on (``parts``). ``verdict`` judges them and
``page`` writes them down.
"""
