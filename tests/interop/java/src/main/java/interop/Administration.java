package interop;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What AdminClient does. */
final class Administration {
    private final Settings settings;

    Administration(Settings settings) {
        this.settings = settings;
    }

    /** A check that is given a client. */
    private interface Step {
        void run(Admin admin) throws Exception;
    }

    void checks(Map<String, Check> checks) {
        checks.put("admin: topics", () -> with(this::topics));
        checks.put("admin: partitions", () -> with(this::partitions));
        checks.put("admin: settings", () -> with(this::configs));
        checks.put("admin: groups", () -> with(this::groups));
        checks.put("admin: group offsets", () -> with(this::groupOffsets));
        checks.put("admin: offsets", () -> with(this::offsets));
        checks.put("admin: delete records", () -> with(this::deleteRecords));
        checks.put("admin: cluster", () -> with(this::cluster));
    }

    private void with(Step step) throws Exception {
        try (Admin admin = settings.admin(Map.of())) {
            step.run(admin);
        }
    }

    private static void refuses(Class<? extends Exception> why, KafkaFuture<?> future) throws Exception {
        try {
            Settings.get(future);
        } catch (ExecutionException error) {
            Check.that(why.isInstance(error.getCause()), "wanted " + why.getSimpleName() + ", got " + error.getCause());
            return;
        }
        throw new AssertionError("wanted " + why.getSimpleName() + ", got no error");
    }

    private void topics(Admin admin) throws Exception {
        String name = settings.topic(3);
        refuses(TopicExistsException.class, admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all());
        Check.that(Settings.get(admin.listTopics().names()).contains(name), "listed");
        var told = Settings.get(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
        Check.same(3, told.partitions().size());
        Check.that(told.partitions().get(0).leader() != null, "a leader");
        var byId = admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(told.topicId())));
        Check.same(name, Settings.get(byId.allTopicIds()).get(told.topicId()).name());
        Settings.get(admin.deleteTopics(List.of(name)).all());
        refuses(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(name)).all());
        Check.that(!Settings.get(admin.listTopics().names()).contains(name), "listed no more");
    }

    private void partitions(Admin admin) throws Exception {
        String name = settings.topic(1);
        Settings.get(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(4))).all());
        var told = Settings.get(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
        Check.same(4, told.partitions().size());
    }

    private void configs(Admin admin) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, settings.topic(1));
        change(admin, topic, AlterConfigOp.OpType.SET, "70000");
        Check.same("70000", segmentBytes(admin, topic).value());
        Check.same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, segmentBytes(admin, topic).source());
        change(admin, topic, AlterConfigOp.OpType.DELETE, "");
        Check.that(segmentBytes(admin, topic).isDefault(), "the default again");
        var bad = List.of(new AlterConfigOp(new ConfigEntry("colour", "red"), AlterConfigOp.OpType.SET));
        Map<ConfigResource, Collection<AlterConfigOp>> wish = Map.of(topic, bad);
        refuses(InvalidConfigurationException.class, admin.incrementalAlterConfigs(wish).all());
        String id = Settings.get(admin.describeCluster().controller()).idString();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, id);
        Config ofBroker = Settings.get(admin.describeConfigs(List.of(broker)).all()).get(broker);
        Check.that(ofBroker.get("message.max.bytes") != null, "a broker's settings");
    }

    private static void change(Admin admin, ConfigResource topic, AlterConfigOp.OpType type, String value)
            throws Exception {
        var change = List.of(new AlterConfigOp(new ConfigEntry("segment.bytes", value), type));
        Map<ConfigResource, Collection<AlterConfigOp>> wish = Map.of(topic, change);
        Settings.get(admin.incrementalAlterConfigs(wish).all());
    }

    private static ConfigEntry segmentBytes(Admin admin, ConfigResource topic) throws Exception {
        return Settings.get(admin.describeConfigs(List.of(topic)).all()).get(topic).get("segment.bytes");
    }

    private void groups(Admin admin) throws Exception {
        String topic = settings.topic(2);
        try (Consumer<String, String> member = settings.consumer(Map.of("group.id", topic))) {
            member.subscribe(List.of(topic));
            long deadline = System.nanoTime() + Settings.DEADLINE_S * 1_000_000_000L;
            while (member.assignment().size() < 2) {
                member.poll(Settings.POLL);
                Check.that(System.nanoTime() < deadline, "an assignment in time");
            }
            ConsumerGroupDescription told = described(admin, topic);
            Check.same("Stable", told.state().toString());
            Check.same(2, told.members().iterator().next().assignment().topicPartitions().size());
            member.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
        }
        Check.that(listed(admin).contains(topic), "listed");
        Check.same("Empty", described(admin, topic).state().toString());
        Settings.get(admin.deleteConsumerGroups(List.of(topic)).all());
        Check.that(!listed(admin).contains(topic), "listed no more");
    }

    private static ConsumerGroupDescription described(Admin admin, String group) throws Exception {
        return Settings.get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    private static List<String> listed(Admin admin) throws Exception {
        return Settings.get(admin.listConsumerGroups().all()).stream().map(group -> group.groupId()).toList();
    }

    private void groupOffsets(Admin admin) throws Exception {
        String group = settings.topic(1);
        TopicPartition partition = new TopicPartition(group, 0);
        OffsetAndMetadata wanted = new OffsetAndMetadata(5, "set");
        Settings.get(admin.alterConsumerGroupOffsets(group, Map.of(partition, wanted)).all());
        var told = Settings.get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        Check.same(Map.of(partition, wanted), told);
        Settings.get(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all());
        told = Settings.get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        Check.that(told.isEmpty(), "nothing is committed any more");
    }

    private void offsets(Admin admin) throws Exception {
        String topic = settings.topic(1);
        long[] times = {1000, 3000, 2000};
        try (Producer<String, String> producer = settings.producer(Map.of("linger.ms", "0"))) {
            for (long time : times) {
                producer.send(new ProducerRecord<>(topic, 0, time, "k", "v"));
            }
            producer.flush();
        }
        Check.same(0L, offset(admin, topic, OffsetSpec.earliest()));
        Check.same(3L, offset(admin, topic, OffsetSpec.latest()));
        Check.same(1L, offset(admin, topic, OffsetSpec.forTimestamp(1500)));
        Check.same(-1L, offset(admin, topic, OffsetSpec.forTimestamp(9000)));
        Check.same(1L, offset(admin, topic, OffsetSpec.maxTimestamp()));
    }

    private static long offset(Admin admin, String topic, OffsetSpec spec) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return Settings.get(admin.listOffsets(Map.of(partition, spec)).all()).get(partition).offset();
    }

    private void deleteRecords(Admin admin) throws Exception {
        String topic = settings.topic(1);
        try (Producer<String, String> producer = settings.producer(Map.of())) {
            Settings.send(producer, topic, 1, 5);
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(3)));
        Check.same(3L, Settings.get(deleted.lowWatermarks().get(partition)).lowWatermark());
        Check.same(3L, offset(admin, topic, OffsetSpec.earliest()));
        refuses(OffsetOutOfRangeException.class, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(6)))
                .all());
    }

    private void cluster(Admin admin) throws Exception {
        var told = admin.describeCluster();
        Check.same(3, Settings.get(told.nodes()).size());
        Check.that(Settings.get(told.nodes()).contains(Settings.get(told.controller())), "the controller is a node");
        Check.same(settings.get("cluster"), Settings.get(told.clusterId()));
    }
}
