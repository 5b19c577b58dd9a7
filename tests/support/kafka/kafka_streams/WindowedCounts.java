import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Counts the records of each key in windows of a minute, in a store with a changelog topic.
 *
 * <p>Arguments: PROPERTIES_FILE INPUT_TOPIC OUTPUT_TOPIC. Prints "restored STORE RECORDS" for each
 * partition of the store that is restored from its changelog. Ends cleanly when it is terminated.
 */
public class WindowedCounts {
  private static final Duration WINDOW = Duration.ofMinutes(1);

  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    try (InputStream file = new FileInputStream(arguments[0])) {
      properties.load(file);
    }
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
        .groupByKey()
        .windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW))
        .count(
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long())
                .withRetention(Duration.ofDays(1)))
        .toStream()
        .map(
            (window, count) ->
                KeyValue.pair(window.key() + "@" + window.window().start(), count.toString()))
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));

    KafkaStreams streams = new KafkaStreams(builder.build(), properties);
    streams.setGlobalStateRestoreListener(
        new StateRestoreListener() {
          @Override
          public void onRestoreStart(
              TopicPartition partition, String store, long startingOffset, long endingOffset) {}

          @Override
          public void onBatchRestored(
              TopicPartition partition, String store, long batchEndOffset, long restored) {}

          @Override
          public void onRestoreEnd(TopicPartition partition, String store, long restored) {
            System.err.println("restored " + store + " " + restored);
          }
        });
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
