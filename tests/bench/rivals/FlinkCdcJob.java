import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs SQL statements on a Flink mini cluster of this process until it is stopped. A later start resumes from the newest
 * complete checkpoint. Arguments: a file with statements that blank lines separate, the folder of the checkpoints, the
 * parallelism, the checkpoint interval.
 */
public final class FlinkCdcJob {
    private FlinkCdcJob() {}

    public static void main(String[] arguments) throws Exception {
        Path folder = Files.createDirectories(Path.of(arguments[1]).toAbsolutePath());
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", arguments[2]);
        settings.setString("taskmanager.numberOfTaskSlots", arguments[2]);
        settings.setString("execution.checkpointing.interval", arguments[3]);
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", folder.toUri().toString());
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        List<Path> complete = completeCheckpoints(folder);
        if (!complete.isEmpty()) {
            settings.setString("execution.state-recovery.path", complete.get(complete.size() - 1).toUri().toString());
        }
        var cluster = StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[2]), settings);
        var tables = StreamTableEnvironment.create(cluster);
        for (String statement : Files.readString(Path.of(arguments[0])).strip().split("\n\n")) {
            var result = tables.executeSql(statement);
            if (statement.startsWith("INSERT")) {
                result.await();
            }
        }
    }

    /** Returns the folders of the checkpoints that have their metadata, oldest first. */
    private static List<Path> completeCheckpoints(Path folder) throws IOException {
        try (Stream<Path> files = Files.find(folder, 3, (file, facts) -> file.endsWith("_metadata"))) {
            return files.sorted((one, other) -> Long.compare(one.toFile().lastModified(), other.toFile().lastModified()))
                    .map(Path::getParent)
                    .toList();
        }
    }
}
