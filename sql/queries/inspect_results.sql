-- How many recipients finished with each result.
SELECT result, count(*) AS recipients FROM pillarbox.archive GROUP BY result
