"""The real loop in virtual time: what a plan would give, here or on a device that is not here."""
