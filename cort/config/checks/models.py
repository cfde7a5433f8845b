"""Check base models, encoders and re-rankers in an experiment's config."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from cort.config.entries import LEARNERS, MODELS, TRAINING_SPLITS, Config, released_name
from cort.config.experiment import Experiment
from cort.config.learners import ImportedDense, Learner, LearningEncoder
from cort.config.models import Architecture, Hub, Learning, Pairs, Sparse, Started, Triples
from cort.config.recipes import ranks_before
from cort.models.settings import REVISION
from cort.runtime.errors import check_name, shorten
from cort.runtime.sections import plain
from cort.training.losses import ENCODER_OBJECTIVES


def check_base_models(experiment: Experiment) -> Iterator[str]:
    """Check where base models come from."""
    for name, model in experiment.base_models.items():
        place = experiment.place_of_base_model(name)
        if isinstance(model, Architecture):
            if "model_type" not in model.architecture:
                yield f"{place}.architecture: found no key model_type, expected it to be set; add it"
        elif (revision := model.revision) is not None and not REVISION.fullmatch(revision):
            expected = "a commit, 40 hexadecimal digits"
            yield f"{place}.revision: found {shorten(revision)}, expected {expected}; name it, as a branch moves"


def check_models(experiment: Experiment) -> Iterator[str]:
    """Check what encoders and re-rankers are based on and trained on."""
    for section, source in LEARNERS.items():
        for name, model in experiment.models[section].items():
            place = f"{section}.{name}"
            if isinstance(model, Started):
                yield from check_name(f"{place}.base_model", model.base_model, experiment.root.base_models)
            if isinstance(model, Hub | ImportedDense) and getattr(model, "pooling", "") == "weighted_mean":
                found = f"found weighted_mean of a {'pretrained' if isinstance(model, Hub) else 'released'} model"
                yield f"{place}.pooling: {found}, expected its own; remove it"
            if isinstance(model, Learner):
                yield from _check_examples(f"{place}.{source}", model.examples, experiment)
                for split in TRAINING_SPLITS:
                    if split not in experiment.splits:
                        yield f"splits: found no split {split}, expected it for training {place}; add it"
            if isinstance(model, LearningEncoder):
                yield from _check_teacher(place, model, experiment)
                yield from _check_origins(place, name, model, experiment)


def check_own_names(experiment: Experiment) -> Iterator[str]:
    """Check that what systems retrieve or re-rank with has a name that nothing else has."""
    sections = {"lexical": experiment.lexical, **experiment.models}
    for section, later in combinations(sections, 2):
        for name in sections[section].keys() & sections[later].keys():
            found = f"found the name {name}, which is also in {section}"
            yield f"{later}.{name}: {found}, expected a name of its own, as systems name both alike; rename it"


def _check_examples(place: str, source: Triples | Pairs, experiment: Experiment) -> Iterator[str]:
    """Check which results a model is trained on."""
    if isinstance(source, Pairs) and source.random > source.negatives:
        found = f"found {source.random}, expected at most the {source.negatives} negatives"
        yield f"{place}.random: {found}; lower it or raise negatives"
    first, last, depth = source.first_rank, source.last_rank, experiment.training_depth
    if first > last:
        yield f"{place}: found the ranks {first} to {last}, expected them in order; fix the ranks"
    limit, key = max((depth, "training_depth"), (last, "last_rank"))
    if source.minimum_results > limit:
        yield (
            f"{place}.minimum_results: found {source.minimum_results}, expected at most "
            f"{key} ({limit}), or no query is left; lower it or raise {key}"
        )


def _check_teacher(place: str, encoder: LearningEncoder, experiment: Experiment) -> Iterator[str]:
    """Check whether an encoder has a teacher where its loss needs one, and that its weights are here."""
    loss = encoder.loss
    if ENCODER_OBJECTIVES[loss].teacher != bool(encoder.teacher):
        found, fix = (f"a teacher with {loss}", "remove it") if encoder.teacher else (loss, "add `teacher: NAME`")
        names = " or ".join(name for name, one in ENCODER_OBJECTIVES.items() if one.teacher)
        yield f"{place}: found {found}, expected a teacher with {names} alone; {fix}"
    if encoder.teacher in experiment.rerankers and experiment.is_served("rerankers", encoder.teacher):
        found = f"{encoder.teacher!r}, a re-ranker behind an API"
        yield f"{place}.teacher: found {found}, expected one whose weights are here; name another"


def _check_origins(place: str, name: str, encoder: LearningEncoder, experiment: Experiment) -> Iterator[str]:
    """Check what an encoder starts from."""
    start = encoder.start
    sizes, dimension = (getattr(encoder, key, None) for key in ("matryoshka", "dimension"))
    if isinstance(sizes, tuple) and dimension and sizes[-1] > dimension:
        expected = f"at most the dimension {dimension}"
        yield f"{place}.matryoshka: found {sizes[-1]}, expected {expected}; lower it or raise dimension"
    if encoder.relative_margin is not None:
        yield from _check_margin(f"{place}.relative_margin", name, encoder, experiment)
    if start in experiment.encoders:
        own = ("base_model",) if isinstance(encoder, Sparse) else ("base_model", "projection", "dimension")
        if isinstance(encoder, Hub):
            own = ("pretrained", "revision", "dimension")
        for key in ("kind", *(("queries",) if isinstance(encoder, Sparse) else ()), *own):
            there, here = (_shown(experiment, one, key) for one in (start, name))
            if there != here:
                expected = f"{here} as here; name another encoder or change it"
                yield f"{place}.start: found {start!r} with {key} {there}, expected {expected}"
    chain, starts = [name], {key: one.start for key, one in experiment.encoders.items() if isinstance(one, Learning)}
    while (start := starts.get(chain[-1])) is not None and start not in chain:
        chain.append(start)
    if start == name:
        yield f"{place}.start: found the circle {' -> '.join([*chain, name])}, expected a first one; remove a start"


def _shown(experiment: Experiment, name: str, key: str) -> object:
    if key == "base_model":
        return experiment.base_model_of("encoders", name)
    value = getattr(experiment.encoders[name], key, None)
    return "none" if value is None else value


def _check_margin(place: str, name: str, encoder: LearningEncoder, experiment: Experiment) -> Iterator[str]:
    """Check that an encoder can rank before training, and that its loss can leave passages out."""
    found, fix = f"found {encoder.relative_margin:g}", "or set it to null"
    if not ENCODER_OBJECTIVES[encoder.loss].guided:
        yield f"{place}: {found} with the loss {encoder.loss}, expected it with info_nce; change the loss {fix}"
    elif not ranks_before(plain(encoder), {name: plain(model) for name, model in experiment.base_models.items()}):
        expected = "expected weights that rank before training: a start, or a pretrained model without projection"
        yield f"{place}: {found} with an encoder of random weights, {expected}; name one {fix}"


def check_conflicts(config: Config) -> Iterator[str]:
    """Yield a line for each setting that another one excludes in a config as written, without defaults."""
    for section in MODELS:
        for name, model in config.get(section, {}).items():
            place = f"{section}.{name}"
            if "pretrained" in model and (taken := released_name(section, name)) in config.get("base_models", {}):
                found = f"found pretrained and the base model {taken}, whose name it needs"
                yield f"{place}: {found}, expected no such base model; rename that one"
            for prompt in ("query_prompt", "passage_prompt"):
                if {prompt, f"{prompt}_name"} <= model.keys():
                    yield f"{place}: found {prompt} and {prompt}_name, expected one of them; remove one"
            if "pos_weight" in model and model.get("loss") == "softmax":
                found = "found pos_weight with the loss softmax"
                yield f"{place}.pos_weight: {found}, expected it with pointwise; remove it"
