"""The glossary: whole, well-formed, and nothing in it leads nowhere."""

import re
import tomllib
from dataclasses import fields
from importlib import resources
from typing import get_args

import pytest

from memlab.device.datasheets import loader
from memlab.device.measurement import Counters, Occupancy, Provenance, Resources
from memlab.device.nvidia_tools.ncu import COUNTER_METRICS
from memlab.device.occupancy import BlockRequirements, compute_occupancy
from memlab.errors import UsageError
from memlab.kernels.catalog import CATALOG
from memlab.roofline import glossary
from memlab.roofline.ceilings import CEILING_LABELS
from memlab.roofline.run import TRAFFIC_LEVELS, Placement

TERMS = glossary.terms()

# "Terms and units" of the design, and what the chapters teach.
STANDARD_TERMS = """
arithmetic intensity; compute-to-global-memory-access ratio; request; sector; wavefront;
bank conflict; occupancy; wave; ceiling; ridge point; compute-bound; memory-bound; latency-bound;
FMA; coalescing; tensor core; tile; barrier; halo; corner turning; warp; tail effect;
latency hiding; Little's law; register; local memory; shared memory; constant memory; global memory
""".replace("\n", " ").split(";")

METRIC = re.compile(
    r"((?P<unit>dram|gpu|idc|l1tex|launch|lts|sm|smsp)__[a-z0-9]+(_[a-z0-9]+)*|memory_l[12]_[a-z_]+)"
    r"(\.(sum|avg|min|max|ratio|pct)(\.(per_second|per_cycle_active|peak_sustained"
    r"|pct_of_peak_sustained_(active|elapsed)))?)?"
)
"""Nsight Compute's names: unit__counter.rollup.submetric (Kernel Profiling Guide, "Metrics
Structure"), and the source metrics of the memory tables."""


@pytest.mark.parametrize(
    "name",
    [
        *Counters.names(),
        *(field.name for record in (Occupancy, Resources, Placement) for field in fields(record)),
        *TRAFFIC_LEVELS,
        *CEILING_LABELS,
        *get_args(Provenance),
        *compute_occupancy(loader.load_datasheet("h200"), BlockRequirements(32, 32, 0)).limits,
        *(term.strip() for term in STANDARD_TERMS),
    ],
)
def test_what_memlab_shows_has_an_entry(name):
    entry = glossary.find_entries(name)[-1]  # a kernel of the same name comes first
    assert entry.name in TERMS


@pytest.mark.parametrize("entry", TERMS.values(), ids=lambda entry: entry.name)
def test_an_entry_is_well_formed(entry):
    text = " ".join(entry.paragraphs)
    assert text[-1] in ".:", text
    assert "/work" not in text
    for metric in entry.ncu:
        assert METRIC.fullmatch(metric), metric
    for name in entry.see:
        assert name in TERMS, name
    assert entry.kind == "provenance" or len(text) > 30
    assert glossary.find_entries(entry.name)[-1] == entry  # and no entry with such an alias


def test_no_two_entries_answer_to_one_name():
    spelled = [re.sub("[ _-]+", " ", name.lower()) for name in glossary.explainable_names()]
    spelled = spelled[: len(spelled) - len(CATALOG)]
    # L1 and L2 name both a level of the roofline and the cache.
    assert {name for name in spelled if spelled.count(name) > 1} <= {"l1", "l2"}


@pytest.mark.parametrize("kernel", CATALOG.values(), ids=lambda kernel: kernel.name)
def test_every_kernel_explains_itself(kernel):
    entry = glossary.find_entries(kernel.name)[0]
    assert entry.kind == "kernels"
    assert len(entry.paragraphs) > 1, "a .cu begins with a comment that says what to expect"
    assert [name for name, _ in entry.parameters] == [known.option for known in kernel.parameters]
    for name in entry.see:
        assert name in TERMS, name


def test_the_notes_on_kernels_are_of_kernels_that_exist():
    file = resources.files("memlab.roofline").joinpath("glossary.toml")
    assert set(tomllib.loads(file.read_text(encoding="utf-8"))["kernels"]) <= set(CATALOG)


def test_a_name_may_be_spelled_as_it_is_typed():
    assert glossary.find_entries("Bank-Conflicts") == glossary.find_entries("bank conflict")
    assert glossary.find_entries("GLOBAL LOAD SECTORS") == glossary.find_entries(
        "global_load_sectors"
    )
    assert glossary.find_entries("gpu__time_duration.sum")[0].name == "median_s"


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'occupancy'"):
        glossary.find_entries("ocupancy")
    with pytest.raises(UsageError, match="'memlab explain' lists all names"):
        glossary.find_entries("zzzzzz")


def test_a_head_comment_ends_where_code_begins_and_keeps_lists():
    source = "// One\n// two.\n//\n// Three:\n// - a\n//   - b\n//   c.\n\n// not this\nint x;\n"
    assert glossary.head_comment(source) == ("One two.", "Three:\n- a\n- b c.")
    assert glossary.head_comment("int x;") == ()


def test_figures_of_the_chapters_are_right():
    """What a reader would take from these sentences, computed again."""
    ratio = glossary.find_entries("arithmetic intensity")[0].paragraphs[0]
    assert f"{0.25 * 1555:g} GFLOP/s" in ratio
    assert f"{0.25 * 1.555 / 19.5:.1%}" in ratio
    required = glossary.find_entries("compute-to-global-memory-access ratio")[0].paragraphs[0]
    assert f"{12e12 / (1000e9 / 4):g} operations per access" in required


def test_nsight_compute_counts_under_the_names_of_counters():
    assert set(COUNTER_METRICS) <= set(Counters.names())
