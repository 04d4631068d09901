"""flow — the whole way of mail, beside Postfix."""
