"""Loops of more passes than are executed: what a C++ compiler's program would hold after them."""

from __future__ import annotations

import pytest

from tests.kernels.host_code.test_reading import launches, main

LONG = "for (int i = 0; i < 1000; i++)"


@pytest.mark.parametrize(
    ("body", "grid"),
    [
        # Every pass adds as much.
        (f"int n = 5; {LONG} n += 3; k<<<n, 1>>>(y, x, 0);", "3005"),
        (f"int n = 0; {LONG} for (int j = 0; j < 7; ++j) n++; k<<<n, 1>>>(y, x, 0);", "7000"),
        ("int n = 0; for (int i = 9; i <= 2000; i += 4) n++; k<<<n, 1>>>(y, x, 0);", "498"),
        ("int n = 0; for (int i = 2000; i > 8; i -= 3) n++; k<<<n, 1>>>(y, x, 0);", "664"),
        ("int i = 0; while (i != 500) { i++; } k<<<i, 1>>>(y, x, 0);", "500"),
        ("int i; for (i = 0; i < 700; i += 8) h(); k<<<i, 1>>>(y, x, 0);", "704"),
        ("int m = atoi(argv[1]), n = 0; for (int i = 0; i < m; i++) n += 2;"
         "k<<<n, 1>>>(y, x, 0);", "2*m"),
        # It does not depend on the pass.
        (f"int n = 5, m = 8; {LONG} {{ n = m; }} k<<<n, 1>>>(y, x, 0);", "8"),
        # The first passes do not tell what the last ones do.
        (f"int n = 5; {LONG} if (i == 900) n = 6; k<<<n, 1>>>(y, x, 0);", "n"),
        (f"int n = 5; {LONG} n = i / 100; k<<<n, 1>>>(y, x, 0);", "n"),
        (f"int n = 5; {LONG} n += (i > 700); k<<<n, 1>>>(y, x, 0);", "n"),
        (f"int n = 5; {LONG} {{ if (i % 2) continue; n++; }} k<<<n, 1>>>(y, x, 0);", "n"),
        (f"int n = 5; {LONG} {{ n++; if (n > 800) break; }} k<<<n, 1>>>(y, x, 0);", "n"),
        (f"int n = 1; {LONG} n = n * 3 % 7; k<<<n, 1>>>(y, x, 0);", "n"),
        (f"int n = 0, m = 0; {LONG} {{ n += m; m++; }} k<<<n, 1>>>(y, x, 0);", "n"),
        (f"int h[4] = {{1, 1, 1, 1}}; {LONG} h[i % 4] = i; k<<<h[3], 1>>>(y, x, 0);", "h_3"),
        ("int n = 0; for (int i = 0; more() && i < 1000; i++) n++; k<<<n, 1>>>(y, x, 0);", "n"),
    ],
)  # fmt: skip
def test_numbers_after_a_long_loop(body: str, grid: str) -> None:
    assert [each.split(",")[0] for each in launches(main(body))] == [f"k {grid}"]


def test_a_pass_that_is_only_tried_launches_nothing() -> None:
    body = f"int n = 0; {LONG} {{ n++; k<<<n, 1>>>(y, x, 0); }}\nk<<<n, 2>>>(y, x, 0);"
    found = [each.split(",")[0] for each in launches(main(body))]
    assert found == [*(f"k {n}" for n in range(1, 17)), "k 1000"]


@pytest.mark.parametrize(
    ("body", "nbytes"),
    [
        (f"std::vector<float> v; {LONG} v.push_back(1.0f);", "4000 B"),
        (f"std::vector<float> v(8); v.reserve(99); {LONG} v.emplace_back(i);", "4032 B"),
        ("std::vector<float> v; while (more()) v.push_back(1.0f);", "?"),
        (f"std::vector<float> v; {LONG} if (rand() % 2) v.push_back(1.0f);", "?"),
        (f"std::vector<float> v; {LONG} v.push_back(1.0f); v.clear(); v.push_back(2);", "4 B"),
    ],
)
def test_vectors_that_grow(body: str, nbytes: str) -> None:
    (found,) = launches(main(f"{body} k<<<1, 1>>>(thrust::raw_pointer_cast(v.data()), x, 0);"))
    assert found.split("|")[3].split(",")[0] == nbytes


def test_each_pass_of_a_long_loop_may_launch_another_kernel() -> None:
    work = " ".join(f"for (int {i} = 0; {i} < 999; {i}++)" for i in "abc") + " h[a] = b * c;"
    body = f"for (int s = 0; s < 8; s++) {{ {work} k<<<s + 1, 1>>>(y, x, 0); }}"
    found = [each.split(",")[0] for each in launches(main(f"int h[64]; {body}"))]
    assert found == [f"k {n}" for n in range(1, 9)]
