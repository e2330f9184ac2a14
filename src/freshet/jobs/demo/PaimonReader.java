/*
 * What Apache Paimon reads of tables, as Parquet files that Paimon writes: no type is converted by Freshet's code.
 *
 *     java -cp <paimon, hadoop client, slf4j> PaimonReader.java rows|changes TABLE FILE [rows|changes TABLE FILE ...]
 *
 * `rows` are the merged rows; `changes` is the system table $audit_log from the first snapshot to the last, with the
 * snapshot of each change as one column more, _SNAPSHOT_ID.
 */

import java.io.IOException;
import java.util.Map;

import org.apache.paimon.CoreOptions;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.JoinedRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.format.FileFormat;
import org.apache.paimon.format.FormatWriter;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.PositionOutputStream;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.table.source.TableScan;
import org.apache.paimon.table.system.SystemTableLoader;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.RowType;

public class PaimonReader {

    public static void main(String[] arguments) throws Exception {
        for (int index = 0; index < arguments.length; index += 3) {
            Options options = new Options();
            options.set(CoreOptions.PATH, arguments[index + 1]);
            FileStoreTable table = FileStoreTableFactory.create(new LocalFileIO(), options);
            Path file = new Path(arguments[index + 2]);
            if (arguments[index].equals("rows")) {
                writeRows(table, file);
            } else {
                writeChanges(table, file);
            }
        }
        Runtime.getRuntime().halt(0); // threads of Paimon would wait for more work
    }

    static void writeRows(FileStoreTable table, Path file) throws IOException {
        ReadBuilder builder = table.newReadBuilder();
        try (Parquet parquet = new Parquet(file, builder.readType());
                RecordReader<InternalRow> rows = read(builder).createReader(builder.newScan().plan())) {
            rows.forEachRemaining(parquet::add);
        }
    }

    static void writeChanges(FileStoreTable table, Path file) throws IOException {
        long latest = table.snapshotManager().latestSnapshotId();
        Table log = SystemTableLoader.load(
                "audit_log", table.copy(Map.of("scan.mode", "from-snapshot", "scan.snapshot-id", "1")));
        ReadBuilder builder = log.newReadBuilder();
        RowType type = builder.readType();
        RowType.Builder withId = RowType.builder();
        type.getFields().forEach(field -> withId.field(field.name(), field.type()));
        TableRead read = read(builder);
        StreamTableScan scan = builder.newStreamScan();
        try (Parquet parquet = new Parquet(file, withId.field("_SNAPSHOT_ID", DataTypes.BIGINT()).build())) {
            while (scan.checkpoint() == null || scan.checkpoint() <= latest) {
                TableScan.Plan plan = scan.plan();
                GenericRow id = GenericRow.of(scan.checkpoint() - 1);
                try (RecordReader<InternalRow> rows = read.createReader(plan)) {
                    rows.forEachRemaining(row -> parquet.add(new JoinedRow(row, id)));
                }
            }
        }
    }

    static TableRead read(ReadBuilder builder) {
        return builder.newRead().withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
    }

    /** One file being written. */
    static class Parquet implements AutoCloseable {
        private final PositionOutputStream stream;
        private final FormatWriter writer;

        Parquet(Path file, RowType type) throws IOException {
            stream = new LocalFileIO().newOutputStream(file, true);
            writer = FileFormat.fromIdentifier("parquet", new Options()).createWriterFactory(type).create(stream, "zstd");
        }

        void add(InternalRow row) {
            try {
                writer.addElement(row);
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        @Override
        public void close() throws IOException {
            writer.close();
            stream.close();
        }
    }
}
