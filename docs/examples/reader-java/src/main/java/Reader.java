import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Prints the newest snapshots of a topic: rows, delta and the columns with the largest sums of squares.
 *
 * <pre>mvn -q compile exec:java -Dexec.args="localhost:9092 sketches"</pre>
 *
 * It shares no code with sfd-stream: docs/reference/formats.md says all that it needs.
 */
public final class Reader {
  private static final int TOP_COLUMNS = 5;

  private final Map<String, Snapshot> newest = new TreeMap<>();
  private int skipped = 0;

  public static void main(String[] arguments) {
    if (arguments.length != 2) {
      System.err.println("usage: Reader BROKER TOPIC");
      System.exit(2);
    }
    Reader reader = new Reader();
    reader.read(arguments[0], arguments[1]);
    if (reader.skipped > 0) {
      System.err.println("skipped " + reader.skipped + " messages that are no snapshots");
    }
    reader.print();
  }

  /** Reads all partitions up to their present ends. It joins no group and commits nothing. */
  private void read(String broker, String topic) {
    Map<String, Object> settings = Map.of("bootstrap.servers", broker, "isolation.level", "read_committed", "enable.auto.commit", false);
    try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new ByteArrayDeserializer())) {
      List<TopicPartition> partitions =
          consumer.partitionsFor(topic).stream().map(info -> new TopicPartition(topic, info.partition())).toList();
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
        consumer.poll(Duration.ofMillis(200)).forEach(this::keep);
      }
    }
  }

  /** Takes a record if it is newer than what its key has. A null value resets its key. */
  private void keep(ConsumerRecord<String, byte[]> record) {
    if (record.value() == null) {
      newest.remove(record.key());
      return;
    }
    try {
      Snapshot found = Snapshot.decode(record.value());
      if (!found.id().key().equals(record.key())) {
        throw new IOException("of another key");
      }
      Snapshot before = newest.get(record.key());
      if (before == null || found.id().after(before.id())) {
        newest.put(record.key(), found);
      }
    } catch (IOException | RuntimeException error) { // anyone with the right to write may have put anything there
      skipped++;
    }
  }

  private void print() {
    List<Snapshot> snapshots = new ArrayList<>();
    newest.forEach(
        (key, found) -> {
          if (found.stored() != null) {
            System.out.printf("%s\tin the store: %s%n", key, found.stored());
          } else {
            snapshots.add(found);
            printOne(key, found);
          }
        });
    if (snapshots.isEmpty()) {
      return;
    }
    try {
      printOne("all", Snapshot.merge(snapshots));
    } catch (IOException error) {
      System.out.printf("all\tnot merged: %s%n", error.getMessage());
    }
  }

  private static void printOne(String key, Snapshot found) {
    System.out.printf(Locale.ROOT, "%s\trows %d\tdelta %.6g\ttop %s%n", key, found.rows(), found.delta(), top(found));
  }

  /** The columns whose sums of squares in B are the largest. In A they are at most delta larger. */
  private static String top(Snapshot found) {
    double[] squares = found.squares();
    return IntStream.range(0, squares.length)
        .boxed()
        .sorted(Comparator.comparingDouble((Integer column) -> -squares[column]))
        .limit(TOP_COLUMNS)
        .map(column -> String.format(Locale.ROOT, "%s=%.6g", found.names().getOrDefault(column, column.toString()), squares[column]))
        .collect(Collectors.joining(" "));
  }
}
