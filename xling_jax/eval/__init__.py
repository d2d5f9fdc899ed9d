"""Measuring encoders: retrieval, zero-shot classification, their tables and pictures."""
