"""Kills what keeps a fleet alive, at random instants and at every store call, and looks for what was lost.

`world`   a real repository and home, and a backlog for scripted agents
`actor`   what those agents run: it forks, writes, and keeps a ledger of what really happened
`parties` who can be killed, and where they are at this instant
`life`    one backlog worked off while parties die
`truth`   ledger, processes, git and store against each other
"""
