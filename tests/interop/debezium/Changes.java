import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's embedded engine: sends what changes in a database, and keeps how far it has come in a topic. Arguments: a
 * file of settings. Runs until it is ended.
 */
public final class Changes {
    private Changes() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(reader);
        }
        Properties clients = new Properties();
        clients.put("bootstrap.servers", settings.getProperty("bootstrap.servers"));
        var producer = new KafkaProducer<>(clients, new StringSerializer(), new StringSerializer());
        DebeziumEngine.create(Json.class)
                .using(settings)
                .notifying((events, committer) -> {
                    List<Future<?>> sent = new ArrayList<>();
                    for (ChangeEvent<String, String> event : events) {
                        sent.add(producer.send(
                                new ProducerRecord<>(event.destination(), event.key(), event.value())));
                    }
                    for (int number = 0; number < sent.size(); number++) {
                        get(sent.get(number));
                        committer.markProcessed(events.get(number));
                    }
                    committer.markBatchFinished();
                })
                .using((success, message, error) -> {
                    System.err.println("ended: " + message);
                    Runtime.getRuntime().halt(1);
                })
                .build()
                .run();
    }

    private static void get(Future<?> sent) throws InterruptedException {
        try {
            sent.get();
        } catch (java.util.concurrent.ExecutionException failed) {
            throw new IllegalStateException(failed.getCause());
        }
    }
}
