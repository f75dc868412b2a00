"""Where the fleet's state lives: `memory.MemoryStore` and `sqlite.SqliteStore`."""
