"""Where a worker may write nothing, it works, or says in a line what to set."""

from pathlib import Path

import pytest

from haystream_service.errors import UserError
from haystream_service.settings import Settings
from haystream_service.worker.serve import serve

pytestmark = pytest.mark.asyncio


async def test_a_folder_that_cannot_be_written_to_is_told_of_before_anything_begins(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="HAYSTREAM_DATA_DIR"):
        await serve(Settings(data_dir=tmp_path / "file" / "faust", port=0))


async def test_the_same_where_there_is_none_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="HAYSTREAM_DATA_DIR"):
        await serve(Settings(port=0))
