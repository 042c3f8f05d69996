import java.lang.reflect.Field;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.dynamodb.services.local.main.ServerRunner;
import software.amazon.dynamodb.services.local.server.DynamoDBProxyServer;

/**
 * Starts DynamoDB Local in memory on a free port of 127.0.0.1, prints the port, and ends with its standard input. The
 * program of DynamoDB Local itself listens on every address.
 */
public class Loopback {
    public static void main(String[] args) throws Exception {
        DynamoDBProxyServer proxy = ServerRunner.createServerFromCommandLineArgs(
                new String[] {"-inMemory", "-disableTelemetry"});
        Field field = DynamoDBProxyServer.class.getDeclaredField("server");
        field.setAccessible(true);
        ServerConnector connector = (ServerConnector) ((Server) field.get(proxy)).getConnectors()[0];
        connector.setHost("127.0.0.1");
        connector.setPort(0);
        proxy.safeStart();
        System.out.println("port " + connector.getLocalPort());
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}
