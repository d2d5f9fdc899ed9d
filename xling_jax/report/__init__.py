"""Runs and results as pictures, tables and one HTML page."""
