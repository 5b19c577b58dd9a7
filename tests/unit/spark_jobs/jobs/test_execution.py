import pytest
from pyspark.errors import PySparkException

from spark_jobs.errors import PipelineError, SourceFailed, TasksFailed
from spark_jobs.jobs.execution import raise_task_errors

FAILED_IN_PYTHON = """\
[PYTHON_EXCEPTION] An exception was thrown from the worker:
Traceback (most recent call last):
  File "spark_jobs/log/reading.py", line 51, in read_range
logbroker.errors.CorruptBatch: a batch at 7 is not what its CRC says

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "spark_jobs/log/client_errors.py", line 24, in translate_client_errors
spark_jobs.errors.SourceFailed: orders-0 [0, 9): a batch at 7 is not what its CRC says
 SQLSTATE: 38000
"""
LOST = """\
Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task
0.3 in stage 0.0 (TID 3): ExecutorLostFailure (executor 2 exited caused by one of the running tasks)

Driver stacktrace:
"""


def raised(text: str) -> PipelineError:
    with pytest.raises(PipelineError) as caught, raise_task_errors():
        raise PySparkException(text)
    return caught.value


def test_a_pipeline_error_of_a_task_is_raised_unchanged() -> None:
    error = raised(FAILED_IN_PYTHON)
    assert type(error) is SourceFailed
    assert str(error) == "orders-0 [0, 9): a batch at 7 is not what its CRC says"


def test_another_error_of_a_task_is_raised_with_its_name() -> None:
    text = FAILED_IN_PYTHON.replace("spark_jobs.errors.SourceFailed", "KeyError")
    error = raised(f"{text}\n\tat org.apache.spark.Whatever\n")
    assert type(error) is TasksFailed
    assert str(error).endswith(": KeyError: orders-0 [0, 9): a batch at 7 is not what its CRC says")


def test_a_failure_without_a_traceback_has_one_line() -> None:
    error = raised(LOST)
    assert type(error) is TasksFailed
    assert "executor 2 exited" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("name", ["OfAnotherVersion", "__doc__"])
def test_an_unknown_error_name_is_not_raised(name: str) -> None:
    assert type(raised(f"spark_jobs.errors.{name}: what")) is TasksFailed
