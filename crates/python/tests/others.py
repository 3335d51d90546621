"""Programs that open a store through fsspec: pandas, Hugging Face datasets, zarr and Dask read what they have written.

    make test-python-others     # installs them in a virtual environment of their own
"""

import sys
import tempfile
from pathlib import Path

import fsspec
import granulo
import numpy as np
import pandas as pd

#: The mode of the store; one at the top level would be that of a file.
WRITING = {"granulo": {"mode": "a"}}


def stores(place: Path) -> tuple[str, str]:
    one, other = place / "one", place / "other"
    granulo.Store(one, "x").close()
    with granulo.Store(other, "x") as store:
        # The key of a file of the first store, too.
        store["t/table.csv"] = b"x,y\n1,z\n"
    return str(one), str(other)


def release(path: str) -> None:
    """Ends the writer that fsspec keeps."""
    fsspec.filesystem("granulo", store=path, mode="a").store.close()


def check_pandas(path: str, table: pd.DataFrame) -> None:
    table.to_csv(f"granulo://{path}!/t/table.csv", index=False, storage_options=WRITING)
    table.to_parquet(f"granulo://{path}!/t/table.parquet", storage_options=WRITING)
    release(path)
    assert pd.read_csv(f"granulo://{path}!/t/table.csv").equals(table)
    assert pd.read_parquet(f"granulo://{path}!/t/table.parquet").equals(table)


def check_datasets(path: str, other: str, cache: Path) -> None:
    import datasets

    def rows(path: str) -> int:
        files = f"granulo://{path}!/t/*.csv"
        return len(datasets.load_dataset("csv", data_files=files, cache_dir=str(cache))["train"])

    assert (rows(path), rows(other)) == (10, 1)


def check_zarr(path: str) -> None:
    import zarr

    numbers = np.arange(10_000).reshape(100, 100)
    store = zarr.storage.FsspecStore.from_url(f"granulo://{path}!/z", storage_options=WRITING)
    array = zarr.create_array(store=store, shape=numbers.shape, chunks=(10, 10), dtype=numbers.dtype)
    array[:] = numbers
    assert np.array_equal(zarr.open_array(store=store, mode="r")[:], numbers)
    release(path)


def check_dask(path: str, table: pd.DataFrame) -> None:
    import dask.dataframe

    for read, ending in ((dask.dataframe.read_parquet, "parquet"), (dask.dataframe.read_csv, "csv")):
        found = read(f"granulo://{path}!/t/*.{ending}").compute()
        assert found.to_dict("list") == table.to_dict("list"), ending


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        one, other = stores(place)
        table = pd.DataFrame({"x": range(10), "y": list("abcdefghij")})
        check_pandas(one, table)
        check_datasets(one, other, place / "cache")
        check_zarr(one)
        check_dask(one, table)
    print("pandas, datasets, zarr and Dask read what they wrote")


if __name__ == "__main__":
    sys.exit(main())
