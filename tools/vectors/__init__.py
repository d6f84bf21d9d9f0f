"""Conformance vectors: what edgedec computes, for those who port it to another language.

``python -m tools.vectors`` writes them into ``android_demo/vectors``; Kotlin's tests and Python's
own read the same files. Every number in them is what edgedec computes, and a case whose result
hangs on the last bit of a logarithm or of a sum is left out, so that a correct port gets them all.
"""
