"""counting — rows of an Arrow table counted by several columns

Owns: one number for each combination of values, whatever the columns' types, and sums over rows of the same number.
Guarantees: exact; every row is in one group, NULL is a value of its own; the order of the groups is that of their first
    rows. What was counted in parts is counted together by the same function.
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

#: How the values of the rows of a group become one: "sum", "min", "max", "last"; "count" needs no values.
type How = str

_MOST: Final = 1 << 62  # a number of a combination stays below
_GROUP: Final = "group"
_ROW: Final = "row"


def counted(keys: Mapping[str, pa.Array], values: Mapping[str, tuple[Any, How]], rows: str | None = None) -> pa.Table:
    """One row for each combination of the keys, with the values of its rows made one; `rows` names their number."""
    length = len(next(iter(keys.values())))
    columns = {_GROUP: pa.array(_numbered(list(keys.values()), length)), _ROW: pa.array(np.arange(length))}
    asked: list[tuple[Any, ...]] = [(_ROW, "min")]
    for name, (array, how) in values.items():
        columns[name] = whole(array)
        asked.append((name, how, pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)))
    if rows is not None:
        asked.append((_ROW, "count"))
    # One thread: the caller is one of several that Spark runs at a time.
    found = pa.table(columns).group_by(_GROUP, use_threads=False).aggregate(asked)
    first = whole(found[f"{_ROW}_min"])
    made = {name: decoded(whole(array).take(first)) for name, array in keys.items()}
    made |= {name: found[f"{name}_{how}"] for name, (_, how) in values.items()}
    if rows is not None:
        made[rows] = found[f"{_ROW}_count"]
    return pa.table(made)


def stacked(parts: Sequence[pa.Table], keys: Sequence[str], values: Mapping[str, How]) -> pa.Table:
    """One part below the other, whatever order each has its columns in."""
    return pa.concat_tables([part.select([*keys, *values]) for part in parts])


def together(parts: Sequence[pa.Table], keys: Sequence[str], values: Mapping[str, How]) -> pa.Table:
    """The sum of counts of parts."""
    table = stacked(parts, keys, values)
    return counted({name: table[name] for name in keys}, {name: (table[name], how) for name, how in values.items()})


def mapped(column: Any, function: Callable[[Any], Any], kind: pa.DataType | None = None) -> pa.DictionaryArray:
    """The column with a function of each value, called once for each that occurs; NULL stays."""
    encoded = _encoded(column)
    texts = pa.array([function(value) for value in encoded.dictionary.to_pylist()], kind or encoded.dictionary.type)
    return pa.DictionaryArray.from_arrays(encoded.indices, texts)


def filled(column: Any, value: str) -> pa.DictionaryArray:
    """The text column with this value where it is NULL."""
    encoded = _encoded(column)
    texts = pa.concat_arrays([encoded.dictionary, pa.array([value], encoded.dictionary.type)])
    missing = pa.scalar(len(encoded.dictionary), encoded.indices.type)
    return pa.DictionaryArray.from_arrays(pc.fill_null(encoded.indices, missing), texts)


def equals(column: Any, value: object) -> NDArray[Any]:
    """Where the column has this value."""
    encoded = _encoded(column)
    place = pc.index(encoded.dictionary, value).as_py()
    return np.asarray(_indices(encoded) == place if place >= 0 else np.zeros(len(encoded), bool))


def whole(column: Any) -> pa.Array:
    """The column in one piece."""
    if isinstance(column, np.ndarray):
        return pa.array(column)
    if not isinstance(column, pa.ChunkedArray):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def decoded(array: pa.Array) -> pa.Array:
    """The values themselves, where the array has numbers of values."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _numbered(keys: Sequence[Any], length: int) -> NDArray[Any]:
    """For each row a number that only rows with the same keys have."""
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
    """The place of each row's value in the dictionary; -1 for NULL."""
    return np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), np.int64)
