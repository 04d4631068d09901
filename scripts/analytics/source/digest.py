"""digest — one number for the content of any number of rows, independent of their order and division into parts

Owns: the hash of a row over all columns (multilinear, by octet and place) and the sum of the rows' hashes.
Guarantees: digests of parts add up to that of the whole, modulo 2^64. Values exchanged between rows or columns change
    it. It does not withstand forged rows.
See: Thorup, "High Speed Hashing for Integers and Strings" (multilinear hashing); splitmix64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MODULUS: Final = 1 << 64
_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_PLACES: Final = np.random.default_rng(20).integers(1, 2**63, 1 << 16, np.uint64) * np.uint64(2) + np.uint64(1)


def of_table(table: pa.Table) -> int:
    """The digest of a table's rows, columns in the order of their names."""
    if not table.num_rows:
        return 0
    rows = np.full(table.num_rows, np.uint64(1))
    for number, name in enumerate(sorted(table.column_names)):
        # A different odd factor for each column, so that values exchanged between columns change the digest.
        rows = _mixed(rows * np.uint64(3) + _column(table[name]) * _PLACES[-1 - number])
    return int(rows.sum(dtype=np.uint64))


def added(*digests: int) -> int:
    """The digest of all these rows together."""
    return sum(digests) % _MODULUS


def _column(column: pa.ChunkedArray) -> NDArray[Any]:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    null = array.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(array.type):
        values = _octets(pc.fill_null(array, ""))
    elif pa.types.is_floating(array.type):
        values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False).view(np.uint64).copy()
    elif pa.types.is_boolean(array.type):
        values = pc.fill_null(array, fill_value=False).to_numpy(zero_copy_only=False).astype(np.uint64)
    else:
        whole = array.cast(pa.int64())
        values = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64).copy()
    values = _mixed(values)
    values[null] = _NULL
    return np.asarray(values)


def _octets(array: pa.StringArray) -> NDArray[Any]:
    """A number for each text: the sum of its octets, each times a factor of its place, and its length."""
    _, offsets_buffer, text_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    numbers = lengths.astype(np.uint64) * _PLACES[0]
    if offsets[-1] == offsets[0] or text_buffer is None:
        return np.asarray(numbers)
    text = np.frombuffer(text_buffer, np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    place = np.arange(len(text), dtype=np.int64) - np.repeat(offsets[:-1] - offsets[0], lengths)
    text *= _PLACES[1 + place % (len(_PLACES) - 64)]
    filled = lengths > 0
    numbers[filled] += np.add.reduceat(text, (offsets[:-1] - offsets[0])[filled])
    return np.asarray(numbers)


def _mixed(numbers: NDArray[Any]) -> NDArray[Any]:
    """splitmix64's finalizer: every bit of the number changes half of the bits."""
    mixed = numbers ^ (numbers >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
