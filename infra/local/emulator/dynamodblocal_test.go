package emulator

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// dynamoDBLocalSum is the SHA-256 of the engine's own archive. Maven checks those of what
// it needs against its repository.
const dynamoDBLocalSum = "41a32e0a840a1fa375d7b3955e60d4b1db94c423ef9e14a43ee9b4cf9c2fb536"

// installDynamoDBLocal returns the folder with DynamoDB Local, which Maven installs once.
// It skips the test if that is impossible here.
func installDynamoDBLocal(t *testing.T, top string) string {
	t.Helper()
	folder := filepath.Join(top, ".local", "dynamodb-local")
	name := filepath.Join(folder, "DynamoDBLocal-3.3.1.jar")
	if _, err := os.Stat(name); err != nil {
		install := exec.Command("mvn", "-q", "-B", "--strict-checksums", "-f",
			filepath.Join("dynamodblocal", "pom.xml"),
			"dependency:copy-dependencies", "-DoutputDirectory="+folder)
		if err := Run(t.Context(), filepath.Join(t.TempDir(), "log"), install); err != nil {
			t.Skipf("DynamoDB Local, which needs Java 17 and Maven, can't be installed here: %v", err)
		}
	}
	archive, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != dynamoDBLocalSum {
		t.Fatalf("the archive of DynamoDB Local has the SHA-256 %x, not %s", sum, dynamoDBLocalSum)
	}
	return folder
}

// The tables in memory are compared with AWS's own engine for tests as well.
func TestTablesInMemoryBehaveLikeDynamoDBLocal(t *testing.T) {
	if os.Getenv("PAYHOOK_E2E") == "" {
		t.Skip("an end-to-end test, which needs Java and Maven: make test-e2e, or PAYHOOK_E2E=ministack")
	}
	folder := installDynamoDBLocal(t, top(t))
	server := exec.CommandContext(t.Context(), "java", "-cp", filepath.Join(folder, "*"),
		filepath.Join(top(t), "infra", "local", "emulator", "dynamodblocal", "Loopback.java"))
	server.Dir = t.TempDir()
	port := startEngine(t, "DynamoDB Local", server)
	suite := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "./shared/awstest")
	suite.Dir = top(t)
	suite.Env = append(os.Environ(), fmt.Sprintf("PAYHOOK_DYNAMODB_ENDPOINT=http://127.0.0.1:%d", port))
	text, err := suite.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	cases := strings.Count(string(text), "/tables (")
	if cases == 0 {
		t.Errorf("no case was run:\n%s", text)
	}
	t.Logf("%d cases passed", cases)
}

// startEngine starts a server that prints "port" and the number of its port, and returns
// the number. The server is ended with the test.
func startEngine(t *testing.T, name string, server *exec.Cmd) int {
	t.Helper()
	if _, err := server.StdinPipe(); err != nil { // it ends when the pipe is closed
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems strings.Builder
	server.Stderr = &problems
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have ended
		_ = server.Wait()         // it was killed
	})
	port := 0
	for lines := bufio.NewScanner(out); port == 0; {
		if !lines.Scan() {
			_ = server.Wait() // its output says more than its status
			t.Fatalf("%s has ended: %s", name, &problems)
		}
		_, _ = fmt.Sscanf(lines.Text(), "port %d", &port) // other lines have none
	}
	return port
}
