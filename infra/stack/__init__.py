"""The local stack: Prefect, MLflow and the vLLM replicas as child processes of one supervisor.

`lifecycle` starts, stops and observes it; `supervisor` is the process that keeps it running; `parts` says what runs and
how; `state` is what stands in `<home>/stack.json`. Refuses to know what the parts are used for.
"""
