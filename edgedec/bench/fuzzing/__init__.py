"""Damaged inputs for every reader of what comes from elsewhere, by the hundred thousand."""
