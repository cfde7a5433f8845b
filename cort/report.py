"""Write the report: one self-contained HTML page, the tables as CSV, Markdown and LaTeX, the figures as SVG.

Reads: measures per system and split; if given, comparisons with the baseline, measures by re-ranking depth, audits of
       graph indexes, training curves, how models were chosen, disagreements, what filters kept and dropped, the
       benchmark files of the stages, latencies, and where all came from.
Writes: index.html, tables/{systems,comparisons,lists,judged,audits,stages,latency,overlap}.{csv,md,tex} and
       figures/{recall,depths,audits,training}.svg in the output folder; the page leaves out what was not given, the
       files are always there.
Usage: python -m cort.report --title "CoRT on MS MARCO" --dataset msmarco --measures-files measures/*.json
       --baseline bm25 --output-folder report
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from cort.reporting.report import ReportOptions, build
from cort.system import cli
from cort.system.files import write_text
from cort.system.options import required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(ReportOptions):
    """Options of this stage."""

    output_folder: str = required("FOLDER")


def stage(options: Options) -> None:
    """Read, build, write; the page last, so that it never shows what is not there."""
    files = build(options)
    for name, text in files.items():
        write_text(Path(options.output_folder) / name, text)
    measures = len(options.measures_files)
    log.info("%d measures files, %d files written to %s", measures, len(files), options.output_folder)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
