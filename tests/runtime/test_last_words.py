"""What is told of a crashed child OS process: its last output, and of an interpreter's stack the crash."""

from __future__ import annotations

from perdure.runtime.steps.isolated.child import telling


def test_of_a_long_stack_the_place_of_the_crash_is_told_and_of_other_output_the_end() -> None:
    frames = "".join(f'  File "/a/long/path/of/a/project/file_{n}.py", line {n} in called_{n}\n' for n in range(50))
    modules = f"Extension modules: {', '.join(f'package._module_{n}' for n in range(60))}"
    told = telling(f"{'x' * 3000} its last words\nFatal Python error: Segmentation fault\n\n{frames}\n{modules}")
    assert "its last words\nFatal Python error: Segmentation fault" in told and "in called_0" in told
    assert "Extension" not in told and len(told) <= 2 * 1024 + 1
    assert telling(f"{'x' * 3000} the end\n").endswith("x the end")
