"""From a profile to a plan: candidates, estimates, memory, the choice and its reasons."""
