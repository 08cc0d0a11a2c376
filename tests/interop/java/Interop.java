// The cases of tests/interop with the Java client; prints one JSON line per case.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Interop {
    static final Duration WAIT_MAX = Duration.ofSeconds(20);
    static final int GROUP_PARTITIONS = 6;
    static final int GROUP_RECORDS = 60;

    static String bootstrap;
    static long seededAt;
    static JsonNode records;

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode plan = json.readTree(new File(args[0]));
        bootstrap = plan.get("bootstrap").asText();
        seededAt = plan.get("seeded_at").asLong();
        records = plan.get("records");
        for (JsonNode task : plan.get("tasks")) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("case", task.get("name").asText());
            try {
                line.put("observed", observe(task.get("name").asText(), task.get("topic").asText()));
            } catch (Exception | AssertionError error) {
                line.put("error", error.toString());
            }
            System.out.println(json.writeValueAsString(line));
        }
    }

    static Map<String, Object> observe(String name, String topic) throws Exception {
        if (name.startsWith("codec-")) {
            return codec(topic, name.substring("codec-".length()));
        }
        return switch (name) {
            case "acks" -> acks(topic);
            case "idempotent" -> idempotent(topic);
            case "auto-create" -> autoCreate(topic);
            case "log-append-time" -> logAppendTime(topic);
            case "too-large" -> Map.of("error", refusal(topic, "x".repeat(5000)));
            case "keyless-on-compacted" -> Map.of("error", refusal(topic, "x"));
            case "seek" -> seek(topic);
            case "offsets-for-times" -> offsetsForTimes(topic);
            case "commit-resume" -> commitResume(topic);
            case "group" -> group(topic);
            case "create-delete-topic" -> createDeleteTopic(topic);
            case "configs" -> configs(topic);
            case "create-partitions" -> createPartitions(topic);
            case "delete-records" -> deleteRecords(topic);
            case "cooperative" -> Groups.cooperative(topic);
            case "static" -> Groups.staticMembers(topic);
            case "static-fenced" -> Groups.staticFenced(topic);
            case "regex" -> Groups.regex(topic);
            case "regex-new-topic" -> Groups.regexNewTopic(topic);
            case "commit" -> Transactions.commit(topic);
            case "abort" -> Transactions.abort(topic);
            case "zombie" -> Transactions.zombie(topic);
            case "consume-process-produce" -> Transactions.consumeProcessProduce(topic);
            case "epoch-kept", "epoch-bumped" -> Transactions.epochs(topic);
            default -> throw new IllegalArgumentException("no such case: " + name);
        };
    }

    static Map<String, Object> codec(String topic, String codec) {
        try (var producer = producer(Map.of("compression.type", codec))) {
            for (JsonNode record : records) {
                var sent = new ProducerRecord<>(
                        topic, 0, record.get("timestamp").asLong(),
                        bytes(record.get("key")), bytes(record.get("value")));
                for (JsonNode header : record.get("headers")) {
                    sent.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                producer.send(sent);
            }
        }
        List<Object> got = new ArrayList<>();
        for (var record : read(topic, records.size())) {
            List<Object> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                headers.add(listOf(header.key(), text(header.value())));
            }
            Map<String, Object> row = new HashMap<>();
            row.put("key", text(record.key()));
            row.put("value", text(record.value()));
            row.put("headers", headers);
            row.put("timestamp", record.timestamp());
            row.put("offset", record.offset());
            got.add(row);
        }
        return Map.of("records", got);
    }

    static Map<String, Object> acks(String topic) throws Exception {
        for (String level : List.of("0", "1", "all")) {
            try (var producer = producer(Map.of("acks", level, "enable.idempotence", "false"))) {
                producer.send(record(topic, "acks " + level)).get();
            }
        }
        return Map.of("values", new TreeSet<>(values(read(topic, 3))));
    }

    static Map<String, Object> idempotent(String topic) throws Exception {
        List<Long> offsets = new ArrayList<>();
        try (var producer = producer(Map.of("enable.idempotence", "true", "batch.size", "200"))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < 100; number++) {
                sent.add(producer.send(record(topic, String.valueOf(number))));
            }
            for (var future : sent) {
                offsets.add(future.get().offset());
            }
        }
        return Map.of("offsets", offsets);
    }

    static Map<String, Object> autoCreate(String topic) throws Exception {
        try (var producer = producer(Map.of())) {
            producer.send(record(topic, "made by use")).get();
        }
        return Map.of("values", values(read(topic, 1)));
    }

    static Map<String, Object> logAppendTime(String topic) throws Exception {
        try (var producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>(topic, 0, seededAt, null, utf8("late"))).get();
        }
        return Map.of("timestamp", read(topic, 1).get(0).timestamp());
    }

    static int refusal(String topic, String value) throws Exception {
        try (var producer = producer(Map.of())) {
            producer.send(record(topic, value)).get();
            return 0;
        } catch (ExecutionException error) {
            return Errors.forException(error.getCause()).code();
        }
    }

    static Map<String, Object> seek(String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = consumer(Map.of("max.poll.records", "1"))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 7);
            long sought = poll(consumer).offset();
            consumer.seekToBeginning(List.of(partition));
            long beginning = poll(consumer).offset();
            consumer.seekToEnd(List.of(partition));
            long end = consumer.position(partition);
            return Map.of("seek", sought, "beginning", beginning, "end", end);
        }
    }

    static Map<String, Object> offsetsForTimes(String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<String, Long> times = Map.of(
                "before", seededAt - 1, "exact", seededAt + 5000,
                "between", seededAt + 5001, "after", seededAt + 20_000);
        Map<String, Object> found = new HashMap<>();
        try (var consumer = consumer(Map.of())) {
            times.forEach((name, time) -> {
                OffsetAndTimestamp row = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
                found.put(name, row == null ? null : row.offset());
            });
        }
        return found;
    }

    static Map<String, Object> commitResume(String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<String, String> settings = Map.of("group.id", topic, "max.poll.records", "1");
        try (var first = consumer(settings)) {
            first.subscribe(List.of(topic));
            for (int number = 0; number < 5; number++) {
                poll(first);
            }
            first.commitSync(Map.of(partition, new OffsetAndMetadata(5, "a note")));
        }
        try (var second = consumer(settings)) {
            OffsetAndMetadata committed = second.committed(Set.of(partition)).get(partition);
            second.subscribe(List.of(topic));
            return Map.of(
                    "committed", committed.offset(), "metadata", committed.metadata(),
                    "resumed_at", poll(second).offset());
        }
    }

    static Map<String, Object> group(String topic) throws Exception {
        Set<String> seen = new ConcurrentSkipListSet<>();
        List<Member> members = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Member member = new Member(topic, seen);
            member.start();
            members.add(member);
        }
        try {
            List<List<Integer>> assignments = settle(members, seen);
            members.remove(2).leave();
            List<List<Integer>> afterLeave = settle(members, seen);
            return Map.of("assignments", assignments, "after_leave", afterLeave, "values", seen);
        } finally {
            for (Member member : members) {
                member.leave();
            }
        }
    }

    static List<List<Integer>> settle(List<Member> members, Set<String> seen) throws Exception {
        long deadline = System.nanoTime() + WAIT_MAX.toNanos();
        while (System.nanoTime() < deadline) {
            List<List<Integer>> assigned = members.stream().map(member -> member.assigned).toList();
            long held = assigned.stream().mapToInt(List::size).sum();
            if (assigned.stream().noneMatch(List::isEmpty) && held == GROUP_PARTITIONS
                    && seen.size() == GROUP_RECORDS) {
                return assigned;
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("the group did not settle, " + seen.size() + " values");
    }

    /** A member of the group on a thread of its own, as the client asks for. */
    static class Member extends Thread {
        final String topic;
        final Set<String> seen;
        volatile List<Integer> assigned = List.of();
        volatile boolean leaving;

        Member(String topic, Set<String> seen) {
            this.topic = topic;
            this.seen = seen;
        }

        @Override
        public void run() {
            try (var consumer = consumer(Map.of("group.id", topic, "heartbeat.interval.ms", "200"))) {
                consumer.subscribe(List.of(topic));
                while (!leaving) {
                    consumer.poll(Duration.ofMillis(100)).forEach(row -> seen.add(utf8(row.value())));
                    assigned = consumer.assignment().stream().map(TopicPartition::partition).toList();
                }
            }
        }

        void leave() throws InterruptedException {
            leaving = true;
            join();
        }
    }

    static Map<String, Object> createDeleteTopic(String topic) throws Exception {
        try (Admin admin = admin()) {
            NewTopic made = new NewTopic(topic, 3, (short) 1);
            admin.createTopics(List.of(made)).all().get();
            int again = 0;
            try {
                admin.createTopics(List.of(made)).all().get();
            } catch (ExecutionException error) {
                again = Errors.forException(error.getCause()).code();
            }
            Callable<Boolean> isListed = () -> admin.listTopics().names().get().contains(topic);
            boolean listed = settled(isListed, true);
            int partitions = partitions(admin, topic);
            admin.deleteTopics(List.of(topic)).all().get();
            return Map.of(
                    "partitions", partitions, "again", again, "listed", listed,
                    "listed_after_delete", settled(isListed, false));
        }
    }

    static Map<String, Object> configs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin()) {
            String before = retention(admin, resource);
            var change = new AlterConfigOp(
                    new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            String after = settled(() -> retention(admin, resource), "7200000");
            return Map.of("default", before, "altered", after);
        }
    }

    static String retention(Admin admin, ConfigResource resource) throws Exception {
        var described = admin.describeConfigs(List.of(resource)).all().get();
        return described.get(resource).get("retention.ms").value();
    }

    static Map<String, Object> createPartitions(String topic) throws Exception {
        try (Admin admin = admin()) {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            return Map.of("partitions", settled(() -> partitions(admin, topic), 3));
        }
    }

    static Map<String, Object> deleteRecords(String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            var upto = Map.of(partition, RecordsToDelete.beforeOffset(5));
            var deleted = admin.deleteRecords(upto).lowWatermarks().get(partition).get();
            var earliest = admin.listOffsets(Map.of(partition, OffsetSpec.earliest()));
            return Map.of(
                    "low_watermark", deleted.lowWatermark(),
                    "earliest", earliest.partitionResult(partition).get().offset());
        }
    }

    /** Asks until the answer is the wanted one; Kafka tells its brokers of a change a little later. */
    static <T> T settled(Callable<T> ask, T wanted) throws Exception {
        long deadline = System.nanoTime() + WAIT_MAX.toNanos() / 2;
        T answer = ask.call();
        while (!Objects.equals(answer, wanted) && System.nanoTime() < deadline) {
            answer = ask.call();
        }
        return answer;
    }

    static int partitions(Admin admin, String topic) throws Exception {
        var described = admin.describeTopics(List.of(topic)).allTopicNames().get();
        return described.get(topic).partitions().size();
    }

    static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, String> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<ConsumerRecord<byte[], byte[]>> read(String topic, int count) {
        List<ConsumerRecord<byte[], byte[]>> rows = new ArrayList<>();
        try (var consumer = consumer(Map.of("max.poll.records", "1"))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            while (rows.size() < count) {
                rows.add(poll(consumer));
            }
        }
        return rows;
    }

    /** The next record; the consumer must be one that polls single records. */
    static ConsumerRecord<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) {
        long deadline = System.nanoTime() + WAIT_MAX.toNanos();
        while (System.nanoTime() < deadline) {
            for (var record : consumer.poll(Duration.ofSeconds(1))) {
                return record;
            }
        }
        throw new IllegalStateException("no record came");
    }

    static ProducerRecord<byte[], byte[]> record(String topic, String value) {
        return new ProducerRecord<>(topic, utf8(value));
    }

    static List<String> values(List<ConsumerRecord<byte[], byte[]>> rows) {
        return rows.stream().map(row -> utf8(row.value())).toList();
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String utf8(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static List<Object> listOf(Object first, Object second) {
        List<Object> list = new ArrayList<>();
        list.add(first);
        list.add(second);
        return list;
    }
}
