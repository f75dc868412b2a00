"""For whoever keeps children: the contract as a suite (`contract`), children to try (`children`), and what breaks
those who keep them (`faults`)."""
