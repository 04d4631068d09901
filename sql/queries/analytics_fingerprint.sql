-- Sums up one day of history, so that a copy of it can be compared: rows, ids, instants, sizes and octets of text.
SELECT count(*) AS rows, coalesce(sum(id), 0) AS ids,
       coalesce(sum(round(date_part('epoch', {instant} - {since}::timestamptz) * 1000000)::bigint), 0) AS instants,
       coalesce(sum(size::bigint), 0) AS sizes, coalesce(sum({octets}), 0) AS octets
  FROM {table} WHERE {instant} >= {since} AND {instant} < {until}
