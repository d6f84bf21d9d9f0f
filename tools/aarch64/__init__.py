"""Runs edgedec on an emulated ARM processor: `make aarch64-quick`."""
