/*
 * Apache Paimon as a judge: a child process that does what a line of JSON asks for and answers with a line of JSON.
 *
 * Requests:  {"op": NAME, ...}               Answers: {"ok": ...} or {"error": {"class", "message", "stack", "causes"}}
 * Rows never travel as JSON. They lie in "columns files", whose layout is Arrow's own buffers, so that neither side
 * converts anything: a line of JSON {"rows": n, "buffers": [length or -1, ...]}, then the buffers one after another.
 * First the row kinds (one byte a row), then for each column, depth first:
 *
 *     any column     validity bitmap (-1: no nulls), then
 *     BOOLEAN        bitmap                               CHAR VARCHAR BINARY VARBINARY   int32 offsets, bytes
 *     numbers, DATE  little-endian values                 ARRAY   int32 offsets, then the element column
 *     TIME           int32 milliseconds                   MAP     int32 offsets, entry validity, key and value columns
 *     TIMESTAMP(p)   int64 in s, ms, us or ns by p        ROW     the field columns
 *     DECIMAL        16-byte two's complement
 *
 * Run as a single source file: java -cp <paimon, hadoop client, slf4j> PaimonJudge.java
 */

import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.ToIntFunction;
import java.util.UUID;

import org.apache.paimon.CoreOptions;
import org.apache.paimon.KeyValue;
import org.apache.paimon.KeyValueFileStore;
import org.apache.paimon.Snapshot;
import org.apache.paimon.casting.CastExecutor;
import org.apache.paimon.casting.CastExecutors;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.catalog.PropertyChange;
import org.apache.paimon.consumer.Consumer;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.DataGetters;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.FileIO;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.crosspartition.GlobalIndexAssigner;
import org.apache.paimon.crosspartition.IndexBootstrap;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.BucketEntry;
import org.apache.paimon.operation.FileSystemWriteRestore;
import org.apache.paimon.operation.LocalOrphanFilesClean;
import org.apache.paimon.operation.MergeFileSplitRead;
import org.apache.paimon.options.ConfigOption;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.options.FallbackKey;
import org.apache.paimon.options.Options;
import org.apache.paimon.partition.actions.SuccessFileMarkDoneAction;
import org.apache.paimon.postpone.BucketFiles;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.schema.TableSchema;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.shade.org.apache.datasketches.hll.HllSketch;
import org.apache.paimon.shade.org.apache.datasketches.memory.Memory;
import org.apache.paimon.shade.org.apache.datasketches.theta.HashIterator;
import org.apache.paimon.shade.org.apache.datasketches.theta.Sketch;
import org.apache.paimon.shade.org.roaringbitmap.RoaringBitmap;
import org.apache.paimon.shade.org.roaringbitmap.longlong.Roaring64Bitmap;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.PostponeUtils;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.CommitMessageSerializer;
import org.apache.paimon.table.sink.RowKeyExtractor;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.table.source.TableScan;
import org.apache.paimon.table.system.SystemTableLoader;
import org.apache.paimon.tag.TagTimeExpire;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DataTypeRoot;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.LocalZonedTimestampType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.types.TimestampType;
import org.apache.paimon.utils.HllSketchUtil;
import org.apache.paimon.utils.RoaringBitmap32;
import org.apache.paimon.utils.RoaringBitmap64;
import org.apache.paimon.utils.SerializationUtils;
import org.apache.paimon.utils.ThetaSketch;

public class PaimonJudge {

    static final ObjectMapper JSON = new ObjectMapper();
    static java.nio.file.Path scratch;

    public static void main(String[] arguments) throws Exception {
        scratch = Paths.get(arguments[0]);
        PrintStream answers = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err); // what libraries print must not end up between the answers
        ProcessHandle.current().parent().ifPresent(parent -> parent.onExit().thenRun(() -> Runtime.getRuntime().halt(1)));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", JSON.valueToTree(answer(JSON.readTree(line))));
            } catch (Throwable error) {
                answer.set("error", describe(error));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    static Object answer(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "ping": return Map.of("version", String.valueOf(FileStoreTable.class.getPackage().getImplementationVersion()));
            case "create_table": return createTable(request);
            case "alter_table": return alterTable(request);
            case "catalog": return onCatalog(request);
            case "schema": return schema(request);
            case "snapshot": return snapshot(request);
            case "write": return write(request);
            case "commit": return commit(request);
            case "compact_postponed": return compactPostponed(request);
            case "compact_manifests": return compactManifests(request);
            case "read": return read(request);
            case "plan": return plan(request);
            case "changelog": return changelog(request);
            case "maintain": return maintain(request);
            case "row_keys": return rowKeys(request);
            case "binary_rows": return binaryRows(request);
            case "cast": return cast(request);
            case "make_sketches": return makeSketches(request);
            case "read_sketches": return readSketches(request);
            case "core_options": return coreOptions();
            default: throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    /** The keys of all options that CoreOptions declares, with the former ones of each. */
    static Object coreOptions() throws Exception {
        Map<String, List<String>> found = new TreeMap<>();
        for (java.lang.reflect.Field field : CoreOptions.class.getFields()) {
            if (ConfigOption.class.isAssignableFrom(field.getType())) {
                ConfigOption<?> option = (ConfigOption<?>) field.get(null);
                List<String> former = new ArrayList<>();
                for (FallbackKey key : option.fallbackKeys()) {
                    former.add(key.getKey());
                }
                found.put(option.key(), former);
            }
        }
        return found;
    }

    // ------------------------------------------------------------------------------------------ tables and schemas

    static Object createTable(JsonNode request) throws Exception {
        return tree(new SchemaManager(fileIO(request), path(request)).createTable(newSchema(request)));
    }

    static Schema newSchema(JsonNode request) {
        Schema.Builder schema = Schema.newBuilder(); // hands out the field ids
        for (JsonNode field : request.get("fields")) {
            schema.column(
                    field.get("name").asText(), type(field.get("type")),
                    text(field, "description", null), text(field, "defaultValue", null));
        }
        schema.partitionKeys(strings(request.get("partition_keys"))).primaryKey(strings(request.get("primary_keys")));
        schema.options(stringMap(request.get("options"))).comment(text(request, "comment", ""));
        return schema.build();
    }

    static Object alterTable(JsonNode request) throws Exception {
        return tree(new SchemaManager(fileIO(request), path(request), text(request, "branch", "main")).commitChanges(schemaChanges(request)));
    }

    static List<SchemaChange> schemaChanges(JsonNode request) {
        List<SchemaChange> changes = new ArrayList<>();
        for (JsonNode change : request.get("changes")) {
            changes.add(schemaChange(change));
        }
        return changes;
    }

    // ------------------------------------------------------------------------------------------ catalogs

    static final Map<String, Catalog> CATALOGS = new HashMap<>();

    /** The catalog of the request's options; one for each set of options. */
    static Catalog catalog(JsonNode request) {
        Map<String, String> options = stringMap(request.get("catalog"));
        return CATALOGS.computeIfAbsent(
                options.toString(), key -> CatalogFactory.createCatalog(CatalogContext.create(Options.fromMap(options))));
    }

    static Identifier identifier(JsonNode request, String key) {
        return Identifier.fromString(request.get(key).asText());
    }

    static Object onCatalog(JsonNode request) throws Exception {
        Catalog catalog = catalog(request);
        String database = text(request, "database", null);
        switch (request.get("call").asText()) {
            case "list_databases": return catalog.listDatabases();
            case "list_tables": return catalog.listTables(database);
            case "database_properties": return catalog.getDatabase(database).options();
            case "create_database": catalog.createDatabase(database, false, stringMap(request.get("properties"))); return null;
            case "alter_database":
                List<PropertyChange> changes = new ArrayList<>();
                request.get("properties").fields().forEachRemaining(each -> changes.add(
                        each.getValue().isNull()
                                ? PropertyChange.removeProperty(each.getKey())
                                : PropertyChange.setProperty(each.getKey(), each.getValue().asText())));
                catalog.alterDatabase(database, changes, false);
                return null;
            case "drop_database": catalog.dropDatabase(database, false, flag(request, "cascade")); return null;
            case "create_table": catalog.createTable(identifier(request, "name"), newSchema(request), false); return null;
            case "alter_table": catalog.alterTable(identifier(request, "name"), schemaChanges(request), false); return null;
            case "rename_table":
                catalog.renameTable(identifier(request, "name"), identifier(request, "to"), false);
                return null;
            case "drop_table": catalog.dropTable(identifier(request, "name"), false); return null;
            case "repair_table": catalog.repairTable(identifier(request, "name")); return null;
            case "location": return table(request).location().toString();
            default: throw new IllegalArgumentException("call " + request.get("call"));
        }
    }

    static SchemaChange schemaChange(JsonNode change) {
        String[] column = change.has("column") ? strings(change.get("column")).toArray(new String[0]) : null;
        switch (change.get("change").asText()) {
            case "add_column":
                return SchemaChange.addColumn(column, type(change.get("type")), text(change, "comment", null), move(change));
            case "drop_column": return SchemaChange.dropColumn(column);
            case "rename_column": return SchemaChange.renameColumn(column, change.get("to").asText());
            case "column_type": return SchemaChange.updateColumnType(column, type(change.get("type")), flag(change, "keep_nullability"));
            case "column_nullable": return SchemaChange.updateColumnNullability(column, change.get("nullable").asBoolean());
            case "column_comment": return SchemaChange.updateColumnComment(column, change.get("comment").asText());
            case "column_default": return SchemaChange.updateColumnDefaultValue(column, change.get("value").asText());
            case "column_position": return SchemaChange.updateColumnPosition(move(change));
            case "set_option": return SchemaChange.setOption(change.get("key").asText(), change.get("value").asText());
            case "remove_option": return SchemaChange.removeOption(change.get("key").asText());
            case "comment": return SchemaChange.updateComment(change.get("comment").asText());
            default: throw new IllegalArgumentException("unknown schema change " + change);
        }
    }

    static SchemaChange.Move move(JsonNode change) {
        List<String> column = strings(change.get("column"));
        String name = column.get(column.size() - 1);
        if (change.has("first")) {
            return SchemaChange.Move.first(name);
        }
        if (change.has("last")) {
            return SchemaChange.Move.last(name);
        }
        if (change.has("after")) {
            return SchemaChange.Move.after(name, change.get("after").asText());
        }
        return change.has("before") ? SchemaChange.Move.before(name, change.get("before").asText()) : null;
    }

    static Object schema(JsonNode request) throws Exception {
        SchemaManager schemas = request.hasNonNull("catalog")
                ? table(request).schemaManager()
                : new SchemaManager(fileIO(request), path(request), text(request, "branch", "main"));
        return tree(request.hasNonNull("id") ? schemas.schema(request.get("id").asLong()) : schemas.latest().get());
    }

    static Object snapshot(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        if (request.hasNonNull("id")) {
            return JSON.readTree(table.snapshot(request.get("id").asLong()).toJson());
        }
        Snapshot latest = table.snapshotManager().latestSnapshot();
        return latest == null ? null : JSON.readTree(latest.toJson());
    }

    // ------------------------------------------------------------------------------------------ bitmaps and sketches

    /** For each list of numbers the bytes (base64) of a bitmap or sketch that holds them. */
    static Object makeSketches(JsonNode request) throws Exception {
        List<String> made = new ArrayList<>();
        for (JsonNode members : request.get("members")) {
            long[] numbers = new long[members.size()];
            for (int index = 0; index < numbers.length; index++) {
                numbers[index] = members.get(index).asLong();
            }
            int[] ints = Arrays.stream(numbers).mapToInt(number -> (int) number).toArray();
            byte[] bytes;
            switch (request.get("kind").asText()) {
                case "rbm32": bytes = RoaringBitmap32.bitmapOf(ints).serialize(); break;
                case "rbm64": bytes = RoaringBitmap64.bitmapOf(numbers).serialize(); break;
                case "hll_sketch": bytes = HllSketchUtil.sketchOf(ints); break;
                case "theta_sketch": bytes = ThetaSketch.sketchOf(ints); break;
                default: throw new IllegalArgumentException("no such sketch: " + request.get("kind"));
            }
            made.add(Base64.getEncoder().encodeToString(bytes));
        }
        return made;
    }

    /** What bitmaps and sketches hold: members, hashes, or an estimate; as texts. */
    static Object readSketches(JsonNode request) throws Exception {
        List<List<String>> held = new ArrayList<>();
        for (JsonNode value : request.get("values")) {
            byte[] bytes = Base64.getDecoder().decode(value.asText());
            List<String> texts = new ArrayList<>();
            switch (request.get("kind").asText()) {
                case "rbm32":
                    RoaringBitmap bitmap = new RoaringBitmap();
                    bitmap.deserialize(ByteBuffer.wrap(bytes));
                    bitmap.forEach((org.apache.paimon.shade.org.roaringbitmap.IntConsumer) member -> texts.add(String.valueOf(member)));
                    break;
                case "rbm64":
                    Roaring64Bitmap bitmap64 = new Roaring64Bitmap();
                    bitmap64.deserialize(new DataInputStream(new java.io.ByteArrayInputStream(bytes)));
                    bitmap64.forEach((org.apache.paimon.shade.org.roaringbitmap.longlong.LongConsumer) member -> texts.add(String.valueOf(member)));
                    break;
                case "hll_sketch":
                    HllSketch hll = HllSketch.heapify(bytes);
                    texts.add(hll.getLgConfigK() + " " + String.format(java.util.Locale.ROOT, "%.6f", hll.getCompositeEstimate()));
                    break;
                case "theta_sketch":
                    Sketch theta = Sketch.wrap(Memory.wrap(bytes));
                    texts.add("theta " + theta.getThetaLong());
                    for (HashIterator hashes = theta.iterator(); hashes.next(); ) {
                        texts.add(String.valueOf(hashes.get()));
                    }
                    break;
                default: throw new IllegalArgumentException("no such sketch: " + request.get("kind"));
            }
            held.add(texts);
        }
        return held;
    }

    // ------------------------------------------------------------------------------------------ writing

    /** Writes batches, compacts if asked, and commits, or returns the serialized messages for a later "commit". */
    static Object write(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        String user = request.get("user").asText();
        long identifier = request.get("identifier").asLong();
        java.nio.file.Path spill = Files.createTempDirectory(scratch, "spill");
        List<CommitMessage> messages;
        try (IOManager ioManager = IOManager.create(spill.toString());
                TableWriteImpl<?> write = request.hasNonNull("writer")
                        ? table.newWrite(user, request.get("writer").asInt())
                        : table.newWrite(user)) {
            write.withIgnorePreviousFiles(request.hasNonNull("overwrite"));
            write.withIOManager(ioManager);
            Map<BinaryRow, Set<Integer>> buckets = new LinkedHashMap<>();
            ToIntFunction<InternalRow> bucketOf = bucketOf(table, user, request);
            if (table.bucketMode() == BucketMode.KEY_DYNAMIC && !request.hasNonNull("bucket")) {
                writeMoving(table, write, ioManager, request);
            }
            for (JsonNode file : bucketOf == null && table.bucketMode() == BucketMode.KEY_DYNAMIC
                    ? List.<JsonNode>of() : request.get("batches")) {
                Rows rows = Rows.load(file.asText(), table.rowType());
                for (int index = 0; index < rows.count; index++) {
                    InternalRow row = rows.row(index);
                    int bucket = bucketOf == null ? write.getBucket(row) : bucketOf.applyAsInt(row);
                    if (bucketOf == null) {
                        write.write(row);
                    } else {
                        write.write(row, bucket);
                    }
                    if (request.hasNonNull("compact")) {
                        buckets.computeIfAbsent(write.getPartition(row).copy(), key -> new LinkedHashSet<>()).add(bucket);
                    }
                }
            }
            if (request.hasNonNull("compact")) {
                for (BucketEntry entry : table.newSnapshotReader().bucketEntries()) {
                    buckets.computeIfAbsent(entry.partition(), key -> new LinkedHashSet<>()).add(entry.bucket());
                }
                List<Integer> only = request.hasNonNull("compact_buckets") ? integers(request.get("compact_buckets")) : null;
                boolean full = request.get("compact").asText().equals("full");
                for (Map.Entry<BinaryRow, Set<Integer>> entry : buckets.entrySet()) {
                    for (int bucket : entry.getValue()) {
                        if (only == null || only.contains(bucket)) {
                            write.compact(entry.getKey(), bucket, full);
                        }
                    }
                }
            }
            messages = write.prepareCommit(true, identifier);
        }
        if (request.hasNonNull("commit") && !request.get("commit").asBoolean()) {
            List<String> encoded = new ArrayList<>();
            for (byte[] message : CommitMessageSerializer.serializeAll(messages)) {
                encoded.add(Base64.getEncoder().encodeToString(message));
            }
            return Map.of("messages", encoded);
        }
        return commit(table, request, messages);
    }

    /** Rows that move between partitions, by a single assigner whose index is built from the table. */
    static void writeMoving(FileStoreTable table, TableWriteImpl<?> write, IOManager ioManager, JsonNode request)
            throws Exception {
        try (GlobalIndexAssigner assigner = new GlobalIndexAssigner(table)) {
            assigner.open(0, null, ioManager, 1, 0, (row, bucket) -> {
                try {
                    write.write(row, bucket);
                } catch (Exception error) {
                    throw new RuntimeException(error);
                }
            });
            new IndexBootstrap(table).bootstrap(1, 0, key -> {
                try {
                    assigner.bootstrapKey(key);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
            assigner.endBoostrap(false);
            for (JsonNode file : request.get("batches")) {
                Rows rows = Rows.load(file.asText(), table.rowType());
                for (int index = 0; index < rows.count; index++) {
                    assigner.processInput(rows.row(index));
                }
            }
        }
    }

    /** The bucket of each row: the one asked for, or that of a single assigner; null where it follows from the key. */
    static ToIntFunction<InternalRow> bucketOf(FileStoreTable table, String user, JsonNode request) {
        if (request.hasNonNull("bucket")) {
            int bucket = request.get("bucket").asInt();
            return row -> bucket;
        }
        if (table.bucketMode() != BucketMode.HASH_DYNAMIC) {
            return null;
        }
        CoreOptions options = table.coreOptions();
        HashBucketAssigner assigner = new HashBucketAssigner(
                table.snapshotManager(), user, table.store().newIndexFileHandler(), 1, 1, 0,
                options.dynamicBucketTargetRowNum(), options.dynamicBucketMaxBuckets());
        RowPartitionKeyExtractor extractor = new RowPartitionKeyExtractor(table.schema());
        return row -> assigner.assign(extractor.partition(row), extractor.trimmedPrimaryKey(row).hashCode());
    }

    static Object commit(JsonNode request) throws Exception {
        List<byte[]> encoded = new ArrayList<>();
        for (JsonNode message : request.get("messages")) {
            encoded.add(Base64.getDecoder().decode(message.asText()));
        }
        return commit(table(request), request, CommitMessageSerializer.deserializeAll(encoded));
    }

    static Object commit(FileStoreTable table, JsonNode request, List<CommitMessage> messages) throws Exception {
        Long before = table.snapshotManager().latestSnapshotId();
        int committed = 1;
        try (TableCommitImpl commit = table.newCommit(request.get("user").asText())) {
            commit.ignoreEmptyCommit(flag(request, "ignore_empty"));
            if (request.hasNonNull("overwrite")) {
                commit.withOverwrite(stringMap(request.get("overwrite")));
            }
            long identifier = request.get("identifier").asLong();
            if (flag(request, "filter_committed")) {
                committed = commit.filterAndCommit(Map.of(identifier, messages));
            } else {
                commit.commit(identifier, messages);
            }
        }
        Map<String, Object> answer = new HashMap<>();
        answer.put("before", before);
        answer.put("latest", table.snapshotManager().latestSnapshotId());
        answer.put("committed", committed);
        return answer;
    }

    /** Compacts the files of bucket -2 into buckets, as the engines of Paimon do it (SparkPostponeCompactProcedure). */
    static Object compactPostponed(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        String user = request.get("user").asText();
        long snapshotId = table.latestSnapshot().get().id();
        PostponeUtils.PostponeBucketAssigner assigner = PostponeUtils.createPostponeBucketAssigner(table, snapshotId, 1);
        List<DataSplit> splits = PostponeUtils.groupPostponeFiles(
                table.newSnapshotReader().withSnapshot(snapshotId).withBucket(BucketMode.POSTPONE_BUCKET).read().dataSplits());
        Map<BinaryRow, Map<Integer, BucketFiles>> files = new LinkedHashMap<>();
        List<CommitMessageImpl> messages = new ArrayList<>();
        Map<BinaryRow, List<DataSplit>> partitions = new LinkedHashMap<>();
        for (DataSplit split : splits) {
            partitions.computeIfAbsent(split.partition(), key -> new ArrayList<>()).add(split);
            messages.add(new CommitMessageImpl(split.partition(), split.bucket(), split.totalBuckets(), DataIncrement.emptyIncrement(),
                    new CompactIncrement(split.dataFiles(), List.of(), List.of())));
        }
        Map<BinaryRow, Set<Integer>> buckets = new LinkedHashMap<>();
        for (PostponeUtils.CompactBucket bucket : PostponeUtils.getLevel0Buckets(table, snapshotId)) {
            buckets.computeIfAbsent(bucket.partition(), key -> new LinkedHashSet<>()).add(bucket.bucket());
            partitions.computeIfAbsent(bucket.partition(), key -> new ArrayList<>());
        }
        java.nio.file.Path spill = Files.createTempDirectory(scratch, "spill");
        for (Map.Entry<BinaryRow, List<DataSplit>> partition : partitions.entrySet()) {
            FileStoreTable real = PostponeUtils.tableForPostponeCompact(table, assigner.assign(partition.getKey()), snapshotId);
            Set<Integer> touched = buckets.computeIfAbsent(partition.getKey(), key -> new LinkedHashSet<>());
            try (IOManager ioManager = IOManager.create(spill.toString());
                    TableWriteImpl<?> write = real.newWrite(user)) {
                write.withIOManager(ioManager);
                write.withWriteRestore(new FileSystemWriteRestore(real.coreOptions(), real.snapshotManager(),
                        real.store().newScan(), real.store().newIndexFileHandler(), snapshotId));
                for (DataSplit split : partition.getValue()) {
                    MergeFileSplitRead read = ((KeyValueFileStore) table.store()).newRead();
                    try (RecordReader<KeyValue> reader = read.createPostponeReader(split)) {
                        reader.forEachRemaining(record -> {
                            InternalRow row = record.value();
                            row.setRowKind(record.valueKind());
                            try {
                                touched.add(write.getBucket(row));
                                write.write(row);
                            } catch (Exception e) {
                                throw new RuntimeException(e);
                            }
                        });
                    }
                }
                for (int bucket : touched) {
                    write.compact(partition.getKey(), bucket, false);
                }
                for (CommitMessage message : write.prepareCommit(true, Long.MAX_VALUE)) {
                    messages.add((CommitMessageImpl) message);
                }
            }
        }
        for (CommitMessageImpl message : messages) {
            files.computeIfAbsent(message.partition(), key -> new LinkedHashMap<>())
                    .computeIfAbsent(message.bucket(), key -> new BucketFiles(
                            table.store().pathFactory().createDataFilePathFactory(message.partition(), message.bucket()), table.fileIO()))
                    .update(message);
        }
        List<CommitMessage> folded = new ArrayList<>();
        files.forEach((partition, ofPartition) -> ofPartition.forEach((bucket, changes) -> folded.add(changes.makeMessage(partition, bucket))));
        FileStoreTable committing = PostponeUtils.tableForPostponeCompact(table, 1, snapshotId);
        return commit(committing, request, folded);
    }

    static Object compactManifests(JsonNode request) throws Exception {
        try (TableCommitImpl commit = table(request).newCommit(request.get("user").asText())) {
            commit.compactManifests();
        }
        return null;
    }

    // ------------------------------------------------------------------------------------------ reading

    static Object read(JsonNode request) throws Exception {
        FileStoreTable store = table(request);
        Table table = request.hasNonNull("system") ? SystemTableLoader.load(request.get("system").asText(), store) : store;
        if (table == null) {
            throw new IllegalArgumentException("no system table " + request.get("system") + "; there are " + SystemTableLoader.SYSTEM_TABLES);
        }
        ReadBuilder builder = readBuilder(table, request);
        TableRead read = withSpill(builder.newRead());
        if (flag(request, "execute_filter")) {
            read.executeFilter();
        }
        RowSink rows = new RowSink(builder.readType());
        try (RecordReader<InternalRow> reader = read.createReader(builder.newScan().plan())) {
            reader.forEachRemaining(rows::add);
        }
        return rows.answer();
    }

    static ReadBuilder readBuilder(Table table, JsonNode request) {
        ReadBuilder builder = table.newReadBuilder();
        if (request.hasNonNull("projection")) {
            builder.withProjection(strings(request.get("projection")).stream().mapToInt(table.rowType()::getFieldIndex).toArray());
        }
        if (request.hasNonNull("filter")) {
            builder.withFilter(predicate(request.get("filter"), table.rowType()));
        }
        if (request.hasNonNull("limit")) {
            builder.withLimit(request.get("limit").asInt());
        }
        return builder;
    }

    /** The splits of a scan: which files are read together and whether they need no merge. */
    static Object plan(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        ArrayNode splits = JSON.createArrayNode();
        for (org.apache.paimon.table.source.Split split : readBuilder(table, request).newScan().plan().splits()) {
            org.apache.paimon.table.source.DataSplit data = (org.apache.paimon.table.source.DataSplit) split;
            ObjectNode node = splits.addObject();
            node.put("partition", Base64.getEncoder().encodeToString(SerializationUtils.serializeBinaryRow(data.partition())));
            node.put("bucket", data.bucket());
            node.put("raw_convertible", data.rawConvertible());
            ArrayNode files = node.putArray("files");
            data.dataFiles().forEach(file -> files.add(file.fileName()));
        }
        return splits;
    }

    /** Follows the table, or a system table of it, to the latest snapshot (or "to"); says how many rows each gave. */
    static Object changelog(JsonNode request) throws Exception {
        long from = request.get("from").asLong();
        FileStoreTable table = table(request).copy(
                Map.of("scan.mode", text(request, "scan_mode", "from-snapshot"), "scan.snapshot-id", Long.toString(from)));
        Long latest = table.snapshotManager().latestSnapshotId();
        long to = request.hasNonNull("to") ? request.get("to").asLong() : latest == null ? 0 : latest;
        Table followed = request.hasNonNull("system") ? SystemTableLoader.load(request.get("system").asText(), table) : table;
        ReadBuilder builder = readBuilder(followed, request);
        TableRead read = withSpill(builder.newRead());
        StreamTableScan scan = builder.newStreamScan();
        RowSink rows = new RowSink(builder.readType());
        List<long[]> counts = new ArrayList<>();
        while (scan.checkpoint() == null || scan.checkpoint() <= to) {
            Long checkpoint = scan.checkpoint();
            TableScan.Plan plan = scan.plan();
            int before = rows.count;
            try (RecordReader<InternalRow> reader = read.createReader(plan)) {
                reader.forEachRemaining(rows::add);
            }
            if (rows.count > before) {
                counts.add(new long[] {scan.checkpoint() == null ? from : scan.checkpoint() - 1, rows.count - before});
            }
            if (plan.splits().isEmpty() && checkpoint != null && checkpoint.equals(scan.checkpoint())) {
                break;
            }
        }
        Map<String, Object> answer = rows.answer();
        answer.put("snapshots", counts);
        return answer;
    }

    static TableRead withSpill(TableRead read) throws IOException {
        return read.withIOManager(IOManager.create(Files.createTempDirectory(scratch, "spill").toString()));
    }

    // {"and": [..]} | {"or": [..]} | {"column", "is", "value" (text) or "values"}; the text is cast to the column's type
    static Predicate predicate(JsonNode node, RowType rowType) {
        for (String junction : List.of("and", "or")) {
            if (node.has(junction)) {
                List<Predicate> children = new ArrayList<>();
                node.get(junction).forEach(child -> children.add(predicate(child, rowType)));
                return junction.equals("and") ? PredicateBuilder.and(children) : PredicateBuilder.or(children);
            }
        }
        PredicateBuilder builder = new PredicateBuilder(rowType);
        int column = builder.indexOf(node.get("column").asText());
        DataType type = rowType.getTypeAt(column);
        Object value = node.has("value") ? literal(node.get("value"), type) : null;
        List<Object> values = new ArrayList<>();
        if (node.has("values")) {
            node.get("values").forEach(child -> values.add(literal(child, type)));
        }
        switch (node.get("is").asText()) {
            case "=": return builder.equal(column, value);
            case "!=": return builder.notEqual(column, value);
            case "<": return builder.lessThan(column, value);
            case "<=": return builder.lessOrEqual(column, value);
            case ">": return builder.greaterThan(column, value);
            case ">=": return builder.greaterOrEqual(column, value);
            case "null": return builder.isNull(column);
            case "not_null": return builder.isNotNull(column);
            case "in": return builder.in(column, values);
            case "not_in": return builder.notIn(column, values);
            case "between": return builder.between(column, values.get(0), values.get(1));
            case "starts_with": return builder.startsWith(column, value);
            default: throw new IllegalArgumentException("unknown predicate " + node);
        }
    }

    @SuppressWarnings("unchecked")
    static Object literal(JsonNode node, DataType type) {
        if (node.isNull()) {
            return null;
        }
        BinaryString text = BinaryString.fromString(node.asText());
        if (type.getTypeRoot() == DataTypeRoot.VARCHAR || type.getTypeRoot() == DataTypeRoot.CHAR) {
            return text;
        }
        return ((CastExecutor<Object, Object>) CastExecutors.resolve(DataTypes.STRING(), type)).cast(text);
    }

    // ------------------------------------------------------------------------------------------ maintenance

    static Object maintain(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        String name = text(request, "name", null);
        switch (request.get("what").asText()) {
            case "create_tag":
                Duration retained = request.hasNonNull("retained_ms") ? Duration.ofMillis(request.get("retained_ms").asLong()) : null;
                if (request.hasNonNull("snapshot")) {
                    table.createTag(name, request.get("snapshot").asLong(), retained);
                } else {
                    table.createTag(name, retained);
                }
                return null;
            case "delete_tag": table.deleteTag(name); return null;
            case "replace_tag": table.replaceTag(name, request.get("snapshot").asLong(), null); return null;
            case "rename_tag": table.renameTag(name, request.get("to").asText()); return null;
            case "auto_tags": table.store().newTagAutoManager(table).run(); return null;
            case "create_branch":
                if (request.hasNonNull("tag")) {
                    table.createBranch(name, request.get("tag").asText());
                } else {
                    table.createBranch(name);
                }
                return null;
            case "expire_tags":
                TagTimeExpire expiry = table.store().newTagAutoManager(table).getTagTimeExpire();
                if (request.hasNonNull("older_than_ms")) {
                    expiry.withOlderThanTime(LocalDateTime.ofInstant(Instant.ofEpochMilli(request.get("older_than_ms").asLong()), ZoneId.systemDefault()));
                }
                return expiry.expire();
            case "mark_done":
                SuccessFileMarkDoneAction action = new SuccessFileMarkDoneAction(table.fileIO(), table.location());
                action.markDone(request.get("partition").asText());
                return null;
            case "rename_branch": table.renameBranch(name, request.get("to").asText()); return null;
            case "delete_branch": table.deleteBranch(name); return null;
            case "rollback":
                if (request.hasNonNull("tag")) {
                    table.rollbackTo(request.get("tag").asText());
                } else {
                    table.rollbackTo(request.get("snapshot").asLong());
                }
                return null;
            case "truncate":
                try (BatchTableCommit commit = table.newBatchWriteBuilder().newCommit()) {
                    if (request.hasNonNull("partitions")) {
                        List<Map<String, String>> partitions = new ArrayList<>();
                        request.get("partitions").forEach(partition -> partitions.add(stringMap(partition)));
                        commit.truncatePartitions(partitions);
                    } else {
                        commit.truncateTable();
                    }
                }
                return null;
            case "remove_orphans":
                return new LocalOrphanFilesClean(table, request.get("older_than").asLong()).clean().getDeletedFileCount();
            case "fast_forward": table.fastForward(name); return null;
            case "reset_consumer":
                table.consumerManager().resetConsumer(name, new Consumer(request.get("snapshot").asLong()));
                return null;
            case "expire":
                ExpireConfig.Builder config = ExpireConfig.builder();
                config.snapshotRetainMax(request.hasNonNull("retain_max") ? request.get("retain_max").asInt() : Integer.MAX_VALUE);
                config.snapshotRetainMin(request.hasNonNull("retain_min") ? request.get("retain_min").asInt() : 1);
                config.snapshotTimeRetain(Duration.ofMillis(request.hasNonNull("time_retained_ms") ? request.get("time_retained_ms").asLong() : 0));
                config.snapshotMaxDeletes(Integer.MAX_VALUE);
                return table.newExpireSnapshots().config(config.build()).expire();
            case "expire_partitions": return table.store().newPartitionExpire("judge-expire", table).expire(Long.MAX_VALUE);
            default: throw new IllegalArgumentException("unknown maintenance " + request.get("what"));
        }
    }

    // ------------------------------------------------------------------------------------------ bytes and hashes

    /** For each row of a columns file: its partition and trimmed primary key as serialized rows, and its bucket. */
    static Object rowKeys(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        RowKeyExtractor extractor = table.createRowKeyExtractor();
        Rows rows = Rows.load(request.get("rows").asText(), table.rowType());
        ArrayNode answer = JSON.createArrayNode();
        for (int index = 0; index < rows.count; index++) {
            extractor.setRecord(rows.row(index));
            ObjectNode node = answer.addObject();
            node.put("partition", Base64.getEncoder().encodeToString(SerializationUtils.serializeBinaryRow(extractor.partition())));
            node.put("bucket", extractor.bucket());
            if (!table.primaryKeys().isEmpty()) {
                node.put("key", Base64.getEncoder().encodeToString(SerializationUtils.serializeBinaryRow(extractor.trimmedPrimaryKey())));
            }
        }
        return answer;
    }

    /** For each row: its serialized form (with the arity prefix) and its hash code. */
    static Object binaryRows(JsonNode request) throws Exception {
        List<DataType> types = new ArrayList<>();
        request.get("types").forEach(type -> types.add(type(type)));
        RowType rowType = RowType.of(types.toArray(new DataType[0]));
        InternalRowSerializer serializer = new InternalRowSerializer(rowType);
        Rows rows = Rows.load(request.get("rows").asText(), rowType);
        ArrayNode answer = JSON.createArrayNode();
        for (int index = 0; index < rows.count; index++) {
            BinaryRow binary = serializer.toBinaryRow(rows.row(index));
            ObjectNode node = answer.addObject();
            node.put("bytes", Base64.getEncoder().encodeToString(SerializationUtils.serializeBinaryRow(binary)));
            node.put("hash", binary.hashCode());
        }
        return answer;
    }

    /** Casts the first column of a file; a value that the cast refuses is NULL and named in "refused". */
    @SuppressWarnings("unchecked")
    static Object cast(JsonNode request) throws Exception {
        DataType from = type(request.get("from"));
        DataType to = type(request.get("to"));
        CastExecutor<Object, Object> executor = (CastExecutor<Object, Object>) CastExecutors.resolve(from, to);
        if (executor == null) {
            throw new IllegalArgumentException("no cast from " + from + " to " + to);
        }
        Rows rows = Rows.load(request.get("rows").asText(), RowType.of(from));
        RowSink result = new RowSink(RowType.of(to.nullable()));
        Map<String, String> refused = new LinkedHashMap<>();
        for (int index = 0; index < rows.count; index++) {
            Object value = rows.row(index).getField(0);
            try {
                result.add(GenericRow.of(value == null ? null : executor.cast(value)));
            } catch (RuntimeException error) {
                refused.put(Integer.toString(index), error.toString());
                result.add(GenericRow.of((Object) null));
            }
        }
        Map<String, Object> answer = result.answer();
        answer.put("refused", refused);
        return answer;
    }

    // ------------------------------------------------------------------------------------------ requests

    static Path path(JsonNode request) {
        return new Path(request.get("table").asText());
    }

    static FileIO fileIO(JsonNode request) throws IOException {
        if (request.hasNonNull("catalog")) {
            Options options = new Options();
            stringMap(request.get("catalog")).forEach(options::set);
            return FileIO.get(path(request), CatalogContext.create(options));
        }
        return flag(request, "exclusive") ? new ExclusiveFileIO() : new LocalFileIO();
    }

    static FileStoreTable table(JsonNode request) throws IOException {
        if (request.hasNonNull("catalog")) {
            try {
                FileStoreTable found = (FileStoreTable) catalog(request).getTable(identifier(request, "name"));
                return request.hasNonNull("options") ? found.copy(stringMap(request.get("options"))) : found;
            } catch (Catalog.TableNotExistException missing) {
                throw new RuntimeException(missing);
            }
        }
        Options options = new Options();
        options.set(CoreOptions.PATH, request.get("table").asText());
        if (request.hasNonNull("branch")) {
            options.set(CoreOptions.BRANCH, request.get("branch").asText());
        }
        FileStoreTable table = FileStoreTableFactory.create(fileIO(request), options);
        return request.hasNonNull("options") ? table.copy(stringMap(request.get("options"))) : table;
    }

    /**
     * A local file io whose claim of a name is a hard link. Paimon's own checks for existence and then renames, which
     * is exclusive only within one JVM.
     */
    public static class ExclusiveFileIO extends LocalFileIO {
        @Override
        public boolean tryToWriteAtomic(Path path, String content) throws IOException {
            java.nio.file.Path target = toFile(path).toPath();
            Files.createDirectories(target.getParent());
            java.nio.file.Path temporary = target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
            try {
                Files.write(temporary, content.getBytes(StandardCharsets.UTF_8));
                Files.createLink(target, temporary);
                return true;
            } catch (FileAlreadyExistsException taken) {
                return false;
            } finally {
                Files.deleteIfExists(temporary);
            }
        }
    }

    static DataType type(JsonNode node) {
        return DataTypeJsonParser.parseDataType(node);
    }

    static JsonNode tree(TableSchema schema) throws IOException {
        return JSON.readTree(schema.toString());
    }

    static boolean flag(JsonNode node, String name) {
        return node.hasNonNull(name) && node.get(name).asBoolean();
    }

    static String text(JsonNode node, String name, String otherwise) {
        return node.hasNonNull(name) ? node.get(name).asText() : otherwise;
    }

    static List<String> strings(JsonNode node) {
        List<String> texts = new ArrayList<>();
        node.forEach(child -> texts.add(child.asText()));
        return texts;
    }

    static List<Integer> integers(JsonNode node) {
        List<Integer> numbers = new ArrayList<>();
        node.forEach(child -> numbers.add(child.asInt()));
        return numbers;
    }

    static Map<String, String> stringMap(JsonNode node) {
        Map<String, String> map = new LinkedHashMap<>();
        node.fields().forEachRemaining(entry -> map.put(entry.getKey(), entry.getValue().asText()));
        return map;
    }

    static ObjectNode describe(Throwable error) {
        StringWriter stack = new StringWriter();
        error.printStackTrace(new PrintWriter(stack));
        ObjectNode node = JSON.createObjectNode();
        node.put("class", error.getClass().getName());
        node.put("message", String.valueOf(error.getMessage()));
        node.put("stack", stack.toString());
        ArrayNode causes = node.putArray("causes");
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            causes.add(cause.toString());
        }
        return node;
    }

    // ------------------------------------------------------------------------------------------ columns files, out

    /** Collects rows of one type and leaves them in a columns file. */
    static class RowSink {
        final RowType rowType;
        final List<Builder> columns = new ArrayList<>();
        final Bytes kinds = new Bytes();
        int count = 0;

        RowSink(RowType rowType) {
            this.rowType = rowType;
            rowType.getFieldTypes().forEach(type -> columns.add(builder(type)));
        }

        void add(InternalRow row) {
            kinds.put(row.getRowKind().toByteValue());
            for (int index = 0; index < columns.size(); index++) {
                columns.get(index).add(row, index);
            }
            count++;
        }

        Map<String, Object> answer() throws IOException {
            List<byte[]> buffers = new ArrayList<>();
            buffers.add(kinds.toArray());
            columns.forEach(column -> column.finish(buffers));
            ObjectNode header = JSON.createObjectNode().put("rows", count);
            ArrayNode lengths = header.putArray("buffers");
            buffers.forEach(buffer -> lengths.add(buffer == null ? -1 : buffer.length));
            java.nio.file.Path file = scratch.resolve(UUID.randomUUID() + ".columns");
            try (OutputStream out = Files.newOutputStream(file)) {
                out.write((JSON.writeValueAsString(header) + "\n").getBytes(StandardCharsets.UTF_8));
                for (byte[] buffer : buffers) {
                    if (buffer != null) {
                        out.write(buffer);
                    }
                }
            }
            Map<String, Object> answer = new HashMap<>();
            answer.put("file", file.toString());
            JsonNode type = JSON.readTree(org.apache.paimon.utils.JsonSerdeUtil.toFlatJson(rowType));
            answer.put("fields", type.get("fields"));
            return answer;
        }
    }

    static Builder builder(DataType type) {
        switch (type.getTypeRoot()) {
            case ARRAY: return new ListBuilder(((ArrayType) type).getElementType());
            case MAP: return new MapBuilder(((MapType) type).getKeyType(), ((MapType) type).getValueType());
            case MULTISET: return new MapBuilder(((MultisetType) type).getElementType(), DataTypes.INT().notNull());
            case ROW: return new RowBuilder((RowType) type);
            default: return new ScalarBuilder(type);
        }
    }

    abstract static class Builder {
        final Bytes validity = new Bytes();
        boolean hasNulls = false;
        int count = 0;

        void add(DataGetters row, int position) {
            boolean isNull = row == null || row.isNullAt(position);
            validity.bit(count++, !isNull);
            hasNulls |= isNull;
            append(isNull ? null : row, position);
        }

        void finish(List<byte[]> buffers) {
            buffers.add(hasNulls ? validity.toArray() : null);
            finishValues(buffers);
        }

        /** Appends a value, or the filling of a NULL where the row is null. */
        abstract void append(DataGetters row, int position);

        abstract void finishValues(List<byte[]> buffers);
    }

    static class ScalarBuilder extends Builder {
        final DataType type;
        final DataTypeRoot root;
        final Bytes values = new Bytes();
        final Bytes offsets = new Bytes();

        ScalarBuilder(DataType type) {
            this.type = type;
            this.root = type.getTypeRoot();
            offsets.put32(0);
        }

        @Override
        void append(DataGetters row, int position) {
            boolean present = row != null;
            switch (root) {
                case BOOLEAN: values.bit(count - 1, present && row.getBoolean(position)); return;
                case TINYINT: values.put(present ? row.getByte(position) : 0); return;
                case SMALLINT: values.put16(present ? row.getShort(position) : 0); return;
                case INTEGER:
                case DATE:
                case TIME_WITHOUT_TIME_ZONE: values.put32(present ? row.getInt(position) : 0); return;
                case BIGINT: values.put64(present ? row.getLong(position) : 0); return;
                case FLOAT: values.put32(present ? Float.floatToRawIntBits(row.getFloat(position)) : 0); return;
                case DOUBLE: values.put64(present ? Double.doubleToRawLongBits(row.getDouble(position)) : 0); return;
                case DECIMAL: values.put128(present ? unscaled(row, position) : BigInteger.ZERO); return;
                case TIMESTAMP_WITHOUT_TIME_ZONE:
                case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                    values.put64(present ? count(row.getTimestamp(position, precision(type)), precision(type)) : 0);
                    return;
                case CHAR:
                case VARCHAR: if (present) { values.putAll(row.getString(position).toBytes()); } break;
                case BINARY:
                case VARBINARY: if (present) { values.putAll(row.getBinary(position)); } break;
                default: throw new UnsupportedOperationException("the judge has no columns for " + type);
            }
            offsets.put32(values.size);
        }

        BigInteger unscaled(DataGetters row, int position) {
            DecimalType decimal = (DecimalType) type;
            return row.getDecimal(position, decimal.getPrecision(), decimal.getScale()).toBigDecimal().unscaledValue();
        }

        @Override
        void finishValues(List<byte[]> buffers) {
            if (isVariable(root)) {
                buffers.add(offsets.toArray());
            }
            buffers.add(values.toArray());
        }
    }

    static class ListBuilder extends Builder {
        final Builder elements;
        final Bytes offsets = new Bytes();

        ListBuilder(DataType element) {
            elements = builder(element);
            offsets.put32(0);
        }

        @Override
        void append(DataGetters row, int position) {
            if (row != null) {
                addAll(row.getArray(position), elements);
            }
            offsets.put32(elements.count);
        }

        @Override
        void finishValues(List<byte[]> buffers) {
            buffers.add(offsets.toArray());
            elements.finish(buffers);
        }
    }

    static class MapBuilder extends Builder {
        final Builder keys;
        final Builder values;
        final Bytes offsets = new Bytes();

        MapBuilder(DataType key, DataType value) {
            keys = builder(key);
            values = builder(value);
            offsets.put32(0);
        }

        @Override
        void append(DataGetters row, int position) {
            if (row != null) {
                InternalMap map = row.getMap(position);
                addAll(map.keyArray(), keys);
                addAll(map.valueArray(), values);
            }
            offsets.put32(keys.count);
        }

        @Override
        void finishValues(List<byte[]> buffers) {
            buffers.add(offsets.toArray());
            buffers.add(null); // an entry is never null
            keys.finish(buffers);
            values.finish(buffers);
        }
    }

    static class RowBuilder extends Builder {
        final RowType rowType;
        final List<Builder> fields = new ArrayList<>();

        RowBuilder(RowType rowType) {
            this.rowType = rowType;
            rowType.getFieldTypes().forEach(type -> fields.add(builder(type)));
        }

        @Override
        void append(DataGetters row, int position) {
            InternalRow nested = row == null ? null : row.getRow(position, rowType.getFieldCount());
            for (int index = 0; index < fields.size(); index++) {
                fields.get(index).add(nested, index);
            }
        }

        @Override
        void finishValues(List<byte[]> buffers) {
            fields.forEach(field -> field.finish(buffers));
        }
    }

    static void addAll(InternalArray array, Builder elements) {
        for (int index = 0; index < array.size(); index++) {
            elements.add(array, index);
        }
    }

    /** A growing little-endian buffer. */
    static class Bytes {
        byte[] bytes = new byte[64];
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        int size = 0;

        int grow(int more) {
            int start = size;
            size = Math.addExact(size, more);
            if (size > bytes.length) {
                bytes = Arrays.copyOf(bytes, (int) Math.min(Integer.MAX_VALUE - 16L, Math.max(size, bytes.length * 2L)));
                buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
            }
            return start;
        }

        void put(int value) { int at = grow(1); bytes[at] = (byte) value; }
        void put16(int value) { int at = grow(2); buffer.putShort(at, (short) value); }
        void put32(int value) { int at = grow(4); buffer.putInt(at, value); }
        void put64(long value) { int at = grow(8); buffer.putLong(at, value); }
        void put128(BigInteger value) { put64(value.longValue()); put64(value.shiftRight(64).longValue()); }
        void putAll(byte[] more) { int at = grow(more.length); System.arraycopy(more, 0, bytes, at, more.length); }

        void bit(int index, boolean set) {
            if (index % 8 == 0) {
                put(0);
            }
            if (set) {
                bytes[index / 8] |= (byte) (1 << (index % 8));
            }
        }

        byte[] toArray() { return Arrays.copyOf(bytes, size); }
    }

    // ------------------------------------------------------------------------------------------ columns files, in

    /** The rows of a columns file as Paimon's generic rows. */
    static class Rows {
        int count;
        ByteBuffer kinds;
        final List<Column> columns = new ArrayList<>();

        static Rows load(String file, RowType rowType) throws IOException {
            Rows rows = new Rows();
            List<ByteBuffer> buffers = new ArrayList<>();
            try (DataInputStream in = new DataInputStream(new java.io.BufferedInputStream(Files.newInputStream(Paths.get(file)), 1 << 20))) {
                java.io.ByteArrayOutputStream line = new java.io.ByteArrayOutputStream();
                for (int next = in.read(); next != '\n'; next = in.read()) {
                    line.write(next);
                }
                JsonNode header = JSON.readTree(line.toByteArray());
                rows.count = header.get("rows").asInt();
                for (JsonNode length : header.get("buffers")) {
                    if (length.asInt() < 0) {
                        buffers.add(null);
                    } else {
                        byte[] bytes = new byte[length.asInt()];
                        in.readFully(bytes);
                        buffers.add(ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN));
                    }
                }
            }
            Iterator<ByteBuffer> next = buffers.iterator();
            rows.kinds = next.next();
            rowType.getFieldTypes().forEach(type -> rows.columns.add(new Column(type, next)));
            if (next.hasNext()) {
                throw new IllegalArgumentException("the columns file has more buffers than " + rowType + " has columns for");
            }
            return rows;
        }

        GenericRow row(int index) {
            GenericRow row = new GenericRow(RowKind.fromByteValue(kinds.get(index)), columns.size());
            for (int column = 0; column < columns.size(); column++) {
                row.setField(column, columns.get(column).get(index));
            }
            return row;
        }
    }

    static class Column {
        final DataType type;
        final DataTypeRoot root;
        final ByteBuffer validity;
        final ByteBuffer offsets;
        final ByteBuffer values;
        final List<Column> children = new ArrayList<>();

        Column(DataType type, Iterator<ByteBuffer> buffers) {
            this.type = type;
            this.root = type.getTypeRoot();
            validity = buffers.next();
            boolean isList = root == DataTypeRoot.ARRAY || root == DataTypeRoot.MAP || root == DataTypeRoot.MULTISET;
            offsets = isList || isVariable(root) ? buffers.next() : null;
            values = isList || root == DataTypeRoot.ROW ? null : buffers.next();
            if (root == DataTypeRoot.ARRAY) {
                children.add(new Column(((ArrayType) type).getElementType(), buffers));
            } else if (root == DataTypeRoot.MAP || root == DataTypeRoot.MULTISET) {
                buffers.next(); // the entries' validity
                boolean isMap = root == DataTypeRoot.MAP;
                children.add(new Column(isMap ? ((MapType) type).getKeyType() : ((MultisetType) type).getElementType(), buffers));
                children.add(new Column(isMap ? ((MapType) type).getValueType() : DataTypes.INT(), buffers));
            } else if (root == DataTypeRoot.ROW) {
                ((RowType) type).getFieldTypes().forEach(field -> children.add(new Column(field, buffers)));
            }
        }

        Object get(int index) {
            if (validity != null && (validity.get(index / 8) >> (index % 8) & 1) == 0) {
                return null;
            }
            switch (root) {
                case BOOLEAN: return (values.get(index / 8) >> (index % 8) & 1) == 1;
                case TINYINT: return values.get(index);
                case SMALLINT: return values.getShort(index * 2);
                case INTEGER:
                case DATE:
                case TIME_WITHOUT_TIME_ZONE: return values.getInt(index * 4);
                case BIGINT: return values.getLong(index * 8);
                case FLOAT: return values.getFloat(index * 4);
                case DOUBLE: return values.getDouble(index * 8);
                case DECIMAL: return decimal(index);
                case TIMESTAMP_WITHOUT_TIME_ZONE:
                case TIMESTAMP_WITH_LOCAL_TIME_ZONE: return timestamp(values.getLong(index * 8), precision(type));
                case CHAR:
                case VARCHAR: return BinaryString.fromBytes(bytes(index));
                case BINARY:
                case VARBINARY: return bytes(index);
                case ARRAY: return new GenericArray(range(children.get(0), index));
                case MAP:
                case MULTISET: return map(index);
                case ROW:
                    GenericRow row = new GenericRow(children.size());
                    for (int field = 0; field < children.size(); field++) {
                        row.setField(field, children.get(field).get(index));
                    }
                    return row;
                default: throw new UnsupportedOperationException("the judge has no columns for " + type);
            }
        }

        Decimal decimal(int index) {
            DecimalType decimal = (DecimalType) type;
            byte[] bigEndian = new byte[16];
            for (int at = 0; at < 16; at++) {
                bigEndian[15 - at] = values.get(index * 16 + at);
            }
            BigDecimal value = new BigDecimal(new BigInteger(bigEndian), decimal.getScale());
            return Decimal.fromBigDecimal(value, decimal.getPrecision(), decimal.getScale());
        }

        byte[] bytes(int index) {
            int start = offsets.getInt(index * 4);
            return Arrays.copyOfRange(values.array(), start, offsets.getInt(index * 4 + 4));
        }

        Object[] range(Column child, int index) {
            int start = offsets.getInt(index * 4);
            Object[] elements = new Object[offsets.getInt(index * 4 + 4) - start];
            for (int at = 0; at < elements.length; at++) {
                elements[at] = child.get(start + at);
            }
            return elements;
        }

        GenericMap map(int index) {
            Object[] keys = range(children.get(0), index);
            Object[] items = range(children.get(1), index);
            Map<Object, Object> map = new LinkedHashMap<>();
            for (int at = 0; at < keys.length; at++) {
                map.put(keys[at], items[at]);
            }
            return new GenericMap(map);
        }
    }

    static boolean isVariable(DataTypeRoot root) {
        return root == DataTypeRoot.CHAR || root == DataTypeRoot.VARCHAR || root == DataTypeRoot.BINARY || root == DataTypeRoot.VARBINARY;
    }

    static int precision(DataType type) {
        return type instanceof TimestampType ? ((TimestampType) type).getPrecision() : ((LocalZonedTimestampType) type).getPrecision();
    }

    /** Units in a second of the Arrow type that carries this precision. */
    static long units(int precision) {
        return precision == 0 ? 1 : precision <= 3 ? 1_000 : precision <= 6 ? 1_000_000 : 1_000_000_000;
    }

    static long count(Timestamp timestamp, int precision) {
        long units = units(precision);
        long millis = timestamp.getMillisecond();
        if (units <= 1_000) {
            return Math.floorDiv(millis, 1_000 / units);
        }
        long perMilli = units / 1_000;
        return Math.addExact(Math.multiplyExact(millis, perMilli), timestamp.getNanoOfMillisecond() / (1_000_000 / perMilli));
    }

    static Timestamp timestamp(long count, int precision) {
        long units = units(precision);
        if (units <= 1_000) {
            return Timestamp.fromEpochMillis(Math.multiplyExact(count, 1_000 / units));
        }
        long perMilli = units / 1_000;
        return Timestamp.fromEpochMillis(Math.floorDiv(count, perMilli), (int) (Math.floorMod(count, perMilli) * (1_000_000 / perMilli)));
    }
}
