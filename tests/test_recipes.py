"""Recipes launch the same again, for every kernel of the catalog and for user kernels."""

import json
import shutil

import pytest
from paths import REPOSITORY

import memlab
from memlab.kernels.catalog import CATALOG
from memlab.launching import prepare
from memlab.recipes import launch_recipe
from memlab.roofline.documents.runs import run_document, run_from_document

SHAPE = {"m": 100, "k": 56, "n": 72}  # rows of whole 16 bytes, as tensor maps need


@pytest.mark.parametrize("name", CATALOG)
def test_the_recipe_of_a_catalog_kernel_makes_the_same_launch(name):
    kernel = CATALOG[name]
    names = {parameter.name for parameter in kernel.parameters}
    for given in ({}, {key: SHAPE[key] for key in SHAPE if key in names}):
        first = prepare(name, given, device="h200", seed=3)
        recipe = launch_recipe(first)
        again = prepare(recipe.kernel, recipe.options, device="h200", seed=recipe.seed)
        for attribute in ("parameters", "grid", "block", "defines", "source", "flop"):
            assert getattr(again.launch, attribute) == getattr(first.launch, attribute)
        assert again.seed == 3


def test_the_recipe_of_a_user_kernel_survives_json(tmp_path, monkeypatch):
    shutil.copy(REPOSITORY / "docs/examples/saxpy.cu", tmp_path)
    monkeypatch.chdir(tmp_path)
    options = {
        "symbols": {"N": 1024},
        "grid": "ceil(N/256)",
        "block": "256",
        "defines": {"UNUSED": "a b"},
        "max_registers": 64,
        "use_fast_math": True,
        "args": ["f32=2.0", "f32[N]", "inout:f32[N]", "i32=N"],
        "tolerance": 1e-3,
    }
    first = memlab.run("saxpy.cu:saxpy", device="h200", seed=5, **options)
    document = json.loads(json.dumps(run_document(first)))
    recipe = run_from_document(document).recipe
    again = memlab.run(recipe.kernel, device="h200", seed=recipe.seed, **recipe.options)
    assert again.recipe == recipe == first.recipe
    assert again.measurement == first.measurement


def test_a_reference_is_no_part_of_a_recipe(tmp_path, monkeypatch):
    for file in ("saxpy.cu", "saxpy.py"):
        shutil.copy(REPOSITORY / "docs/examples" / file, tmp_path)
    monkeypatch.chdir(tmp_path)
    launch = {"grid": 1, "block": 32, "args": ["f32=2", "f32[32]", "inout:f32[32]", "i32=32"]}
    run = memlab.run("saxpy.cu:saxpy", device="h200", **launch, reference="saxpy.py:saxpy")
    assert run.measurement.verification.status == "passed"
    assert "reference" not in run.recipe.options
