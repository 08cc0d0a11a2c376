// The cases of tests/interop/group_cases.py.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;

class Groups {
    /** A consumer that keeps what was taken from it; it works while `settle` polls. */
    static class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<Integer> revoked = new ArrayList<>();

        Member(String topic, Map<String, String> settings) {
            Map<String, String> all = new HashMap<>(settings);
            all.put("group.id", topic);
            all.put("heartbeat.interval.ms", "200");
            consumer = Interop.consumer(all);
            consumer.subscribe(List.of(topic), this);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(row -> revoked.add(row.partition()));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        List<Integer> assigned() {
            return consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    static Map<String, Object> cooperative(String topic) {
        Map<String, String> settings = Map.of(
                "partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        try (Member first = new Member(topic, settings);
                Member second = new Member(topic, settings)) {
            List<List<Integer>> two = settle(first, second);
            first.revoked.clear();
            second.revoked.clear();
            try (Member third = new Member(topic, settings)) {
                List<List<Integer>> three = settle(first, second, third);
                List<List<Integer>> revoked =
                        List.of(List.copyOf(first.revoked), List.copyOf(second.revoked));
                return Map.of("two", two, "three", three, "revoked", revoked);
            }
        }
    }

    static Map<String, Object> staticMembers(String topic) {
        try (Member first = new Member(topic, Map.of("group.instance.id", "one"))) {
            List<List<Integer>> before;
            try (Member second = new Member(topic, Map.of("group.instance.id", "two"))) {
                before = settle(first, second);
            }
            first.revoked.clear();
            try (Member again = new Member(topic, Map.of("group.instance.id", "two"))) {
                List<List<Integer>> after = settle(first, again);
                return Map.of("before", before, "after", after, "rebalances", first.revoked.size());
            }
        }
    }

    static Map<String, Object> staticFenced(String topic) {
        Map<String, String> settings = Map.of(
                "group.id", topic, "group.instance.id", "one", "heartbeat.interval.ms", "200",
                "max.poll.records", "1");
        try (var first = Interop.consumer(settings); var second = Interop.consumer(settings)) {
            first.subscribe(List.of(topic));
            Interop.poll(first);
            second.subscribe(List.of(topic));
            Interop.poll(second);
            try {
                Interop.poll(first);
                return Map.of("fenced", false);
            } catch (FencedInstanceIdException error) {
                return Map.of("fenced", true);
            }
        }
    }

    static Map<String, Object> regex(String topic) {
        try (var consumer = Interop.consumer(Map.of("group.id", topic, "max.poll.records", "1"))) {
            consumer.subscribe(Pattern.compile(topic + ".*"));
            return Map.of("values", next(consumer, 3));
        }
    }

    static Map<String, Object> regexNewTopic(String topic) throws Exception {
        Map<String, String> settings = Map.of(
                "group.id", topic, "max.poll.records", "1", "metadata.max.age.ms", "200",
                "heartbeat.interval.ms", "200");
        try (var consumer = Interop.consumer(settings); var producer = Interop.producer(Map.of())) {
            consumer.subscribe(Pattern.compile(topic + ".*"));
            List<String> values = next(consumer, 3);
            consumer.commitSync();
            producer.send(Interop.record(topic + "-out", "later")).get();
            values.addAll(next(consumer, 1));
            return Map.of("values", values);
        }
    }

    static List<String> next(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<String> values = new ArrayList<>();
        while (values.size() < count) {
            values.add(Interop.utf8(Interop.poll(consumer).value()));
        }
        return values;
    }

    /** Polls the members in turn until they share all partitions evenly. */
    static List<List<Integer>> settle(Member... members) {
        long deadline = System.nanoTime() + Interop.WAIT_MAX.toNanos();
        while (System.nanoTime() < deadline) {
            List<List<Integer>> assigned = new ArrayList<>();
            for (Member member : members) {
                member.consumer.poll(Duration.ofMillis(20));
                assigned.add(member.assigned());
            }
            int share = Interop.GROUP_PARTITIONS / members.length;
            if (assigned.stream().allMatch(row -> row.size() == share)) {
                return assigned;
            }
        }
        throw new IllegalStateException("the group did not settle");
    }
}
