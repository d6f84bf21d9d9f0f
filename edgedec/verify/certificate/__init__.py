"""``edgedec verify --certificate``: a full comparison with plain decoding, on one page.

A run consists of parts (``texts``, ``controls``, the matrix, the toy model's distribution), which
are stored as they finish, so that an interrupted run resumes (``parts``). ``verdict`` judges them
and ``page`` formats them.
"""
