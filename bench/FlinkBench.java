import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Apache Paimon on Flink, the peer of the CDC benchmarks: Kafka with debezium-json into a keyed table, two slots in one
 * JVM that stays warm. One command a line, one JSON line as the answer; columns are separated by semicolons.
 *
 * <pre>
 *   cdc    boot= topic= warehouse= columns=id:BIGINT;... key=id checkpoint_ms=    until the latest offset
 *   start  the same words                                                        starts a query that goes on
 *   stop                                                                         stops it; answers with CPU seconds
 *   follow    warehouse= columns= discovery_ms=      a streaming read of the table begins, with what comes next
 *   unfollow  out=                                   ends it; a line of CSV per row seen: note, event_us, seen_us
 *   changes warehouse= table=db.t rows=                                          so many changes, from the first snapshot
 *   make, ingest, digest                             as `PaimonBench` has them; checkpoints each two seconds
 * </pre>
 */
public class FlinkBench {
  private static final OperatingSystemMXBean SYSTEM =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

  private static int port;
  private static JobClient job;
  private static TableResult followed;
  private static Thread follower;
  private static final Queue<String> seen = new ConcurrentLinkedQueue<>();
  private static double cpuAtStart;

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err); // what libraries print must not be among the answers
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    startCluster();
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String answer;
      try {
        answer = run(line.trim().split(" "));
      } catch (Throwable failure) {
        failure.printStackTrace();
        answer = "{\"error\": \"" + String.valueOf(failure).replaceAll("[\\p{Cntrl}\"\\\\]", " ") + "\"}";
      }
      answers.println(answer);
      answers.flush();
    }
    Runtime.getRuntime().halt(0); // the cluster's threads would keep the JVM alive
  }

  private static String run(String[] words) throws Exception {
    switch (words[0]) {
      case "make":
        return FlinkIngest.make(words);
      case "ingest":
        return FlinkIngest.ingest(words, environment("2000"));
      case "digest":
        return PaimonBench.digest(words[1]);
      default:
        return ofQueries(words);
    }
  }

  private static String ofQueries(String[] words) throws Exception {
    Map<String, String> given = new HashMap<>();
    for (int place = 1; place < words.length; place++) {
      int at = words[place].indexOf('=');
      given.put(words[place].substring(0, at), words[place].substring(at + 1));
    }
    switch (words[0]) {
      case "cdc":
        double cpu = cpuSeconds();
        long started = System.nanoTime();
        insert(given, "'scan.bounded.mode'='latest-offset',").await();
        double seconds = (System.nanoTime() - started) / 1e9;
        return String.format(
            Locale.ROOT, "{\"seconds\": %.3f, \"cpu_seconds\": %.2f}", seconds, cpuSeconds() - cpu);
      case "start":
        cpuAtStart = cpuSeconds();
        job = insert(given, "").getJobClient().get();
        return "{\"seconds\": 0}";
      case "stop":
        job.cancel().get();
        return String.format(Locale.ROOT, "{\"seconds\": 0, \"cpu_seconds\": %.2f}", cpuSeconds() - cpuAtStart);
      case "follow":
        follow(given);
        return "{\"seconds\": 0}";
      case "unfollow":
        followed.getJobClient().get().cancel().get();
        follower.join();
        Files.write(Path.of(given.get("out")), seen);
        seen.clear();
        return "{\"seconds\": 0}";
      case "changes":
        return changes(given);
      default:
        throw new IllegalArgumentException("no command " + words[0]);
    }
  }

  /** What the streaming scan gives of a table, as texts such as "+I[1, a]"; waits until that many changes are there. */
  private static String changes(Map<String, String> given) throws Exception {
    StreamTableEnvironment tables = tables("10000");
    tables.executeSql(
        "CREATE CATALOG paimon WITH ('type'='paimon','warehouse'='file:" + given.get("warehouse") + "')");
    TableResult result =
        tables.executeSql(
            "SELECT * FROM paimon." + given.get("table")
                + " /*+ OPTIONS('scan.mode'='from-snapshot','scan.snapshot-id'='1') */");
    StringBuilder texts = new StringBuilder();
    int rows = Integer.parseInt(given.get("rows"));
    try (CloseableIterator<Row> changes = result.collect()) {
      for (int count = 0; count < rows; count++) {
        texts.append(count == 0 ? "\"" : ", \"").append(changes.next().toString().replace('"', '\'')).append('"');
      }
    }
    return "{\"seconds\": 0, \"changes\": [" + texts + "]}";
  }

  private static TableResult insert(Map<String, String> given, String bound) {
    StreamTableEnvironment tables = tables(given.get("checkpoint_ms"));
    String columns = given.get("columns").replace(';', ',').replace(':', ' ');
    tables.executeSql(
        "CREATE CATALOG paimon WITH ('type'='paimon','warehouse'='file:" + given.get("warehouse") + "')");
    tables.executeSql("CREATE DATABASE IF NOT EXISTS paimon.bench");
    tables.executeSql(
        "CREATE TEMPORARY TABLE changes (" + columns + ") WITH ('connector'='kafka','topic'='" + given.get("topic")
            + "','properties.bootstrap.servers'='" + given.get("boot") + "','scan.startup.mode'='earliest-offset',"
            + bound + "'format'='debezium-json')");
    tables.executeSql(
        "CREATE TABLE paimon.bench.t (" + columns + ", PRIMARY KEY (" + given.get("key")
            + ") NOT ENFORCED) WITH ('bucket'='2'" + options(given.getOrDefault("options", "")) + ")");
    return tables.executeSql("INSERT INTO paimon.bench.t SELECT * FROM changes");
  }

  private static String options(String given) {
    StringBuilder found = new StringBuilder();
    for (String pair : given.split(";")) {
      if (!pair.isEmpty()) {
        int at = pair.indexOf('=');
        found.append(",'").append(pair, 0, at).append("'='").append(pair.substring(at + 1)).append("'");
      }
    }
    return found.toString();
  }

  /** The moment that counts is when the reading task has the row. Without checkpoints rows come here at once. */
  private static void follow(Map<String, String> given) {
    StreamTableEnvironment tables = tables(null);
    tables.executeSql(
        "CREATE CATALOG paimon WITH ('type'='paimon','warehouse'='file:" + given.get("warehouse") + "')");
    followed = tables.executeSql(
        "SELECT note, event_us, CURRENT_ROW_TIMESTAMP() FROM paimon.bench.t /*+ OPTIONS('scan.mode'='latest',"
            + "'continuous.discovery-interval'='" + given.get("discovery_ms") + " ms') */");
    follower = new Thread(() -> collect(followed));
    follower.start();
  }

  private static void collect(TableResult rows) {
    try (CloseableIterator<Row> iterator = rows.collect()) {
      while (iterator.hasNext()) {
        Row row = iterator.next();
        if (row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER) {
          Instant at = (Instant) row.getField(2);
          seen.add(row.getField(0) + "," + row.getField(1) + "," + at.toEpochMilli() * 1000);
        }
      }
    } catch (Exception end) {
      System.err.println("the reader has ended: " + end); // so it does when it is cancelled
    }
  }

  private static StreamTableEnvironment tables(String checkpointMillis) {
    return StreamTableEnvironment.create(
        environment(checkpointMillis), EnvironmentSettings.newInstance().inStreamingMode().build());
  }

  private static StreamExecutionEnvironment environment(String checkpointMillis) {
    Configuration configuration = new Configuration();
    configuration.setString("execution.target", "remote");
    configuration.setString("rest.address", "localhost");
    configuration.setString("rest.port", String.valueOf(port));
    configuration.setString("restart-strategy.type", "none");
    configuration.setString("table.exec.sink.upsert-materialize", "NONE"); // the sink refuses it
    if (checkpointMillis != null) {
      configuration.setString("execution.checkpointing.interval", checkpointMillis + " ms");
    }
    StreamExecutionEnvironment environment = new StreamExecutionEnvironment(configuration);
    environment.setParallelism(2);
    return environment;
  }

  private static void startCluster() throws Exception {
    Configuration configuration = new Configuration();
    configuration.setString("rest.bind-port", "18081-18099");
    configuration.setString("rest.address", "localhost");
    configuration.setString("taskmanager.memory.managed.size", "512m");
    configuration.setString("taskmanager.memory.network.min", "256m");
    configuration.setString("taskmanager.memory.network.max", "256m");
    configuration.setString("heartbeat.timeout", "600000");
    MiniCluster cluster =
        new MiniCluster(
            new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(Integer.getInteger("bench.slots", 2))
                .build());
    cluster.start();
    port = cluster.getRestAddress().get().getPort();
  }

  private static double cpuSeconds() {
    return SYSTEM.getProcessCpuTime() / 1e9;
  }
}
