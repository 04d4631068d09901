"""pillarbox_client — what an application needs to send mail through Pillarbox

A `Message` is sent by SQL in a transaction (`pillarbox_client.sql`, `pillarbox_client.django`), or by HTTP
(`pillarbox_client.http`, `pillarbox_client.django_http`); what became of it arrives as webhooks, which
`pillarbox_client.webhook` verifies. It needs pydantic and nothing of the server.
"""

from pillarbox_client.message import Attachment, Message, Tag, Unsubscribe

__all__ = ["Attachment", "Message", "Tag", "Unsubscribe"]
