"""One file per experiment; installed as `xling_jax.configs`."""
