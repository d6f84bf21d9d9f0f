"""Where a model runs: facts about this machine."""
