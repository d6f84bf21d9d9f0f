"""Drafts while the target verifies (PEARL, 2408.11850; Mirror-SD, 2510.13161).

With the Gumbel coupling any verified tree gives plain decoding's text, so overlapping only decides
when a draft is available. The loop stays the engine's (``engine``): its drafter returns what a
second thread (``worker``, ``lookahead``) has drafted so far (``lookahead_tree``), and that thread
keeps drafting below the nodes being verified during the target's pass.
``schedule`` puts the parts together.
"""
