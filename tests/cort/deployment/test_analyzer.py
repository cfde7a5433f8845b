"""The analyzer of the engines' indexes, built from Lucene's own classes in Anserini's jar, gives Anserini's tokens."""

import json
import subprocess
import sys
from typing import get_args

import pytest

from cort.config.lexical import Language
from cort.deployment.folder import ANALYZERS, OTHERS, TEMPLATES, analysis, render_all
from tests.support.common import ROOT, TEXTS

# Elasticsearch's and OpenSearch's names of filters -> those of Lucene's factories for the same classes.
FACTORIES = {"lowercase": "lowercase", "porter_stem": "porterStem", "standard": "standard"}
DEFINED = {("stemmer", "possessive_english"): "englishPossessive", ("stop", "_english_"): "stop"}

# In a process of its own: Java starts once in a process, and this needs other classes than the searches.
PROGRAM = """
import json, os, sys
from cort.retrieval.anserini import fat_jar
from cort.runtime.machine import java_home
import jnius_config

os.environ["JAVA_HOME"] = str(java_home())
jnius_config.add_classpath(str(fat_jar()))
jnius_config.add_options("-Xmx300m")
from jnius import autoclass

tokenizer, filters, texts = json.load(sys.stdin)
builder = autoclass("org.apache.lucene.analysis.custom.CustomAnalyzer").builder()
options = autoclass("java.util.HashMap")
builder.withTokenizer(tokenizer, options())
for name in filters:
    builder.addTokenFilter(name, options())
analyze = autoclass("io.anserini.analysis.AnalyzerUtils").analyze
ours = builder.build()
anserini = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
json.dump([[list(analyze(one, text).toArray()) for text in texts] for one in (ours, anserini)], sys.stdout)
"""


def texts():
    """200 texts: what analyzers disagree on, and the lines of documentation."""
    odd = [*TEXTS, "The dogs' dog's dog\u2019s DOG\uff07S and U.S.A.'s", "x" * 300, "a and the or not to be"]
    odd += ["e-mail me@example.org, 3.14, 1,000 C++ don't won\u2019t", "ponies caresses relational hopping flies"]
    odd += ["İstanbul ŒUVRE ﬁne ½ ١٢٣"]
    lines = [line for path in sorted(ROOT.glob("docs/*.md")) for line in path.read_text("utf-8").splitlines() if line]
    step = len(lines) / (200 - len(odd))
    return odd + [lines[int(number * step)] for number in range(200 - len(odd))]


@pytest.mark.parametrize("target", ["opensearch", "elasticsearch"])
def test_the_analyzer_of_an_index_gives_the_tokens_of_anserini(tmp_path, target):
    render_all(TEMPLATES / target, tmp_path, dict.fromkeys(("dimension", "method"), None) | PARAMETERS | analysis("en"))
    made = json.loads((tmp_path / "index.json").read_text("utf-8"))["settings"]["index"]["analysis"]
    analyzer = made["analyzer"]["anserini_english"]
    defined = {name: DEFINED[tuple(one.values())] for name, one in made["filter"].items()}
    filters = [(FACTORIES | defined)[name] for name in analyzer["filter"]]
    given = json.dumps([FACTORIES[analyzer["tokenizer"]], filters, texts()])
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    ours, anserini = json.loads(result.stdout)
    assert len(ours) == 200
    assert ours == anserini
    words = {word for tokens in ours for word in tokens}
    assert {"dog", "poni", "caress", "relat", "u.s.a"} <= words
    assert {"the", "and", "dog's"}.isdisjoint(words)


PARAMETERS = {"bm25": "bm25.trec", "k1": 0.9, "b": 0.4, "text": "words", "depth": 10, "vector": [], "zeros": []}


# Anserini's analyzer of each language.
MAP = (
    PROGRAM.partition("tokenizer, filters")[0]
    + """
named = autoclass("io.anserini.analysis.AnalyzerMap").analyzerMap
json.dump({language: named.get(language) for language in named.keySet().toArray()}, sys.stdout)
"""
)
# Classes of engines' analyzers that are not named after their language.
CLASSES = {"cjk": "cjk.CJKAnalyzer", "kuromoji": "ja.JapaneseAnalyzer", "ukrainian": "uk.UkrainianMorfologikAnalyzer"}


def test_engines_name_the_analyzers_of_anserini_for_other_languages():
    result = subprocess.run([sys.executable, "-c", MAP], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    classes = json.loads(result.stdout)
    assert {"en", *classes} == {*ANALYZERS} == {*get_args(Language)}
    named = {one: CLASSES.get(name, f"{one}.{name.title()}Analyzer") for one, name in ANALYZERS.items()}
    others = {one for one in classes if classes[one] != f"org.apache.lucene.analysis.{named[one]}"}
    assert others == {"pl", "te"}
    assert {ANALYZERS[one] for one in others} == OTHERS
