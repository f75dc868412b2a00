"""What runs in a guard process and in the nursery that forks it: the standard library alone, nothing of ours.

records   the files of a spool          kernel   what the kernel says of processes, through `linux` or `portable`
trees     whose end a guard watches     life     one child from start to sweep
nursery   forks guards on request

Plain and light on purpose: a guard stays in memory as long as its child lives.
"""
