/*
 * Bitmaps and sketches as Apache Paimon reads, unites and writes them. One line in, one line out:
 *
 *     rbm32 make N...        -> bytes        hll make LG_K TYPE UPDATABLE FIRST COUNT   -> bytes
 *     rbm32 read BYTES       -> numbers      hll read BYTES      -> lg_k, type, estimate, mode, coupons or registers
 *     rbm32 unite BYTES BYTES -> bytes       hll unite BYTES BYTES
 *     rbm64 likewise                         theta make LG_K UPDATABLE FIRST COUNT, read (theta, hashes), unite
 *
 * Bytes are in base64. An exception is answered as "error CLASS MESSAGE".
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Base64;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

import org.apache.paimon.shade.org.apache.datasketches.hll.HllSketch;
import org.apache.paimon.shade.org.apache.datasketches.hll.TgtHllType;
import org.apache.paimon.shade.org.apache.datasketches.memory.Memory;
import org.apache.paimon.shade.org.apache.datasketches.theta.CompactSketch;
import org.apache.paimon.shade.org.apache.datasketches.theta.HashIterator;
import org.apache.paimon.shade.org.apache.datasketches.theta.Sketch;
import org.apache.paimon.shade.org.apache.datasketches.theta.UpdateSketch;
import org.apache.paimon.shade.org.roaringbitmap.longlong.Roaring64Bitmap;
import org.apache.paimon.shade.org.roaringbitmap.RoaringBitmap;
import org.apache.paimon.utils.HllSketchUtil;
import org.apache.paimon.utils.RoaringBitmap32;
import org.apache.paimon.utils.RoaringBitmap64;
import org.apache.paimon.utils.ThetaSketch;

public class AggregateBytes {

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.trim().split(" "));
            } catch (Throwable error) {
                answer = "error " + error.getClass().getName() + " " + error.getMessage();
            }
            System.out.println(answer.replace('\n', ' '));
            System.out.flush();
        }
    }

    private static String answer(String[] words) throws Exception {
        String[] rest = Arrays.copyOfRange(words, 2, words.length);
        switch (words[0] + " " + words[1]) {
            case "rbm32 make": {
                RoaringBitmap32 bitmap = new RoaringBitmap32();
                for (String number : rest) bitmap.add((int) Long.parseLong(number));
                return text(bitmap.serialize());
            }
            case "rbm32 read": {
                RoaringBitmap bitmap = new RoaringBitmap();
                bitmap.deserialize(ByteBuffer.wrap(bytes(rest[0])));
                return Arrays.stream(bitmap.toArray()).mapToObj(Integer::toUnsignedString).collect(Collectors.joining(" "));
            }
            case "rbm32 unite": {
                RoaringBitmap32 first = new RoaringBitmap32();
                RoaringBitmap32 second = new RoaringBitmap32();
                first.deserialize(ByteBuffer.wrap(bytes(rest[0])));
                second.deserialize(ByteBuffer.wrap(bytes(rest[1])));
                first.or(second);
                return text(first.serialize());
            }
            case "rbm64 make": {
                RoaringBitmap64 bitmap = new RoaringBitmap64();
                for (String number : rest) bitmap.add(Long.parseUnsignedLong(number));
                return text(bitmap.serialize());
            }
            case "rbm64 read": {
                Roaring64Bitmap bitmap = new Roaring64Bitmap();
                bitmap.deserialize(ByteBuffer.wrap(bytes(rest[0])));
                return LongStream.of(bitmap.toArray()).mapToObj(Long::toUnsignedString).collect(Collectors.joining(" "));
            }
            case "rbm64 unite": {
                RoaringBitmap64 first = new RoaringBitmap64();
                RoaringBitmap64 second = new RoaringBitmap64();
                first.deserialize(bytes(rest[0]));
                second.deserialize(bytes(rest[1]));
                first.or(second);
                return text(first.serialize());
            }
            case "hll make": {
                HllSketch sketch = new HllSketch(Integer.parseInt(rest[0]), TgtHllType.valueOf(rest[1]));
                long first = Long.parseLong(rest[3]);
                for (long value = first; value < first + Long.parseLong(rest[4]); value++) sketch.update(value);
                return text(rest[2].equals("true") ? sketch.toUpdatableByteArray() : sketch.toCompactByteArray());
            }
            case "hll read": {
                HllSketch sketch = HllSketch.heapify(bytes(rest[0]));
                // Rows of a list or set are index, coupon, slot, value, in the order of a hash table; of registers slot, value.
                TreeSet<String> parts = new TreeSet<>();
                String[] rows = sketch.toString(true, true, false, false).split("\n");
                for (String row : rows) {
                    String[] cells = row.trim().split("\\s+");
                    if (cells[0].matches("\\d+")) parts.add(cells.length == 4 ? cells[1] : row.trim());
                    if (row.contains("Current Mode") || row.contains("OutOfOrder")) parts.add(row.trim());
                }
                return sketch.getLgConfigK() + " " + sketch.getTgtHllType() + " " + sketch.getEstimate() + " " + parts;
            }
            case "hll unite": return text(HllSketchUtil.union(bytes(rest[0]), bytes(rest[1])));
            case "theta make": {
                UpdateSketch sketch = UpdateSketch.builder().setLogNominalEntries(Integer.parseInt(rest[0])).build();
                long first = Long.parseLong(rest[2]);
                for (long value = first; value < first + Long.parseLong(rest[3]); value++) sketch.update(value);
                return text(rest[1].equals("true") ? sketch.toByteArray() : sketch.compact().toByteArray());
            }
            case "theta read": {
                Sketch sketch = Sketch.wrap(Memory.wrap(bytes(rest[0])));
                StringBuilder hashes = new StringBuilder(sketch.getEstimate() + " " + sketch.getThetaLong());
                for (HashIterator at = sketch.iterator(); at.next(); ) hashes.append(" ").append(at.get());
                return hashes.toString();
            }
            case "theta unite": return text(ThetaSketch.union(bytes(rest[0]), bytes(rest[1])));
            default: throw new IllegalArgumentException(String.join(" ", words));
        }
    }

    private static byte[] bytes(String text) {
        return Base64.getDecoder().decode(text);
    }

    private static String text(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
