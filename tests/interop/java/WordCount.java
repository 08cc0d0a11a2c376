// A Kafka Streams word count with exactly-once v2, as its documentation writes it.
// Arguments: the broker, the application's id, the topic of words, that of counts, a state folder.

import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers;

public class WordCount {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
                StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0],
                StreamsConfig.APPLICATION_ID_CONFIG, args[1],
                StreamsConfig.STATE_DIR_CONFIG, args[4],
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
                StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100",
                // Every count is written, so that one that is missing or repeated shows.
                StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0",
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, InMemoryDslStoreSuppliers.class,
                // A broker that is back should be found soon.
                "reconnect.backoff.max.ms", "200",
                "retry.backoff.max.ms", "200"));

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count()
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(args[3], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
