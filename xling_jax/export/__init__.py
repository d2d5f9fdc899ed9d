"""Our encoders in the formats of other libraries; `convert` is the way in."""
