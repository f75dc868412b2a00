"""The pure domain: what a fleet is and how it decides. Standard library only, no input or output, time is an argument."""
