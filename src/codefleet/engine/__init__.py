"""The rules, slots and runs of the fleet, over ports."""
