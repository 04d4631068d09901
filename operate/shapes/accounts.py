"""accounts — the forms of what `pillarbox accounts` prints as JSON"""

from operate.shapes.shape import Shape, meaning


class AccountMailPreview(Shape):
    """The mail for a sample account."""

    subject: str = meaning("The subject.")
    plain: str = meaning("The text part.")
    html: str = meaning("The HTML part.")
    message: str = meaning("The message as it is queued.")


class SecretVerified(Shape):
    """A signed secret that is valid."""

    secret: str = meaning("The secret, in hexadecimal digits.")
    key: str | None = meaning("The key that signed it; null in mailroom's form.")
    expires_at: int | None = meaning("When it expires, in seconds since 1970; null in mailroom's form.")
