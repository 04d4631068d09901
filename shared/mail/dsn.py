"""dsn — the values of NOTIFY, RET and ENVID, by which a submitter asks for notifications

See: RFC 3461 sections 4.1 (NOTIFY), 4.3 (RET) and 4.4 (ENVID).
"""

from __future__ import annotations

from typing import Final

NOTIFY: Final = frozenset({"SUCCESS", "FAILURE", "DELAY"})  # one or more of them, or NEVER alone
RET: Final = frozenset({"FULL", "HDRS"})
ENVID_LIMIT: Final = 100  # characters as written
