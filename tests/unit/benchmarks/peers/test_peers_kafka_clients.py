"""The lines that compare logbroker with Apache Kafka alone, and the output of Kafka's tools."""

from benchmarks.peers.kafka_clients import (
    KAFKA,
    KAFKA_FLUSHED,
    OURS,
    RAW_CASES,
    lines_of,
    parse_consumer,
    parse_producer,
)

JAVA = ("Java, acks=1", "Java, idempotent, acks=all", "Java, consumer")
STOCK = ("librdkafka, acks=1", "librdkafka, consumer", *JAVA)


def test_the_baseline_is_kafka_with_the_same_client() -> None:
    raw = [name for case in RAW_CASES for name in (f"raw, {case}", f"raw, {case}, broker CPU")]
    lines = list(
        lines_of(
            {
                OURS: {name: [90.0, 300.0, 60.0] for name in [*raw, *STOCK]},
                KAFKA: {name: [100.0] for name in [*raw, *STOCK]},
                KAFKA_FLUSHED: {name: [30.0] for name in JAVA},
            }
        )
    )
    met = {line.name: line.is_met for line in lines}
    assert met["librdkafka, acks=1"] is False
    assert met["  broker CPU"] is True, "less processor time is better"
    assert met["Java, idempotent, acks=all"] is True
    assert met["Java, idempotent, acks=all, both flush"] is True
    assert {line.ratio for line in lines} == {0.9, 3.0}


def test_the_rate_of_a_producer_in_java_is_in_its_last_line() -> None:
    output = (
        "301000 records sent, 60200.0 records/sec (11.48 MB/sec), 900.1 ms avg latency.\n"
        "2000000 records sent, 498256.1 records/sec (95.03 MB/sec), 312.02 ms avg latency, "
        "501.00 ms max latency, 310 ms 50th, 480 ms 95th, 495 ms 99th, 500 ms 99.9th."
    )
    assert parse_producer(output) == 498_256.1


def test_the_rate_of_a_consumer_in_java_leaves_out_the_time_to_join() -> None:
    output = (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
        "2026-11-23 22:00:00:000, 2026-11-23 22:00:04:100, 381.4, 93.0, 2000000, 487804.8, "
        "3280, 820, 465.1, 2439024.3"
    )
    assert parse_consumer(output) == 2_439_024.3
