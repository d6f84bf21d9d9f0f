"""Device cards and what-if: what a plan would give on a machine that is not here."""
