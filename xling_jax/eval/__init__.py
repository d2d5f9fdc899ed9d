"""Measuring encoders: one file a task (see `tasks`), with the data it reads. Trains no encoder."""
