"""flow — measures mail from acceptance to delivery, compared with Postfix."""
