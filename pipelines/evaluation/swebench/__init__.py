"""SWE-bench: instances, prompts, patches and grading, as pure functions. What runs the tests is `infra.benchmarks`."""
