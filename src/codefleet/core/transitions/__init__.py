"""How a task changes: a table of events and states (`table.py`), and one pure function an event.

`runs`    what engines and agents do: assign, start, ask, report, verify, end
`people`  what a person does: edit, answer, hold, cancel, retry, accept
`rules`   what follows from other tasks and from landing
`pauses`  stops of new starts (of a Pause, not of a task)

Each takes the task as it is and returns a `Change`: the task as it will be and the facts to commit with it, or raises
`NotAllowed`. None reads a clock or a store.
"""

from codefleet.core.transitions import pauses, people, rules, runs
from codefleet.core.transitions.change import At, Change
from codefleet.core.transitions.table import TABLE, Event

__all__ = ["TABLE", "At", "Change", "Event", "pauses", "people", "rules", "runs"]
