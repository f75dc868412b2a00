"""The contract suites are read with explained assertions, like tests."""

import pytest

pytest.register_assert_rewrite("codefleet.testing.workspaces")
