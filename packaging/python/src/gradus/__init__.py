"""Grades every step a tool-using AI agent takes.

`read` gives the trajectories of traces, `evaluate` judges them, `compare` compares two versions of an agent, and
`Client` talks to a running `gradus serve`. `grade_batches` and `gradus.spark` grade archives on Spark, Ray or Dask. The
pytest plugin gives tests the fixture `gradus`.
"""

from gradus._batches import VERDICT_ROW_COLUMNS, VerdictRow, grade_batches
from gradus._binary import GradusError, find_gradus_bin
from gradus._client import Annotation, Client, HumanLabel, Project, TraceDetail, TraceSummary
from gradus._comparison import ChangedTask, ComparedVersion, Comparison, Difference, compare
from gradus._evaluation import Accuracy, Evaluation, FailureGroup, GateResult, Interval, ToolUse, evaluate
from gradus._otlp import split_otlp
from gradus._recorder import NoRunError, RunRecorder
from gradus._run import CallCheck, Check, JudgeCheck, Run
from gradus._trajectory import Defect, Step, TokenUsage, ToolDefinition, Trajectories, Trajectory, read
from gradus._verdict import Verdict

__version__ = "0.1.0"

__all__ = [
    "Accuracy",
    "Annotation",
    "CallCheck",
    "ChangedTask",
    "Check",
    "Client",
    "ComparedVersion",
    "Comparison",
    "Defect",
    "Difference",
    "Evaluation",
    "FailureGroup",
    "GateResult",
    "GradusError",
    "HumanLabel",
    "Interval",
    "JudgeCheck",
    "NoRunError",
    "Project",
    "Run",
    "RunRecorder",
    "Step",
    "TokenUsage",
    "ToolDefinition",
    "ToolUse",
    "TraceDetail",
    "TraceSummary",
    "Trajectories",
    "Trajectory",
    "VERDICT_ROW_COLUMNS",
    "Verdict",
    "VerdictRow",
    "compare",
    "evaluate",
    "find_gradus_bin",
    "grade_batches",
    "read",
    "split_otlp",
    "__version__",
]
