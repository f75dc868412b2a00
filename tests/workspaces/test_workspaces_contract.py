"""Git worktrees keep the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from codefleet.ports import Workspaces
from codefleet.testing.workspaces import WorkspacesContract
from codefleet.workspaces import GitWorkspaces


class TestGitWorkspaces(WorkspacesContract):
    @pytest.fixture
    def workspaces(self, tmp_path: Path) -> Workspaces:
        return GitWorkspaces(tmp_path / "quarantine")
