"""Experiments, one file each; installed as `xling_jax.configs`."""
