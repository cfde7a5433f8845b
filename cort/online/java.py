"""Java in this process, and what is used of Lucene's and Anserini's classes.

They are described by hand: pyjnius would find out the same by reflection, which takes seconds for those of Anserini,
and pyserini loads more of them still.
"""

from __future__ import annotations

import os
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

from cort.retrieval import anserini
from cort.system.errors import input_error
from cort.system.machine import java_home

LUCENE = "org/apache/lucene/"
#: what is used of each Java class; those of which nothing is used only pass through
CLASSES: dict[str, dict[str, str]] = {
    "io/anserini/analysis/DefaultEnglishAnalyzer": {"static newDefaultInstance": "()DefaultEnglishAnalyzer"},
    "io/anserini/search/query/BagOfWordsQueryGenerator": {
        "new": "()void",
        "buildQuery": "(String, Analyzer, String)Query",
    },
    "java/io/File": {"new": "(String)void", "toPath": "()Path"},
    "java/nio/file/Path": {},
    "java/util/logging/Level": {"static WARNING": "Level"},
    "java/util/logging/Logger": {"static getLogger": "(String)Logger", "setLevel": "(Level)void"},
    "org/apache/commons/lang3/builder/ToStringBuilder": {"static reflectionToString": "(Object)String"},
    f"{LUCENE}index/DirectoryReader": {"static open": "(Directory)DirectoryReader"},
    f"{LUCENE}index/Term": {"new": "(String, String)void"},
    f"{LUCENE}search/Explanation": {"toString": "()String"},
    f"{LUCENE}search/IndexSearcher": {
        "new": "(IndexReader)void",
        "setSimilarity": "(Similarity)void",
        "search": "(Query, int, Sort, boolean)TopFieldDocs",
        "explain": "(Query, int)Explanation",
    },
    f"{LUCENE}search/Query": {},
    f"{LUCENE}search/Sort": {"new": "([SortField)void"},
    f"{LUCENE}search/SortField": {"new": "(String, SortField$Type)void", "static FIELD_SCORE": "SortField"},
    f"{LUCENE}search/SortField$Type": {"static STRING_VAL": "SortField$Type"},
    f"{LUCENE}search/TermQuery": {"new": "(Term)void"},
    f"{LUCENE}search/TopFieldDocs": {},
    f"{LUCENE}search/similarities/BM25Similarity": {"new": "(float, float)void"},
    f"{LUCENE}search/similarities/Similarity": {},
    f"{LUCENE}store/FSDirectory": {"static open": "(Path)FSDirectory"},
}
NAMED = [f"{LUCENE}{name}" for name in ("analysis/Analyzer", "index/IndexReader", "store/Directory")]
NAMED += ["java/lang/Object", "java/lang/String", *CLASSES]
#: types as the signatures of class files have them
TYPES = {"boolean": "Z", "float": "F", "int": "I", "void": "V"}
TYPES |= {path.rpartition("/")[2]: f"L{path};" for path in NAMED}


@cache
def start_java(memory_mb: int) -> SimpleNamespace:
    """Start Java, if this process has none yet, and describe the classes used here, by their short names."""
    import jnius_config

    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(java_home())
        jnius_config.add_classpath(str(anserini.fat_jar()))
        # -Xrs: signals stay Python's.
        jnius_config.add_options(f"-Xmx{memory_mb}m", "-XX:+UseParallelGC", "-XX:-UsePerfData", "-Xrs")
    try:
        import jnius
    except SystemError as error:
        found, expected = f"no Java with a heap of {memory_mb} MB ({error})", "one that starts"
        raise input_error("--memory-mb", found, expected, "give as much as the machine has, 16 or more") from error

    java = SimpleNamespace(JavaException=jnius.JavaException)
    for path, members in CLASSES.items():
        described: dict[str, Any] = {"__javaclass__": path, "__javaconstructor__": []}
        for words, types in members.items():
            signature = re.sub(r"[\w$]+", lambda word: TYPES[word[0]], types).replace(", ", "")
            name = words.removeprefix("static ")
            if name == "new":
                described["__javaconstructor__"].append((signature, False))
            elif name == words:
                described[name] = jnius.JavaMethod(signature)
            else:
                static = jnius.JavaStaticMethod if "(" in signature else jnius.JavaStaticField
                described[name] = static(signature)
        short = re.split(r"[/$]", path)[-1]
        setattr(java, short, jnius.MetaJavaClass(short, (jnius.JavaClass,), described))
    # Lucene tells on stderr how it maps files.
    java.Logger.getLogger("").setLevel(java.Level.WARNING)
    return java
