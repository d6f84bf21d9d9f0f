"""Sections of ``make bench``: one file per measured claim, and what they share."""
