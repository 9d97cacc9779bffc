import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of the topic "lines" into the topic "counts", with a repartition topic and a store between: Kafka
 * Streams' own first example. Arguments: a file of settings. Runs until it is ended, and ends by itself if it fails.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(reader);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Materialized.as("words"))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
