"""pyarrow without pandas, whose import takes longer than that of all else most stages import.

At its first array pyarrow looks whether pandas can be imported. Who asks it for a data frame later still gets one.
"""

import pyarrow as pa

from cort.system.imports import absent

with absent("pandas"):
    pa.array([])
