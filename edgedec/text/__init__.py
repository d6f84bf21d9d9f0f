"""Converts text to token ids and back: tokenizers, chat templates, vocabulary maps."""
