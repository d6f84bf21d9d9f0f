"""Other runtimes, and edgedec itself, on the same weights and prompts; one file each.

``benchmarks.race`` compares them; ``benchmarks.race.protocol`` says what a file has.
"""
