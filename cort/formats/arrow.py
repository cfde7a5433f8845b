"""pyarrow without pandas, whose import takes longer than everything else that most stages import.

pyarrow tries to import pandas when it makes its first array. Data frames remain available to those who ask later.
"""

import pyarrow as pa

from cort.system.imports import absent

with absent("pandas"):
    pa.array([])
