"""Targets larger than memory: weights pass through it, block by block (LLMCad, 2309.04255).

A graph is cut into blocks of about half a layer (``cutting``), whose packed weights are written
once for this machine (``prepared``). Each block is a session of its own over those files, and the
hidden state is handed on (``chain``). The weights' pages are memory of our own (``pages``): a part
of every block stays (``residency``), the rest is read in the order of the layers ahead of the pass
by one thread and given back behind it (``pager``), by direct reads, which leave nothing in the page
cache.
"""
