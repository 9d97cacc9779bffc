package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Utils;

/**
 * Reads record batches as a consumer does. Each line of the input is a batch in hexadecimal digits; the answer is a
 * line: the records' values in hexadecimal digits with commas between, or "!" and why the batch cannot be read. The
 * classes are found by name, because version 4.3 moved them to another package.
 */
public final class Codecs {
    private Codecs() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = String.join(",", values(HexFormat.of().parseHex(line)));
            } catch (InvocationTargetException error) {
                answer = "!" + String.valueOf(error.getCause()).replace('\n', ' ');
            } catch (RuntimeException error) {
                answer = "!" + String.valueOf(error).replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private static List<String> values(byte[] data) throws ReflectiveOperationException {
        List<String> found = new ArrayList<>();
        Class<?> batchType = named("RecordBatch");
        Object read = named("MemoryRecords").getMethod("readableRecords", ByteBuffer.class)
                .invoke(null, ByteBuffer.wrap(data));
        for (Object batch : (Iterable<?>) named("Records").getMethod("batches").invoke(read)) {
            batchType.getMethod("ensureValid").invoke(batch);
            try (CloseableIterator<?> records = (CloseableIterator<?>) batchType
                    .getMethod("streamingIterator", BufferSupplier.class).invoke(batch, BufferSupplier.NO_CACHING)) {
                while (records.hasNext()) {
                    Object value = named("Record").getMethod("value").invoke(records.next());
                    found.add(HexFormat.of().formatHex(Utils.toArray((ByteBuffer) value)));
                }
            }
        }
        return found;
    }

    private static Class<?> named(String name) throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.record.internal." + name);
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.kafka.common.record." + name);
        }
    }
}
