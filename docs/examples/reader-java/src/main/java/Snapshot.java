import com.github.luben.zstd.Zstd;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.msgpack.core.MessagePack;
import org.msgpack.value.Value;

/** A message of the snapshot topic: a snapshot, or a reference to one that is in the checkpoint store. */
record Snapshot(
    Id id, long rows, double delta, String meaning, double[] squares, Map<Integer, String> names, List<String> inputs, String stored) {

  static final long MAX_BYTES = 1L << 30; // what one snapshot may take when it is decoded

  /** Who it is. Of two messages of one key the one with the greater (epoch, number) is the newer. */
  record Id(String key, long epoch, long number) {
    boolean after(Id other) {
      return epoch != other.epoch ? epoch > other.epoch : number > other.number;
    }
  }

  /** Checks the seal before anything else is believed. */
  static Snapshot decode(byte[] value) throws IOException {
    Map<String, Value> sealed = map(unpack(value));
    String schema = sealed.get("schema").asStringValue().asString();
    int version = sealed.get("version").asIntegerValue().asInt();
    byte[] body = bytes(sealed.get("body"));
    if (!Arrays.equals(checksum(schema + " " + version + " ", body), bytes(sealed.get("checksum")))) {
      throw new IOException("damaged");
    }
    if (version != 1) {
      throw new IOException("version " + version + " is newer than this reader");
    }
    Map<String, Value> fields = map(unpack(body));
    return switch (schema) {
      case "sfd-reference" -> reference(fields);
      case "sfd-snapshot" -> snapshot(fields);
      default -> throw new IOException("unknown schema " + schema);
    };
  }

  private static Snapshot reference(Map<String, Value> fields) {
    String stored = text(fields, "store") + "/" + text(fields, "key") + "\t" + number(fields, "size") + " bytes";
    return new Snapshot(idOf(fields), 0, 0, "", new double[0], Map.of(), List.of(), stored);
  }

  private static Snapshot snapshot(Map<String, Value> fields) throws IOException {
    Id id = idOf(fields);
    List<String> inputs = fields.get("parts").asArrayValue().list().stream().map(part -> idOf(map(part)).key()).toList();
    String columns = text(fields, "columns");
    // What must be equal for columns to mean the same.
    String meaning = columns.equals("hashed") ? columns + fields.get("hash_seed") + "/" + fields.get("d") : columns;
    double delta = fields.get("delta").asFloatValue().toDouble();
    return new Snapshot(id, number(fields, "rows"), delta, meaning, squares(fields), names(fields.get("names")),
        inputs.isEmpty() ? List.of(id.key()) : inputs, null);
  }

  /** The sum of squares of each column of B. Sizes are checked before memory is taken for them. */
  private static double[] squares(Map<String, Value> fields) throws IOException {
    long d = number(fields, "d");
    long rows = number(fields, "matrix_rows");
    if (rows > number(fields, "ell") || d > MAX_BYTES / 8 || 8 * d * (rows + 1) > MAX_BYTES) {
      throw new IOException("too large");
    }
    boolean wide = text(fields, "dtype").equals("float64");
    byte[] raw = decompress(bytes(fields.get("matrix")), rows * d * (wide ? 8 : 4));
    ByteBuffer numbers = ByteBuffer.wrap(raw).order(ByteOrder.LITTLE_ENDIAN);
    double[] squares = new double[(int) d];
    for (int place = 0; place < rows * d; place++) {
      double number = wide ? numbers.getDouble() : numbers.getFloat();
      squares[(int) (place % d)] += number * number;
    }
    return squares;
  }

  /** Names of hashed columns, those known. */
  private static Map<Integer, String> names(Value packed) throws IOException {
    Map<Integer, String> names = new HashMap<>();
    if (!packed.isNilValue()) {
      byte[] pressed = bytes(packed);
      List<Value> lists = unpack(decompress(pressed, Zstd.getFrameContentSize(pressed))).asArrayValue().list();
      List<Value> columns = lists.get(0).asArrayValue().list();
      List<Value> texts = lists.get(1).asArrayValue().list();
      for (int place = 0; place < columns.size(); place++) {
        names.put(columns.get(place).asIntegerValue().asInt(), texts.get(place).asStringValue().asString());
      }
    }
    return names;
  }

  /**
   * Adds up snapshots of different rows ("Merging" in docs/reference/formats.md). B is the rows of all B, one below the other, so rows,
   * deltas and sums of squares add up.
   */
  static Snapshot merge(List<Snapshot> snapshots) throws IOException {
    double[] squares = new double[snapshots.stream().mapToInt(one -> one.squares.length).max().orElse(0)];
    Map<Integer, String> names = new HashMap<>();
    Set<String> inputs = new HashSet<>();
    long rows = 0;
    double delta = 0;
    for (Snapshot one : snapshots) {
      if (!one.meaning.equals(snapshots.get(0).meaning)) {
        throw new IOException("columns do not mean the same");
      }
      for (String input : one.inputs) {
        if (!inputs.add(input)) {
          throw new IOException("the rows of " + input + " would count twice");
        }
      }
      for (int column = 0; column < one.squares.length; column++) {
        squares[column] += one.squares[column];
      }
      names.putAll(one.names);
      rows += one.rows;
      delta += one.delta;
    }
    return new Snapshot(null, rows, delta, "", squares, names, List.copyOf(inputs), null);
  }

  private static Id idOf(Map<String, Value> fields) {
    Map<String, Value> id = map(fields.get("id"));
    String key = text(id, "group") + "/" + text(id, "topic") + "/" + number(id, "partition");
    Value window = id.get("window");
    return new Id(window.isNilValue() ? key : key + "@" + window.asStringValue().asString(), number(id, "epoch"), number(id, "number"));
  }

  private static byte[] decompress(byte[] pressed, long size) throws IOException {
    if (size < 0 || size > MAX_BYTES || Zstd.getFrameContentSize(pressed) != size) {
      throw new IOException("what is compressed has another size than its head says");
    }
    return Zstd.decompress(pressed, (int) size);
  }

  private static byte[] checksum(String head, byte[] body) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      digest.update(head.getBytes(StandardCharsets.UTF_8));
      return Arrays.copyOf(digest.digest(body), 16);
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error); // every Java has SHA-256
    }
  }

  private static Value unpack(byte[] data) throws IOException {
    try (var unpacker = MessagePack.newDefaultUnpacker(data)) {
      return unpacker.unpackValue();
    }
  }

  private static Map<String, Value> map(Value value) {
    Map<String, Value> fields = new HashMap<>();
    value.asMapValue().map().forEach((key, field) -> fields.put(key.asStringValue().asString(), field));
    return fields;
  }

  private static byte[] bytes(Value value) {
    return value.asBinaryValue().asByteArray();
  }

  private static String text(Map<String, Value> fields, String name) {
    return fields.get(name).asStringValue().asString();
  }

  private static long number(Map<String, Value> fields, String name) {
    return fields.get(name).asIntegerValue().asLong();
  }
}
