"""schedule_mail — the message of a schedule, from the operator's file and options

Owns: reading the file, or standard input.
Raises: PillarboxError, one line that names the option, the value and the allowed values.
See: operate/settings/schedule_mail.py, which checks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.settings.schedule_mail import check_addresses, checked
from scripts import input_file
from shared.errors import PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operate.settings.schedule_mail import Mail


def read_mail(sender: str, recipients: Sequence[str], file: str) -> Mail:
    """The message in `file`, or on standard input when that is `-`."""
    check_addresses(sender, recipients)  # before the message is typed
    try:
        content = input_file.read(file, "the message, its header first")
    except OSError as error:
        raise PillarboxError(f"--file: {show(file)}: {error.strerror}") from None
    return checked(sender, recipients, content, file)
