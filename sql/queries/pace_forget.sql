-- Forgets suspends, shares and limits that no longer matter; how many limits.
SELECT pillarbox.pace_forget()
