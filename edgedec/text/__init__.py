"""Between text and token ids: tokenizers, chat templates, the map between two vocabularies."""
