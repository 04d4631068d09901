"""counting — counts rows of an Arrow table by several columns

Owns: one number for each combination of values of any types, and sums over rows with the same number.
Guarantees: exact; every row is in one group, NULL is a value of its own; groups are in the order of their first rows.
    The same function adds up counts of parts.
See: docs/explanation/analytics.md, "Report".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

#: How a group's values are aggregated: "sum", "min", "max", "last"; "count" needs no values.
type How = str

_MOST: Final = 1 << 62  # limit of a combination's number
_GROUP: Final = "group"
_ROW: Final = "row"


def counted(keys: Mapping[str, pa.Array], values: Mapping[str, tuple[Any, How]], rows: str | None = None) -> pa.Table:
    """One row for each combination of the keys, with aggregated values; `rows` names the column of the row count."""
    length = len(next(iter(keys.values())))
    columns = {_GROUP: pa.array(_numbered(list(keys.values()), length)), _ROW: pa.array(np.arange(length))}
    asked: list[tuple[Any, ...]] = [(_ROW, "min")]
    for name, (array, how) in values.items():
        columns[name] = whole(array)
        asked.append((name, how, pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)))
    if rows is not None:
        asked.append((_ROW, "count"))
    # One thread: Spark runs several callers at a time.
    found = pa.table(columns).group_by(_GROUP, use_threads=False).aggregate(asked)
    first = whole(found[f"{_ROW}_min"])
    made = {name: decoded(whole(array).take(first)) for name, array in keys.items()}
    made |= {name: found[f"{name}_{how}"] for name, (_, how) in values.items()}
    if rows is not None:
        made[rows] = found[f"{_ROW}_count"]
    return pa.table(made)


def stacked(parts: Sequence[pa.Table], keys: Sequence[str], values: Mapping[str, How]) -> pa.Table:
    """The parts concatenated; their columns may be in any order."""
    return pa.concat_tables([part.select([*keys, *values]) for part in parts])


def together(parts: Sequence[pa.Table], keys: Sequence[str], values: Mapping[str, How]) -> pa.Table:
    """The sums of the parts' counts."""
    table = stacked(parts, keys, values)
    return counted({name: table[name] for name in keys}, {name: (table[name], how) for name, how in values.items()})


def mapped(column: Any, function: Callable[[Any], Any], kind: pa.DataType | None = None) -> pa.DictionaryArray:
    """The column with the function applied, called once for each distinct value; NULL stays."""
    encoded = _encoded(column)
    texts = pa.array([function(value) for value in encoded.dictionary.to_pylist()], kind or encoded.dictionary.type)
    return pa.DictionaryArray.from_arrays(encoded.indices, texts)


def filled(column: Any, value: str) -> pa.DictionaryArray:
    """The text column with `value` in place of NULL."""
    encoded = _encoded(column)
    texts = pa.concat_arrays([encoded.dictionary, pa.array([value], encoded.dictionary.type)])
    missing = pa.scalar(len(encoded.dictionary), encoded.indices.type)
    return pa.DictionaryArray.from_arrays(pc.fill_null(encoded.indices, missing), texts)


def equals(column: Any, value: object) -> NDArray[Any]:
    """True for each row with this value."""
    encoded = _encoded(column)
    place = pc.index(encoded.dictionary, value).as_py()
    return np.asarray(_indices(encoded) == place if place >= 0 else np.zeros(len(encoded), bool))


def whole(column: Any) -> pa.Array:
    """The column as one array."""
    if isinstance(column, np.ndarray):
        return pa.array(column)
    if not isinstance(column, pa.ChunkedArray):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def decoded(array: pa.Array) -> pa.Array:
    """The array without dictionary encoding."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numbered(keys: Sequence[Any], length: int) -> NDArray[Any]:
    """A number for each row, equal only for rows with the same keys."""
    number, spread = np.zeros(length, np.int64), 1
    for key in keys:
        encoded = _encoded(key)
        size = len(encoded.dictionary) + 1
        if spread * size >= _MOST:
            _, number = np.unique(number, return_inverse=True)
            spread = length
        number = number * size + (_indices(encoded) + 1)
        spread *= size
    return number


def _encoded(column: Any) -> pa.DictionaryArray:
    array = whole(column)
    if not pa.types.is_dictionary(array.type):
        return array.dictionary_encode()
    # The same value twice in a dictionary would be two groups.
    if pc.count_distinct(array.dictionary, mode="all").as_py() == len(array.dictionary):
        return array
    once = array.dictionary.dictionary_encode()
    return pa.DictionaryArray.from_arrays(once.indices.take(array.indices), once.dictionary)


def _indices(encoded: pa.DictionaryArray) -> NDArray[Any]:
    """The index of each row's value in the dictionary; -1 for NULL."""
    return np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), np.int64)
