-- What the SCRAM keys of the users cost, each number once: an unknown user is shown one of them.
SELECT DISTINCT substring(scram FROM '^SCRAM-SHA-256[$]([0-9]+):')::integer AS iterations
FROM pillarbox.users WHERE scram IS NOT NULL
