"""granulo: a packed store for millions of small files, and surveys of file populations.

===================  =======================================================================================
``Store``            a mapping from keys (paths) to contents; ``read_many`` reads thousands in one call
``Listing``          all files of a store as one object that all workers share
``Shuffle``          every epoch a uniformly random permutation of all files, read in bounded memory
``granulo.torch``    data sets for torch (imports torch)
``granulo://``       the store for fsspec: pandas, pyarrow, zarr, Dask
``survey``           surveys of trees; ``plan`` and ``compare`` predict and compare
===================  =======================================================================================
"""

from . import errors
from ._granulo import VERSION as __version__
from ._granulo import Stat
from .errors import *  # noqa: F403
from .listing import Batch, Listing
from .shuffle import Shuffle, distance_from_uniform
from .store import Store, WriteBatch
from .survey import Comparison, Plan, Survey, compare, plan, survey

__all__ = [
    "Batch",
    "Comparison",
    "Listing",
    "Plan",
    "Shuffle",
    "Stat",
    "Store",
    "Survey",
    "WriteBatch",
    "compare",
    "distance_from_uniform",
    "plan",
    "survey",
    *errors.__all__,
]
