// Prints every record of a file of batches, as Apache Kafka's own classes read it.
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

public class ReadBatches {
    public static void main(String[] args) throws Exception {
        ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(args[0])));
        for (RecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                String key;
                int extra;
                if (batch.isControlBatch()) {
                    key = ControlRecordType.parse(record.key()).name();
                    extra = EndTransactionMarker.deserialize(record).coordinatorEpoch();
                } else {
                    byte[] bytes = new byte[record.keySize()];
                    record.key().get(bytes);
                    key = new String(bytes);
                    extra = record.headers().length;
                }
                System.out.println(record.offset() + " " + record.timestamp() + " " + key + " " + extra);
            }
        }
    }
}
