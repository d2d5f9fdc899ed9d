"""The tables of the papers: published cells, and the runs whose cells stand beside them.

`xling reproduce` trains and measures the runs; nothing here does.
"""
