"""Children on spools: they outlive us and are adopted."""
