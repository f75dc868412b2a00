"""The contract of `ports.Store` as behaviour: subclass `StoreContract` and give it a `store_factory`.

`store_factory()` gives another handle to the one store of a test: what another process would open. A store in memory
gives the same object again. `CoreContract` is the part that carries all else: aggregates, facts and readiness.
Where a list may lag (`StoreInfo.lag`), the contract waits for it under a deadline; where it may not, it does not.
"""

from codefleet.testing.stores.contract import StoreContract
from codefleet.testing.stores.core import CoreContract
from codefleet.testing.stores.making import Factory, embedded, engine, fact, opened, run, settle, task, the

__all__ = [
    "CoreContract",
    "Factory",
    "StoreContract",
    "embedded",
    "engine",
    "fact",
    "opened",
    "run",
    "settle",
    "task",
    "the",
]
