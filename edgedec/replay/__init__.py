"""The real loop in virtual time, on texts that were recorded."""
