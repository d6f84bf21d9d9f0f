"""Targets larger than memory: weights are streamed, block by block (LLMCad, 2309.04255).

A graph is split into blocks of about half a layer (``cutting``), whose packed weights are written
once for this machine (``prepared``). Each block is a session of its own over those files, and the
hidden state is passed on (``chain``). The weights are in anonymous memory (``pages``): a part of
every block stays resident, the rest is read in the order of the layers ahead of the pass by one
thread and released after use (``pager``), with direct reads, which bypass the page cache.
"""
