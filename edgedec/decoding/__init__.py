"""The decoding core: trees, sampling, acceptance, drafting, policy, the loop. Needs numpy only."""
