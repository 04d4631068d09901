"""store — stores a report in PostgreSQL, where the console reads it

Owns: writing the tables `reports` and `report_alarms`.
Guarantees: one transaction writes all sections of a period and its alarms, or nothing; a report of the same period
    replaces the old one. An alarm that another report had is not added again, so webhooks get it once.
Raises: DatabaseUnavailable; PillarboxError when the role may not write, or the table does not exist.
See: sql/schema/20_report.sql.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scripts.analytics.report.text import as_document
from scripts.analytics.source import copying
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from scripts.analytics.report.sections import Report


def store(report: Report, conninfo: str) -> int:
    """Write the report; the number of its sections."""
    document = as_document(report)
    sections = [
        {"section": each["key"], "more": each["more"], "columns": each["columns"], "rows": each["rows"]}
        for each in document["sections"]
    ]
    # JSON allows U+0000, jsonb does not.
    text = json.dumps(sections).replace("\\u0000", "\\ufffd")
    values = {"since": report.since, "until": report.until, "made": report.made, "origin": report.origin}
    try:
        with copying.session(conninfo, read_only=False) as session, session.transaction():
            alarms = next(each["rows"] for each in sections if each["section"] == "alarms")
            copying.rows(session, "report_alarms_add", alarms=json.dumps(alarms))
            return len(copying.rows(session, "report_store", **values, sections=text))
    except database.REFUSAL as error:
        raise PillarboxError(f"the report cannot be stored: {database.reason(error)}") from None
