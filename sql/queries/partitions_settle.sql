-- Lets a vacuum of these leaves end and keeps the next one out; nobody who reads or writes rows notices.
LOCK TABLE {leaves} IN SHARE UPDATE EXCLUSIVE MODE
