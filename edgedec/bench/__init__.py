"""Benchmarks: workloads, raw records, reports."""
