"""test_sasl_status — what a host says of a refused login is cut with a mark, so that half a secret in it is masked"""

from __future__ import annotations

import json

from queued.smtp.own_secrets import OwnSecrets
from queued.smtp.sasl import _status

TOKEN = "ya29." + "t0ken" * 20


def test_the_part_of_a_token_before_the_cut_is_masked() -> None:
    said = _status(json.dumps({"status": "x" * 150 + TOKEN}).encode())
    assert said.endswith("…")
    assert TOKEN[:20] in said
    assert TOKEN[:20] not in OwnSecrets(TOKEN).clean(said)
