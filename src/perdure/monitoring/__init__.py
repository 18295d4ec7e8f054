"""Monitoring: what a program and its workers tell of themselves, as metrics, health and traces."""
