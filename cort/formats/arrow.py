"""pyarrow without pandas, whose import takes longer than everything else that most stages import.

pyarrow tries to import pandas when it creates its first array. Later imports of pandas work as usual.
"""

import pyarrow as pa

from cort.runtime.imports import absent

with absent("pandas"):
    pa.array([])
