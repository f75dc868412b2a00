"""Where runs work; the only rooms that know git."""

from codefleet.workspaces.gitworkspaces import GitWorkspaces

__all__ = ["GitWorkspaces"]
