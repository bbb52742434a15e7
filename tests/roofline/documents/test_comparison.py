"""Comparisons as JSON, CSV, Markdown, JUnit XML and SARIF, with hostile names."""

import csv
import io
import json
from dataclasses import replace
from xml.etree import ElementTree

import example_runs
import jsonschema
import pytest

from memlab.device.measurement import Code, LineCounters, Verification
from memlab.roofline.comparison.compare import compare_runs
from memlab.roofline.comparison.conditions import judge_comparison, parse_condition
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.documents.comparison import CSV_COLUMNS, comparison_csv, comparison_document
from memlab.roofline.documents.comparison_markdown import comparison_markdown
from memlab.roofline.documents.gates import junit_xml, sarif_document
from memlab.roofline.reports.comparison import comparison_report
from memlab.roofline.reports.parts import rendered_text

HOSTILE = "a|b</summary><script>\x1b[31m`@me` [x](http://e.vil) www.e.vil\n# \x00<&>\"'"

RELATIVE = r"^(?!/)(?!.*(^|/)\.\.?(/|$))(?![^/]*:)[!-~]+$"
"""A relative reference of RFC 3986 without `.` and `..`."""
ABSOLUTE = r"^file:///(?!.*/\.\.?(/|$))[!-~]+$"

SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "required": ["name", "rules"],
                                "properties": {
                                    "rules": {
                                        "uniqueItems": True,
                                        "items": {
                                            "required": ["id"],
                                            "properties": {
                                                "shortDescription": {"required": ["text"]}
                                            },
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "items": {
                            "required": ["ruleId", "ruleIndex", "message", "locations"],
                            "properties": {
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "message": {"required": ["text"]},
                                "locations": {
                                    "minItems": 1,
                                    "items": {
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation", "region"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "oneOf": [
                                                            {
                                                                "required": ["uriBaseId"],
                                                                "properties": {
                                                                    "uri": {"pattern": RELATIVE}
                                                                },
                                                            },
                                                            {
                                                                "maxProperties": 1,
                                                                "properties": {
                                                                    "uri": {"pattern": ABSOLUTE}
                                                                },
                                                            },
                                                        ]
                                                    },
                                                    "region": {
                                                        "properties": {
                                                            "startLine": {
                                                                "type": "integer",
                                                                "minimum": 1,
                                                            }
                                                        }
                                                    },
                                                },
                                            }
                                        },
                                    },
                                },
                                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                            },
                        }
                    },
                },
            },
        },
    },
}
"""The rules of SARIF 2.1.0 (OASIS, 2020) and of GitHub that a result needs to be shown."""


def run(name, sectors, kernel="src/my kernel.cu:scale", text="y[i] = a * x[i * 2];"):
    base = example_runs.measurement(name, "modelled")
    line = LineCounters.from_names(line=12, text=text, global_sectors=sectors, flop=3)
    counters = base.counters.replace_named(global_load_sectors=sectors)
    code = Code(f"{kernel}.cu" if kernel == HOSTILE else "src/my kernel.cu", "s", f"m{sectors}")
    return example_runs.run_of(
        replace(base, kernel=kernel, lines=(line,), counters=counters, code=code)
    )


def comparison(*conditions, kernel="src/my kernel.cu:scale", text="y[i] = a * x[i * 2];", **b):
    a, other = run("tiled16", 100, kernel, text), run("tiled16", 200, kernel, text)
    other = replace(other, measurement=replace(other.measurement, **b))
    compared = Comparison((compare_runs(a, other),))
    judged = judge_comparison(compared, [parse_condition(text) for text in conditions])
    return replace(compared, conditions=judged)


def test_json_and_csv_hold_all_figures():
    compared = comparison("global_load_sectors>0%")
    document = json.loads(json.dumps(comparison_document(compared), allow_nan=False))
    (pair,) = document["pairs"]
    figures = {figure["name"]: figure for figure in pair["figures"]}
    assert (figures["global_load_sectors"]["a"], figures["global_load_sectors"]["b"]) == (100, 200)
    assert figures["global_load_sectors"]["relative"] == 1
    assert pair["lines"][0]["counters"]["global_sectors"] == {"a": 100, "b": 200}
    assert document["failed"] is True
    rows = list(csv.DictReader(io.StringIO(comparison_csv(compared))))
    assert tuple(rows[0]) == CSV_COLUMNS
    by_name = {row["figure"]: row for row in rows}
    assert by_name["global_load_sectors"]["b"] == "200"
    assert by_name.keys() == figures.keys()


def test_a_line_that_grew_is_a_result_at_its_place():
    compared = comparison("global_load_sectors>0%", "time>+0%", "shared_load_wavefronts>0")
    document = sarif_document(compared)
    jsonschema.validate(document, SARIF)
    (results,) = (each["results"] for each in document["runs"])
    rules = [rule["id"] for rule in document["runs"][0]["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in results] == [
        result["ruleId"] for result in results
    ]
    assert [result["ruleId"] for result in results] == [
        "memlab/global_load_sectors",
        "memlab/shared_load_wavefronts",
    ]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/my%20kernel.cu"
    assert place["region"]["startLine"] == 12
    assert "global sectors of this line: 100 -> 200" in results[0]["message"]["text"]


@pytest.mark.parametrize(
    ("source", "uri"),
    [
        ("a.cu", "kernels/a.cu"),
        ("../src/./b c.cu", "src/b%20c.cu"),
        ("{root}/a:b.cu", "a%3Ab.cu"),
        ("../../a.cu", None),
        ("/elsewhere/a.cu", "file:///elsewhere/a.cu"),
    ],
)
def test_results_name_files_from_the_root_of_the_repository(source, uri, tmp_path, monkeypatch):
    (tmp_path / "repo/kernels").mkdir(parents=True)
    (tmp_path / "repo/.git").mkdir()
    monkeypatch.chdir(tmp_path / "repo/kernels")
    code = Code(source.format(root=tmp_path / "repo"), "s", "m")
    document = sarif_document(comparison("global_load_sectors>0%", code=code))
    jsonschema.validate(document, SARIF)
    (result,) = document["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location["uri"] == (uri or (tmp_path / "a.cu").as_uri())
    inside = uri is not None and not uri.startswith("file:")
    assert location.get("uriBaseId") == ("%SRCROOT%" if inside else None)


def test_a_kernel_of_the_catalog_is_no_file_of_the_repository():
    compared = comparison("global_load_sectors>0%", kernel="tiled", code=Code("tiled.cu", "s", "m"))
    document = sarif_document(compared)
    jsonschema.validate(document, SARIF)
    (result,) = document["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": "memlab/kernels/tiled.cu", "uriBaseId": "SITE_PACKAGES"}
    assert "SITE_PACKAGES" in document["runs"][0]["originalUriBaseIds"]


def test_fingerprints_stay_when_lines_move():
    def fingerprint(line):
        a, b = run("tiled16", 100), run("tiled16", 200)
        moved = (replace(b.measurement.lines[0], line=line),)
        b = replace(b, measurement=replace(b.measurement, lines=moved))
        compared = Comparison((compare_runs(a, b),))
        judged = judge_comparison(compared, [parse_condition("global_load_sectors>0%")])
        (each,) = sarif_document(replace(compared, conditions=judged))["runs"]
        return each["results"][0]["partialFingerprints"]

    assert fingerprint(12) == fingerprint(40)


def test_junit_counts_its_cases():
    failed = Verification("failed", 1.0, 1e-4, 100, 100, "P[3] is 7", 5)
    compared = comparison("global_load_sectors>0%", "occupancy<1%", verification=failed)
    suite = ElementTree.fromstring(junit_xml(compared))[0]
    cases = suite.findall("testcase")
    assert suite.attrib["tests"] == str(len(cases)) == "3"
    assert suite.attrib["failures"] == str(len(suite.findall(".//failure"))) == "2"
    assert suite.attrib["errors"] == "0"
    assert "P[3] is 7" in cases[0][0].attrib["message"]


def test_hostile_names_stay_text_everywhere():
    wrong = Verification("failed", 1.0, 1e-4, 100, 100, HOSTILE, 5)
    compared = comparison(
        "global_load_sectors>0%", kernel=HOSTILE, text=HOSTILE, verification=wrong
    )
    json.dumps(comparison_document(compared), allow_nan=False)
    jsonschema.validate(sarif_document(compared), SARIF)
    ElementTree.fromstring(junit_xml(compared))
    markdown = comparison_markdown(compared)
    for part in ("<script>", "</summary><", "@me", "](", "http://", "www.", "\x1b", "\x00"):
        assert part not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {5, 7}
    report = rendered_text(comparison_report(compared, everything=True), 80)
    assert "\x1b" not in report
    assert "\x00" not in report


def test_the_table_of_pairs_has_each_note_once():
    compared = comparison("global_load_sectors>0%", kernel="a.cu:a")
    (pair,) = compared.pairs
    pair = replace(pair, obstacles=("the drivers differ",), notes=("two compilers",))
    text = rendered_text(comparison_report(replace(compared, pairs=(pair, pair))), 80)
    assert text.count("the drivers differ") == text.count("two compilers") == 1


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("everything", [False, True])
def test_the_report_is_whole_at_60_and_80_columns(everything, columns):
    compared = comparison("global_load_sectors>0%")
    text = rendered_text(comparison_report(compared, everything=everything), columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text
    assert "global load sectors" in text
    assert ("L2 write sectors" in text) == everything  # unchanged
    assert "src/my kernel.cu:12" in text


def test_several_pairs_are_a_row_each():
    ladder = example_runs.ladder()
    compared = Comparison(
        tuple(compare_runs(ladder[0], other) for other in ladder[1:]), only_a=(ladder[0],)
    )
    text = rendered_text(comparison_report(compared), 80)
    assert "3 pairs" in text
    assert "in A alone" in text
    assert "tile 32" in text
    assert max(map(len, text.splitlines())) <= 80
    assert comparison_markdown(compared).count("<details><summary>tiled") == 3
