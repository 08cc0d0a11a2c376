import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Commits transactions of ten records one after the other; arguments: bootstrap, topic, seconds. */
public class Transactions {
    private static final int RECORDS = 10;
    private static final int VALUE_BYTES = 100;

    public static void main(String[] arguments) {
        String topic = arguments[1];
        long measuredNs = (long) (Double.parseDouble(arguments[2]) * 1e9);
        Map<String, Object> settings =
                Map.of("bootstrap.servers", arguments[0], "transactional.id", topic);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            transact(producer, topic, measuredNs); // the warm-up
            print(transact(producer, topic, measuredNs));
        }
    }

    /** How long each transaction took, in nanoseconds. */
    private static long[] transact(KafkaProducer<byte[], byte[]> producer, String topic, long forNs) {
        long[] took = new long[1 << 20];
        int count = 0;
        long end = System.nanoTime() + forNs;
        for (long begun = System.nanoTime(); begun < end && count < took.length; count++) {
            producer.beginTransaction();
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[VALUE_BYTES]));
            }
            producer.commitTransaction();
            long now = System.nanoTime();
            took[count] = now - begun;
            begun = now;
        }
        return Arrays.copyOf(took, count);
    }

    private static void print(long[] took) {
        double seconds = Arrays.stream(took).sum() / 1e9;
        Arrays.sort(took);
        System.out.printf(
                Locale.ROOT,
                "{\"transactions\": %d, \"transactions_per_second\": %f, \"p50_ms\": %f, \"p99_ms\": %f}%n",
                took.length,
                took.length / seconds,
                took[took.length / 2] / 1e6,
                took[took.length * 99 / 100] / 1e6);
    }
}
