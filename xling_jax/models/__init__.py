"""Encoders and decoders as Linen modules; plain constructor arguments, no config objects."""
