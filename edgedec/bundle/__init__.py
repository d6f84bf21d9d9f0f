"""Bundles: folders that an export writes and every runtime reads."""

from edgedec.bundle.folder import Bundle, Role

__all__ = ["Bundle", "Role"]
