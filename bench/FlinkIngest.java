import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.paimon.flink.FlinkRowData;
import org.apache.paimon.flink.LogicalTypeConversion;
import org.apache.paimon.flink.sink.FlinkSinkBuilder;
import org.apache.paimon.table.FileStoreTable;

/**
 * The rows of a workload through Flink into a keyed table: one source, which keeps their order, and two writers; the
 * commits are Flink's checkpoints. The rows are made beforehand and stay in memory, as they do for the Java API.
 */
final class FlinkIngest {
  private static final PaimonBench ROWS = new PaimonBench(); // the task managers run in this JVM

  private FlinkIngest() {}

  static String make(String[] words) {
    return ROWS.make(words);
  }

  /** FOLDER threads key=value ... */
  static String ingest(String[] words, StreamExecutionEnvironment environment) throws Exception {
    Map<String, String> options = new HashMap<>();
    for (int place = 3; place < words.length; place++) {
      String[] pair = words[place].split("=", 2);
      options.put(pair[0], pair[1]);
    }
    FileStoreTable table = ROWS.create(words[1], options);
    int writers = Integer.parseInt(words[2]);
    long started = System.nanoTime();
    DataStream<RowData> rows =
        environment
            .fromSource(new NumberSequenceSource(0, ROWS.size() - 1), WatermarkStrategy.noWatermarks(), "numbers")
            .setParallelism(1)
            .map(new RowAt())
            .returns(InternalTypeInfo.of(LogicalTypeConversion.toLogicalType(table.rowType())))
            .setParallelism(1);
    new FlinkSinkBuilder(table).forRowData(rows).parallelism(writers).build();
    environment.executeAsync().getJobExecutionResult().get(); // execute() does not wait for a remote cluster
    return String.format(Locale.ROOT, "{\"seconds\": %.3f}", (System.nanoTime() - started) / 1e9);
  }

  private static final class RowAt implements MapFunction<Long, RowData> {
    @Override
    public RowData map(Long number) {
      return new FlinkRowData(ROWS.row(number));
    }
  }
}
