"""The `xling` command: arguments to calls.

Only `eval.mldoc` reads arguments of its own, and `devices` and `files.cache` the environment.
"""
