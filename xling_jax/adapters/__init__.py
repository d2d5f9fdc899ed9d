"""Encoders as the classes that other frameworks expect; each module imports its framework.

Vectors have length 1. Queries and documents get the model's prompts for them if it has some.
"""
