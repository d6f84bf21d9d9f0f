"""Constrained text: JSON, a JSON schema, a regular expression or a grammar, through llguidance.

``Grammar`` says what a text may be; ``Grammars`` turns it into the ``Constraint`` that decoding
follows; it alone needs llguidance (extra ``grammar``).
"""
