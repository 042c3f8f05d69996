import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import software.amazon.event.ruler.Ruler;

/**
 * Prints which events each pattern matches. Arguments: the file with the events, one a line, then the files with the
 * patterns. The id of an event is its name. The first line is the SHA-256 of all files, in the order of the arguments.
 */
class Record {
    public static void main(String[] files) throws Exception {
        var digest = MessageDigest.getInstance("SHA-256");
        for (var file : files) {
            digest.update(Files.readAllBytes(Path.of(file)));
        }
        System.out.println("# " + HexFormat.of().formatHex(digest.digest()));
        var events = Files.readAllLines(Path.of(files[0]));
        for (var file : Arrays.copyOfRange(files, 1, files.length)) {
            System.out.println(Path.of(file).getFileName().toString().replace(".json", "") + ":");
            for (var event : events) {
                if (Ruler.matchesRule(event, Files.readString(Path.of(file)))) {
                    System.out.println("  " + event.replaceFirst("^\\{\"version\":\"0\",\"id\":\"([^\"]*)\".*", "$1"));
                }
            }
        }
    }
}
