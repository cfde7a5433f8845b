"""Building blocks of reports: checked inputs, tables, figures, sections and pages."""
