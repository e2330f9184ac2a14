import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.FileIO;
import org.apache.paimon.fs.Path;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.StreamTableCommit;
import org.apache.paimon.table.sink.StreamTableWrite;
import org.apache.paimon.table.sink.StreamWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DataType;

/**
 * Runs the workloads of workloads.py on Apache Paimon's own Java API, one command a line; the cells are those of
 * cells.py, the digest is that of digest.py:
 *
 *   store key=value ...                                                 how a place that is a URI is reached
 *   make NAME rows commits buckets keySpace writeOnly column:KIND ...   keeps the rows in memory
 *   ingest FOLDER threads key=value ...                                 writes and commits them, times it
 *   compact FOLDER                                                      full compaction
 *   read FOLDER threads [column ...]                                    reads merged rows, times it
 *   digest FOLDER                                                       one number for all cells
 *
 * Every answer is one JSON line; a failure is {"error": ...}.
 */
public final class PaimonBench {
    private static final long SEED = 20261121L;
    private static final long NULL_WORD = 0x6E756C6CL;
    private static final byte[] ALPHABET =
            "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_".getBytes(StandardCharsets.US_ASCII);

    private static final Options STORE = new Options();

    private String[] names;
    private String[] kinds;
    private int commits;
    private int buckets;
    private boolean writeOnly;
    private List<List<InternalRow>> rows;

    public static void main(String[] arguments) throws Exception {
        PaimonBench bench = new PaimonBench();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = bench.answer(line.trim().split(" "));
            } catch (Throwable failure) {
                failure.printStackTrace();
                answer = "{\"error\": \"" + failure.toString().replace("\\", "/").replace("\"", "'").replace("\n", " ") + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "store":
                return store(words);
            case "make":
                return make(words);
            case "ingest":
                return ingest(words);
            case "compact":
                return compact(words[1]);
            case "read":
                return read(words);
            case "digest":
                return digest(words[1]);
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static String store(String[] words) {
        for (int i = 1; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            STORE.set(pair[0], pair[1]);
        }
        return "{\"options\": " + STORE.toMap().size() + "}";
    }

    private static Path path(String place) {
        return place.contains("://") ? new Path(place) : new Path(new File(place).toURI());
    }

    private static FileIO fileIO(Path path) throws Exception {
        return FileIO.get(path, CatalogContext.create(STORE));
    }

    /** A folder of its own below it, which `close` removes. */
    private static IOManager scratch() {
        return IOManager.create(System.getProperty("java.io.tmpdir"));
    }

    String make(String[] words) {
        int rowCount = Integer.parseInt(words[2]);
        commits = Integer.parseInt(words[3]);
        buckets = Integer.parseInt(words[4]);
        long keySpace = Long.parseLong(words[5]);
        writeOnly = Boolean.parseBoolean(words[6]);
        int columns = words.length - 7;
        names = new String[columns];
        kinds = new String[columns];
        for (int i = 0; i < columns; i++) {
            String[] parts = words[7 + i].split(":", 2);
            names[i] = parts[0];
            kinds[i] = parts[1];
        }
        rows = new ArrayList<>();
        int perCommit = rowCount / commits;
        for (int commit = 0; commit < commits; commit++) {
            List<InternalRow> batch = new ArrayList<>(perCommit);
            for (long row = (long) commit * perCommit; row < (long) (commit + 1) * perCommit; row++) {
                Object[] values = new Object[columns];
                for (int column = 0; column < columns; column++) {
                    long bits = splitmix64(SEED + row * 64 + column);
                    values[column] = cell(kinds[column], bits, row, column == 0 ? keySpace : 0);
                }
                batch.add(GenericRow.of(values));
            }
            rows.add(batch);
        }
        return "{\"rows\": " + rowCount + "}";
    }

    /** How many rows were made. */
    long size() {
        return (long) commits * rows.get(0).size();
    }

    /** One of the rows made, counted from 0. */
    InternalRow row(long number) {
        int perCommit = rows.get(0).size();
        return rows.get((int) (number / perCommit)).get((int) (number % perCommit));
    }

    private static Object cell(String kind, long bits, long row, long keySpace) {
        if (!kind.endsWith("?")) {
            return value(kind, bits, row, keySpace);
        }
        boolean isNull = (splitmix64(~bits) & 1) == 1;
        return isNull ? null : value(kind.substring(0, kind.length() - 1), bits, row, keySpace);
    }

    private static Object value(String kind, long bits, long row, long keySpace) {
        if (kind.startsWith("KEY")) {
            return keyText(Long.remainderUnsigned(bits, keySpace), Integer.parseInt(kind.substring(3)));
        }
        if (kind.startsWith("TEXT")) {
            return text(bits, Integer.parseInt(kind.substring(4)));
        }
        if (kind.startsWith("INTS")) {
            int[] numbers = new int[(int) Long.remainderUnsigned(bits, Integer.parseInt(kind.substring(4)) + 1)];
            for (int i = 0; i < numbers.length; i++) {
                numbers[i] = (int) (splitmix64(bits + 1 + i) >>> 32);
            }
            return new GenericArray(numbers);
        }
        switch (kind) {
            case "BIGINT":
                return keySpace > 0 ? Long.remainderUnsigned(bits, keySpace) : bits;
            case "SMALL":
                return Long.remainderUnsigned(bits, 1000);
            case "QUARTER":
                return Long.remainderUnsigned(bits, 1L << 20) / 4.0;
            case "CLOCK":
                return row + Long.remainderUnsigned(bits, 200000);
            case "INT":
                return (int) (bits >>> 32);
            case "DOUBLE":
                return (bits >>> 11) / (double) (1L << 53);
            case "DECIMAL(14,4)":
                return Decimal.fromUnscaledLong(Long.remainderUnsigned(bits, 1000000000000L), 14, 4);
            case "TIMESTAMP(6)":
                return Timestamp.fromMicros(Long.remainderUnsigned(bits, 2000000000000000L));
            case "DATE":
                return (int) Long.remainderUnsigned(bits, 20000);
            case "BOOLEAN":
                return (bits & 1) == 1;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static DataType type(String kind) {
        if (kind.startsWith("INTS")) {
            return DataTypes.ARRAY(DataTypes.INT());
        }
        switch (kind.replace("?", "")) {
            case "BIGINT":
            case "SMALL":
            case "CLOCK":
                return DataTypes.BIGINT();
            case "INT":
                return DataTypes.INT();
            case "DOUBLE":
            case "QUARTER":
                return DataTypes.DOUBLE();
            case "DECIMAL(14,4)":
                return DataTypes.DECIMAL(14, 4);
            case "TIMESTAMP(6)":
                return DataTypes.TIMESTAMP(6);
            case "DATE":
                return DataTypes.DATE();
            case "BOOLEAN":
                return DataTypes.BOOLEAN();
            default:
                return DataTypes.STRING();
        }
    }

    private static long splitmix64(long value) {
        long z = value + 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    private static BinaryString text(long bits, int length) {
        byte[] symbols = new byte[length];
        for (int i = 0; i < length; i += 10) {
            long mixed = splitmix64(bits + i / 10);
            for (int j = i; j < Math.min(i + 10, length); j++) {
                symbols[j] = ALPHABET[(int) ((mixed >>> (6 * (j - i))) & 63)];
            }
        }
        return BinaryString.fromBytes(symbols);
    }

    private static BinaryString keyText(long key, int length) {
        byte[] digits = new byte[length];
        for (int i = length - 1; i >= 0; i--) {
            digits[i] = (byte) ('0' + Long.remainderUnsigned(key, 10));
            key = Long.divideUnsigned(key, 10);
        }
        return BinaryString.fromBytes(digits);
    }

    FileStoreTable create(String folder, Map<String, String> extra) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (int i = 0; i < names.length; i++) {
            schema.column(names[i], i == 0 ? type(kinds[i]).notNull() : type(kinds[i]));
        }
        schema.primaryKey(names[0]);
        schema.option("bucket", Integer.toString(buckets));
        if (writeOnly) {
            schema.option("write-only", "true");
        }
        extra.forEach(schema::option);
        Path path = path(folder);
        FileIO files = fileIO(path);
        new SchemaManager(files, path).createTable(schema.build());
        return FileStoreTableFactory.create(files, path);
    }

    private String ingest(String[] words) throws Exception {
        int threads = Integer.parseInt(words[2]);
        Map<String, String> extra = new HashMap<>();
        for (int i = 3; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            extra.put(pair[0], pair[1]);
        }
        // Engines compact fully at these commits, and wait for what makes a changelog; the Java API leaves that to its
        // caller.
        int every = Integer.parseInt(extra.getOrDefault("full-compaction.delta-commits", "0"));
        boolean looksUp = "lookup".equals(extra.get("changelog-producer"));
        FileStoreTable table = create(words[1], extra);
        StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser("bench");
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<StreamTableWrite> writers = new ArrayList<>();
        IOManager scratch = scratch();
        for (int i = 0; i < threads; i++) {
            StreamTableWrite writer = builder.newWrite();
            writer.withIOManager(scratch);
            writers.add(writer);
        }
        StreamTableCommit commit = builder.newCommit();
        HashBucketAssigner assigner = assigner(table);
        RowPartitionKeyExtractor keys = new RowPartitionKeyExtractor(table.schema());
        long started = System.nanoTime();
        for (int number = 0; number < commits; number++) {
            List<InternalRow> batch = rows.get(number);
            long identifier = number + 1;
            int[] assigned = assigner == null ? null : new int[batch.size()];
            for (int row = 0; assigned != null && row < assigned.length; row++) {
                InternalRow each = batch.get(row);
                assigned[row] = assigner.assign(keys.partition(each), keys.trimmedPrimaryKey(each).hashCode());
            }
            List<Future<List<CommitMessage>>> pending = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                StreamTableWrite writer = writers.get(i);
                int mine = i;
                Callable<List<CommitMessage>> job = () -> {
                    for (int at = 0; at < batch.size(); at++) {
                        InternalRow row = batch.get(at);
                        int bucket = assigned == null ? writer.getBucket(row) : assigned[at];
                        if (bucket % threads == mine) {
                            writer.write(row, bucket);
                        }
                    }
                    boolean full = every > 0 && identifier % every == 0;
                    for (int bucket = mine; full && bucket < buckets; bucket += threads) {
                        writer.compact(org.apache.paimon.data.BinaryRow.EMPTY_ROW, bucket, true);
                    }
                    return writer.prepareCommit(full || looksUp, identifier);
                };
                pending.add(pool.submit(job));
            }
            List<CommitMessage> messages = new ArrayList<>();
            for (Future<List<CommitMessage>> future : pending) {
                messages.addAll(future.get());
            }
            commit.commit(identifier, messages);
            if (assigner != null) {
                assigner.prepareCommit(identifier);
            }
        }
        List<CommitMessage> last = new ArrayList<>();
        for (StreamTableWrite writer : writers) {
            last.addAll(writer.prepareCommit(true, commits + 1));
        }
        commit.commit(commits + 1, last);
        double seconds = (System.nanoTime() - started) / 1e9;
        for (StreamTableWrite writer : writers) {
            writer.close();
        }
        commit.close();
        scratch.close();
        pool.shutdown();
        return "{\"seconds\": " + seconds + "}";
    }

    /** The only assigner of a table with dynamic buckets, null for other tables. */
    private static HashBucketAssigner assigner(FileStoreTable table) {
        if (table.bucketMode() != BucketMode.HASH_DYNAMIC) {
            return null;
        }
        return new HashBucketAssigner(
                table.snapshotManager(), "bench", table.store().newIndexFileHandler(), 1, 1, 0,
                table.coreOptions().dynamicBucketTargetRowNum(), table.coreOptions().dynamicBucketMaxBuckets());
    }

    private String compact(String folder) throws Exception {
        FileStoreTable table = open(folder);
        Map<String, String> dynamic = new HashMap<>();
        dynamic.put("write-only", "false");
        table = table.copy(dynamic);
        StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser("bench-compact");
        StreamTableWrite writer = builder.newWrite();
        IOManager scratch = scratch();
        writer.withIOManager(scratch);
        StreamTableCommit commit = builder.newCommit();
        long started = System.nanoTime();
        for (int bucket = 0; bucket < buckets; bucket++) {
            writer.compact(org.apache.paimon.data.BinaryRow.EMPTY_ROW, bucket, true);
        }
        commit.commit(1, writer.prepareCommit(true, 1));
        double seconds = (System.nanoTime() - started) / 1e9;
        writer.close();
        commit.close();
        scratch.close();
        return "{\"seconds\": " + seconds + "}";
    }

    private static FileStoreTable open(String folder) throws Exception {
        Path path = path(folder);
        return FileStoreTableFactory.create(fileIO(path), path);
    }

    private String read(String[] words) throws Exception {
        int threads = Integer.parseInt(words[2]);
        FileStoreTable table = open(words[1]);
        ReadBuilder builder = table.newReadBuilder();
        int keyPosition = 0;
        if (words.length > 3) {
            int[] projection = new int[words.length - 3];
            for (int i = 3; i < words.length; i++) {
                projection[i - 3] = table.rowType().getFieldIndex(words[i]);
            }
            builder.withProjection(projection);
        }
        boolean bigintKey = table.rowType().getTypeAt(0).getTypeRoot().name().equals("BIGINT");
        long started = System.nanoTime();
        List<Split> splits = builder.newScan().plan().splits();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<long[]>> pending = new ArrayList<>();
        for (Split split : splits) {
            pending.add(pool.submit(() -> {
                long[] sums = new long[2];
                try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
                    reader.forEachRemaining(row -> {
                        sums[0]++;
                        sums[1] += bigintKey ? row.getLong(keyPosition) : row.getString(keyPosition).getSizeInBytes();
                    });
                }
                return sums;
            }));
        }
        long count = 0;
        long checksum = 0;
        for (Future<long[]> future : pending) {
            count += future.get()[0];
            checksum += future.get()[1];
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        pool.shutdown();
        return "{\"seconds\": " + seconds + ", \"rows\": " + count + ", \"checksum\": " + checksum
                + ", \"splits\": " + splits.size() + "}";
    }

    static String digest(String folder) throws Exception {
        FileStoreTable table = open(folder);
        List<DataType> types = table.rowType().getFieldTypes();
        ReadBuilder builder = table.newReadBuilder();
        long[] sums = new long[2];
        for (Split split : builder.newScan().plan().splits()) {
            try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
                reader.forEachRemaining(row -> {
                    long words = 0;
                    for (int column = 0; column < types.size(); column++) {
                        words += splitmix64(cellWord(row, column, types.get(column)) + column);
                    }
                    sums[0]++;
                    sums[1] += splitmix64(words);
                });
            }
        }
        String checksum = Long.toUnsignedString(sums[1]);
        return "{\"seconds\": 0, \"rows\": " + sums[0] + ", \"checksum\": " + checksum + "}";
    }

    private static long cellWord(InternalRow row, int column, DataType type) {
        if (row.isNullAt(column)) {
            return NULL_WORD;
        }
        switch (type.getTypeRoot()) {
            case BIGINT:
                return splitmix64(row.getLong(column));
            case INTEGER:
            case DATE:
                return splitmix64(row.getInt(column));
            case DOUBLE:
                return splitmix64(Double.doubleToRawLongBits(row.getDouble(column)));
            case DECIMAL:
                return splitmix64(row.getDecimal(column, 14, 4).toUnscaledLong());
            case TIMESTAMP_WITHOUT_TIME_ZONE:
                return splitmix64(row.getTimestamp(column, 6).toMicros());
            case BOOLEAN:
                return splitmix64(row.getBoolean(column) ? 1 : 0);
            case VARCHAR:
                return textWord(row.getString(column).toBytes());
            case ARRAY:
                return numbersWord(row.getArray(column));
            default:
                throw new IllegalArgumentException(type.toString());
        }
    }

    private static long textWord(byte[] bytes) {
        long sum = bytes.length;
        for (int i = 0; i < bytes.length; i++) {
            sum += splitmix64((bytes[i] & 255) + 256L * i);
        }
        return splitmix64(sum);
    }

    private static long numbersWord(InternalArray numbers) {
        long sum = numbers.size();
        for (int i = 0; i < numbers.size(); i++) {
            sum += splitmix64((numbers.isNullAt(i) ? NULL_WORD : splitmix64(numbers.getInt(i))) + i);
        }
        return splitmix64(sum);
    }
}
