"""The contract of `ports.Workspaces` as behaviour: subclass `WorkspacesContract` and give it a fixture `workspaces`.

Repositories are real; what an adapter did is judged by what git itself says afterwards.
"""

from codefleet.testing.workspaces.ending import EndingContract
from codefleet.testing.workspaces.ground import Ground, a_repository, an_empty_repository, isolate_git, settled, write
from codefleet.testing.workspaces.preparing import PrepareContract, ProbeContract
from codefleet.testing.workspaces.settling import SalvageContract, SettleContract
from codefleet.testing.workspaces.surroundings import SurroundingsContract


class WorkspacesContract(
    ProbeContract, PrepareContract, SurroundingsContract, SettleContract, SalvageContract, EndingContract
):
    """All that the port promises."""


__all__ = ["Ground", "WorkspacesContract", "a_repository", "an_empty_repository", "isolate_git", "settled", "write"]
