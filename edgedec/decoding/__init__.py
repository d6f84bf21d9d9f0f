"""The core that decides: trees, sampling, acceptance, drafting, policy, the loop. numpy only."""
