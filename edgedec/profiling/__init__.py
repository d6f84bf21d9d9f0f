"""Measures a pair on this machine: every place it can run at, and how well its drafts agree."""

from edgedec.profiling.places import Wanted
from edgedec.profiling.prompts import CalibrationPrompt
from edgedec.profiling.run import OnProgress, ProfileOptions, profile, read_cached

__all__ = ["CalibrationPrompt", "OnProgress", "ProfileOptions", "Wanted", "profile", "read_cached"]
