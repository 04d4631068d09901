-- Ends the suppression of an address or a domain; a row says that there was one.
DELETE FROM pillarbox.suppressions WHERE target = %(target)s RETURNING target
