"""A dress rehearsal: a shipped experiment from its downloads to its report, with small files and small models."""
