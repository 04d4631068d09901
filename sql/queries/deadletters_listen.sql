-- Hears of every dead letter at the commit of its archive row; the payload is its id.
LISTEN dead_message
