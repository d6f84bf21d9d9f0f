"""Compares the speed of drafters with that of plain decoding, interleaved, with raw records."""
