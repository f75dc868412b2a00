"""Where runs work; the only rooms that know git."""
