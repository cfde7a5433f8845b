"""A small German collection, of which English analysis finds half: umlauts, ß and endings differ in the other half."""

PASSAGES = {
    "d1": "Die Häuser der Altstadt wurden nach dem Brand wieder aufgebaut.",
    "d2": "Ein altes Haus braucht vor allem ein dichtes Dach.",
    "d3": "Bäume im Garten spenden im Sommer Schatten.",
    "d4": "Der Baum vor der Schule ist eine alte Linde.",
    "d5": "Unsere Züge fahren stündlich von Köln nach Bonn.",
    "d6": "Der Zug nach Koeln hatte gestern eine Stunde Verspätung.",
    "d7": "Bücher leiht die Bibliothek für vier Wochen aus.",
    "d8": "Ein gutes Buch ersetzt manchen Abend vor dem Fernseher.",
    "d9": "Auf den Straßen der Stadt gilt nachts Tempo dreißig.",
    "d10": "Die Strasse zum Hafen ist seit Montag gesperrt.",
    "d11": "Brot wird aus Mehl, Wasser, Salz und Hefe gebacken.",
    "d12": "Im Winter friert der See nur in kalten Jahren zu.",
}
QUERIES = {"q1": "Häuser mit Dächern", "q2": "Bäume bei Schulen", "q3": "Züge in Köln", "q4": "breite Straßen"}
RELEVANT = {"q1": {"d1", "d2"}, "q2": {"d3", "d4"}, "q3": {"d5", "d6"}, "q4": {"d9", "d10"}}


def write_collection(folder, further):
    """Write passages, queries and judgements into a folder, and further files of lines by their names."""
    judged = [f"{query} 0 {doc} 1" for query, docs in RELEVANT.items() for doc in sorted(docs)]
    files = {
        "collection.tsv": map("\t".join, PASSAGES.items()),
        "queries.tsv": map("\t".join, QUERIES.items()),
        "qrels.txt": judged,
    }
    for name, lines in (files | further).items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
