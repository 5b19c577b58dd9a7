import json

from logbroker.client.raw import TopicPartition
from spark_jobs.jobs.load_report import LoadReport, report_json, report_lines
from spark_jobs.jobs.load_task import RangeOutcome, read_outcome, write_outcome
from spark_jobs.offsets.ranges import OffsetRange
from spark_jobs.tables.manifest import DataFile

FILE = DataFile("data/run=r/a/1.parquet", 6, 400, "a", 0, "2026-03-01", 7, 3, 9, 10, 20)
OUTCOMES = [
    RangeOutcome(
        OffsetRange("a", 0, 2, 10), 6, 120, files=(FILE,), missing=(OffsetRange("a", 0, 2, 3),)
    ),
    RangeOutcome(OffsetRange("a", 1, 0, 4), 4, 80, files=(FILE._replace(path="2", bytes=50),)),
    RangeOutcome(OffsetRange("b", 0, 7, 9), 2, 5),
]
REPORT = LoadReport(
    table="/t",
    run="r",
    outcomes=OUTCOMES,
    missing=[OffsetRange("a", 0, 0, 2), OffsetRange("a", 0, 2, 3)],
    replaced=["b"],
    seconds=1.25,
    gone=[TopicPartition("c", 3)],
    version=4,
)


def test_an_outcome_round_trips() -> None:
    rejected = RangeOutcome(OffsetRange("a", 0, 2, 10), 0, 0, error="gone\nfor good")
    for outcome in [*OUTCOMES, rejected]:
        assert read_outcome(write_outcome(outcome)) == outcome


def test_other_offsets_are_counted_as_without_a_record() -> None:
    assert [each.without_record for each in OUTCOMES] == [1, 0, 0]


def test_the_json_report_has_all_counts() -> None:
    assert json.loads(json.dumps(report_json(REPORT))) == {
        "version": 4,
        "run": "r",
        "records": 12,
        "readBytes": 205,
        "files": 2,
        "fileBytes": 450,
        "missingOffsets": 3,
        "missing": [
            {"topic": "a", "partition": 0, "start": 0, "end": 2},
            {"topic": "a", "partition": 0, "start": 2, "end": 3},
        ],
        "replacedTopics": ["b"],
        "gone": [{"topic": "c", "partition": 3}],
        "topics": {
            "a": {"records": 10, "withoutRecord": 1},
            "b": {"records": 2, "withoutRecord": 0},
        },
        "seconds": 1.25,
    }


def test_the_text_report_begins_with_what_is_missing() -> None:
    assert list(report_lines(REPORT)) == [
        "topic b was recreated: loaded from its first offset",
        "partition c-3 no longer exists: later loads skip it",
        "missing: a-0 [0, 2), 2 offsets deleted or unreadable",
        "missing: a-0 [2, 3), 1 offsets deleted or unreadable",
        "a: 10 records; 1 offsets without a record (compaction, markers)",
        "b: 2 records",
        "loaded 12 records (205 bytes) into 2 files (450 bytes) in 1.2 s; /t is at version 4",
    ]


def test_a_run_without_new_records_has_a_report() -> None:
    report = LoadReport("/t", "r", [], [], [], 0.1)
    assert list(report_lines(report)) == ["no new records: /t is up to date"]
    assert report_json(report)["version"] is None
