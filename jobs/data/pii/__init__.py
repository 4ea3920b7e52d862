"""Personal data and secrets: find, mask, say what was not looked for."""
