"""Complete a config by the sections of the one that it extends, without what these say of systems it does not have."""

from __future__ import annotations

import copy
from typing import Any

from cort.experiment.idle import mappings
from cort.settings.config import LEARNERS, Config, leaves, listed, one_or_more
from cort.system.errors import InputError, check_name, input_error

# Keys that name an encoder or re-ranker.
OF_MODELS = ("retrieve", "reranker", "start", "teacher")
# Keys that name a system or split, without which their section says nothing; keys that can be left out alone.
REQUIRED, OPTIONAL = ("system", "split", "reference"), ("baseline", "disagreements")


def extend(config: Config, base: Config, source: str) -> tuple[Config, list[str]]:
    """Merge a config with the one that it extends.

    :returns: the merged config, and a line for each inherited setting that is left out, since it names systems or
        splits that only the other config has.
    :raises InputError: with a line for each name of a selection that the other config does not have.
    """
    if idle := [key for key, value in config.items() if value is None and key not in base]:
        expected = f"one of {config['extends']}, which is then left out"
        raise input_error(source, f"the key {idle[0]} without a value", expected, "fix the name, or remove the key")
    own, mistakes = dict(config), list[str]()
    for section, names in config.items():
        known = base.get(section)
        if isinstance(names, list) and isinstance(known, dict):
            mistakes += (f"{source}: {line}" for name in names for line in check_name(section, str(name), known))
            own[section] = {name: known[name] for name in map(str, names) if name in known}
    if mistakes:
        raise InputError("\n".join(mistakes))
    merged = {key: value for key, value in (base | own).items() if key != "extends" and value is not None}
    inherited = _Inherited(base, merged)
    for section in ("evaluation", "latency", "submissions", "deploy", *LEARNERS):
        if section in merged and section not in own:
            inherited.prune(section)
    return merged, [f"{source}: {note}" for note in inherited.notes]


class _Inherited:
    """Sections that are taken from another config; `notes` say what is left out of them."""

    def __init__(self, base: Config, merged: Config) -> None:
        self.config, self.notes = merged, list[str]()
        both = [(mappings(base).get(section, {}), merged.get(section)) for section in ("systems", "splits")]
        # Lists, as a broken config may have values that cannot be hashed.
        self.systems, self.splits = (
            [name for name in entries if isinstance(kept, dict) and name not in kept] for entries, kept in both
        )

    def prune(self, section: str) -> None:
        """Leave out of a section what names missing systems or splits."""
        part = copy.deepcopy(self.config.pop(section))
        if section in LEARNERS and isinstance(part, dict):
            self.config[section] = self._without_models(section, part)
        elif not isinstance(part, dict) or self._keep(section, part):
            self.config[section] = part

    def _without_models(self, section: str, models: Config) -> Config:
        """Select the models that systems use, or that can be trained; that a used one cannot is a mistake."""
        used = [name for path, name in leaves(self.config) if path.rpartition(".")[2] in OF_MODELS]
        used += [name for path, name in leaves(models) if path.rpartition(".")[2] in OF_MODELS]
        kept = {}
        for name, model in models.items():
            examples = mappings(mappings(models).get(name, {})).get(LEARNERS[section], {})
            lost = [system for system in one_or_more(examples.get("system", [])) if system in self.systems]
            if name in used or not self._note(f"{section}.{name}", lost):
                kept[name] = model
        return kept

    def _keep(self, place: str, part: Config) -> bool:
        """Remove what names missing systems or splits, in place; False if the part itself has to go."""
        for key, value in list(part.items()):
            inside, names = f"{place}.{key}", value if isinstance(value, list) else [value]
            missing = self.splits if key == "split" else self.systems
            lost = [name for name in names if name in missing]
            if isinstance(value, dict):
                if not self._keep(inside, value):
                    del part[key]
            elif key in REQUIRED and self._note(place, lost):
                return False
            elif key in OPTIONAL and self._note(inside, lost):
                del part[key]
            elif key == "contrasts":
                part[key] = [pair for pair in names if not self._note(inside, self._lost_of(pair))]
            elif key == "systems" and self._note(inside, lost):
                part[key] = [name for name in names if name not in lost]
                if not part[key]:
                    self.notes.append(f"{place}: left out, as no system is left")
                    return False
        return True

    def _lost_of(self, pair: Any) -> list[str]:
        return [name for name in pair if name in self.systems] if isinstance(pair, list) else []

    def _note(self, place: str, lost: list[str]) -> bool:
        """Note that something is left out, if it names any system or split that is missing."""
        if lost:
            self.notes.append(f"{place}: left out what names {listed(lost)}, not in this experiment")
        return bool(lost)
