"""Other runtimes, and edgedec itself, on the same weights and prompts; one file each.

``edgedec.bench.race`` compares them; ``edgedec.bench.race.protocol`` says what a file has.
"""
