"""Models as GGUF files for llama.cpp: written by the package ``gguf``, quantised by llama.cpp."""
