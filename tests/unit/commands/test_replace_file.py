"""test_replace_file — a file is replaced whole, with its owner and rights, or not at all"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from scripts.replace_file import drafted, replace
from scripts.rights import PRIVATE, make_folder

if TYPE_CHECKING:
    from pathlib import Path

#: A group of a user that is not the one of its new files: any for root, one of its others elsewhere.
_GROUPS = [4242] if os.getuid() == 0 else [group for group in os.getgroups() if group != os.getgid()]


def rights(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_rights(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(mode)
    replace(file, "new", mode=PRIVATE)
    assert (file.read_text(), rights(file)) == ("new", mode)


@pytest.mark.skipif(not _GROUPS, reason="this user has one group")
def test_a_file_keeps_its_group(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    os.chown(file, -1, _GROUPS[0])
    replace(file, "new")
    assert (file.read_text(), file.stat().st_gid) == ("new", _GROUPS[0])


@pytest.mark.parametrize(("model", "mode"), [(0o640, 0o640), (0o600, 0o600), (0o644, PRIVATE)])
def test_a_new_file_is_for_those_of_another_unless_that_is_for_all(tmp_path: Path, model: int, mode: int) -> None:
    like, file = tmp_path / "like", tmp_path / "file"
    like.touch()
    like.chmod(model)
    group = [*_GROUPS, like.stat().st_gid][0]
    os.chown(like, -1, group)
    replace(file, "new", mode=PRIVATE, like=like)
    assert rights(file) == mode
    assert (file.stat().st_gid == group) or mode == PRIVATE


@pytest.mark.parametrize(("folder", "mode"), [(0o750, 0o640), (0o700, 0o600), (0o755, PRIVATE)])
def test_a_new_file_of_root_s_is_for_those_of_its_folder(tmp_path: Path, folder: int, mode: int) -> None:
    """For others a group is not theirs to trust: it may have more members."""
    above, root = tmp_path / "above", os.getuid() == 0
    above.mkdir(folder)
    above.chmod(folder)
    os.chown(above, -1, [*_GROUPS, above.stat().st_gid][0])
    within = above / "within"
    make_folder(within)
    replace(within / "file", "new", mode=PRIVATE, like=within)
    found = (within / "file").stat()
    assert stat.S_IMODE(found.st_mode) == (mode if root else PRIVATE)
    assert found.st_gid == (above.stat().st_gid if root and folder != 0o755 else os.getgid())


def test_a_link_stays_one(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    replace(link, "new")
    assert (link.readlink(), file.read_text()) == (file, "new")


def test_a_draft_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(FileNotFoundError), drafted(file, "new") as draft:
        draft.with_name("no-such").stat()
    assert (file.read_text(), list(tmp_path.iterdir())) == ("old", [file])


def test_what_is_not_a_regular_file_is_left_alone(tmp_path: Path) -> None:
    """Such as /dev/null, which root can replace."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        replace(pipe, "new")
    assert (pipe.is_fifo(), list(tmp_path.iterdir())) == (True, [pipe])
