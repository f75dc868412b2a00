"""A scripted model behind the vendors' APIs, for real coding agents in tests: no key, no internet, the same every time."""

from codefleet.testing.model_server.conversation import Request
from codefleet.testing.model_server.script import (
    Fault,
    Op,
    Script,
    Tokens,
    Turn,
    ask,
    call,
    edit,
    load,
    read,
    say,
    shell,
    turn,
    write,
)
from codefleet.testing.model_server.server import ModelServer

__all__ = [
    "Fault",
    "ModelServer",
    "Op",
    "Request",
    "Script",
    "Tokens",
    "Turn",
    "ask",
    "call",
    "edit",
    "load",
    "read",
    "say",
    "shell",
    "turn",
    "write",
]
