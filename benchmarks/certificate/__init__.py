"""``python -m benchmarks certificate``: a full comparison with plain decoding, on one page.

A run consists of parts (``texts``, ``controls``, the matrix, the enumerable model's distribution),
which ``run`` stores as they finish, so that an interrupted run resumes. ``verdict`` judges them and
``page`` formats them.
"""
