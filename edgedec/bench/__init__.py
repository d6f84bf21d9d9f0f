"""Measuring: workloads, raw records, reports."""
