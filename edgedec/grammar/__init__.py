"""Constrained text: JSON, a JSON schema, a regular expression or a grammar, through llguidance.

``Grammar`` describes the allowed texts. ``Grammars`` turns it into the ``Constraint`` that decoding
follows; only ``Grammars`` needs llguidance (extra ``grammar``).
"""
