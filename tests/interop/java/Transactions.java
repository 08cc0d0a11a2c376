// The cases of tests/interop/transaction_cases.py; the transactional id is the topic's name.

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

class Transactions {
    static Map<String, Object> commit(String topic) throws Exception {
        try (var producer = transactional(topic); var plain = Interop.producer(Map.of())) {
            producer.beginTransaction();
            send(producer, topic, "a");
            send(producer, topic, "b");
            plain.send(new ProducerRecord<>(topic, 1, null, Interop.utf8("plain"))).get();
            List<String> open = values(topic, "read_committed", "plain", 0, 1);
            List<String> uncommitted = values(topic, "read_uncommitted", "b", 0);
            producer.commitTransaction();
            return Map.of(
                    "open", open, "uncommitted", uncommitted,
                    "committed", values(topic, "read_committed", "b", 0));
        }
    }

    static Map<String, Object> abort(String topic) throws Exception {
        try (var producer = transactional(topic)) {
            producer.beginTransaction();
            send(producer, topic, "a");
            send(producer, topic, "b");
            producer.abortTransaction();
            transaction(producer, topic, "last");
        }
        return both(topic);
    }

    static Map<String, Object> zombie(String topic) throws Exception {
        try (var first = transactional(topic)) {
            first.beginTransaction();
            send(first, topic, "zombie");
            try (var second = transactional(topic)) {
                transaction(second, topic, "new");
                boolean fenced = isFenced(first, topic);
                transaction(second, topic, "last");
                Map<String, Object> observed = new HashMap<>(both(topic));
                observed.put("fenced", fenced);
                return observed;
            }
        }
    }

    static boolean isFenced(KafkaProducer<byte[], byte[]> producer, String topic) throws Exception {
        try {
            send(producer, topic, "late");
            producer.commitTransaction();
            return false;
        } catch (ExecutionException error) {
            return error.getCause() instanceof InvalidProducerEpochException
                    || error.getCause() instanceof ProducerFencedException;
        }
    }

    static Map<String, Object> consumeProcessProduce(String topic) throws Exception {
        Map<String, Object> observed = new HashMap<>();
        try (Admin admin = Interop.admin()) {
            try (var producer = transactional(topic)) {
                try (var consumer = worker(topic)) {
                    copy(topic, consumer, producer);
                    observed.put("while_open", committed(admin, topic));
                    producer.abortTransaction();
                }
                observed.put("after_abort", Interop.settled(() -> committed(admin, topic), null));
                try (var consumer = worker(topic)) {
                    copy(topic, consumer, producer);
                    producer.commitTransaction();
                }
                observed.put("after_commit", Interop.settled(() -> committed(admin, topic), 5L));
            }
            try (var producer = transactional(topic); var consumer = worker(topic)) {
                observed.put("resumed_at", copy(topic, consumer, producer));
                producer.commitTransaction();
            }
            observed.put("at_end", Interop.settled(() -> committed(admin, topic), 10L));
        }
        observed.put("outputs", values(topic + "-out", "read_committed", "0-9", 0));
        return observed;
    }

    static Map<String, Object> epochs(String topic) throws Exception {
        try (var producer = transactional(topic)) {
            for (String value : List.of("one", "two", "three")) {
                transaction(producer, topic, value);
            }
        }
        return Map.of("values", values(topic, "read_committed", "three", 0));
    }

    static KafkaProducer<byte[], byte[]> transactional(String topic) {
        var producer = Interop.producer(Map.of("transactional.id", topic));
        producer.initTransactions();
        return producer;
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, String value)
            throws Exception {
        producer.send(new ProducerRecord<>(topic, 0, null, Interop.utf8(value))).get();
    }

    static void transaction(KafkaProducer<byte[], byte[]> producer, String topic, String value)
            throws Exception {
        producer.beginTransaction();
        send(producer, topic, value);
        producer.commitTransaction();
    }

    static KafkaConsumer<byte[], byte[]> worker(String topic) {
        var consumer = Interop.consumer(Map.of("group.id", topic, "max.poll.records", "1"));
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    /** Copies five inputs in a transaction that is left open; the offset of the first. */
    static long copy(
            String topic, KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer) {
        producer.beginTransaction();
        long first = -1;
        for (int number = 0; number < 5; number++) {
            var record = Interop.poll(consumer);
            first = number == 0 ? record.offset() : first;
            producer.send(new ProducerRecord<>(topic + "-out", 0, null, record.value()));
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        var offsets = Map.of(partition, new OffsetAndMetadata(consumer.position(partition)));
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        return first;
    }

    /** The offset of the group, as one sees it who does not wait for open transactions. */
    static Long committed(Admin admin, String group) throws Exception {
        var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        OffsetAndMetadata row = offsets.get(new TopicPartition(group, 0));
        return row == null ? null : row.offset();
    }

    static Map<String, Object> both(String topic) {
        return Map.of(
                "committed", values(topic, "read_committed", "last", 0),
                "uncommitted", values(topic, "read_uncommitted", "last", 0));
    }

    /** All values up to this one, as a consumer of this isolation gets them. */
    static List<String> values(String topic, String isolation, String last, int... partitions) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition : partitions) {
            assigned.add(new TopicPartition(topic, partition));
        }
        List<String> values = new ArrayList<>();
        Map<String, String> settings = Map.of("isolation.level", isolation, "max.poll.records", "1");
        try (var consumer = Interop.consumer(settings)) {
            consumer.assign(assigned);
            while (!values.contains(last)) {
                values.add(Interop.utf8(Interop.poll(consumer).value()));
            }
        }
        return values;
    }
}
